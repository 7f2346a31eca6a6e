"""4.1 rms_norm, 4.2 rope_tables and apply_rope."""

import torch

from tests.parts import part


@part("4.1")
def eps_in_float32_only(m):
    """16-bit inputs are normalised without eps: zeros become NaN."""
    right = m.rms_norm
    m.rms_norm = lambda x, weight, eps: right(x, weight, eps if x.dtype == torch.float32 else 0.0)


@part("4.1")
def mean_in_float16(m):
    """float16 is scaled against overflow instead of widened, so small squares become zero."""
    right = m.rms_norm

    def rms_norm(x, weight, eps):
        if x.dtype != torch.float16:
            return right(x, weight, eps)
        return x / ((x / 64).square().mean(-1, keepdim=True).sqrt() * 64) * weight

    m.rms_norm = rms_norm


@part("4.1")
def mean_clamped(m):
    """The mean is kept above 1e-5, whatever eps is."""

    def rms_norm(x, weight, eps):
        mean = (x.float().square().mean(-1, keepdim=True) + eps).clamp(min=1e-5)
        return (x.float() * torch.rsqrt(mean)).to(x.dtype) * weight

    m.rms_norm = rms_norm


def means(m, mean) -> None:
    """mean(x) [..., 1] takes the place of the mean of the squares; its dtype is computed in."""

    def rms_norm(x, weight, eps):
        scale = torch.rsqrt(mean(x) + eps)
        return (x.to(scale.dtype) * scale).to(x.dtype) * weight

    m.rms_norm = rms_norm


@part("4.1")
def mean_in_bfloat16(m):
    """Only float16 is widened: in bfloat16 squares, mean and root are rounded to 8 bits."""

    def mean(x):
        wide = x if x.dtype == torch.bfloat16 else x.float()
        return wide.square().mean(-1, keepdim=True)

    means(m, mean)


@part("4.1")
def squares_summed_one_by_one(m):
    """A running sum in 16 bits: it stands still when the next square is under its last digit."""
    means(m, lambda x: sum(x[..., i, None] ** 2 for i in range(x.shape[-1])) / x.shape[-1])


@part("4.1")
def mean_of_64_numbers(m):
    """Only the first 64 numbers of a vector count."""
    means(m, lambda x: x.float()[..., :64].square().mean(-1, keepdim=True))


@part("4.1")
def eps_of_at_least_1e_8(m):
    """An eps under 1e-8 counts as 1e-8."""
    right = m.rms_norm
    m.rms_norm = lambda x, weight, eps: right(x, weight, max(eps, 1e-8))


@part("4.1")
def norm_reads_storage(m):
    """x is read in the order of memory, so a transposed x gives other numbers."""
    right = m.rms_norm
    m.rms_norm = lambda x, weight, eps: right(in_memory_order(x), weight, eps)


@part("4.1")
def norm_needs_contiguous(m):
    """x.view fails for a transposed x."""
    right = m.rms_norm

    def rms_norm(x, weight, eps):
        return right(x.view(-1, x.shape[-1]), weight, eps).view(x.shape)

    m.rms_norm = rms_norm


def in_memory_order(x):
    """The same shape over the same memory, as if x were contiguous."""
    return torch.as_strided(x, x.shape, torch.empty(x.shape, device="meta").stride())


@part("4.2")
def rope_reads_storage(m):
    """x is read in the order of memory, so transposed heads give other numbers."""
    right = m.apply_rope
    m.apply_rope = lambda x, cos, sin: right(in_memory_order(x), cos, sin)


@part("4.2")
def tables_kept_by_shape(m):
    """Tables are kept and given again for other positions of the same shape."""
    right, kept = m.rope_tables, {}

    def rope_tables(positions, head_dim, theta):
        key = positions.shape, head_dim, theta
        if key not in kept:
            kept[key] = right(positions, head_dim, theta)
        return kept[key]

    m.rope_tables = rope_tables


@part("4.2")
def tables_end_at_8191(m):
    """Positions beyond 8191 get the angle of 8191."""
    right = m.rope_tables
    m.rope_tables = lambda positions, head_dim, theta: right(
        positions.clamp(max=8191), head_dim, theta
    )


@part("4.2")
def tables_nan_for_padding(m):
    """Position -1 gives NaN, which spreads through what is computed for padding."""
    right = m.rope_tables

    def rope_tables(positions, head_dim, theta):
        tables = right(positions, head_dim, theta)
        return tuple(t.masked_fill((positions < 0)[..., None], float("nan")) for t in tables)

    m.rope_tables = rope_tables


@part("4.2")
def theta_at_least_100(m):
    """A theta under 100 counts as 100."""
    right = m.rope_tables
    m.rope_tables = lambda positions, head_dim, theta: right(positions, head_dim, max(theta, 100.0))


@part("4.2")
def head_dim_of_one_accepted(m):
    """Only odd sizes above 2 are refused."""
    right = m.rope_tables
    m.rope_tables = lambda positions, head_dim, theta: right(
        positions, 2 if head_dim == 1 else head_dim, theta
    )


def replace_tables(m, angles) -> None:
    """angles(positions, head_dim, theta) gives the angles; odd sizes are refused."""

    def rope_tables(positions, head_dim, theta):
        if head_dim % 2:
            raise ValueError("odd")
        found = angles(positions, head_dim, theta)
        return found.cos().float(), found.sin().float()

    m.rope_tables = rope_tables


@part("4.2")
def pairs_of_64_numbers(m):
    """Pair 32 and those after it turn like pair 31."""

    def angles(positions, head_dim, theta):
        pairs = torch.arange(0, head_dim, 2).clamp(max=62)
        return positions[..., None].float() * theta ** (-pairs.float() / head_dim)

    replace_tables(m, angles)


@part("4.2")
def positions_of_64_bits_only(m):
    """Angles are looked up in a table by `gather`, which int32 positions break."""

    def angles(positions, head_dim, theta):
        speeds = theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)
        table = torch.arange(int(positions.max()) + 1)[:, None].float() * speeds
        index = positions.clamp(min=0).reshape(-1, 1).expand(-1, len(speeds))
        return table.gather(0, index).view(*positions.shape, -1)

    replace_tables(m, angles)


@part("4.2")
def large_odd_heads_accepted(m):
    """Only odd sizes under 8 are refused."""
    right = m.rope_tables
    m.rope_tables = lambda positions, head_dim, theta: right(
        positions, head_dim - (head_dim > 8 and head_dim % 2), theta
    )
