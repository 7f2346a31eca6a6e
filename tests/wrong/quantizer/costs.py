"""3.7 what it costs, and 3.8 the grid it already sits on."""

import torch

from tests.parts import part


@part("3.7")
def one_shape_named(m):
    """Only the shape of the reference is named."""
    right = m.relative_error

    def relative_error(reference, other):
        if reference.shape != other.shape:
            raise ValueError(f"not {list(reference.shape)}")
        return right(reference, other)

    m.relative_error = relative_error


@part("3.7")
def one_dtype_only(m):
    """The two have to have the same dtype."""
    right = m.relative_error

    def relative_error(reference, other):
        assert reference.dtype == other.dtype
        return right(reference, other)

    m.relative_error = relative_error


@part("3.7")
def the_text_used_up(m):
    """The ids are overwritten."""
    right = m.perplexity

    def perplexity(logits_of, ids, window, stride):
        found = right(logits_of, ids, window, stride)
        ids.zero_()
        return found

    m.perplexity = perplexity


@part("3.7")
def exp_of_the_logits(m):
    """exp of the logits is divided by its sum: infinite from 710 on."""

    class Exponentials(torch.Tensor):
        def log_softmax(self, dim):
            plain = self.as_subclass(torch.Tensor).exp()
            return (plain / plain.sum(dim, keepdim=True)).log()

    right = m.perplexity
    m.perplexity = lambda logits_of, *args: right(
        lambda ids: logits_of(ids).as_subclass(Exponentials), *args
    )


@part("3.7")
def the_last_of_equals(m):
    """Of equal logits the last counts."""
    right = m.agreement
    m.agreement = lambda reference, other: right(reference.flip(-1), other.flip(-1))


@part("3.7")
def any_of_equals(m):
    """A position counts where the reference's choice is one of the largest of the other."""
    right = m.agreement

    def agreement(reference, other):
        right(reference, other)
        chosen = other.gather(-1, reference.argmax(-1, keepdim=True))
        return float((chosen == other.amax(-1, keepdim=True)).double().mean())

    m.agreement = agreement


@part("3.7")
def as_many_numbers(m):
    """Shapes may differ when they hold as many numbers."""
    right = m.agreement

    def agreement(reference, other):
        if reference.numel() == other.numel():
            other = other.reshape(reference.shape)
        return right(reference, other)

    m.agreement = agreement


def usual_tolerance(m, value: float) -> None:
    right = m.share_on_grid
    m.share_on_grid = lambda weight, bits, size, tolerance=value: right(
        weight, bits, size, tolerance
    )


@part("3.8")
def a_hundredth_of_a_step(m):
    """The usual tolerance is too wide."""
    usual_tolerance(m, 1e-2)


@part("3.8")
def a_millionth_of_a_step(m):
    """The usual tolerance is too narrow."""
    usual_tolerance(m, 1e-6)


@part("3.8")
def whole_floats_only(m):
    """A weight in 16 bits is not looked at."""
    right = m.share_on_grid

    def share_on_grid(weight, *args):
        assert weight.dtype == torch.float32
        return right(weight, *args)

    m.share_on_grid = share_on_grid


@part("3.8")
def no_grid_no_error(m):
    """What cannot be quantized has a share of 0."""
    right = m.share_on_grid

    def share_on_grid(*args):
        try:
            return right(*args)
        except ValueError:
            return 0.0

    m.share_on_grid = share_on_grid


@part("3.8")
def error_in_16_bits(m):
    """The weight is read back in its own dtype, and rounded once more on the way."""
    right = m.noise_ratio

    def noise_ratio(weight, format):
        if weight.dtype == torch.float32:
            return right(weight, format)
        stored = m.quantize(weight, format)
        error = (stored.dequantize(weight.dtype) - weight).double().square().mean().sqrt()
        exact = (stored.dequantize() - weight.float()).double().square().mean().sqrt()
        return right(weight, format) * float(error / exact)

    m.noise_ratio = noise_ratio


@part("3.8")
def more_than_least(m):
    """A format needs more than `least`."""
    right = m.honest_formats
    m.honest_formats = lambda weights, formats, least=0.5: right(weights, formats, least + 1e-12)
