"""4.4 feed_forward."""

import math

import torch

from course.cases import case, randn
from tests.grading.forward_pass.driving import drive
from tests.grading.forward_pass.tolerances import BF16, F16, F32, close, last_layer
from tests.oracles import forward_pass as oracle
from tests.reference.arrays import tiny


def swiglu(learner, rng, shape, wide, dtype=F32, size=1.0):
    """feed_forward on random weights, compared with the oracle."""
    narrow = shape[-1]
    x = (size * randn(rng, *shape)).to(dtype)
    gate, up = (randn(rng, wide, narrow) / narrow**0.5 for _ in range(2))
    down = randn(rng, narrow, wide) / wide**0.5
    gate, up, down = gate.to(dtype), up.to(dtype), down.to(dtype)
    got = learner.feed_forward(x, gate, up, down)
    expected = oracle.feed_forward(x, gate, up, down)
    close(got, expected, "feed_forward", dtype, f"for {list(shape)} it")


@case("4.4")
def feed_forward_by_hand(learner, rng):
    """With one number: x = 2, gate 1, up 3, down 0.5 gives silu(2) * 6 * 0.5 = 5.2848."""
    numbers = [torch.tensor([[number]]) for number in (1.0, 3.0, 0.5)]
    got = learner.feed_forward(torch.tensor([2.0]), *numbers)
    close(got, [2 / (1 + math.exp(-2)) * 6 * 0.5], "feed_forward")


@case("4.4")
def feed_forward_as_in_transformers(learner, rng):
    """Real hidden states come out as from Hugging Face's Llama."""
    for name in ("tied", "untied"):
        weights = [last_layer(name, f"mlp.{part}_proj") for part in ("gate", "up", "down")]
        got = learner.feed_forward(tiny(name)["whole.mlp.in"].float(), *weights)
        close(got, tiny(name)["whole.mlp.out"], "feed_forward")


@case("4.4")
def feed_forward_of_any_shape(learner, rng):
    """x may have any number of dimensions before the last; E and F are any sizes."""
    for shape in ((5,), (3, 12), (2, 4, 7), (1, 2, 3, 8)):
        swiglu(learner, rng, shape, rng.choice([4, 9, 33]))


@case("4.4")
def feed_forward_of_large_numbers(learner, rng):
    """Large gate values, of either sign, neither overflow nor become NaN."""
    swiglu(learner, rng, (4, 10), 16, size=3e4)


@case("4.4")
def feed_forward_in_16_bits(learner, rng):
    """Half precision comes back in its own dtype."""
    for dtype in (F16, BF16):
        swiglu(learner, rng, (2, 3, 16), 24, dtype)


@case("4.4")
def feed_forward_of_gates_in_16_bits(learner, rng):
    """Gate values of 20 and more, of either sign, are nothing special in half precision: exp(20)
    is infinite in float16, silu(20) and silu(-20) are not.
    """
    for dtype in (F16, BF16):
        swiglu(learner, rng, (2, 3, 16), 24, dtype, size=20.0)


@case("4.4")
def feed_forward_of_a_view(learner, rng):
    """It does not matter how x lies in memory: a transposed tensor is as good as any."""
    x, gate, up, down = (randn(rng, *shape) for shape in ((3, 4, 6), (8, 6), (8, 6), (6, 8)))
    got = drive(learner, "on_views", "feed_forward", x, gate, up, down)
    close(got, oracle.feed_forward(x, gate, up, down), "feed_forward")


@case("4.4")
def feed_forward_through_linear(learner, rng):
    """All three products go through `linear`, whatever the weights are: here it alone can read
    them, or it doubles every product.
    """
    x, gate, up, down = (randn(rng, *shape) for shape in ((3, 6), (8, 6), (8, 6), (6, 8)))
    got = drive(learner, "feed_forward_packed", x, gate, up, down)
    close(got, oracle.feed_forward(x, gate, up, down), "feed_forward")
    got = drive(learner, "feed_forward_doubled", x, gate, up, down)
    expected = oracle.feed_forward(x, 2 * gate, 2 * up, 2 * down)
    close(got, expected, "feed_forward", what="with a linear that doubles its products it")
