"""4.1 rms_norm, 4.2 rope_tables and apply_rope, 4.4 feed_forward."""

import math

import torch

from course.cases import case, expect_raises, randn
from tests.grading.forward_pass.driving import drive
from tests.grading.forward_pass.tolerances import BF16, F16, F32, close, places
from tests.oracles import forward_pass as oracle
from tests.reference.arrays import tiny, tiny_config, tiny_weights


def last_layer(name: str, part: str) -> torch.Tensor:
    """A weight of the last layer of a tiny model."""
    layer = tiny_config(name)["num_hidden_layers"] - 1
    return tiny_weights(name)[f"model.layers.{layer}.{part}.weight"]


# --- 4.1 ---


@case("4.1")
def norm_by_hand(learner, rng):
    """[3, 4] has a mean square of 12.5; with eps 3.5 the root is 4, so it becomes [0.75, 1]."""
    got = learner.rms_norm(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 1.0]), 3.5)
    close(got, [0.75, 1.0], "rms_norm")


@case("4.1")
def norm_of_each_vector_alone(learner, rng):
    """The mean is taken over the last dimension only, whatever the number of dimensions."""
    size = rng.randrange(3, 40)
    weight = randn(rng, size)
    for shape in ((size,), (1, size), (2, 3, size), (2, 1, 3, size)):
        x = 2 * randn(rng, *shape) + 1
        got = learner.rms_norm(x, weight, 1e-5)
        close(got, oracle.rms_norm(x, weight, 1e-5), "rms_norm", what=f"for {list(shape)} it")


@case("4.1")
def norm_as_in_transformers(learner, rng):
    """Real hidden states come out as from Hugging Face's Llama."""
    for name in ("tied", "untied"):
        x, weight = tiny(name)["whole.norm.in"].float(), last_layer(name, "input_layernorm")
        got = learner.rms_norm(x, weight, tiny_config(name)["rms_norm_eps"])
        close(got, tiny(name)["whole.norm.out"], "rms_norm")


@case("4.1")
def norm_eps_inside_the_root(learner, rng):
    """eps is added to the mean of the squares, under the root: it matters for small vectors."""
    weight = randn(rng, 24)
    for size, eps in ((1e-2, 1e-3), (1e-4, 1e-8)):
        x = size * randn(rng, 4, 24)
        got = learner.rms_norm(x, weight, eps)
        close(got, oracle.rms_norm(x, weight, eps), "rms_norm", what=f"with eps {eps} it")


@case("4.1")
def norm_of_zeros(learner, rng):
    """A vector of zeros gives zeros, not NaN, in any dtype."""
    for dtype in (F32, F16, BF16):
        x, weight = torch.zeros(2, 8, dtype=dtype), randn(rng, 8, dtype=dtype)
        for eps in (1e-6, 1e-10):
            close(learner.rms_norm(x, weight, eps), x, "rms_norm", dtype)


@case("4.1")
def norm_of_large_numbers(learner, rng):
    """Large float32 numbers are scaled like any others."""
    x, weight = 1e15 * randn(rng, 3, 16), randn(rng, 16)
    close(learner.rms_norm(x, weight, 1e-5), oracle.rms_norm(x, weight, 1e-5), "rms_norm")


@case("4.1")
def norm_in_16_bits(learner, rng):
    """Half precision comes back in its own dtype."""
    for dtype in (F16, BF16):
        x, weight = randn(rng, 2, 5, 32, dtype=dtype), randn(rng, 32, dtype=dtype)
        got = learner.rms_norm(x, weight, 1e-5)
        close(got, oracle.rms_norm(x, weight, 1e-5), "rms_norm", dtype)


@case("4.1")
def norm_squares_beyond_float16(learner, rng):
    """The mean is taken in float32: squares of float16 numbers above 255 must not be infinite."""
    x, weight = 2000 * randn(rng, 4, 32, dtype=F16), randn(rng, 32, dtype=F16)
    got = learner.rms_norm(x, weight, 1e-5)
    close(got, oracle.rms_norm(x, weight, 1e-5), "rms_norm", F16)


@case("4.1")
def norm_of_small_float16_numbers(learner, rng):
    """The squares of small float16 numbers are taken in float32, where they are not zero."""
    x, weight = 1e-3 * randn(rng, 4, 32, dtype=F16), randn(rng, 32, dtype=F16)
    got = learner.rms_norm(x, weight, 1e-6)
    close(got, oracle.rms_norm(x, weight, 1e-6), "rms_norm", F16)


@case("4.1")
def norm_of_a_view(learner, rng):
    """It does not matter how x lies in memory: a transposed tensor is as good as any."""
    x, weight = randn(rng, 3, 4, 12), randn(rng, 12)
    got = drive(learner, "on_views", "rms_norm", x, weight, 1e-5)
    close(got, oracle.rms_norm(x, weight, 1e-5), "rms_norm")


# --- 4.2 ---


def tables(learner, positions, head_dim, theta, function="rope_tables"):
    """rope_tables, both of its results compared with the oracle."""
    got = learner.rope_tables(positions, head_dim, theta)
    angles = oracle.rope_angles(positions, head_dim, theta)
    for table, expected, what in zip(
        got, (torch.tensor(angles).cos(), torch.tensor(angles).sin()), ("cos", "sin"), strict=True
    ):
        close(table, expected, function, what=what)
    return angles


def rotated(learner, x, angles, dtype=F32, what="it"):
    """apply_rope with tables made from angles, compared with the oracle."""
    angles = torch.as_tensor(angles).float()
    got = learner.apply_rope(x, angles.cos(), angles.sin())
    close(got, oracle.apply_rope(x, angles), "apply_rope", dtype, what)
    return got


@case("4.2")
def tables_by_hand(learner, rng):
    """With D = 4 and theta = 10000 a position turns the pairs by 1 and by 0.01 radians."""
    cos, sin = learner.rope_tables(torch.tensor([[0, 1, 3]]), 4, 10000.0)
    angles = [[0.0, 0.0], [1.0, 0.01], [3.0, 0.03]]
    close(cos, [[[math.cos(a) for a in row] for row in angles]], "rope_tables", what="cos")
    close(sin, [[[math.sin(a) for a in row] for row in angles]], "rope_tables", what="sin")


@case("4.2")
def tables_for_any_size(learner, rng):
    """Pair i turns by theta ** (-2 i / D) radians a position, for any even D and any theta."""
    for head_dim, theta in ((2, 1e4), (6, 10.0), (16, 5e5), (64, 100.0)):
        positions = torch.tensor([rng.sample(range(64), 5), rng.sample(range(64), 5)])
        tables(learner, positions, head_dim, theta)


@case("4.2")
def tables_go_by_position(learner, rng):
    """A token's angle comes from its position, not its column; for padding it is any number."""
    for firsts in ([20, 0, 11], [3, 9, 0]):
        table = places(rng, [3, 7, 5], 8, firsts)
        real = table >= 0
        cos, sin = learner.rope_tables(table, 8, 1000.0)
        angles = torch.tensor(oracle.rope_angles(table, 8, 1000.0))
        for got, want, what in ((cos, angles.cos(), "cos"), (sin, angles.sin(), "sin")):
            close(got[real], want[real], "rope_tables", what=what)
            close(got[~real] * 0, torch.zeros_like(want[~real]), "rope_tables", what=what)


@case("4.2")
def tables_far_out(learner, rng):
    """Positions of many thousands, as in a long context, still have the right angles."""
    first = rng.randrange(8192, 12000)
    tables(learner, torch.arange(first, first + 6)[None], 16, 100000.0, "rope_tables far")


@case("4.2")
def tables_of_an_odd_head(learner, rng):
    """An odd head_dim has no pairs: ValueError."""
    for head_dim in (7, 1):
        with expect_raises("ValueError"):
            learner.rope_tables(torch.tensor([[0, 1]]), head_dim, 10000.0)


@case("4.2")
def rope_by_hand(learner, rng):
    """A quarter turn of pair 0 takes [1, 2, 3, 4] to [-3, 2, 1, 4]: 1 is paired with 3."""
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4)
    cos, sin = torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[1.0, 0.0]]])
    close(learner.apply_rope(x, cos, sin), [[[[-3.0, 2.0, 1.0, 4.0]]]], "apply_rope")


@case("4.2")
def rope_of_any_size(learner, rng):
    """Each pair (x[i], x[i + D/2]) becomes (a cos - b sin, b cos + a sin)."""
    for batch, heads, length, head_dim in (
        (1, 1, 1, 2),
        (3, 3, 1, 4),
        (2, 3, 5, 8),
        (2, 1, 4, 6),
        (1, 9, 2, 64),
    ):
        x, angles = (
            randn(rng, batch, heads, length, head_dim),
            randn(rng, batch, length, head_dim // 2),
        )
        rotated(learner, x, 3 * angles, what=f"for {list(x.shape)} it")


@case("4.2")
def rope_turns_all_heads_alike(learner, rng):
    """The angle depends on the token, not on the head: here there are as many heads as tokens."""
    rotated(learner, randn(rng, 4, 4, 4, 8), 3 * randn(rng, 4, 4, 4))


@case("4.2")
def rope_as_in_transformers(learner, rng):
    """Real queries and keys come out as from Hugging Face's Llama."""
    for name in ("tied", "untied"):
        arrays, half = tiny(name), tiny_config(name)["head_dim"] // 2
        batch = len(arrays["whole.q"])
        cos, sin = (arrays[f"whole.{n}"][..., :half].float() for n in ("cos", "sin"))
        cos, sin = cos.repeat(batch, 1, 1), sin.repeat(batch, 1, 1)
        for which in ("q", "k"):
            got = learner.apply_rope(arrays[f"whole.{which}"].float(), cos, sin)
            close(got, arrays[f"whole.{which}_rotated"], "apply_rope", what=f"{which} rotated")


@case("4.2")
def rope_in_16_bits(learner, rng):
    """The result has the dtype of x, although the tables are float32."""
    for dtype in (F16, BF16):
        rotated(learner, randn(rng, 2, 3, 4, 8, dtype=dtype), 3 * randn(rng, 2, 4, 4), dtype)


@case("4.2")
def rope_of_a_view(learner, rng):
    """It does not matter how x lies in memory: heads that were split off are transposed."""
    x, angles = randn(rng, 2, 3, 5, 8), randn(rng, 2, 5, 4)
    got = drive(learner, "on_views", "apply_rope", x, angles.cos(), angles.sin())
    close(got, oracle.apply_rope(x, angles), "apply_rope")


# --- 4.4 ---


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
def feed_forward_through_linear(learner, rng):
    """All three products go through `linear`: here it alone can read the weights."""
    x, gate, up, down = (randn(rng, *shape) for shape in ((3, 6), (8, 6), (8, 6), (6, 8)))
    got = drive(learner, "feed_forward_packed", x, gate, up, down)
    close(got, oracle.feed_forward(x, gate, up, down), "feed_forward")
