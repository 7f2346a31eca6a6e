"""4.1 rms_norm, 4.2 rope_tables and apply_rope, 4.4 feed_forward."""

import torch
import torch.nn.functional as F
from torch import Tensor

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


@part("4.4")
def gate_clamped(m):
    """The gate is kept within 5000."""

    def feed_forward(x, gate, up, down, linear=F.linear):
        return linear(F.silu(linear(x, gate).clamp(-5000, 5000)) * linear(x, up), down)

    m.feed_forward = feed_forward


@part("4.4")
def x_spoilt_with_other_weights(m):
    """x is changed in place, though only when the weights are not tensors."""
    right = m.feed_forward

    def feed_forward(x, gate, up, down, linear=F.linear):
        found = right(x, gate, up, down, linear)
        if not isinstance(gate, Tensor):
            x.zero_()
        return found

    m.feed_forward = feed_forward
