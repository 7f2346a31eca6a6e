"""3.2 quantize_groups."""

import numpy as np
import torch

from course.cases import Wrong, case, describe, expect_raises, expect_tensor
from tests.grading.forward_pass.driving import drive
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


def groups(learner, weight, bits, size, dtype=None, what="it"):
    """quantize_groups: (q, scale, minimum) of the right dtypes and shapes; dtype None leaves it."""
    given = () if dtype is None else (dtype,)
    found = drive(learner, "groups", weight, bits, size, *(str(d)[6:] for d in given))
    q, scale, minimum = expect_parts(found, "q", "scale", "minimum")
    count = -(-weight.shape[1] // size)
    expect_kind(q, torch.uint8, (len(weight), count * size), f"q of {what}")
    for part, name in ((scale, "scale"), (minimum, "minimum")):
        expect_kind(part, dtype or F16, (len(weight), count), f"{name} of {what}")
    return q, scale, minimum


def filled(weight, size):
    """The weight in float64 as the oracle groups it: [out, G, size]."""
    return torch.tensor(np.array(oracle.filled_groups(weight, size)))


def check_groups(learner, weight, bits, size, dtype=None, what="it"):
    """Scale and minimum against the oracle, q against what was stored."""
    q, scale, minimum = groups(learner, weight, bits, size, dtype, what)
    wants = oracle.group_parts(weight, bits, size, np.float64)
    want_scale, want_minimum = (torch.from_numpy(want).to(scale.dtype) for want in wants)
    # a step of the dtype, for another order of operations
    rtol, atol = {F16: (1.1e-3, 6e-8), BF16: (8e-3, 1e-40), F32: (1e-6, 2e-45)}[scale.dtype]
    expect_tensor(scale, want_scale, atol=atol, rtol=rtol, what=f"scale of {what}")
    expect_tensor(minimum, want_minimum, atol=0, what=f"minimum of {what}")
    step, low = scale.double()[..., None], minimum.double()[..., None]
    quotient = ((filled(weight, size) - low) / step).masked_fill(step == 0, 0.0)
    expect_numbers(q, quotient.flatten(1), 0, 2**bits - 1, f"q of {what}")


@case("3.2")
def groups_by_hand(learner, rng):
    """0, 1, ... 15 in 4 bits has the scale 1 and the minimum 0; so has 2, 3, ... 17 with 2."""
    weight = torch.stack((torch.arange(16.0), torch.arange(2.0, 18.0)))
    q, scale, minimum = groups(learner, weight, 4, 16)
    expect_tensor(scale, torch.ones(2, 1, dtype=F16), atol=0, what="scale")
    expect_tensor(minimum, torch.tensor([[0.0], [2.0]], dtype=F16), atol=0, what="minimum")
    expect_tensor(q, torch.arange(16, dtype=torch.uint8).expand(2, 16), atol=0, what="q")


@case("3.2")
def groups_half_to_even(learner, rng):
    """A half goes to the even neighbour: with step 1, 0.5, 1.5 and 2.5 become 0, 2 and 2."""
    q, _, _ = groups(learner, torch.tensor([[0.0, 0.5, 1.5, 2.5, 3.5, 15.0]]), 4, 6)
    expect_tensor(q, torch.tensor([[0, 0, 2, 2, 4, 15]], dtype=torch.uint8), atol=0, what="q")


@case("3.2")
def groups_of_each_width(learner, rng):
    """2, 3, 4 and 8 bits, groups of several sizes, in a square matrix too."""
    for bits in (2, 3, 4, 8):
        for shape, size in (((5, 24), 8), ((12, 12), 4), ((3, 32), 32), ((2, 6), 1)):
            name = f"{bits} bits, {list(shape)} in groups of {size}"
            check_groups(learner, weight_of(rng, *shape), bits, size, what=name)


@case("3.2")
def groups_that_do_not_divide(learner, rng):
    """The last number of the row fills the last group up: neither minimum nor maximum moves."""
    for sign in (1, -1):
        for columns, size in ((20, 16), (7, 4), (5, 8), (33, 32), (3, 20)):
            weight = sign * (weight_of(rng, 4, columns).abs() + 0.5)
            name = f"{columns} columns in groups of {size}"
            check_groups(learner, weight, 4, size, what=name)


@case("3.2")
def groups_stored_in_float32(learner, rng):
    """With scale_dtype float32 scale and minimum are exact, and the error is half a step."""
    for bits, size in ((2, 8), (3, 5), (4, 32), (8, 16)):
        weight = weight_of(rng, 4, 40)
        check_groups(learner, weight, bits, size, F32, f"{bits} bits")
        q, scale, minimum = groups(learner, weight, bits, size, F32)
        again = q.double().unflatten(1, (-1, size)) * scale.double()[..., None]
        error = (again + minimum.double()[..., None] - filled(weight, size)).abs()
        bound = scale.double()[..., None] / 2 + 1e-6 * filled(weight, size).abs().amax()
        expect_within(error, bound.expand_as(error), f"{bits} bits")


@case("3.2")
def groups_stored_in_bfloat16(learner, rng):
    """scale and minimum have the dtype asked for, and q is made for them, in bfloat16 too."""
    for offset in (0.0, 3.0):
        weight = offset + weight_of(rng, 4, 32)
        check_groups(learner, weight, 4, 16, BF16, "bfloat16")


@case("3.2")
def groups_of_a_view(learner, rng):
    """It does not matter how the weight lies in memory: a transposed one is as good as any."""
    weight = weight_of(rng, 4, 16)
    straight, names = groups(learner, weight, 4, 8), ("q", "scale", "minimum")
    turned = learner.scenario("on_transposed", "quantize_groups", weight, 4, 8)
    for got, expected, name in zip(expect_parts(turned, *names), straight, names, strict=True):
        expect_tensor(got, expected, atol=0, what=f"{name} of a transposed weight")


@case("3.2")
def groups_for_what_is_stored(learner, rng):
    """q is made for the rounded scale and minimum: far from zero float16 moves both by a lot."""
    for offset in (40.0, -75.0, 1000.0):
        check_groups(learner, offset + weight_of(rng, 5, 64), 8, 32, what=f"around {offset}")
        check_groups(learner, offset + weight_of(rng, 5, 64), 4, 16, what=f"around {offset}")


@case("3.2")
def groups_that_are_awkward(learner, rng):
    """Zeros, constants, an outlier, tiny and large numbers, denormals: no NaN, each as promised."""
    for name, weight in awkward_weights(rng).items():
        for bits, size, dtype in ((4, 16, F16), (8, 40, F16), (2, 32, F16), (4, 20, F32)):
            check_groups(learner, weight, bits, size, dtype, f"{name}, {bits} bits")


@case("3.2")
def groups_of_constants(learner, rng):
    """A group of one number over and over has scale 0 and q 0, though float16 moved its minimum."""
    for value in (0.1, -0.1, 0.3, -7.77, 0.0):
        q, scale, _ = groups(learner, torch.full((2, 12), value), 4, 4, what=f"{value}")
        expect_tensor(scale, torch.zeros(2, 3, dtype=F16), atol=0, what=f"scale of {value}")
        expect_tensor(q, torch.zeros(2, 12, dtype=torch.uint8), atol=0, what=f"q of {value}")


@case("3.2")
def groups_within_their_bound(learner, rng):
    """scale * q + minimum is within half a step of the weight, plus what float16 moved."""
    for name, weight in awkward_weights(rng).items():
        for bits, size in ((2, 8), (3, 16), (4, 32), (8, 32)):
            q, scale, minimum = groups(learner, weight, bits, size, what=name)
            exact = filled(weight, size)
            lo, reach = exact.amin(-1, True), exact.amax(-1, True) - exact.amin(-1, True)
            again = q.double().unflatten(1, (-1, size)) * scale.double()[..., None]
            error = (again + minimum.double()[..., None] - exact).abs()
            moved = 2**-11 * (lo.abs() + reach) + 2.0 ** (bits - 25) + 2**-25
            bound = scale.double()[..., None] / 2 + 1.001 * moved
            expect_within(error, bound.expand_as(error), f"{name}, {bits} bits")


@case("3.2")
def groups_keep_an_outlier_to_themselves(learner, rng):
    """One outlier spoils the steps of its own group only: the others are as without it."""
    weight, at = weight_of(rng, 3, 64), rng.randrange(64)
    before = groups(learner, weight, 4, 16)
    weight[1, at] = 50.0
    after = groups(learner, weight, 4, 16)
    others = torch.arange(4) != at // 16
    for old, new, name in zip(before, after, ("q", "scale", "minimum"), strict=True):
        old, new = (part.unflatten(1, (4, -1))[:, others] for part in (old, new))
        expect_tensor(new, old, atol=0, what=f"{name} of the other groups")


@case("3.2")
def groups_in_16_bits(learner, rng):
    """float16 and bfloat16 weights are computed in float32."""
    for dtype in (F16, BF16):
        weight = (20 + weight_of(rng, 4, 32)).to(dtype)
        check_groups(learner, weight, 8, 16, F32, f"{dtype}")


@case("3.2")
def groups_refuse(learner, rng):
    """Other bits, a group size under 1, infinities and what is no matrix of floats: ValueError."""
    weight = weight_of(rng, 30, 16)
    for bits, size in ((1, 8), (5, 8), (16, 8), (0, 8), (4, 0), (4, -8)):
        with expect_raises("ValueError"):
            learner.quantize_groups(weight, bits, size)
            raise Wrong(f"{bits} bits in groups of {size}: nothing was raised, expected ValueError")
    for value in (float("inf"), float("nan")):
        bad, row = weight.clone(), rng.randrange(12, 20)
        bad[row, 3] = bad[row + 9, 0] = value
        with expect_raises("ValueError", naming=[row]):
            learner.quantize_groups(bad, 4, 8)
            raise Wrong(f"rows {row} and {row + 9} hold {value}, and nothing was raised")
    for bad in NO_MATRICES:
        with expect_raises("ValueError"):
            learner.quantize_groups(bad, 4, 8)
            raise Wrong(f"{describe(bad)} is no matrix of floats, and nothing was raised")


@case("3.2")
def groups_beyond_their_dtype(learner, rng):
    """A scale or minimum that float16 cannot hold is refused, and the message says float16.

    Where both fit, the weights may be larger than that.
    """
    weight = weight_of(rng, 20, 16)
    for value, part in ((-1e5, "minimum"), (2e6, "scale")):
        bad = weight.clone()
        bad[3, 9] = value
        with expect_raises("ValueError", naming=["float16"]):
            learner.quantize_groups(bad, 4, 8)
            raise Wrong(f"with {value:g} the {part} is infinite in float16; nothing was raised")
        check_groups(learner, bad, 4, 8, F32, f"{value:g} in float32")
    weight[3, 9] = 5e5
    check_groups(learner, weight, 4, 8, what="5e5, with a scale of 33,333,")
