"""Wrong versions of 3.2 quantize_groups."""

import torch
import torch.nn.functional as F

from course.misconceptions import misconception
from solutions.quantize import _check_groups, _grouped, check_matrix


@misconception("3.2", "quantize_groups")
def for_exact_scales(weight, bits, group_size, scale_dtype=torch.float16):
    """You compute q with the exact scale and minimum and round these two afterwards. What is read
    back uses the rounded ones: q has to be made for them, or the error grows with q.
    """
    check_matrix(weight)
    _check_groups(bits, group_size)
    groups, levels = _grouped(weight.float(), group_size), 2**bits - 1
    lo, hi = groups.aminmax(dim=-1, keepdim=True)
    step = (hi - lo) / levels
    scale, minimum = step.to(scale_dtype), lo.to(scale_dtype)
    if not bool((scale.isfinite() & minimum.isfinite()).all()):
        raise ValueError(f"beyond {scale_dtype}")
    q = ((groups - lo) / step).round().clamp(0, levels)
    q = q.where(scale > 0, 0).to(torch.uint8)
    return q.flatten(1), scale.squeeze(-1), minimum.squeeze(-1)


@misconception("3.2", "quantize_groups")
def one_step_too_many(weight, bits, group_size, scale_dtype=torch.float16):
    """You divide the range by 2 ** bits. That many values have one step fewer between them: 16
    fence posts, 15 gaps. The largest number of a group is then never reached.
    """
    check_matrix(weight)
    _check_groups(bits, group_size)
    groups, levels = _grouped(weight.float(), group_size), 2**bits - 1
    lo, hi = groups.aminmax(dim=-1, keepdim=True)
    scale, minimum = ((hi - lo) / 2**bits).to(scale_dtype), lo.to(scale_dtype)
    if not bool((scale.isfinite() & minimum.isfinite()).all()):
        raise ValueError(f"beyond {scale_dtype}")
    q = ((groups - minimum.float()) / scale.float()).round().clamp(0, levels)
    q = q.where(scale > 0, 0).to(torch.uint8)
    return q.flatten(1), scale.squeeze(-1), minimum.squeeze(-1)


@misconception("3.2", "quantize_groups")
def levels_are_two_to_the_bits(weight, bits, group_size, scale_dtype=torch.float16):
    """You take 2 ** bits for the largest q as well as for the number of steps. 4 bits hold 0 to 15:
    16 values with 15 steps between them, and 16 itself does not fit.
    """
    check_matrix(weight)
    _check_groups(bits, group_size)
    groups, levels = _grouped(weight.float(), group_size), 2**bits
    lo, hi = groups.aminmax(dim=-1, keepdim=True)
    scale, minimum = ((hi - lo) / levels).to(scale_dtype), lo.to(scale_dtype)
    if not bool((scale.isfinite() & minimum.isfinite()).all()):
        raise ValueError(f"beyond {scale_dtype}")
    q = ((groups - minimum.float()) / scale.float()).round().clamp(0, levels)
    q = q.where(scale > 0, 0).to(torch.uint8)
    return q.flatten(1), scale.squeeze(-1), minimum.squeeze(-1)


@misconception("3.2", "quantize_groups")
def filled_with_zeros(weight, bits, group_size, scale_dtype=torch.float16):
    """You fill the last group up with zeros. They count for its minimum or maximum and widen
    its steps; the row's last number, repeated, changes neither.
    """
    check_matrix(weight)
    _check_groups(bits, group_size)
    wide, levels = weight.float(), 2**bits - 1
    groups = F.pad(wide, (0, -wide.shape[1] % group_size)).unflatten(1, (-1, group_size))
    lo, hi = groups.aminmax(dim=-1, keepdim=True)
    scale, minimum = ((hi - lo) / levels).to(scale_dtype), lo.to(scale_dtype)
    if not bool((scale.isfinite() & minimum.isfinite()).all()):
        raise ValueError(f"beyond {scale_dtype}")
    q = ((groups - minimum.float()) / scale.float()).round().clamp(0, levels)
    q = q.where(scale > 0, 0).to(torch.uint8)
    return q.flatten(1), scale.squeeze(-1), minimum.squeeze(-1)


@misconception("3.2", "quantize_groups")
def zero_always_inside(weight, bits, group_size, scale_dtype=torch.float16):
    """You widen the range of every group so that it holds 0, as one does for activations. A group
    of weights far from 0 then wastes most of its values: the minimum is lo, whatever its sign.
    """
    check_matrix(weight)
    _check_groups(bits, group_size)
    groups, levels = _grouped(weight.float(), group_size), 2**bits - 1
    lo, hi = groups.aminmax(dim=-1, keepdim=True)
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    scale, minimum = ((hi - lo) / levels).to(scale_dtype), lo.to(scale_dtype)
    if not bool((scale.isfinite() & minimum.isfinite()).all()):
        raise ValueError(f"beyond {scale_dtype}")
    q = ((groups - minimum.float()) / scale.float()).round().clamp(0, levels)
    q = q.where(scale > 0, 0).to(torch.uint8)
    return q.flatten(1), scale.squeeze(-1), minimum.squeeze(-1)


@misconception("3.2", "quantize_groups")
def not_clamped(weight, bits, group_size, scale_dtype=torch.float16):
    """You do not clamp q. Where rounding has made the scale or the minimum a little too small,
    the largest number of the group is one beyond the range, and in uint8 256 is 0 again.
    """
    check_matrix(weight)
    _check_groups(bits, group_size)
    groups, levels = _grouped(weight.float(), group_size), 2**bits - 1
    lo, hi = groups.aminmax(dim=-1, keepdim=True)
    scale, minimum = ((hi - lo) / levels).to(scale_dtype), lo.to(scale_dtype)
    if not bool((scale.isfinite() & minimum.isfinite()).all()):
        raise ValueError(f"beyond {scale_dtype}")
    q = ((groups - minimum.float()) / scale.float()).round()
    q = q.where(scale > 0, 0).to(torch.int64).to(torch.uint8)
    return q.flatten(1), scale.squeeze(-1), minimum.squeeze(-1)


@misconception("3.2", "quantize_groups")
def constants_divided_by_nothing(weight, bits, group_size, scale_dtype=torch.float16):
    """You divide by a scale of 0 in groups of one number over and over. float16 has moved their
    minimum, so the quotient is infinite and q the largest value: where the scale is 0, q is 0.
    """
    check_matrix(weight)
    _check_groups(bits, group_size)
    groups, levels = _grouped(weight.float(), group_size), 2**bits - 1
    lo, hi = groups.aminmax(dim=-1, keepdim=True)
    scale, minimum = ((hi - lo) / levels).to(scale_dtype), lo.to(scale_dtype)
    if not bool((scale.isfinite() & minimum.isfinite()).all()):
        raise ValueError(f"beyond {scale_dtype}")
    q = ((groups - minimum.float()) / scale.float()).nan_to_num(0.0).round().clamp(0, levels)
    return q.to(torch.uint8).flatten(1), scale.squeeze(-1), minimum.squeeze(-1)


@misconception("3.2", "quantize_groups")
def beyond_float16(weight, bits, group_size, scale_dtype=torch.float16):
    """You store a scale or minimum that float16 cannot hold: it is infinite then, and the whole
    group reads back as NaN. Refuse it, and say that a wider scale_dtype helps.
    """
    check_matrix(weight)
    _check_groups(bits, group_size)
    groups, levels = _grouped(weight.float(), group_size), 2**bits - 1
    lo, hi = groups.aminmax(dim=-1, keepdim=True)
    scale, minimum = ((hi - lo) / levels).to(scale_dtype), lo.to(scale_dtype)
    q = ((groups - minimum.float()) / scale.float()).nan_to_num(0.0).round().clamp(0, levels)
    q = q.where(scale > 0, 0).to(torch.uint8)
    return q.flatten(1), scale.squeeze(-1), minimum.squeeze(-1)


@misconception("3.2", "quantize_groups")
def one_group_a_row(weight, bits, group_size, scale_dtype=torch.float16):
    """You take minimum and maximum over the whole row and give all its groups the same scale.
    Each group has its own: reshape first, then reduce over the last dimension only.
    """
    check_matrix(weight)
    _check_groups(bits, group_size)
    groups, levels = _grouped(weight.float(), group_size), 2**bits - 1
    lo, hi = groups.amin((1, 2), keepdim=True), groups.amax((1, 2), keepdim=True)
    lo, hi = (t.expand(-1, groups.shape[1], 1) for t in (lo, hi))
    scale, minimum = ((hi - lo) / levels).to(scale_dtype), lo.to(scale_dtype)
    if not bool((scale.isfinite() & minimum.isfinite()).all()):
        raise ValueError(f"beyond {scale_dtype}")
    q = ((groups - minimum.float()) / scale.float()).round().clamp(0, levels)
    q = q.where(scale > 0, 0).to(torch.uint8)
    return q.flatten(1), scale.squeeze(-1), minimum.squeeze(-1)


@misconception("3.2", "quantize_groups")
def minimum_from_the_middle(weight, bits, group_size, scale_dtype=torch.float16):
    """You compute the scale from the minimum after its rounding. The documented scale is that of
    the numbers themselves, (hi - lo) / (2 ** bits - 1), and each of the two is rounded once.
    """
    check_matrix(weight)
    _check_groups(bits, group_size)
    groups, levels = _grouped(weight.float(), group_size), 2**bits - 1
    lo, hi = groups.aminmax(dim=-1, keepdim=True)
    minimum = lo.to(scale_dtype)
    scale = ((hi - minimum.float()).clamp(min=0) / levels).to(scale_dtype)
    if not bool((scale.isfinite() & minimum.isfinite()).all()):
        raise ValueError(f"beyond {scale_dtype}")
    q = ((groups - minimum.float()) / scale.float()).round().clamp(0, levels)
    q = q.where(scale > 0, 0).to(torch.uint8)
    return q.flatten(1), scale.squeeze(-1), minimum.squeeze(-1)


@misconception("3.2", "quantize_groups")
def row_must_be_whole(weight, bits, group_size, scale_dtype=torch.float16):
    """You refuse, or fail on, a group size that does not divide the row. It is allowed: the last
    group is filled up with the last number of the row.
    """
    if weight.shape[1] % group_size:
        raise ValueError(f"{group_size} does not divide {weight.shape[1]}")
    check_matrix(weight)
    _check_groups(bits, group_size)
    groups, levels = weight.float().unflatten(1, (-1, group_size)), 2**bits - 1
    lo, hi = groups.aminmax(dim=-1, keepdim=True)
    scale, minimum = ((hi - lo) / levels).to(scale_dtype), lo.to(scale_dtype)
    if not bool((scale.isfinite() & minimum.isfinite()).all()):
        raise ValueError(f"beyond {str(scale_dtype)}")
    q = ((groups - minimum.float()) / scale.float()).round().clamp(0, levels)
    q = q.where(scale > 0, 0).to(torch.uint8)
    return q.flatten(1), scale.squeeze(-1), minimum.squeeze(-1)
