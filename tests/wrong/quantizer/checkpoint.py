"""3.4 the quantized weight, and 3.5 the checkpoint."""

import torch
import torch.nn.functional as F

from tests.parts import part


@part("3.4")
def the_same_floats_again(m):
    """dequantize keeps its result and gives it out once more, whatever was written to it."""
    right = m.QuantizedTensor.dequantize

    def dequantize(self, dtype=torch.float32):
        kept = vars(self).setdefault("_kept", {})
        if dtype not in kept:
            kept[dtype] = right(self, dtype)
        return kept[dtype]

    m.QuantizedTensor.dequantize = dequantize


@part("3.4")
def floats_kept_by_the_address(m):
    """linear keeps the floats of every weight it has seen."""
    right, kept = m.linear, {}

    def linear(x, weight):
        if isinstance(weight, torch.Tensor):
            return right(x, weight)
        if id(weight) not in kept:
            kept[id(weight)] = weight, weight.dequantize()  # alive, so the address stays its own
        return F.linear(x, kept[id(weight)][1].to(x.dtype))

    m.linear = linear


@part("3.4")
def sizes_that_are_tensors(m):
    """shape is a tuple of tensors, which no JSON can hold."""
    right = m.quantize

    def quantize(weight, format):
        found = right(weight, format)
        object.__setattr__(found, "shape", tuple(map(torch.tensor, weight.shape)))
        return found

    m.quantize = quantize


@part("3.4")
def square_weights_not_transposed(m):
    """x @ weight where the shapes allow it."""
    right = m.linear

    def linear(x, weight):
        if isinstance(weight, torch.Tensor) and weight.shape[0] == weight.shape[1]:
            return x @ weight
        return right(x, weight)

    m.linear = linear


def only(condition):
    """is_quantizable with a further condition on the name and the shape."""

    def change(m):
        right = m.is_quantizable
        m.is_quantizable = lambda name, shape: right(name, shape) and condition(name, shape)

    return change


@part("3.5")
def only_projections(m):
    """Names that do not end in _proj.weight are left alone."""
    only(lambda name, shape: name.endswith("_proj.weight"))(m)


@part("3.5")
def only_layers(m):
    """Names without "layers" are left alone."""
    only(lambda name, shape: ".layers." in name)(m)


@part("3.5")
def only_large_ones(m):
    """Small matrices are left alone."""
    only(lambda name, shape: min(shape) > 4)(m)


@part("3.5")
def any_end_in_weight(m):
    """The point before "weight" is not asked for."""
    right = m.is_quantizable
    m.is_quantizable = lambda name, shape: right(
        name.removesuffix("_weight") + ".weight" if name.endswith("_weight") else name, shape
    )


@part("3.5")
def vectors_copied(m):
    """The norms are copied, although they have the dtype asked for."""
    right = m.quantize_weights

    def quantize_weights(*args, **kwargs):
        found = right(*args, **kwargs)
        tensors = {n: w for n, w in found.items() if isinstance(w, torch.Tensor)}
        return found | {n: w.clone() for n, w in tensors.items() if w.ndim == 1}

    m.quantize_weights = quantize_weights
