"""Chapter 03: a quantized weight as one thing, and the only product that knows what it is."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from solutions.quantize import (
    GROUP_BITS,
    PER_BYTE,
    pack,
    quantize_groups,
    quantize_rows,
    unpack,
)


@dataclass(frozen=True)
class Format:
    """How a weight is quantized: how many bits a number, and how many numbers share a scale.

    Args:
        bits: 2, 3, 4 or 8.
        group_size: numbers in a group (affine, float16 scale and minimum); None for symmetric
            int8, one float32 scale a row, which 8 bits alone can have.

    Errors: ValueError for anything else.
    """

    bits: int
    group_size: int | None = None

    def __post_init__(self):
        bits, size = self.bits, self.group_size
        if type(bits) is not int or bits not in GROUP_BITS:
            raise ValueError(f"bits must be one of {GROUP_BITS}, not {bits!r}")
        if size is None and bits != 8:
            raise ValueError(f"rows without groups are int8: give {bits} bits a group_size")
        if size is not None and (type(size) is not int or size < 1):
            raise ValueError(f"group_size must be a whole number from 1, not {size!r}")

    def __str__(self) -> str:
        if self.group_size is None:
            return "int8 rows"
        return f"{self.bits} bits, groups of {self.group_size}"


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """A weight [out, in] in few bits, with what it takes to read it back.

    Args:
        data: int8 [out, in] for rows; for groups uint8 [out, bytes], the packed numbers of G
            whole groups.
        scale: float32 [out, 1] for rows, [out, G] for groups.
        minimum: [out, G] in the dtype of scale; None for rows.
        bits, group_size: as in Format.
        shape: (out, in), what the weight was before.
    """

    data: Tensor
    scale: Tensor
    minimum: Tensor | None
    bits: int
    group_size: int | None
    shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers and of all scales and minimums: what memory and disk really hold."""
        # exercise 3.4
        parts = (self.data, self.scale, self.minimum)
        return sum(part.nbytes for part in parts if part is not None)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight as floats again: scale * q, or scale * q + minimum.

        Args:
            dtype: of the result; the arithmetic is in float32.

        Returns:
            [out, in] in dtype, in memory of its own; what filled up the last group is cut off.
        """
        # exercise 3.4
        if self.minimum is None:
            return (self.data.float() * self.scale).to(dtype)
        groups = self.scale.shape[1]
        q = unpack(self.data, self.bits, groups * self.group_size).float()
        wide = q.unflatten(1, (groups, self.group_size))  # [out, G, group_size]
        wide.mul_(self.scale.float()[..., None]).add_(self.minimum.float()[..., None])
        return wide.flatten(1)[:, : self.shape[1]].to(dtype)


def quantize(weight: Tensor, format: Format) -> QuantizedTensor:
    """A weight in this format: by rows or by groups, and packed.

    Args:
        weight: [out, in] float32, float16 or bfloat16.
        format: the bits and the group size.

    Returns:
        a QuantizedTensor of the same shape, as a tuple of ints. It shares no memory with weight.

    Errors: the ValueErrors of quantize_rows and quantize_groups.
    """
    # exercise 3.4
    shape = tuple(weight.shape)
    if format.group_size is None:
        q, scale = quantize_rows(weight)
        return QuantizedTensor(q, scale, None, format.bits, None, shape)
    q, scale, minimum = quantize_groups(weight, format.bits, format.group_size)
    packed = pack(q, format.bits)
    return QuantizedTensor(packed, scale, minimum, format.bits, format.group_size, shape)


def linear(x: Tensor, weight: Tensor | QuantizedTensor) -> Tensor:
    """The product x @ weight.T: the one place that knows what a weight is made of.

    Reads a quantized weight back first, every time, and keeps nothing of that: kept floats would be
    the whole model at 32 bits. Chapter 09 multiplies with the packed numbers themselves. The scale
    of a row is the same for all numbers that are added up, so it may as well be applied to their
    sum.

    Args:
        x: [..., in] float32, float16 or bfloat16; not changed.
        weight: [out, in], a Tensor in the dtype of x or a QuantizedTensor.

    Returns:
        [..., out] in the dtype of x. With numbers of x up to 1e30 it is finite wherever the product
        with the dequantized weight is.
    """
    # exercise 3.4
    if isinstance(weight, Tensor):
        return F.linear(x, weight)
    if weight.minimum is None and x.dtype == torch.float32:  # in 16 bits the sum might overflow
        return F.linear(x, weight.data.float()) * weight.scale.squeeze(1)
    return F.linear(x, weight.dequantize(x.dtype))


def stored_parts(
    format: Format, shape: tuple[int, int]
) -> dict[str, tuple[torch.dtype, tuple[int, int]]]:
    """The dtype and shape of every part of a weight [out, in] in this format, by field name."""
    rows, columns = shape
    if format.group_size is None:
        return {"data": (torch.int8, (rows, columns)), "scale": (torch.float32, (rows, 1))}
    groups = -(-columns // format.group_size)
    width = -(-groups * format.group_size // PER_BYTE[format.bits])
    of_groups = (torch.float16, (rows, groups))
    return {"data": (torch.uint8, (rows, width)), "scale": of_groups, "minimum": of_groups}
