"""Chapter 03: fewer bits a weight, and how they lie in a byte.

A weight is stored as a small integer q and a scale that many weights share: w ~ scale * q, or
w ~ scale * q + minimum. The distance between two neighbours on that grid is one step, the scale;
rounding to the nearest moves a weight by half a step at most.

Shapes: a weight is [out, in], as everywhere in the engine; G groups of `group_size` numbers each
make up a row, the last one filled up.
"""

import torch
from torch import Tensor

GROUP_BITS = (2, 3, 4, 8)
PER_BYTE = {8: 1, 4: 2, 3: 2, 2: 4}  # numbers in a byte: 3 bits take the room of 4


def check_matrix(weight: Tensor) -> None:
    """Refuse what cannot be quantized: one infinity would be the scale of all its neighbours.

    Args:
        weight: anything.

    Errors: ValueError when it is not a floating-point matrix with at least one number, or holds an
    infinity or NaN; then the first row with one is named, from 0.
    """
    if weight.ndim != 2 or not weight.is_floating_point() or not weight.numel():
        raise ValueError(
            "a weight to quantize is a matrix [out, in] of floats, not "
            f"{str(weight.dtype).removeprefix('torch.')} {list(weight.shape)}"
        )
    bad = ~(weight.amin(dim=1).isfinite() & weight.amax(dim=1).isfinite())  # NaN is both
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(f"row {row} holds an infinity or NaN: no scale fits it")


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric int8: each row is divided by a scale of its own and rounded, w ~ scale * q.

    A row is what one output number is made of, so its scale can be applied after the product.
    Zero stays exactly zero.

    Args:
        weight: [out, in] float32, float16 or bfloat16; all arithmetic is in float32.

    Returns:
        (q, scale): int8 [out, in] from -127 to 127, and float32 [out, 1], the largest absolute
        value of the row divided by 127. q is w / scale rounded to the nearest integer, a half to
        the even one. Where the scale is 0, which is a row of zeros or of numbers too small to be
        divided by 127, q is 0. weight itself is not changed.

        |w - scale * q| is at most half the scale, plus the rounding of float32: about a millionth
        of the row's largest number, and 1e-43 where that is under 1e-36.

    Errors: ValueError from check_matrix.

    Source: Jacob et al. 2018, section 2.1, with the zero point at 0 and -128 unused.
    """
    # exercise 3.1
    check_matrix(weight)
    wide = weight.float()
    scale = wide.abs().amax(dim=1, keepdim=True) / 127
    step = scale.masked_fill(scale == 0, torch.inf)  # where there is none, q becomes 0
    return (wide / step).round().clamp(-127, 127).to(torch.int8), scale


def quantize_groups(
    weight: Tensor, bits: int, group_size: int, scale_dtype: torch.dtype = torch.float16
) -> tuple[Tensor, Tensor, Tensor]:
    """Affine n-bit: each group of a row has its own scale and minimum, w ~ scale * q + minimum.

    A large weight then spoils the steps of its own group only, not of the whole row.

    Args:
        weight: [out, in] float32, float16 or bfloat16; all arithmetic is in float32.
        bits: 2, 3, 4 or 8.
        group_size: numbers of a row that share a scale, at least 1. Where it does not divide
            `in`, the last group is filled up by repeating the last number of the row: that
            moves neither its minimum nor its maximum.
        scale_dtype: what scale and minimum are stored in.

    Returns:
        (q, scale, minimum): uint8 [out, G * group_size] from 0 to 2 ** bits - 1, and two
        [out, G] in scale_dtype. With lo and hi the smallest and largest number of a group,
        minimum is lo, and scale is (hi - lo) / (2 ** bits - 1), each rounded to scale_dtype. q is
        made for these stored values, since they are all that is left when it is read back:
        (w - minimum) / scale rounded to the nearest integer, a half to the even one, and clamped
        to the range. Where the scale is 0, q is 0. weight itself is not changed.

        |w - (scale * q + minimum)| is at most half the scale, plus what rounding moved:
        |minimum - lo| + (2 ** bits - 1) * |scale - (hi - lo) / (2 ** bits - 1)|. With float32
        that is next to nothing; with float16 it is at most
        2 ** -11 * (|lo| + hi - lo) + 2 ** (bits - 25) + 2 ** -25.

    Errors: ValueError from check_matrix; for bits or a group_size that is none of the above; and
    for numbers whose scale or minimum is infinite in scale_dtype: the message names that dtype.

    Source: the Q4_1 blocks of ggml, here for any number of bits and any size of a group.
    """
    # exercise 3.2
    check_matrix(weight)
    _check_groups(bits, group_size)
    groups, levels = _grouped(weight.float(), group_size), 2**bits - 1
    lo, hi = groups.amin(dim=-1, keepdim=True), groups.amax(dim=-1, keepdim=True)
    scale, minimum = ((hi - lo) / levels).to(scale_dtype), lo.to(scale_dtype)
    if not bool((scale.isfinite() & minimum.isfinite()).all()):
        name = str(scale_dtype).removeprefix("torch.")
        raise ValueError(f"the weights reach beyond what {name} holds: use a wider scale_dtype")
    step = scale.float().masked_fill(scale == 0, torch.inf)  # where there is none, q becomes 0
    q = ((groups - minimum.float()) / step).round().clamp(0, levels).to(torch.uint8)
    return q.flatten(1), scale.squeeze(-1), minimum.squeeze(-1)


def _check_groups(bits: int, group_size: int) -> None:
    if bits not in GROUP_BITS:
        raise ValueError(f"bits must be one of {GROUP_BITS}, not {bits!r}")
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, not {group_size!r}")


def _grouped(weight: Tensor, group_size: int) -> Tensor:
    """[out, in] -> [out, G, group_size], the last group filled up with the row's last number."""
    missing = -weight.shape[1] % group_size
    if missing:
        weight = torch.cat((weight, weight[:, -1:].expand(-1, missing)), dim=1)
    return weight.unflatten(1, (-1, group_size))


def pack(q: Tensor, bits: int) -> Tensor:
    """Several small numbers into each byte, the first in its lowest bits.

    A byte holds one number of 8 bits, two of 4, four of 2. Two of 3 bits: each takes the room of
    4, so 3 bits save nothing over 4 here. (Eight of them would fit into three bytes, at the price
    of numbers that lie across the border of two bytes.)

    Args:
        q: [..., N] uint8, each at most 2 ** bits - 1.
        bits: 2, 3, 4 or 8.

    Returns:
        uint8 [..., ceil(N / numbers in a byte)]; what is left of a row's last byte is 0.

    Errors: ValueError for other bits, for another dtype, and for a number that does not fit,
    which it names: its upper bits would land in its neighbour.
    """
    # exercise 3.3
    _check_packable(q, bits)
    per_byte = _per_byte(bits)
    width = 8 // per_byte
    q = torch.nn.functional.pad(q, (0, -q.shape[-1] % per_byte)).unflatten(-1, (-1, per_byte))
    packed = torch.zeros(q.shape[:-1], dtype=torch.uint8, device=q.device)
    for place in range(per_byte):
        packed |= q[..., place] << width * place
    return packed


def _check_packable(q: Tensor, bits: int) -> None:
    _per_byte(bits)
    if q.dtype != torch.uint8:
        raise ValueError(f"pack takes uint8, not {str(q.dtype).removeprefix('torch.')}")
    if q.numel() and int(q.max()) >= 2**bits:
        raise ValueError(f"{int(q.max())} does not fit {bits} bits: at most {2**bits - 1} does")


def _per_byte(bits: int) -> int:
    if bits not in PER_BYTE:
        raise ValueError(f"bits must be one of {GROUP_BITS}, not {bits!r}")
    return PER_BYTE[bits]


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """The numbers that `pack` put into bytes, in their order.

    Args:
        packed: [..., bytes] uint8.
        bits: 2, 3, 4 or 8.
        count: N, how many numbers each row holds.

    Returns:
        uint8 [..., N], each at most 2 ** bits - 1, whatever the bytes hold. May share memory with
        packed.

    Errors: ValueError for other bits, and where `count` numbers do not take exactly the bytes that
    there are; the message names both.
    """
    # exercise 3.3
    per_byte = _per_byte(bits)
    if packed.shape[-1] != -(-count // per_byte):
        raise ValueError(f"{count} numbers of {bits} bits do not fill {packed.shape[-1]} bytes")
    width, mask = 8 // per_byte, 2**bits - 1
    if per_byte == 1:
        return packed
    places = [packed >> width * place & mask for place in range(per_byte)]
    return torch.stack(places, dim=-1).flatten(-2)[..., :count]
