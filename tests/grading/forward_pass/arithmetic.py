"""4.1 rms_norm, 4.2 rope_tables and apply_rope."""

import math

import torch

from course.cases import case, expect_raises, expect_tensor, randn, short
from tests.grading.forward_pass.driving import drive
from tests.grading.forward_pass.tolerances import BF16, F16, F32, close, last_layer, places
from tests.oracles import forward_pass as oracle
from tests.reference.arrays import tiny, tiny_config

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
    for size, eps in ((1e-2, 1e-3), (1e-4, 1e-8), (1e-6, 1e-12)):
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
def norm_of_long_vectors(learner, rng):
    """All E numbers count, and their mean is as exact as float32, also in 16 bits: equal numbers
    have a root mean square of their own size, so each becomes 1.
    """
    x, weight = randn(rng, 2, 1500) * torch.linspace(0.1, 3, 1500), randn(rng, 1500)
    close(learner.rms_norm(x, weight, 1e-5), oracle.rms_norm(x, weight, 1e-5), "rms_norm")
    for dtype in (F16, BF16):
        x = torch.tensor([[1.1], [1.3], [1.4], [1.8]], dtype=dtype).repeat(1, 1500)
        got = learner.rms_norm(x, torch.ones(1500, dtype=dtype), 1e-6)
        expect_tensor(
            got, torch.ones_like(x), atol=0.0, what=f"for equal {short(dtype)} numbers it"
        )


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
    """Pair i turns by theta ** (-2 i / D) radians a position, for any even D and any theta;
    positions are integers of any size.
    """
    sizes = (2, 1e4, torch.int64), (6, 10.0, torch.int32), (16, 5e5, torch.int64)
    for head_dim, theta, dtype in (*sizes, (128, 100.0, torch.int64)):
        positions = torch.tensor([rng.sample(range(64), 5), rng.sample(range(64), 5)])
        tables(learner, positions.to(dtype), head_dim, theta)


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
    for head_dim in (7, 1, 65):
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
        (1, 9, 2, 128),
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
