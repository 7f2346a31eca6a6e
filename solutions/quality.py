"""Chapter 03: what the missing bits cost, measured, and when such a measurement flatters.

Shapes: T tokens, V the vocabulary.
"""

import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from solutions.quantize import quantize_groups
from solutions.quantized import Format, quantize
from solutions.quantizer import is_quantizable

LogitsOf = Callable[[Tensor], Tensor]  # ids [T], as a text of their own -> logits [T, V]


def relative_error(reference: Tensor, other: Tensor) -> float:
    """How far a tensor is from what it should be, in units of its own size.

    sqrt(sum((other - reference) ** 2)) / sqrt(sum(reference ** 2)): 0.1 means that the error is a
    tenth of the whole. For a weight and its dequantized self this is the weight error, for the
    logits of two models the logit error.

    Args:
        reference, other: floating-point tensors of one shape, in any dtype; both sums are taken
            in float64.

    Returns:
        a float from 0 up; 0.0 where both are zeros, infinity where only the reference is.

    Errors: ValueError when the shapes differ, naming both: broadcasting would hide it.
    """
    # exercise 3.7
    if reference.shape != other.shape:
        raise ValueError(f"shapes differ: {list(reference.shape)} and {list(other.shape)}")
    size = float(reference.double().square().sum().sqrt())
    error = float((other.double() - reference.double()).square().sum().sqrt())
    if size == 0:
        return math.inf if error else 0.0
    return error / size


def perplexity(logits_of: LogitsOf, ids: Tensor, window: int, stride: int) -> float:
    """How surprised a model is by a text: 1 for one that knew every token, V for one that guesses.

    exp of the mean of -log p(token | tokens before it), the natural logarithm. A text longer than
    the window is read in windows that begin at 0, stride, 2 * stride, ... and hold `window` tokens
    (the last one fewer; it is the first to reach the end of the text). Every token but the first
    of the text is counted once: in the first window in which another token stands before it.

    Args:
        logits_of: gives the logits [t, V] of ids [t], as if they were a text of their own; row i
            is for the token after ids[i].
        ids: [T] integers, at least 2.
        window: tokens in a window, at least 2.
        stride: tokens from the beginning of one window to the next, 1 to window - 1. A token has
            at least window - stride tokens before it, but for those of the first window.

    Returns:
        a float from 1 up, infinite where no float is as large. Logits may be of any floating
        dtype: their softmax and the sum over all tokens are taken in float64.

    Errors: ValueError for a window, a stride or ids that are too short or too long.
    """
    # exercise 3.7
    if len(ids) < 2 or window < 2 or not 1 <= stride < window:
        raise ValueError(
            f"{len(ids)} ids, window {window} and stride {stride}: at least 2 ids, a window of at "
            "least 2, and a stride from 1 to window - 1 are needed"
        )
    total, done = 0.0, 1  # done: ids that need no more counting; the first never does
    for start in range(0, len(ids), stride):
        part = ids[start : start + window]
        logs = logits_of(part)[:-1].double().log_softmax(-1)  # row i: for token start + i + 1
        losses = -logs.gather(1, part[1:, None]).squeeze(1)
        total += float(losses[done - start - 1 :].sum())
        done = start + len(part)
        if done == len(ids):
            break
    return float(torch.tensor(total / (len(ids) - 1), dtype=torch.float64).exp())


def agreement(reference: Tensor, other: Tensor) -> float:
    """How often two models would choose the same next token, both reading the same text.

    A generated text parts from the other for good at its first difference; given the same text,
    every position is a comparison of its own (teacher forcing).

    Args:
        reference, other: logits [T, V] on the same ids, T at least 1.

    Returns:
        the share of positions, 0.0 to 1.0, at which the largest logit is at the same index; of
        equal logits the first counts.

    Errors: ValueError when the shapes differ or there is no position.
    """
    # exercise 3.7
    if reference.shape != other.shape or not reference.numel():
        raise ValueError(f"shapes {list(reference.shape)} and {list(other.shape)} do not compare")
    return float((reference.argmax(-1) == other.argmax(-1)).double().mean())


def share_on_grid(weight: Tensor, bits: int, group_size: int, tolerance: float = 1e-3) -> float:
    """The share of groups that some earlier quantization has left on a grid of 2 ** bits values.

    Such groups lose nothing when they are quantized to that grid again. It says nothing
    about what these bits would have cost the weights before.

    Args:
        weight: [out, in] floats. The groups are those of quantize_groups.
        bits, group_size: the grid to look for.
        tolerance: how far from a grid value a number may be, in steps: a stored weight was
            rounded to float32 once more.

    Returns:
        a float from 0.0 to 1.0: the share of groups whose numbers all lie on
        lo + k * (hi - lo) / (2 ** bits - 1) for a whole k, with lo and hi the group's smallest
        and largest number. A group whose numbers are all the same is on every grid.

    Errors: the ValueErrors of quantize_groups.
    """
    # exercise 3.8
    q, scale, minimum = quantize_groups(weight, bits, group_size, torch.float32)
    q = q.unflatten(1, (-1, group_size))  # [out, G, group_size]
    again = (q * scale.double()[..., None] + minimum.double()[..., None]).flatten(1)
    step = scale.double().repeat_interleave(group_size, dim=1)
    filled = torch.nn.functional.pad(weight.double(), (0, q[0].numel() - weight.shape[1]))
    filled[:, weight.shape[1] :] = weight[:, -1:].double()
    on_grid = (filled - again).abs() <= tolerance * step
    return float(on_grid.unflatten(1, (-1, group_size)).all(-1).double().mean())


def noise_ratio(weight: Tensor, format: Format) -> float:
    """The error of a format on this weight, in units of what rounding ought to cost.

    A weight that knows nothing of the grid is off by anything from minus half a step to half a
    step, all equally likely: a root mean square of step / sqrt(12). Weights that lie on the grid
    already are off by nothing, and their measurement says nothing about the format.

    Args:
        weight: [out, in] floats.
        format: how to quantize it.

    Returns:
        the root mean square of the error of `quantize` over that of step / sqrt(12), where step is
        the scale that each number is stored with. About 1 for weights that do not know the
        grid, near 0 for weights that lie on it; 0.0 where every scale is 0.

    Errors: the ValueErrors of `quantize`.

    Source: Widrow 1956 for the uniform error of rounding.
    """
    # exercise 3.8
    stored = quantize(weight, format)
    error = (stored.dequantize() - weight.float()).double().square().mean().sqrt()
    width = format.group_size or weight.shape[1]
    step = stored.scale.double().repeat_interleave(width, dim=1)[:, : weight.shape[1]]
    expected = (step.square().mean() / 12).sqrt()
    return float(error / expected) if expected > 0 else 0.0


def honest_formats(
    weights: Mapping[str, Tensor], formats: Iterable[Format], least: float = 0.5
) -> list[Format]:
    """Those formats whose cost can be measured on these weights at all.

    Weights that were quantized before flatter the format that they come from, and every finer one
    whose grid contains the old one: 8 bits contain 4, since 255 is 17 times 15.

    Args:
        weights: a checkpoint as stored; the tensors that `is_quantizable` names count.
        formats: to choose from.
        least: the mean of `noise_ratio` over the weights, each counting once, that a format needs.

    Returns:
        the formats that reach it, in the order in which they came.

    Errors: ValueError when no weight counts; the ValueErrors of `quantize`.
    """
    # exercise 3.8
    matrices = [w for name, w in weights.items() if is_quantizable(name, tuple(w.shape))]
    if not matrices:
        raise ValueError("none of these weights would be quantized: there is nothing to measure")

    def mean_ratio(format: Format) -> float:
        return sum(noise_ratio(weight, format) for weight in matrices) / len(matrices)

    return [format for format in formats if mean_ratio(format) >= least]
