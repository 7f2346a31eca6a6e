"""Chapter 03's weights as plain data, and back: `fields` are a QuantizedTensor's, by name."""

from torch import Tensor

from tests.scenarios.helpers import Unusable, in_words

FIELDS = ("data", "scale", "minimum", "bits", "group_size", "shape")


def fields_of(found) -> dict:
    """The fields of a QuantizedTensor as plain data; an int subclass or torch.Size is as good."""
    if not all(hasattr(found, name) for name in FIELDS):
        raise Unusable(
            f"a QuantizedTensor with {', '.join(FIELDS)} is needed, not {in_words(found)}"
        )
    plain = {name: getattr(found, name) for name in FIELDS}
    sizes = plain["shape"]
    if not isinstance(sizes, tuple) or not all(isinstance(n, int) for n in sizes):
        raise Unusable(f"shape should be a tuple of ints, but is {sizes!r:.80}")
    plain["shape"] = [int(n) for n in sizes]
    return plain


def tensor_of(module, fields: dict):
    """The module's QuantizedTensor with these fields."""
    return module.QuantizedTensor(**{**fields, "shape": tuple(fields["shape"])})


def weight_of(module, value):
    return tensor_of(module, value) if isinstance(value, dict) else value


def plain_of(weights) -> dict:
    """{name: tensor or fields} of a mapping of weights, in its order."""
    if not isinstance(weights, dict):
        raise Unusable(f"a dict of weights is needed, not {in_words(weights)}")
    return {n: w if isinstance(w, Tensor) else fields_of(w) for n, w in weights.items()}
