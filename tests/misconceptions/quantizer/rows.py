"""Wrong versions of 3.1 quantize_rows."""

import torch

from course.misconceptions import misconception
from solutions.quantize import check_matrix


@misconception("3.1", "quantize_rows")
def one_scale_for_all(weight):
    """You use one scale for the whole matrix. Each row has its own, or the row with the largest
    number takes the small ones' bits away: amax over dim 1, with keepdim.
    """
    check_matrix(weight)
    wide = weight.float()
    scale = (wide.abs().amax() / 127).expand(len(wide), 1).contiguous()
    q = (wide / scale).round().clamp(-127, 127)
    return q.where(scale > 0, 0).to(torch.int8), scale


@misconception("3.1", "quantize_rows")
def scale_by_column(weight):
    """You take the largest number of each column. A weight is [out, in], and the scale belongs to
    a row, an output: only then can it be applied after the product.
    """
    check_matrix(weight)
    wide = weight.float()
    scale = wide.abs().amax(dim=0, keepdim=True) / 127
    q = (wide / scale).round().clamp(-127, 127)
    return q.where(scale > 0, 0).to(torch.int8), scale


@misconception("3.1", "quantize_rows")
def divided_by_128(weight):
    """You divide by 128. Then the largest number becomes 128, which int8 does not have: it goes
    from -128 to 127, and the scale that keeps both ends inside is absmax / 127.
    """
    check_matrix(weight)
    wide = weight.float()
    scale = wide.abs().amax(dim=1, keepdim=True) / 128
    q = (wide / scale).round().clamp(-128, 127)
    return q.where(scale > 0, 0).to(torch.int8), scale


@misconception("3.1", "quantize_rows")
def divided_by_128_and_kept_inside(weight):
    """You divide by 128 and clamp to 127. The largest number of a row is then read back too small:
    127 of its 128 steps. The scale that reaches both ends is absmax / 127.
    """
    check_matrix(weight)
    wide = weight.float()
    scale = wide.abs().amax(dim=1, keepdim=True) / 128
    q = (wide / scale).round().clamp(-127, 127)
    return q.where(scale > 0, 0).to(torch.int8), scale


@misconception("3.1", "quantize_rows")
def cut_off_instead_of_rounded(weight):
    """You convert to int8 without rounding, which cuts everything behind the point off. The error
    is then up to a whole step instead of half of one, and always towards zero.
    """
    check_matrix(weight)
    wide = weight.float()
    scale = wide.abs().amax(dim=1, keepdim=True) / 127
    return (wide / scale).where(scale > 0, 0).clamp(-127, 127).to(torch.int8), scale


@misconception("3.1", "quantize_rows")
def half_upwards(weight):
    """You round with floor(x + 0.5), so a half always goes up. The documented rounding is to the
    even neighbour, as torch.round does it: it pushes a sum of many in no direction.
    """
    check_matrix(weight)
    wide = weight.float()
    scale = wide.abs().amax(dim=1, keepdim=True) / 127
    q = (wide / scale + 0.5).floor().clamp(-127, 127)
    return q.where(scale > 0, 0).to(torch.int8), scale


@misconception("3.1", "quantize_rows")
def least_scale(weight):
    """You keep the scale above a small number, against the division by zero. That changes rows
    of small numbers, and gives rows of zeros a scale; guard q, where the scale is 0.
    """
    check_matrix(weight)
    wide = weight.float()
    scale = wide.abs().amax(dim=1, keepdim=True).clamp(min=1e-5) / 127
    return (wide / scale).round().clamp(-127, 127).to(torch.int8), scale


@misconception("3.1", "quantize_rows")
def divided_by_nothing(weight):
    """You divide by a scale of 0. Zeros become NaN and small numbers infinite, and what int8 makes
    of that differs from machine to machine: where the scale is 0, q is 0.
    """
    check_matrix(weight)
    wide = weight.float()
    scale = wide.abs().amax(dim=1, keepdim=True) / 127
    return (wide / scale).nan_to_num(0.0, 127.0, -127.0).round().to(torch.int8), scale


@misconception("3.1", "quantize_rows")
def rows_in_their_own_dtype(weight):
    """You compute in the dtype of the weight. In float16 and bfloat16 the quotient is off by more
    than the rounding that you are about to do: go to float32 first, and keep the scale there.
    """
    check_matrix(weight)
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    q = (weight / scale).round().clamp(-127, 127)
    return q.where(scale > 0, 0).to(torch.int8), scale.float()


@misconception("3.1", "quantize_rows")
def infinities_taken(weight):
    """You take an infinity for a number. It becomes the scale of its row, and every other number
    of that row 0: call check_matrix first, which refuses it by name.
    """
    wide = weight.float()
    scale = wide.abs().amax(dim=1, keepdim=True) / 127
    q = (wide / scale).nan_to_num(0.0).round().clamp(-127, 127)
    return q.where(scale > 0, 0).to(torch.int8), scale
