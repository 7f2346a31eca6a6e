"""3.1 quantize_rows, 3.2 quantize_groups."""

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


@part("3.1")
def the_last_bad_row(m):
    """Of several rows with an infinity the last one is named."""
    right = m.quantize_rows

    def quantize_rows(weight):
        if weight.ndim == 2 and weight.numel() and weight.is_floating_point():
            bad = (~weight.isfinite().all(1)).nonzero()
            if len(bad):
                raise ValueError(f"row {int(bad[-1])} is not finite")
        return right(weight)

    m.quantize_rows = quantize_rows


@part("3.1")
def rows_not_clamped(m):
    """Nothing is clamped: where the scale is a denormal, the quotient is far beyond 127."""

    def quantize_rows(weight):
        m.check_matrix(weight)
        scale = weight.float().abs().amax(1, keepdim=True) / 127
        q = (weight.float() / scale).where(scale > 0, 0).round()
        return q.to(torch.int16).to(torch.int8), scale

    m.quantize_rows = quantize_rows


def read_as_it_lies(weight):
    """The numbers of a matrix in the order of memory."""
    if weight.ndim != 2 or weight.is_contiguous():
        return weight
    return torch.as_strided(weight, weight.shape, (weight.shape[1], 1))


@part("3.1")
def rows_read_storage(m):
    """The weight is read in the order of memory."""
    right = m.quantize_rows
    m.quantize_rows = lambda weight: right(read_as_it_lies(weight))


@part("3.2")
def groups_read_storage(m):
    """The weight is read in the order of memory."""
    right = m.quantize_groups
    m.quantize_groups = lambda weight, *args: right(read_as_it_lies(weight), *args)


@part("3.2")
def float16_unless_float32(m):
    """A scale_dtype of bfloat16 is taken for float16."""
    right = m.quantize_groups

    def quantize_groups(weight, bits, group_size, scale_dtype=torch.float16):
        wide = scale_dtype == torch.float32
        return right(weight, bits, group_size, torch.float32 if wide else torch.float16)

    m.quantize_groups = quantize_groups


@part("3.2")
def large_weights_refused(m):
    """Weights over 65504 are refused, although scale and minimum would fit."""
    right = m.quantize_groups

    def quantize_groups(weight, bits, group_size, scale_dtype=torch.float16):
        if scale_dtype == torch.float16 and weight.numel() and weight.abs().max() > 65504:
            m.check_matrix(weight)
            raise ValueError("beyond float16")
        return right(weight, bits, group_size, scale_dtype)

    m.quantize_groups = quantize_groups


@part("3.2")
def long_groups_refused(m):
    """A group of more than twice the row is refused."""
    right = m.quantize_groups

    def quantize_groups(weight, bits, group_size, *args):
        if group_size > 2 * weight.shape[-1]:
            raise ValueError("longer than the row")
        return right(weight, bits, group_size, *args)

    m.quantize_groups = quantize_groups


@part("3.2")
def groups_spoil_the_weight(m):
    """The minimum is subtracted from the weight itself."""
    right = m.quantize_groups

    def quantize_groups(weight, *args):
        found = right(weight, *args)
        weight.sub_(weight.min())
        return found

    m.quantize_groups = quantize_groups


@part("3.2")
def any_shape_grouped(m):
    """What is no matrix of floats is made one."""
    right = m.quantize_groups
    m.quantize_groups = lambda weight, *args: right(
        weight.float().reshape(-1, weight.shape[-1]), *args
    )


@part("3.2")
def a_little_added_to_the_scale(m):
    """1e-8 keeps the division from zero, and moves q where the scale is small."""

    def quantize_groups(weight, bits, group_size, scale_dtype=torch.float16):
        m.check_matrix(weight)
        m._check_groups(bits, group_size)
        groups = m._grouped(weight.float(), group_size)
        lo, hi = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
        scale, low = ((hi - lo) / (2**bits - 1)).to(scale_dtype), lo.to(scale_dtype)
        if not (scale.isfinite() & low.isfinite()).all():
            raise ValueError(f"beyond {scale_dtype}")
        q = ((groups - low.float()) / (scale.float() + 1e-8)).round().clamp(0, 2**bits - 1)
        q = q.where(scale > 0, 0).to(torch.uint8)
        return q.flatten(1), scale.squeeze(-1), low.squeeze(-1)

    m.quantize_groups = quantize_groups
