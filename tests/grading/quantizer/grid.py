"""3.8 share_on_grid, noise_ratio and honest_formats."""

import torch

from course.cases import Wrong, case, expect_equal, expect_raises, randn
from tests.grading.forward_pass.driving import drive
from tests.grading.quantizer.checks import BF16, F16, expect_float, in_words, weight_of
from tests.oracles import quantizer as oracle

FORMATS = ((8, None), (8, 32), (4, 32), (4, 16), (3, 8), (2, 64))


def on_grid(rng, rows: int, groups: int, bits: int = 4, size: int = 32, scale: float = 0.013):
    """A weight that was quantized before: all of its groups lie on a grid of 2 ** bits values.

    Every group has its own step and minimum, as float16 holds them, and its ends on the grid.
    """
    generator = torch.Generator().manual_seed(rng.getrandbits(48))
    q = torch.randint(2**bits, (rows, groups, size), generator=generator).float()
    q[..., 0], q[..., 1] = 0.0, 2.0**bits - 1
    step = (scale * (1 + torch.rand(rows, groups, 1, generator=generator))).half().float()
    return (q * step - (7 * step).half().float()).flatten(1)


def check_share(learner, weight, bits, size, *tolerance):
    """share_on_grid against the oracle."""
    expected = oracle.share_on_grid(weight, bits, size, *(tolerance or (1e-3,)))
    what = f"the share on {in_words(bits, size)},"
    expect_float(learner.share_on_grid(weight, bits, size, *tolerance), expected, 1e-6, what)
    return expected


@case("3.8")
def grid_by_hand(learner, rng):
    """0, 1, 2, 3 lie on 2 bits; 0, 1, 2, 4 do not; 5, 5, 5, 5 lie on every grid: two of three."""
    weight = torch.tensor([[0.0, 1, 2, 3, 0, 1, 2, 4, 5, 5, 5, 5]])
    expect_float(learner.share_on_grid(weight, 2, 4), 2 / 3, 1e-6)


@case("3.8")
def grid_of_quantized_weights(learner, rng):
    """Weights that were quantized before lie on their grid wholly; random ones do not at all."""
    for bits in (2, 4):
        weight = on_grid(rng, 5, 4, bits, 16)
        expect_float(learner.share_on_grid(weight, bits, 16), 1.0, 1e-6, f"{bits} bits again")
    expect_float(learner.share_on_grid(weight_of(rng, 5, 64), 4, 32), 0.0, 0, "of random numbers")


@case("3.8")
def grid_of_a_part(learner, rng):
    """The share counts groups: one number off the grid takes its whole group away."""
    weight = on_grid(rng, 6, 5, 4, 16)
    for _ in range(rng.randrange(2, 5)):
        weight[rng.randrange(6), rng.randrange(80)] += 0.003
    assert 0 < check_share(learner, weight, 4, 16) < 1


@case("3.8")
def grid_of_few_values(learner, rng):
    """Few different values are not enough: they have to be equally spaced."""
    values = torch.tensor([0.0, 0.1, 0.25, 1.0])
    weight = values[torch.tensor([[0, 3, 1, 2, 0, 1, 3, 3], [1, 2, 0, 0, 3, 3, 2, 1]])]
    expect_float(learner.share_on_grid(weight, 2, 8), 0.0, 0, "of four uneven values")
    expect_float(learner.share_on_grid(weight, 2, 4), 0.0, 0, "of four uneven values")


@case("3.8")
def grid_of_any_step(learner, rng):
    """The step need be no float16 number, and may be very small; the tolerance is in steps."""
    for step in (1 / 3, 1e-7, 12345.678):
        q = torch.stack([torch.tensor(rng.sample(range(16), 16)) for _ in range(4)])
        weight = (q * torch.tensor(step, dtype=torch.float64)).float()
        expect_float(learner.share_on_grid(weight, 4, 16), 1.0, 1e-6, f"with a step of {step:g} it")
        weight[:2, 3] = weight[:2, 3] + 0.1 * step
        check_share(learner, weight, 4, 16, 0.05)
        expect_float(learner.share_on_grid(weight, 4, 16, 0.2), 1.0, 1e-6, "with tolerance 0.2 it")


@case("3.8")
def grid_with_the_usual_tolerance(learner, rng):
    """Without a tolerance it is a thousandth of a step: 0.0003 steps off is on, 0.003 is not."""
    for off, expected in ((3e-4, 1.0), (3e-3, 0.5)):
        weight = torch.stack((torch.arange(16.0), torch.arange(16.0))) / 4
        weight[1, rng.randrange(1, 15)] += off / 4
        expect_float(learner.share_on_grid(weight, 4, 16), expected, 1e-6, f"{off:g} steps off it")


@case("3.8")
def grid_in_16_bits(learner, rng):
    """Weights in float16 and bfloat16 are looked at as they are."""
    for dtype in (F16, BF16):
        weight = torch.stack((torch.arange(16.0), torch.arange(16.0))).to(dtype)
        weight[1, 5] += 0.5
        expect_float(learner.share_on_grid(weight, 4, 16), 0.5, 1e-6, f"of {str(dtype)[6:]} it")


@case("3.8")
def grid_refuses(learner, rng):
    """What quantize_groups and quantize refuse is refused: ValueError, with the row."""
    weight, row = weight_of(rng, 30, 16), rng.randrange(12, 30)
    for bits, size in ((5, 8), (4, 0)):
        with expect_raises("ValueError"):
            found = learner.share_on_grid(weight, bits, size)
            raise Wrong(f"{bits} bits in groups of {size} gave {found}, expected ValueError")
    weight[row, 3] = float("inf")
    with expect_raises("ValueError", naming=[row]):
        learner.share_on_grid(weight, 4, 8)
    with expect_raises("ValueError", naming=[row]):
        drive(learner, "noise_ratio", weight, 4, 8)


@case("3.8")
def grid_of_rows_that_are_not_whole(learner, rng):
    """Groups that do not divide the row count as quantize_groups makes them."""
    weight = on_grid(rng, 4, 2, 4, 16)
    for columns, size in ((26, 16), (20, 16), (30, 8)):
        check_share(learner, weight[:, :columns].contiguous(), 4, size)
    one = torch.tensor([[0.0, 1.0, 2.0, 3.0, 0.0, 2.0, 3.0]])
    expect_float(learner.share_on_grid(one, 2, 4), 1.0, 1e-6, "of a row of seven")


@case("3.8")
def noise_of_random_weights(learner, rng):
    """On weights that know no grid the error is about step / sqrt(12): the ratio is as computed."""
    for bits, size in FORMATS:
        weight = weight_of(rng, 8, 128)
        found = drive(learner, "noise_ratio", weight, bits, size)
        expected = oracle.noise_ratio(weight, bits, size)
        expect_float(found, expected, 1e-3, f"the ratio of {in_words(bits, size)},")


@case("3.8")
def noise_of_quantized_weights(learner, rng):
    """On weights that lie on the grid nothing is rounded: the ratio is 0."""
    weight = on_grid(rng, 8, 4)
    found = drive(learner, "noise_ratio", weight, 4, 32)
    if type(found) is not float or not 0 <= found < 1e-3:
        expect_float(found, 0.0, 0, "the ratio on its own grid")
    for bits, size in ((8, None), (4, 64), (3, 32), (2, 32), (8, 32)):
        expected = oracle.noise_ratio(weight, bits, size)
        found = drive(learner, "noise_ratio", weight, bits, size)
        expect_float(found, expected, 1e-3, f"the ratio of {in_words(bits, size)},")


@case("3.8")
def noise_of_uneven_rows(learner, rng):
    """The steps count with their squares: a row of large numbers weighs more, in both parts."""
    weight = weight_of(rng, 6, 48) * torch.tensor([1, 1, 1, 1, 1, 30.0])[:, None]
    weight[2] = 0.5
    for bits, size in ((8, None), (4, 16), (2, 24)):
        expected = oracle.noise_ratio(weight, bits, size)
        found = drive(learner, "noise_ratio", weight, bits, size)
        expect_float(found, expected, 1e-3, f"the ratio of {in_words(bits, size)},")


@case("3.8")
def noise_of_rows_that_are_not_whole(learner, rng):
    """Each number counts its step once: a last group of 8 numbers counts half of a whole one."""
    weight = weight_of(rng, 6, 40)
    weight[:, 32:] *= 20
    for bits, size in ((4, 16), (2, 32)):
        expected = oracle.noise_ratio(weight, bits, size)
        found = drive(learner, "noise_ratio", weight, bits, size)
        expect_float(found, expected, 1e-3, f"the ratio of 40 columns in groups of {size}")


@case("3.8")
def noise_in_16_bits(learner, rng):
    """The error is that of the weight as it is stored, in float16 and bfloat16 too."""
    for dtype in (F16, BF16):
        weight = weight_of(rng, 6, 64).to(dtype)
        for bits, size in ((8, None), (4, 32)):
            expected = oracle.noise_ratio(weight, bits, size)
            found = drive(learner, "noise_ratio", weight, bits, size)
            expect_float(found, expected, 1e-3, f"the ratio of {str(dtype)[6:]}, {bits} bits,")


@case("3.8")
def noise_of_constants(learner, rng):
    """Where every scale is 0 the ratio is 0.0, not a division by zero."""
    for weight in (torch.zeros(3, 16), torch.full((3, 16), 0.1)):
        expect_float(drive(learner, "noise_ratio", weight, 4, 8), 0.0, 0, "the ratio of a constant")
    expect_float(drive(learner, "noise_ratio", torch.zeros(3, 16), 8, None), 0.0, 0, "of zeros")


def three_matrices(make) -> dict:
    """Three matrices of a layer, made by a function."""
    return {f"model.layers.{i}.mlp.up_proj.weight": make() for i in range(3)}


@case("3.8")
def honest_on_random_weights(learner, rng):
    """Weights that know no grid flatter none of the usual formats: all are kept, in their order."""
    weights = three_matrices(lambda: weight_of(rng, 6, 96))
    formats = [list(pair) for pair in FORMATS if pair[0] < 8 or pair[1]]
    rng.shuffle(formats)
    expect_equal(drive(learner, "honest_formats", weights, formats), formats, "the honest formats")


@case("3.8")
def honest_on_quantized_weights(learner, rng):
    """Weights from a grid of 4 bits, groups of 32, flatter it and the finer ones that hold it."""
    weights = three_matrices(lambda: on_grid(rng, 6, 4))
    weights["model.embed_tokens.weight"] = randn(rng, 20, 128)
    weights["model.norm.weight"] = randn(rng, 128)
    formats = [[4, 32], [2, 32], [8, 32], [4, 64], [3, 32], [8, None]]
    rng.shuffle(formats)
    expected = [pair for pair in formats if pair not in ([4, 32], [8, 32])]
    expect_equal(drive(learner, "honest_formats", weights, formats), expected, "the honest formats")


@case("3.8")
def honest_in_the_mean(learner, rng):
    """The mean over the weights decides, each counting once, whatever its size."""
    weights = three_matrices(lambda: on_grid(rng, 3, 2))
    weights["model.layers.9.mlp.up_proj.weight"] = weight_of(rng, 60, 64)
    for least, expected in ((0.1, [[4, 32]]), (0.5, []), (0.9, [])):
        found = drive(learner, "honest_formats", weights, [[4, 32]], least)
        expect_equal(found, expected, f"the honest formats for {least}")
    constants = three_matrices(lambda: torch.ones(3, 32))
    found = drive(learner, "honest_formats", constants, [[4, 32]], 0.0)
    expect_equal(found, [[4, 32]], "the honest formats for 0.0, which a ratio of 0.0 reaches,")


@case("3.8")
def honest_about_nothing(learner, rng):
    """Without a weight that would be quantized there is nothing to measure: ValueError."""
    for weights in ({}, {"model.norm.weight": randn(rng, 32), "lm_head.weight": randn(rng, 9, 32)}):
        with expect_raises("ValueError"):
            drive(learner, "honest_formats", weights, [[4, 32]])
