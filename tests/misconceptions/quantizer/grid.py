"""Wrong versions of 3.8 share_on_grid, noise_ratio and honest_formats."""

import torch
import torch.nn.functional as F

from course.misconceptions import misconception
from solutions.quality import noise_ratio
from solutions.quantize import quantize_groups
from solutions.quantized import quantize
from solutions.quantizer import is_quantizable


@misconception("3.8", "share_on_grid")
def few_values_are_enough(weight, bits, group_size, tolerance=1e-3):
    """You count how many different values a group has. Few are not enough: the grid is equally
    spaced, and four values anywhere are not four steps.
    """
    missing = -weight.shape[1] % group_size
    filled = torch.cat((weight, weight[:, -1:].expand(-1, missing)), dim=1).float()
    groups = filled.unflatten(1, (-1, group_size)).flatten(0, 1)
    return sum(len(g.unique()) <= 2**bits for g in groups) / len(groups)


@misconception("3.8", "share_on_grid")
def share_of_numbers(weight, bits, group_size, tolerance=1e-3):
    """You count numbers. A group counts when all of its numbers lie on the grid: two ends always
    do, and that proves nothing.
    """
    q, scale, minimum = quantize_groups(weight, bits, group_size, torch.float32)
    q = q.unflatten(1, (-1, group_size))
    again = (q * scale.double()[..., None] + minimum.double()[..., None]).flatten(1)
    step = scale.double().repeat_interleave(group_size, dim=1)
    columns = weight.shape[1]
    near = (weight.double() - again[:, :columns]).abs() <= tolerance * step[:, :columns]
    return float(near.double().mean())


@misconception("3.8", "share_on_grid")
def steps_of_float16(weight, bits, group_size, tolerance=1e-3):
    """You look with scales rounded to float16. A grid with any other step is then missed: what
    is looked for is the grid of the numbers themselves, so take float32.
    """
    q, scale, minimum = quantize_groups(weight, bits, group_size)
    q = q.unflatten(1, (-1, group_size))
    again = (q * scale.double()[..., None] + minimum.double()[..., None]).flatten(1)
    step = scale.double().repeat_interleave(group_size, dim=1)
    filled = F.pad(weight.double(), (0, again.shape[1] - weight.shape[1]))
    filled[:, weight.shape[1] :] = weight[:, -1:].double()
    near = (filled - again).abs() <= tolerance * step
    return float(near.unflatten(1, (-1, group_size)).all(-1).double().mean())


@misconception("3.8", "share_on_grid")
def tolerance_as_it_is(weight, bits, group_size, tolerance=1e-3):
    """You compare with the tolerance as it is. It is in steps: next to weights of 0.02 a thousandth
    is a large number, next to 12000 a tiny one.
    """
    q, scale, minimum = quantize_groups(weight, bits, group_size, torch.float32)
    q = q.unflatten(1, (-1, group_size))
    again = (q * scale.double()[..., None] + minimum.double()[..., None]).flatten(1)
    filled = F.pad(weight.double(), (0, again.shape[1] - weight.shape[1]))
    filled[:, weight.shape[1] :] = weight[:, -1:].double()
    near = (filled - again).abs() <= tolerance
    return float(near.unflatten(1, (-1, group_size)).all(-1).double().mean())


@misconception("3.8", "noise_ratio")
def over_half_a_step(weight, format):
    """You divide by half a step. That is the largest error; the root of the mean square of an error
    that is equally likely between minus and plus half a step is step / sqrt(12).
    """
    stored = quantize(weight, format)
    error = (stored.dequantize() - weight.float()).double().square().mean().sqrt()
    width = format.group_size or weight.shape[1]
    step = stored.scale.double().repeat_interleave(width, dim=1)[:, : weight.shape[1]]
    expected = step.square().mean().sqrt() / 2
    return float(error / expected) if expected > 0 else 0.0


@misconception("3.8", "noise_ratio")
def over_a_whole_step(weight, format):
    """You divide by the step itself. Rounding is off by anything between minus and plus half of it;
    the root of the mean square of that is step / sqrt(12).
    """
    stored = quantize(weight, format)
    error = (stored.dequantize() - weight.float()).double().square().mean().sqrt()
    width = format.group_size or weight.shape[1]
    step = stored.scale.double().repeat_interleave(width, dim=1)[:, : weight.shape[1]]
    expected = step.square().mean().sqrt()
    return float(error / expected) if expected > 0 else 0.0


@misconception("3.8", "noise_ratio")
def step_of_each_group(weight, format):
    """You take the mean over the groups. Each number counts its step once, so a last group that is
    not whole counts less: repeat the scales, and cut them to the columns of the weight.
    """
    stored = quantize(weight, format)
    error = (stored.dequantize() - weight.float()).double().square().mean().sqrt()
    expected = (stored.scale.double().square().mean() / 12).sqrt()
    return float(error / expected) if expected > 0 else 0.0


@misconception("3.8", "noise_ratio")
def mean_step(weight, format):
    """You take the mean of the steps. Errors add up by their squares, so the steps do too: a few
    groups with large steps make most of the error.
    """
    stored = quantize(weight, format)
    error = (stored.dequantize() - weight.float()).double().square().mean().sqrt()
    width = format.group_size or weight.shape[1]
    step = stored.scale.double().repeat_interleave(width, dim=1)[:, : weight.shape[1]]
    expected = step.mean() / 12**0.5
    return float(error / expected) if expected > 0 else 0.0


@misconception("3.8", "noise_ratio")
def ratio_of_squares(weight, format):
    """You divide the mean squares and take no root. The ratio is of the errors themselves."""
    stored = quantize(weight, format)
    error = (stored.dequantize() - weight.float()).double().square().mean()
    width = format.group_size or weight.shape[1]
    step = stored.scale.double().repeat_interleave(width, dim=1)[:, : weight.shape[1]]
    expected = step.square().mean() / 12
    return float(error / expected) if expected > 0 else 0.0


@misconception("3.8", "noise_ratio")
def nothing_by_nothing(weight, format):
    """You divide by an expected error of 0. A constant has scale 0 everywhere and nothing to
    round: the ratio is 0.0, not NaN.
    """
    stored = quantize(weight, format)
    error = (stored.dequantize() - weight.float()).double().square().mean().sqrt()
    width = format.group_size or weight.shape[1]
    step = stored.scale.double().repeat_interleave(width, dim=1)[:, : weight.shape[1]]
    return float(error / (step.square().mean() / 12).sqrt())


@misconception("3.8", "honest_formats")
def smallest_error_wins(weights, formats, least=0.5):
    """You keep the formats that lose the least. Here that is the mark of the wrong ones: where
    the weights sit on the grid already, nothing is lost and nothing is learnt.
    """
    matrices = [w for name, w in weights.items() if is_quantizable(name, tuple(w.shape))]
    if not matrices:
        raise ValueError("nothing to measure")

    def mean_ratio(format):
        return sum(noise_ratio(w, format) for w in matrices) / len(matrices)

    return [format for format in formats if mean_ratio(format) <= least]


@misconception("3.8", "honest_formats")
def everything_counts(weights, formats, least=0.5):
    """You measure on every matrix, the embedding too. It is never quantized, may lie on another
    grid, and says nothing about those that are.
    """
    matrices = [w for w in weights.values() if w.ndim == 2]
    if not matrices:
        raise ValueError("nothing to measure")
    kept = []
    for format in formats:
        ratios = [noise_ratio(w, format) for w in matrices]
        if sum(ratios) / len(ratios) >= least:
            kept.append(format)
    return kept


@misconception("3.8", "honest_formats")
def one_weight_is_enough(weights, formats, least=0.5):
    """You keep a format as soon as one weight finds it honest. The mean over all weights decides,
    or a single odd tensor would speak for the whole checkpoint.
    """
    matrices = [w for name, w in weights.items() if is_quantizable(name, tuple(w.shape))]
    if not matrices:
        raise ValueError("nothing to measure")
    kept = []
    for format in formats:
        if max(noise_ratio(w, format) for w in matrices) >= least:
            kept.append(format)
    return kept
