"""Wrong versions of 3.3 pack and unpack."""

import torch
import torch.nn.functional as F

from course.misconceptions import misconception
from solutions.quantize import _check_packable, _per_byte


@misconception("3.3", "pack")
def first_in_the_highest_bits(q, bits):
    """You put the first number into the highest bits of the byte. It belongs into the lowest: two
    numbers of 4 bits are first + 16 * second.
    """
    _check_packable(q, bits)
    per_byte = _per_byte(bits)
    q = F.pad(q, (0, -q.shape[-1] % per_byte)).unflatten(-1, (-1, per_byte))
    packed = torch.zeros(q.shape[:-1], dtype=torch.uint8)
    for place in range(per_byte):
        packed |= q[..., place] << 8 // per_byte * (per_byte - 1 - place)
    return packed


@misconception("3.3", "pack")
def halves_of_the_row(q, bits):
    """You pair a number of the first half of the row with one of the second, as GGUF does within
    its blocks. Here neighbours share a byte: 0 with 1, 2 with 3.
    """
    _check_packable(q, bits)
    per_byte = _per_byte(bits)
    q = F.pad(q, (0, -q.shape[-1] % per_byte)).unflatten(-1, (per_byte, -1))
    packed = torch.zeros(q[..., 0, :].shape, dtype=torch.uint8)
    for place in range(per_byte):
        packed |= q[..., place, :] << 8 // per_byte * place
    return packed


@misconception("3.3", "pack")
def three_bits_apart(q, bits):
    """You shift numbers of 3 bits by 3. Each has the room of 4 here, so the second begins at bit
    4; packing them densely would need numbers that cross the border of a byte.
    """
    _check_packable(q, bits)
    per_byte = _per_byte(bits)
    q = F.pad(q, (0, -q.shape[-1] % per_byte)).unflatten(-1, (-1, per_byte))
    packed = torch.zeros(q.shape[:-1], dtype=torch.uint8)
    for place in range(per_byte):
        packed |= q[..., place] << bits * place
    return packed


@misconception("3.3", "pack")
def spilled_into_the_neighbour(q, bits):
    """You pack numbers that are too large for their bits. Their upper bits land in the neighbour,
    and both read back wrong: refuse them, and name one.
    """
    per_byte = _per_byte(bits)
    if q.dtype != torch.uint8:
        raise ValueError(f"pack takes uint8, not {q.dtype}")
    q = F.pad(q, (0, -q.shape[-1] % per_byte)).unflatten(-1, (-1, per_byte))
    packed = torch.zeros(q.shape[:-1], dtype=torch.uint8)
    for place in range(per_byte):
        packed |= q[..., place] << 8 // per_byte * place
    return packed


@misconception("3.3", "pack")
def compared_in_uint8(q, bits):
    """You ask whether q >= 2 ** bits in uint8, which has no 256: with 8 bits it becomes 0, and all
    numbers seem too large. Compare with 2 ** bits - 1, or take int(q.max()).
    """
    per_byte = _per_byte(bits)
    if q.dtype != torch.uint8:
        raise ValueError(f"pack takes uint8, not {q.dtype}")
    if bool((q >= 2**bits).any()):
        raise ValueError(f"{int(q.max())} does not fit {bits} bits")
    q = F.pad(q, (0, -q.shape[-1] % per_byte)).unflatten(-1, (-1, per_byte))
    packed = torch.zeros(q.shape[:-1], dtype=torch.uint8)
    for place in range(per_byte):
        packed |= q[..., place] << 8 // per_byte * place
    return packed


@misconception("3.3", "pack")
def packed_across_rows(q, bits):
    """You pack all numbers as one long list, so that a byte can hold the end of one row and the
    beginning of the next. Each row begins a new byte.
    """
    _check_packable(q, bits)
    per_byte = _per_byte(bits)
    flat = q.flatten()
    flat = F.pad(flat, (0, -len(flat) % per_byte)).unflatten(-1, (-1, per_byte))
    packed = torch.zeros(len(flat), dtype=torch.uint8)
    for place in range(per_byte):
        packed |= flat[..., place] << 8 // per_byte * place
    return packed.unflatten(0, (len(q), -1)) if len(packed) % len(q) == 0 else packed


@misconception("3.3", "unpack")
def not_masked(packed, bits, count):
    """You shift but do not mask. The lower number of a byte then still has the upper one in its
    high bits: & 2 ** bits - 1 keeps what belongs to it.
    """
    per_byte = _per_byte(bits)
    if packed.shape[-1] != -(-count // per_byte):
        raise ValueError(f"{count} numbers, {packed.shape[-1]} bytes")
    places = [packed >> 8 // per_byte * place for place in range(per_byte)]
    return torch.stack(places, dim=-1).flatten(-2)[..., :count]


@misconception("3.3", "unpack")
def three_bits_apart_in_the_byte(packed, bits, count):
    """You shift numbers of 3 bits by 3. Each has the room of 4 here: the second begins at bit 4,
    and the mask of 3 bits is for what is left after that.
    """
    per_byte = _per_byte(bits)
    if packed.shape[-1] != -(-count // per_byte):
        raise ValueError(f"{count} numbers, {packed.shape[-1]} bytes")
    mask = 2**bits - 1
    places = [packed >> bits * place & mask for place in range(per_byte)]
    return torch.stack(places, dim=-1).flatten(-2)[..., :count]


@misconception("3.3", "unpack")
def one_place_after_the_other(packed, bits, count):
    """You join all lower numbers, then all upper ones. Neighbours came out of one byte and have to
    stand beside each other again: stack on a new last dimension, then flatten.
    """
    per_byte = _per_byte(bits)
    if packed.shape[-1] != -(-count // per_byte):
        raise ValueError(f"{count} numbers, {packed.shape[-1]} bytes")
    mask = 2**bits - 1
    places = [packed >> 8 // per_byte * place & mask for place in range(per_byte)]
    return torch.cat(places, dim=-1)[..., :count]


@misconception("3.3", "unpack")
def the_filling_kept(packed, bits, count):
    """You return every number that the bytes have room for. The last byte may not be full: cut to
    `count`.
    """
    per_byte = _per_byte(bits)
    if packed.shape[-1] != -(-count // per_byte):
        raise ValueError(f"{count} numbers, {packed.shape[-1]} bytes")
    mask = 2**bits - 1
    places = [packed >> 8 // per_byte * place & mask for place in range(per_byte)]
    return torch.stack(places, dim=-1).flatten(-2)


@misconception("3.3", "unpack")
def count_believed(packed, bits, count):
    """You cut to `count` without asking whether it fits the bytes. Too large a count gives too
    few numbers without a word: compare it with the number of bytes first.
    """
    mask, per_byte = 2**bits - 1, _per_byte(bits)
    places = [packed >> 8 // per_byte * place & mask for place in range(per_byte)]
    return torch.stack(places, dim=-1).flatten(-2)[..., :count]
