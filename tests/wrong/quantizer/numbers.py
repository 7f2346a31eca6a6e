"""3.1 quantize_rows, 3.2 quantize_groups, 3.3 pack and unpack."""

import torch

from tests.parts import part


@part("3.1")
def rows_spoil_the_weight(m):
    """The weight is divided in place when it is float32."""
    right = m.quantize_rows

    def quantize_rows(weight):
        found = right(weight)
        if weight.dtype == torch.float32:
            weight.mul_(1.5)
        return found

    m.quantize_rows = quantize_rows


@part("3.1")
def minus_128_used(m):
    """The most negative number of a row becomes -128."""
    right = m.quantize_rows

    def quantize_rows(weight):
        q, scale = right(weight)
        return q.masked_fill(q == -127, -128), scale

    m.quantize_rows = quantize_rows


@part("3.1")
def only_the_first_row_checked(m):
    """An infinity in a later row is taken."""
    right = m.quantize_rows

    def quantize_rows(weight):
        if weight.ndim == 2 and len(weight) > 1 and weight[0].isfinite().all():
            weight = weight.nan_to_num()
        return right(weight)

    m.quantize_rows = quantize_rows


@part("3.2")
def float32_by_default(m):
    """scale_dtype is float32 unless given."""
    right = m.quantize_groups
    m.quantize_groups = lambda weight, bits, size, dtype=torch.float32: right(
        weight, bits, size, dtype
    )


@part("3.2")
def scale_dtype_ignored(m):
    """Scale and minimum are float16 inside, whatever they are returned as."""
    right = m.quantize_groups

    def quantize_groups(weight, bits, group_size, scale_dtype=torch.float16):
        q, scale, minimum = right(weight, bits, group_size)
        return q, scale.to(scale_dtype), minimum.to(scale_dtype)

    m.quantize_groups = quantize_groups


@part("3.2")
def last_group_left_short(m):
    """The numbers that fill the last group up are not returned."""
    right = m.quantize_groups

    def quantize_groups(weight, *args, **kwargs):
        q, scale, minimum = right(weight, *args, **kwargs)
        return q[:, : weight.shape[1]].contiguous(), scale, minimum

    m.quantize_groups = quantize_groups


@part("3.2")
def three_bits_as_four(m):
    """3 bits are quantized like 4."""
    right = m.quantize_groups
    m.quantize_groups = lambda weight, bits, *rest, **more: right(
        weight, 4 if bits == 3 else bits, *rest, **more
    )


@part("3.2")
def float16_weights_in_float16(m):
    """The arithmetic is in the dtype of the weight."""
    right = m.quantize_groups

    def quantize_groups(weight, bits, group_size, scale_dtype=torch.float16):
        found = right(weight, bits, group_size, scale_dtype)
        if weight.dtype == torch.float32:
            return found
        step = (weight.amax() - weight.amin()) / (2**bits - 1)
        return found[0], found[1].to(step.dtype).to(scale_dtype), found[2]

    m.quantize_groups = quantize_groups


@part("3.3")
def other_bits_taken(m):
    """Any number of bits is packed like 4."""
    right = m.pack
    m.pack = lambda q, bits: right(q, bits if bits in (2, 3, 8) else 4)


@part("3.3")
def other_dtypes_taken(m):
    """Any dtype is converted to uint8."""
    right = m.pack
    m.pack = lambda q, bits: right(q.to(torch.uint8), bits)


@part("3.3")
def pack_reads_storage(m):
    """q is read in the order of memory, so a transposed q gives other bytes."""
    right = m.pack

    def pack(q, bits):
        strides = torch.empty(q.shape, device="meta").stride()
        return right(torch.as_strided(q, q.shape, strides), bits)

    m.pack = pack


@part("3.3")
def three_bits_unmasked(m):
    """unpack keeps 4 bits where 3 were packed, and reads 2 bits with the mask of 3."""
    right = m.unpack

    def unpack(packed, bits, count):
        if bits == 2:
            many = torch.stack([packed >> s & 7 for s in (0, 2, 4, 6)], dim=-1)
            right(packed, bits, count)
            return many.flatten(-2)[..., :count]
        return right(packed, bits, count)

    m.unpack = unpack
