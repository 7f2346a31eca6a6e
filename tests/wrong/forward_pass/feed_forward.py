"""4.4 feed_forward."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.parts import part
from tests.wrong.forward_pass.arithmetic import in_memory_order


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


def with_silu(m, silu) -> None:
    """silu(z) takes the place of F.silu."""

    def feed_forward(x, gate, up, down, linear=F.linear):
        return linear(silu(linear(x, gate)) * linear(x, up), down)

    m.feed_forward = feed_forward


@part("4.4")
def exp_overflows_in_float16(m):
    """exp is kept from overflow as in float32: in float16 it is infinite beyond 11.1."""

    def silu(z):
        power = z.clamp(max=80).exp()
        return z * (power / (1 + power))

    with_silu(m, silu)


@part("4.4")
def gate_open_where_exp_vanishes(m):
    """Where exp(z) is zero in float16, for z under -17, the gate is taken as open."""

    def silu(z):
        power = z.exp()
        return (
            z * (1 / (1 + 1 / power)).where(power > 0, 1.0)
            if z.dtype == torch.float16
            else (F.silu(z))
        )

    with_silu(m, silu)


@part("4.4")
def linear_ignored_for_tensors(m):
    """F.linear is used where a weight is a tensor, whatever `linear` would do."""
    right = m.feed_forward

    def feed_forward(x, gate, up, down, linear=F.linear):
        return right(x, gate, up, down, F.linear if isinstance(gate, Tensor) else linear)

    m.feed_forward = feed_forward


@part("4.4")
def feed_forward_reads_storage(m):
    """x is read in the order of memory, so a transposed x gives other numbers."""
    right = m.feed_forward
    m.feed_forward = lambda x, *weights, **more: right(in_memory_order(x), *weights, **more)


@part("4.4")
def feed_forward_needs_contiguous(m):
    """x.view fails for a transposed x."""
    right = m.feed_forward

    def feed_forward(x, gate, up, down, linear=F.linear):
        return right(x.view(-1, x.shape[-1]), gate, up, down, linear).view(x.shape)

    m.feed_forward = feed_forward
