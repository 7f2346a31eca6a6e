"""3.4 to 3.8: the quantized weight, the checkpoint, the file, and what it costs."""

import torch
import torch.nn.functional as F

from tests.parts import part


@part("3.4")
def weight_kept_by_reference(m):
    """int8 rows of a weight that the caller changes afterwards: the scale is taken late."""
    right = m.quantize

    def quantize(weight, format):
        found = right(weight, format)
        if format.group_size is None:
            object.__setattr__(found, "scale", weight[:, :1])
        return found

    m.quantize = quantize


@part("3.4")
def last_dimension_only_for_two(m):
    """x of one or three dimensions is not multiplied with rows."""
    right = m.linear

    def linear(x, weight):
        if not isinstance(weight, torch.Tensor) and weight.minimum is None:
            return (x.float() @ weight.data.float().T * weight.scale.T).to(x.dtype)
        return right(x, weight)

    m.linear = linear


@part("3.4")
def always_whole_groups(m):
    """x is filled up with ones, so the filling of the last group counts."""
    right = m.linear

    def linear(x, weight):
        if isinstance(weight, torch.Tensor) or weight.minimum is None:
            return right(x, weight)
        groups, size = weight.scale.shape[1], weight.group_size
        whole = type(weight)(
            weight.data, weight.scale, weight.minimum, weight.bits, size,
            (weight.shape[0], groups * size),
        )  # fmt: skip
        return right(F.pad(x, (0, groups * size - x.shape[-1]), value=1.0), whole)

    m.linear = linear


@part("3.5")
def sorted_by_name(m):
    """The result is in alphabetical order."""
    right = m.quantize_weights

    def quantize_weights(*args, **kwargs):
        return dict(sorted(right(*args, **kwargs).items()))

    m.quantize_weights = quantize_weights


@part("3.5")
def one_format_for_all(m):
    """Whatever format was asked for, it is 4 bits in groups of 8."""
    right = m.quantize_weights

    def quantize_weights(stored, format, *args, **kwargs):
        return right(stored, m.Format(4, 8), *args, **kwargs)

    m.quantize_weights = quantize_weights


@part("3.5")
def asked_twice(m):
    """Each tensor is asked for a second time, to look at its dtype."""
    right = m.quantize_weights

    def quantize_weights(stored, *args, **kwargs):
        for name in stored:
            assert stored[name].is_floating_point()
        return right(stored, *args, **kwargs)

    m.quantize_weights = quantize_weights


@part("3.6")
def only_the_first_weight_checked(m):
    """The parts of all weights but the first are believed."""
    right = m._assembled

    def assembled(name, tensors, format, shape):
        if any(hasattr(weight, "group_size") for weight in tensors.values()):
            parts = [tensors.pop(f"{name}.{k}", None) for k in ("data", "scale", "minimum")]
            size = format.group_size
            return m.QuantizedTensor(*parts, format.bits, size, shape)
        return right(name, tensors, format, shape)

    m._assembled = assembled


@part("3.6")
def file_not_named(m):
    """The errors do not say which file it was."""
    right = m.load_quantized

    def load_quantized(path):
        try:
            return right(path)
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), "the file")) from None

    m.load_quantized = load_quantized


@part("3.6")
def left_alone_in_float32(m):
    """What was left alone is loaded as float32."""
    right = m.load_quantized

    def load_quantized(path):
        found = right(path)
        return {n: w.float() if isinstance(w, torch.Tensor) else w for n, w in found.items()}

    m.load_quantized = load_quantized


@part("3.7")
def one_window_only(m):
    """A text longer than the window is read in one piece."""
    right = m.perplexity

    def perplexity(logits_of, ids, window, stride):
        right(lambda part: torch.zeros(len(part), 999), ids, window, stride)
        return right(logits_of, ids, len(ids) + 1, 1)

    m.perplexity = perplexity


@part("3.7")
def infinite_as_one(m):
    """Against zeros the error is 1.0."""
    right = m.relative_error
    m.relative_error = lambda reference, other: min(right(reference, other), 1e9)


@part("3.8")
def least_ignored(m):
    """A half is the limit, whatever is asked for."""
    right = m.honest_formats
    m.honest_formats = lambda weights, formats, least=0.5: right(weights, formats)


@part("3.8")
def tolerance_ignored(m):
    """A thousandth is the tolerance, whatever is asked for."""
    right = m.share_on_grid
    m.share_on_grid = lambda weight, bits, size, tolerance=1e-3: right(weight, bits, size)


@part("3.8")
def whole_groups_only(m):
    """A last group that is not whole is left out."""
    right = m.share_on_grid

    def share_on_grid(weight, bits, group_size, tolerance=1e-3):
        whole = weight.shape[1] // group_size * group_size or weight.shape[1]
        return right(weight[:, :whole], bits, group_size, tolerance)

    m.share_on_grid = share_on_grid
