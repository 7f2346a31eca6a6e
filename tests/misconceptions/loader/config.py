"""Wrong versions of 2.3 check_architecture, head_sizes, rope_base, end_tokens."""

from course.misconceptions import misconception
from solutions.config import ARCHITECTURE, PLAIN, count, positive, token_ids


@misconception("2.3", "check_architecture")
def model_type_believed(raw):
    """You accept whatever says model_type "llama". Where architectures is given, it counts: other
    architectures keep that model_type and compute something else.
    """
    if raw.get("model_type") != "llama" and raw.get("architectures") != [ARCHITECTURE]:
        raise ValueError(f"architecture {raw.get('architectures')} {raw.get('model_type')}")
    for key, plain in PLAIN.items():
        if raw.get(key) not in (plain, None):
            raise ValueError(f"{key} = {raw[key]!r} is not supported; it must be {plain!r}")


@misconception("2.3", "check_architecture")
def variants_accepted(raw):
    """You check the architecture, and none of the variants in PLAIN. A model with biases or with
    another activation would load, and answer nonsense.
    """
    names = raw.get("architectures") or [raw.get("model_type")]
    if names not in ([ARCHITECTURE], ["llama"]):
        raise ValueError(f"architecture {names} is not supported")


@misconception("2.3", "check_architecture")
def null_is_a_value(raw):
    """You refuse a key of PLAIN that is null. In config.json null means the same as absent."""
    names = raw.get("architectures") or [raw.get("model_type")]
    if names not in ([ARCHITECTURE], ["llama"]):
        raise ValueError(f"architecture {names} is not supported")
    for key, plain in PLAIN.items():
        if raw.get(key, plain) != plain:
            raise ValueError(f"{key} = {raw[key]!r} is not supported; it must be {plain!r}")


@misconception("2.3", "head_sizes")
def head_dim_computed(raw):
    """You always divide hidden_size by the number of heads. Where head_dim is given it counts: the
    heads together need not be as wide as the model.
    """
    hidden, heads = count(raw, "hidden_size"), count(raw, "num_attention_heads")
    shared, head_dim = count(raw, "num_key_value_heads", heads), hidden // heads
    if hidden % heads:
        raise ValueError(f"hidden_size {hidden} does not divide into {heads} heads")
    if heads % shared:
        raise ValueError(f"{heads} attention heads cannot share {shared} key/value heads")
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd")
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "head_dim": head_dim,
    }


@misconception("2.3", "head_sizes")
def one_key_head(raw):
    """Without num_key_value_heads you take one key/value head. Absent means that every query head
    has its own, as in the first Llama.
    """
    hidden, heads = count(raw, "hidden_size"), count(raw, "num_attention_heads")
    shared = count(raw, "num_key_value_heads", 1)
    if raw.get("head_dim") is None and hidden % heads:
        raise ValueError(f"hidden_size {hidden} does not divide into {heads} heads")
    if heads % shared:
        raise ValueError(f"{heads} attention heads cannot share {shared} key/value heads")
    head_dim = count(raw, "head_dim", hidden // heads)
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd")
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "head_dim": head_dim,
    }


@misconception("2.3", "head_sizes")
def heads_rounded_down(raw):
    """You divide with // and do not look at what is left. A hidden_size that the heads do not
    divide is a damaged config, and // hides it.
    """
    hidden, heads = count(raw, "hidden_size"), count(raw, "num_attention_heads")
    shared = count(raw, "num_key_value_heads", heads)
    head_dim = count(raw, "head_dim", hidden // heads)
    if heads % shared:
        raise ValueError(f"{heads} attention heads cannot share {shared} key/value heads")
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd")
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "head_dim": head_dim,
    }


@misconception("2.3", "rope_base")
def base_at_the_top_only(raw):
    """You look for rope_theta at the top level only. transformers 5 writes it into rope_parameters,
    and a model with another base is wrong from the second token on.
    """
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"rope_parameters must be an object, not {rope!r:.40}")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(f"RoPE scaling of type {kind!r:.40} is not supported")
    return positive(raw, "rope_theta", 10000.0)


@misconception("2.3", "rope_base")
def top_level_wins(raw):
    """With a base in both places you take the one at the top level. The object wins: a converter
    that writes it may leave the old line as it was.
    """
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"rope_parameters must be an object, not {rope!r:.40}")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(f"RoPE scaling of type {kind!r:.40} is not supported")
    place = rope if raw.get("rope_theta") is None else raw
    return positive(place, "rope_theta", 10000.0)


@misconception("2.3", "rope_base")
def scaling_ignored(raw):
    """You take the base and ignore the type of scaling. The model would load, and be wrong from
    some position on: refuse every type but "default", by its name.
    """
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"rope_parameters must be an object, not {rope!r:.40}")
    place = raw if rope.get("rope_theta") is None else rope
    return positive(place, "rope_theta", 10000.0)


@misconception("2.3", "rope_base")
def old_type_ignored(raw):
    """You look for the type of scaling under rope_type only. Older files call it type, and theirs
    are scaled all the same.
    """
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"rope_parameters must be an object, not {rope!r:.40}")
    kind = rope.get("rope_type", "default")
    if kind != "default":
        raise ValueError(f"RoPE scaling of type {kind!r:.40} is not supported")
    place = raw if rope.get("rope_theta") is None else rope
    return positive(place, "rope_theta", 10000.0)


@misconception("2.3", "end_tokens")
def config_wins(raw, generation):
    """You take config.json's end tokens where it has some. generation_config.json wins: chat models
    often name their end of turn only there, and never stop without it.
    """
    return token_ids(raw, "eos_token_id") or token_ids(generation, "eos_token_id")


@misconception("2.3", "end_tokens")
def zero_is_nothing(raw, generation):
    """You test the id itself, and the id 0 counts as false. Turn it into a tuple first: a tuple of
    one id is true, whatever the id is.
    """
    place = generation if generation.get("eos_token_id") else raw
    ids = token_ids(place, "eos_token_id")
    return ids if ids != (0,) else ()


@misconception("2.3", "end_tokens")
def both_files_together(raw, generation):
    """You put the end tokens of both files together. Where generation_config.json names any, it
    replaces those of config.json.
    """
    ids = token_ids(generation, "eos_token_id") + token_ids(raw, "eos_token_id")
    return tuple(dict.fromkeys(ids))
