"""Chapter 02: config.json, the sizes of the model, checked before anything relies on them.

A wrong size found here is one sentence; found later it is a puzzle about shapes.
"""

import codecs
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_LAYERS = 10_000  # each layer has nine tensors to look for; no model comes near
MAX_COUNT = 2**31 - 1  # what other engines store sizes in
ARCHITECTURE = "LlamaForCausalLM"
# Variants of the architecture that this engine does not compute, and the value that means "off".
PLAIN = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "rope_interleaved": False,
    "quantization_config": None,
    "sliding_window": None,
}


@dataclass(frozen=True)
class Config:
    """The sizes of a Llama model, under Hugging Face's own names."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int  # tokens
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]


def read_config(folder: str | Path) -> Config:
    """config.json of a checkpoint folder, and generation_config.json beside it where there is one.

    Errors: FileNotFoundError or ValueError, naming the file, the field and what is accepted.
    """
    path = Path(folder) / "config.json"
    raw, generation = json_file(path), generation_config(path.parent)
    try:
        check_architecture(raw)
        return Config(
            **field_sizes(raw),
            **head_sizes(raw),
            rope_theta=rope_base(raw),
            rms_norm_eps=positive(raw, "rms_norm_eps", 1e-6),
            tie_word_embeddings=raw.get("tie_word_embeddings") is True,
            bos_token_id=next(iter(token_ids(raw, "bos_token_id")), None),
            eos_token_ids=end_tokens(raw, generation),
        )
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


def check_architecture(raw: Mapping[str, Any]) -> None:
    """Refuse by name whatever would load and then compute something else.

    Another architecture may have tensors of the same names; its answers would be noise, and no
    error would say so.

    Args:
        raw: config.json. `architectures` must be the list of ARCHITECTURE alone; where it is
            absent, null or empty, `model_type` must be "llama"; else that is not looked at. Every
            key of PLAIN must have the value it has there, or be null or absent.

    Errors: ValueError naming the architectures (or the model_type) that are given, or the key
    and its value.
    """
    # exercise 2.3
    given = raw.get("architectures")
    names = given or [raw.get("model_type")]
    if names != ([ARCHITECTURE] if given else ["llama"]):
        raise ValueError(f"architecture {names} is not supported; this engine runs {ARCHITECTURE}")
    for key, plain in PLAIN.items():
        if raw.get(key) not in (plain, None):
            raise ValueError(f"{key} = {raw[key]!r} is not supported; it must be {plain!r}")


def head_sizes(raw: Mapping[str, Any]) -> dict[str, int]:
    """How attention divides its width: query heads, key/value heads, numbers a head.

    Args:
        raw: config.json with hidden_size and num_attention_heads. Where num_key_value_heads is
            absent or null, every query head has a key head of its own. Where head_dim is absent
            or null, the heads divide hidden_size between them; where it is given it counts, and
            the heads together may be wider or narrower than hidden_size.

    Returns:
        {"num_attention_heads", "num_key_value_heads", "head_dim"}, all positive.

    Errors: ValueError naming the field for one of the four that is not an integer from 1 to
    MAX_COUNT, hidden_size too where it is not used (`count` says so); naming both numbers when
    head_dim is not given and the heads do not divide hidden_size, and when the key/value heads do
    not divide the query heads; naming head_dim when it is odd, since RoPE turns pairs.
    """
    # exercise 2.3
    hidden, heads = count(raw, "hidden_size"), count(raw, "num_attention_heads")
    shared = count(raw, "num_key_value_heads", heads)
    if raw.get("head_dim") is None and hidden % heads:
        raise ValueError(f"hidden_size {hidden} does not divide into {heads} attention heads")
    if heads % shared:
        raise ValueError(f"{heads} attention heads cannot share {shared} key/value heads evenly")
    head_dim = count(raw, "head_dim", hidden // heads)
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd; RoPE rotates pairs")
    names = "num_attention_heads", "num_key_value_heads", "head_dim"
    return dict(zip(names, (heads, shared, head_dim), strict=True))


def rope_base(raw: Mapping[str, Any]) -> float:
    """The base of the rotary embedding, from either of the two places that files keep it in.

    Args:
        raw: config.json. transformers 5 writes an object `rope_parameters` with `rope_theta` in
            it; older files have `rope_theta` at the top level, and an object `rope_scaling`
            where the positions are scaled. The first of the two objects that is there and neither
            null nor empty counts. A `rope_theta` in it wins over the one at the top level; where
            neither is given (or both are null), the base is 10,000.

    Returns:
        A positive float.

    Errors: ValueError for an object whose `rope_type` (in old files `type`) is there and anything
    but "default", naming it: such a model would load, and be wrong from some position on.
    ValueError for what should be an object and is not, and for a base that is not a positive
    number.
    """
    # exercise 2.3
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"rope_parameters must be an object, not {rope!r:.40}")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(f"RoPE scaling of type {kind!r:.40} is not supported; only 'default' is")
    place = raw if rope.get("rope_theta") is None else rope
    return positive(place, "rope_theta", 10000.0)


def end_tokens(raw: Mapping[str, Any], generation: Mapping[str, Any]) -> tuple[int, ...]:
    """The tokens that end an answer, as many as there are.

    Args:
        raw: config.json.
        generation: generation_config.json, or {} where there is none. Chat models often add
            their end of turn only there, so it wins when it names any id at all.

    Returns:
        The ids of `eos_token_id` in their order, whether it is one id or a list; () when it is
        absent or null in both.

    Errors: ValueError for anything that is not a token id, 0 or more.
    """
    # exercise 2.3
    return token_ids(generation, "eos_token_id") or token_ids(raw, "eos_token_id")


def generation_config(folder: Path) -> dict[str, Any]:
    """generation_config.json, or {} where there is none."""
    path = folder / "generation_config.json"
    return json_file(path) if path.is_file() else {}


def field_sizes(raw: Mapping[str, Any]) -> dict[str, int]:
    """The fields that count something, but for the heads."""
    names = "vocab_size", "hidden_size", "intermediate_size"
    sizes = {name: count(raw, name) for name in names}
    sizes["num_hidden_layers"] = count(raw, "num_hidden_layers", most=MAX_LAYERS)
    sizes["max_position_embeddings"] = count(raw, "max_position_embeddings", 2048)
    return sizes


# ---- JSON, believed only as far as it has been looked at ----


def json_file(path: Path) -> dict[str, Any]:
    """The JSON object in a file that has to be there."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; is {path.parent} a checkpoint folder?")
    return json_object(path.read_bytes().removeprefix(codecs.BOM_UTF8), path)  # Notepad's


def json_object(text: bytes, where: object) -> dict[str, Any]:
    """JSON bytes to a dict; bottomless nesting, endless numbers and names given twice are refused.

    Args:
        text: UTF-8.
        where: what the error calls it.
    """
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=each_once)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{where} is not valid JSON: {problem}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{where} must hold a JSON object, not a {type(value).__name__}")
    return value


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Of two values of one name Python would keep the last, others the first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{name!r:.80} is there more than once")
    return found


def is_int(value: object) -> bool:
    """Integers only; to Python, True is one too."""
    return isinstance(value, int) and not isinstance(value, bool)


def count(
    raw: Mapping[str, Any], name: str, default: int | None = None, most: int = MAX_COUNT
) -> int:
    """A positive integer field; `default` stands in when it is absent or null."""
    value = default if raw.get(name) is None else raw[name]
    if not is_int(value) or value < 1:
        raise ValueError(f"{name} must be a positive integer, not {value!r:.40}")
    if value > most:
        raise ValueError(f"{name} must be at most {most}, not {value!r:.40}")
    return value


def positive(raw: Mapping[str, Any], name: str, default: float) -> float:
    """A positive finite number; `default` stands in when it is absent or null."""
    value = default if raw.get(name) is None else raw[name]
    number = is_int(value) or isinstance(value, float)
    if not number or not 0 < value <= sys.float_info.max:
        raise ValueError(f"{name} must be a positive number, not {value!r:.40}")
    return float(value)


def token_ids(raw: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """A field that holds one id, a list of them, or nothing."""
    value = raw.get(name)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(is_int(i) and i >= 0 for i in ids):
        raise ValueError(f"{name} must be a token id or a list of them, not {value!r:.80}")
    return tuple(ids)
