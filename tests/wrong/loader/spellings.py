"""2.3 the config, 2.5 shards: spellings that were let through, or refused without need."""

import json

from tests.parts import part


@part("2.3")
def both_names_needed(m):
    """model_type must fit as well, where architectures has said it already."""
    right = m.check_architecture

    def check_architecture(raw):
        right(raw)
        if raw.get("model_type") not in (None, "llama"):
            raise ValueError(raw["model_type"])

    m.check_architecture = check_architecture


@part("2.3")
def either_name_in_either_place(m):
    """architectures may be ["llama"], and model_type LlamaForCausalLM."""
    right = m.check_architecture

    def check_architecture(raw):
        names = raw.get("architectures") or [raw.get("model_type")]
        known = names in (["llama"], [m.ARCHITECTURE])
        right(raw | {"architectures": [m.ARCHITECTURE]} if known else raw)

    m.check_architecture = check_architecture


@part("2.3")
def architecture_as_text(m):
    """`in` finds the name in a text as well as in a list."""
    right = m.check_architecture

    def check_architecture(raw):
        if raw.get("architectures") == m.ARCHITECTURE:
            raw = raw | {"architectures": [m.ARCHITECTURE]}
        right(raw)

    m.check_architecture = check_architecture


@part("2.3")
def false_like_values_are_off(m):
    """A variant that is 0 or {} counts as absent."""
    right = m.check_architecture

    def check_architecture(raw):
        right({key: value for key, value in raw.items() if value or key not in m.PLAIN})

    m.check_architecture = check_architecture


@part("2.3")
def variants_taken_out(m):
    """The keys that have been looked at are removed from the config that was given."""
    right = m.check_architecture

    def check_architecture(raw):
        right(raw)
        for key in m.PLAIN:
            raw.pop(key, None)

    m.check_architecture = check_architecture


@part("2.3")
def defaults_written_in(m):
    """setdefault on the config that was given."""
    right = m.head_sizes

    def head_sizes(raw):
        found = right(raw)
        raw.update({key: value for key, value in found.items() if raw.get(key) is None})
        return found

    m.head_sizes = head_sizes


@part("2.3")
def objects_merged(m):
    """What the first object does not say is taken from the second."""
    right = m.rope_base

    def rope_base(raw):
        first, second = raw.get("rope_parameters"), raw.get("rope_scaling")
        if isinstance(first, dict) and isinstance(second, dict):
            given = {key: value for key, value in first.items() if value is not None}
            raw = raw | {"rope_parameters": second | given}
        return right(raw)

    m.rope_base = rope_base


@part("2.3")
def scaled_by_its_factor_only(m):
    """A type without a factor is not looked at."""
    right = m.rope_base

    def rope_base(raw):
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        if isinstance(rope, dict) and "factor" not in rope:
            rope = {"rope_theta": rope.get("rope_theta")}
        return right(raw | {"rope_parameters": rope})

    m.rope_base = rope_base


@part("2.3")
def ids_of_small_vocabularies(m):
    """An end token from 2**15 on is refused; Llama 3's are at 128,000."""
    right = m.end_tokens

    def end_tokens(raw, generation):
        found = right(raw, generation)
        if any(token >= 2**15 for token in found):
            raise ValueError("too large")
        return found

    m.end_tokens = end_tokens


def with_index_read_by(m, read):
    """Replace how the index is read."""

    def weight_map(index):
        files = read(index)
        if (
            not isinstance(files, dict)
            or not files
            or not all(map(m._is_plain_name, files.values()))
        ):
            raise ValueError(f"{index}: weight_map")
        return files

    m._weight_map = weight_map


@part("2.5")
def index_by_json_alone(m):
    """What json.loads says about the index does not name it."""
    with_index_read_by(m, lambda index: json.loads(index.read_bytes()).get("weight_map"))


@part("2.5")
def index_without_a_map(m):
    """An index that has no weight_map is a KeyError."""
    with_index_read_by(m, lambda index: m.json_file(index)["weight_map"])


def with_names(m, accepted):
    """Replace which names in the index are accepted."""
    m._is_plain_name = lambda name: isinstance(name, str) and accepted(name)


@part("2.5")
def ending_without_its_dot(m):
    """Any name that ends in "safetensors"."""
    right = m._is_plain_name
    with_names(m, lambda name: right(name) or right(name.replace("safetensors", ".safetensors")))


@part("2.5")
def drives_accepted(m):
    """A colon is let through: on Windows "C:x" is in another folder."""
    right = m._is_plain_name
    with_names(m, lambda name: right(name.replace(":", "")))


@part("2.5")
def two_dots_refused(m):
    """Two dots lead out of a folder only where they are all of a part."""
    right = m._is_plain_name
    with_names(m, lambda name: right(name) and ".." not in name)


@part("2.5")
def only_names_of_transformers(m):
    """Shards must be called model-something."""
    right = m._is_plain_name
    with_names(m, lambda name: right(name) and name.startswith("model"))
