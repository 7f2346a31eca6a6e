"""3.3 pack and unpack."""

import torch

from tests.parts import part


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


@part("3.3")
def seven_bits_as_eight(m):
    """6 and 7 bits are packed like 8."""
    right = m.pack
    m.pack = lambda q, bits: right(q, 8 if bits in (6, 7) else bits)


@part("3.3")
def truth_values_packed(m):
    """bool is packed like uint8."""
    right = m.pack
    m.pack = lambda q, bits: right(q.to(torch.uint8) if q.dtype == torch.bool else q, bits)


@part("3.3")
def three_bits_with_the_mask_of_four(m):
    """A byte of ones holds 15 and 15 in 3 bits."""
    right = m.unpack
    m.unpack = lambda packed, bits, count: right(packed, 4 if bits == 3 else bits, count)


@part("3.3")
def five_bits_unpacked_as_four(m):
    """Any other number of bits is unpacked like 4."""
    right = m.unpack
    m.unpack = lambda packed, bits, count: right(packed, bits if bits in (2, 3, 8) else 4, count)


@part("3.3")
def none_of_the_bytes(m):
    """A count of 0 is always right."""
    right = m.unpack
    m.unpack = lambda packed, bits, count: right(packed, bits, count) if count else packed[..., :0]
