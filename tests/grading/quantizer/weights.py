"""3.4 QuantizedTensor, quantize and linear."""

import torch

from course.cases import case, expect_equal, expect_raises, expect_tensor, randn
from tests.grading.forward_pass.driving import drive
from tests.grading.quantizer.checks import BF16, F16, F32, in_words, tensor_of, weight_of
from tests.oracles import quantizer as oracle

FORMATS = ((8, None), (8, 16), (4, 32), (4, 16), (3, 8), (2, 8))


def fields_of(weight, bits, size) -> dict:
    """The oracle's fields of a QuantizedTensor, as tensors."""
    fields = oracle.quantized(weight, bits, size)
    parts = {name: tensor_of(fields[name]) for name in ("data", "scale", "minimum")}
    return {**fields, **parts, "shape": list(weight.shape)}


def floats_of(weight, bits, size) -> torch.Tensor:
    """The oracle's dequantized weight, float64."""
    return torch.from_numpy(oracle.dequantized(weight, bits, size))


@case("3.4")
def quantize_by_hand(learner, rng):
    """0 to 15 and 2 to 17 in 4 bits: 8 bytes a row, 16 (first + 16 * second), and four for scale
    and minimum: 24 bytes in all.
    """
    weight = torch.stack((torch.arange(16.0), torch.arange(2.0, 18.0)))
    found = drive(learner, "quantize", weight, 4, 16)
    data = torch.tensor([[first + 16 * (first + 1) for first in range(0, 16, 2)]] * 2)
    expect_tensor(found["data"], data.to(torch.uint8), atol=0, what="data")
    expect_equal(found["nbytes"], 24, "nbytes")
    expect_tensor(found["floats"], weight, atol=1e-5, what="dequantize()")


@case("3.4")
def quantize_into_fields(learner, rng):
    """data, scale, minimum, bits, group_size and shape are as documented, for each format."""
    for bits, size in FORMATS:
        weight = weight_of(rng, 5, 48)
        found, what = drive(learner, "quantize_only", weight, bits, size), in_words(bits, size)
        expected = fields_of(weight, bits, size)
        for name in ("bits", "group_size", "shape"):
            expect_equal(found[name], expected[name], f"{name} of {what}")
        if size is None:
            expect_equal(found["minimum"], None, "minimum of rows")
        for name in ("scale", "minimum"):
            if expected[name] is not None:
                rtol = 1e-6 if expected[name].dtype == F32 else 1.1e-3
                part = f"{name} of {what}"
                expect_tensor(found[name], expected[name], atol=6e-8, rtol=rtol, what=part)
        expect_equal(list(found["data"].shape), list(expected["data"].shape), f"data of {what}")
        expect_equal(str(found["data"].dtype), str(expected["data"].dtype), f"data of {what}")


@case("3.4")
def quantize_and_back(learner, rng):
    """quantize and dequantize give the weight again, within half a step and what float16 moved,
    also where the groups do not divide the row, and after the weight itself has changed.
    """
    for bits, size in (*FORMATS, (4, 64), (3, 7), (2, 13), (8, 1)):
        for dtype in (F32, F16, BF16):
            weight = weight_of(rng, 3, 40).to(dtype)
            found = drive(learner, "quantize", weight, bits, size)["floats"]
            wide = weight.double()
            step = (wide.amax(1) - wide.amin(1)).max() / (2**bits - 1)
            if size is None:
                step = wide.abs().max() / 127
            what = in_words(bits, size)
            expect_tensor(found, weight.float(), atol=float(step) * 0.51 + 2e-3, what=what)


@case("3.4")
def dequantize_each_format(learner, rng):
    """A QuantizedTensor made of given parts reads back as scale * q, or scale * q + minimum."""
    for bits, size in FORMATS:
        weight = weight_of(rng, 4, 64)
        fields = fields_of(weight, bits, size)
        found, _ = drive(learner, "dequantize", fields, None)
        expected = floats_of(weight, bits, size).float()
        atol = 1e-6 * float(expected.abs().max())
        expect_tensor(found, expected, atol=atol, what=in_words(bits, size))


@case("3.4")
def dequantize_cuts_off(learner, rng):
    """What filled up the last group, or the last byte, is not part of the weight."""
    for columns, bits, size in ((20, 4, 16), (7, 4, 7), (5, 2, 8), (33, 3, 11), (9, 2, 3)):
        weight = weight_of(rng, 3, columns)
        found, _ = drive(learner, "dequantize", fields_of(weight, bits, size), "float32")
        expected = floats_of(weight, bits, size).float()
        what = f"{columns} columns, {bits} bits, groups of {size}"
        expect_tensor(found, expected, atol=1e-6, what=what)


@case("3.4")
def dequantize_in_16_bits(learner, rng):
    """The result has the dtype asked for; the arithmetic before it is in float32."""
    for dtype in (F16, BF16):
        for bits, size in ((8, 32), (4, 32), (8, None)):
            weight = 3 + weight_of(rng, 4, 64)
            found, _ = drive(learner, "dequantize", fields_of(weight, bits, size), str(dtype)[6:])
            exact = floats_of(weight, bits, size)
            half_a_place = {F16: 2**-11, BF16: 2**-8}[dtype]
            what = in_words(bits, size)
            expect_tensor(found, exact.to(dtype), atol=0, rtol=1.01 * half_a_place, what=what)


@case("3.4")
def nbytes_of_everything(learner, rng):
    """nbytes counts data, scale and minimum: 4 bits in groups of 32 are 5 bits a number."""
    _, found = drive(learner, "dequantize", fields_of(weight_of(rng, 3, 20), 3, 16), None)
    expect_equal(found, 3 * (16 + 4 + 4), "nbytes of [3, 20] in 3 bits, groups of 16")
    for bits, size, expected in ((4, 32, 640), (8, 64, 1088), (2, 16, 512), (8, None, 1040)):
        _, found = drive(learner, "dequantize", fields_of(weight_of(rng, 4, 256), bits, size), None)
        expect_equal(found, expected, f"nbytes of [4, 256] in {in_words(bits, size)}")


@case("3.4")
def linear_with_a_tensor(learner, rng):
    """With a tensor, linear is x @ weight.T."""
    for shape, out in (((6,), 5), ((3, 6), 6), ((2, 4, 6), 5)):
        x, weight = randn(rng, *shape), randn(rng, out, 6)
        got = drive(learner, "product", x, weight)
        expect_tensor(got, (x.double() @ weight.double().T).float(), atol=1e-5, what="linear")


@case("3.4")
def linear_with_each_format(learner, rng):
    """With a QuantizedTensor it is x @ dequantized.T, for x of any number of dimensions."""
    for bits, size in FORMATS:
        for shape in ((48,), (1, 48), (2, 3, 48)):
            x, weight = randn(rng, *shape), weight_of(rng, 7, 48)
            got = drive(learner, "product", x, fields_of(weight, bits, size))
            expected = x.double() @ floats_of(weight, bits, size).T
            what = f"linear with {in_words(bits, size)}"
            expect_tensor(got, expected.float(), atol=2e-6 * 48, what=what)


@case("3.4")
def linear_with_a_row_that_is_not_whole(learner, rng):
    """A weight whose last group was filled up multiplies as what it is: [out, in]."""
    for columns, bits, size in ((20, 4, 16), (33, 2, 32), (5, 3, 64)):
        x, weight = randn(rng, 4, columns), weight_of(rng, 6, columns)
        got = drive(learner, "product", x, fields_of(weight, bits, size))
        expected = x.double() @ floats_of(weight, bits, size).T
        expect_tensor(got, expected.float(), atol=1e-4, what=f"linear with {columns} columns")


@case("3.4")
def linear_keeps_nothing(learner, rng):
    """Each product reads the weight anew: with its scale and minimum doubled, so is the product.

    Kept floats would answer as before, and hold the model at 32 bits in memory.
    """
    for bits, size in ((8, None), (4, 16)):
        x, weight = randn(rng, 2, 32), weight_of(rng, 5, 32)
        before, after = drive(learner, "product_twice", x, fields_of(weight, bits, size))
        what = f"linear with {in_words(bits, size)} that was doubled"
        expect_tensor(after, 2 * before, atol=1e-5, what=what)


@case("3.4")
def linear_in_16_bits(learner, rng):
    """The result has the dtype of x, and does not overflow where the true product is small."""
    for dtype, atol in ((F16, 2e-2), (BF16, 2e-1)):
        for bits, size in ((8, None), (4, 32)):
            weight = weight_of(rng, 4, 256).abs()
            x = (30 * randn(rng, 2, 256)).abs().to(dtype)
            got = drive(learner, "product", x, fields_of(weight, bits, size))
            expected = x.double() @ floats_of(weight, bits, size).T
            scale = float(x.double().norm(dim=-1).max() * weight.double().norm(dim=-1).max())
            what = f"linear with {in_words(bits, size)}"
            expect_tensor(got, expected.to(dtype), atol=atol * scale, what=what)


@case("3.4")
def quantize_refuses(learner, rng):
    """An infinity is refused as quantize_rows and quantize_groups refuse it."""
    weight, row = weight_of(rng, 40, 16), rng.randrange(12, 40)
    weight[row, 3] = float("inf")
    for bits, size in ((8, None), (4, 8)):
        with expect_raises("ValueError", naming=[row]):
            drive(learner, "quantize", weight, bits, size)
