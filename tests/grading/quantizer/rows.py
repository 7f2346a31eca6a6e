"""3.1 quantize_rows."""

import torch

from course.cases import Wrong, case, describe, expect_raises, expect_tensor
from tests.grading.quantizer.checks import (
    BF16,
    F16,
    F32,
    NO_MATRICES,
    awkward_weights,
    expect_kind,
    expect_numbers,
    expect_parts,
    expect_within,
    weight_of,
)
from tests.oracles import quantizer as oracle


def rows(learner, weight, what="it"):
    """quantize_rows(weight): (q, scale) of the right dtypes, shapes and range."""
    q, scale = expect_parts(learner.quantize_rows(weight), "q", "scale")
    expect_kind(q, torch.int8, weight.shape, f"q of {what}")
    expect_kind(scale, F32, (len(weight), 1), f"scale of {what}")
    return q, scale


def check_rows(learner, weight, what="it"):
    """quantize_rows against the oracle, number by number."""
    q, scale = rows(learner, weight, what)
    expected = torch.from_numpy(oracle.row_scales(weight))
    expect_tensor(scale, expected.float(), atol=2e-45, rtol=1e-6, what=f"scale of {what}")
    dead = scale == 0
    quotient = (weight.double() / scale.double()).masked_fill(dead, 0.0)
    expect_numbers(q, quotient, -127, 127, f"q of {what}")


@case("3.1")
def rows_by_hand(learner, rng):
    """[127, -64, 3] has the scale 1, so q is the row itself; [1, 0.5, -1] becomes 127, 64, -127."""
    q, scale = rows(learner, torch.tensor([[127.0, -64.0, 3.0], [1.0, 0.5, -1.0]]))
    expect_tensor(scale, torch.tensor([[1.0], [1 / 127]]), atol=0, rtol=1e-6, what="scale")
    expect_tensor(q, torch.tensor([[127, -64, 3], [127, 64, -127]], dtype=torch.int8), atol=0)


@case("3.1")
def rows_half_to_even(learner, rng):
    """A half goes to the even neighbour: with scale 1, 0.5, 1.5, 2.5, -2.5 become 0, 2, 2, -2."""
    q, _ = rows(learner, torch.tensor([[127.0, 0.5, 1.5, 2.5, -2.5, -3.5]]))
    expect_tensor(q, torch.tensor([[127, 0, 2, 2, -2, -4]], dtype=torch.int8), atol=0, what="q")


@case("3.1")
def rows_each_alone(learner, rng):
    """Each row has its own scale: its largest absolute value over 127, in a square matrix too."""
    for shape in ((5, 12), (8, 8), (1, 30), (7, 1)):
        check_rows(learner, weight_of(rng, *shape), f"{list(shape)}")


@case("3.1")
def rows_largest_is_127(learner, rng):
    """The largest number of each row becomes 127, or -127 when it is negative; never -128."""
    weight = weight_of(rng, 6, 20)
    weight[:3, 4] = -2.0
    weight[3:, 7] = 2.0
    q, _ = rows(learner, weight)
    expect_tensor(q[:3, 4], torch.full((3,), -127, dtype=torch.int8), atol=0, what="q[:3, 4]")
    expect_tensor(q[3:, 7], torch.full((3,), 127, dtype=torch.int8), atol=0, what="q[3:, 7]")


@case("3.1")
def rows_that_are_awkward(learner, rng):
    """Zeros, constants, an outlier, tiny and large numbers, denormals: no NaN, each as promised."""
    for name, weight in awkward_weights(rng).items():
        check_rows(learner, weight, name)


@case("3.1")
def rows_of_zeros(learner, rng):
    """A row of zeros has scale 0 and q 0; so has one too small to be divided by 127."""
    weight = weight_of(rng, 4, 9)
    weight[1], weight[2] = 0.0, 1.4e-45
    q, scale = rows(learner, weight)
    expect_tensor(scale[1:3], torch.zeros(2, 1), atol=0, what="scale of these rows")
    expect_tensor(q[1:3], torch.zeros(2, 9, dtype=torch.int8), atol=0, what="q of these rows")


@case("3.1")
def rows_within_half_a_step(learner, rng):
    """scale * q is within half the scale of the weight, and a little more where that is a denormal:
    the quotient may then be far beyond 127, and q is kept inside.
    """
    denormals = torch.tensor([[k * 1.4e-45 for k in range(-190, 190, 10)]])
    for name, weight in (awkward_weights(rng) | {"large denormals": denormals}).items():
        q, scale = rows(learner, weight, name)
        if int(q.min()) < -127:
            raise Wrong(f"{name}: q is {int(q.min())} somewhere, and goes from -127 to 127")
        error = (weight.double() - scale.double() * q.double()).abs()
        rounding = 1e-6 * weight.double().abs().amax(1, keepdim=True) + 1e-43
        expect_within(error, (scale.double() / 2 + rounding).expand_as(error), name)


@case("3.1")
def rows_in_16_bits(learner, rng):
    """float16 and bfloat16 are computed in float32: q is as exact as for a float32 weight."""
    for dtype, size in ((F16, 1.0), (F16, 3e-4), (F16, 5e4), (BF16, 1.0), (BF16, 1e-9)):
        check_rows(learner, (size * weight_of(rng, 5, 33)).to(dtype), f"{dtype} times {size}")


@case("3.1")
def rows_of_a_view(learner, rng):
    """It does not matter how the weight lies in memory: a transposed one is as good as any."""
    weight = weight_of(rng, 6, 9)
    straight = rows(learner, weight)
    turned = expect_parts(learner.scenario("on_transposed", "quantize_rows", weight), "q", "scale")
    for got, expected, name in zip(turned, straight, ("q", "scale"), strict=True):
        expect_tensor(got, expected, atol=0, what=f"{name} of a transposed weight")


@case("3.1")
def rows_refuse(learner, rng):
    """An infinity or NaN is refused, with the first such row; so is what is no matrix of floats."""
    for value in (float("inf"), float("-inf"), float("nan")):
        weight, row = weight_of(rng, 40, 6), rng.randrange(12, 30)
        weight[row, rng.randrange(6)] = weight[row + 9, 0] = value
        with expect_raises("ValueError", naming=[row]):
            learner.quantize_rows(weight)
            raise Wrong(f"rows {row} and {row + 9} hold {value}, and nothing was raised")
    for weight in NO_MATRICES:
        with expect_raises("ValueError"):
            learner.quantize_rows(weight)
            raise Wrong(f"{describe(weight)} is no matrix of floats, and nothing was raised")
