"""3.7 relative_error, perplexity and agreement."""

import math

import torch

from course.cases import Wrong, case, expect_equal, expect_raises, randn
from tests.grading.forward_pass.driving import drive
from tests.grading.quantizer.checks import BF16, F16, F32, expect_float
from tests.oracles import forward_pass as llama
from tests.oracles import quantizer as oracle
from tests.reference.arrays import read_json, tiny_config, tiny_weights
from tests.scenarios.quantizer import mixed


@case("3.7")
def error_by_hand(learner, rng):
    """[3, 4] against [3, 3] is off by 1 of 5: 0.2."""
    found = learner.relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 3.0]))
    expect_float(found, 0.2, 1e-9)
    found = learner.relative_error(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 8.0]))
    expect_float(found, 1.0, 1e-9)


@case("3.7")
def error_of_any_shape(learner, rng):
    """One number for a tensor of any shape and dtype; the reference is what is divided by."""
    for shape in ((7,), (3, 5), (2, 3, 4)):
        for dtype in (F32, F16, BF16):
            reference = randn(rng, *shape, dtype=dtype)
            other = (reference.float() + rng.choice([0.01, 3.0]) * randn(rng, *shape)).to(dtype)
            expected = oracle.relative_error(reference, other)
            expect_float(learner.relative_error(reference, other), expected, 1e-9)


@case("3.7")
def error_of_two_dtypes(learner, rng):
    """The two need not have the same dtype: a bfloat16 weight beside what was read back of it."""
    for one, two in ((BF16, F32), (F32, F16)):
        reference, other = randn(rng, 4, 6, dtype=one), randn(rng, 4, 6, dtype=two)
        expected = oracle.relative_error(reference, other)
        expect_float(learner.relative_error(reference, other), expected, 1e-9)


@case("3.7")
def error_in_float64(learner, rng):
    """Neither large float16 numbers nor tiny float32 ones spoil the sums: they are in float64."""
    for dtype, size in ((F16, 2000.0), (F32, 1e-30), (F32, 1e25), (BF16, 1e30)):
        reference = (size * randn(rng, 6, 50)).to(dtype)
        other = (reference.double() * (1 + 0.01 * randn(rng, 6, 50))).to(dtype)
        expected = oracle.relative_error(reference, other)
        expect_float(learner.relative_error(reference, other), expected, 1e-9, f"times {size}")


@case("3.7")
def error_of_zeros(learner, rng):
    """Zeros against zeros are 0.0; anything else against zeros is infinity."""
    zeros = torch.zeros(3, 4)
    expect_float(learner.relative_error(zeros, zeros), 0.0, 0)
    expect_float(learner.relative_error(zeros, randn(rng, 3, 4)), math.inf, 0)
    expect_float(learner.relative_error(randn(rng, 3, 4), zeros), 1.0, 1e-9)


@case("3.7")
def error_of_other_shapes(learner, rng):
    """Shapes that differ are refused, although torch could broadcast them."""
    for one, two in (((3, 1), (3, 4)), ((4,), (3, 4)), ((12,), (3, 4))):
        with expect_raises("ValueError", naming=(*one, *two)):
            found = learner.relative_error(torch.ones(one), torch.ones(two))
            raise Wrong(f"shapes {one} and {two} gave {found}")


def model_of(table):
    """The oracle's view of the scenario's model."""
    return lambda ids: mixed(table.double(), torch.tensor(ids)).numpy()


def check_perplexity(learner, table, ids, window, stride, dtype=F32, rtol=1e-6) -> list:
    """perplexity against the oracle; the windows that the model was asked for."""
    call = (table, ids, window, stride, str(dtype)[6:])
    found, asked = drive(learner, "perplexity", *call)
    expected = oracle.perplexity(model_of(table), ids, window, stride)
    what = f"the perplexity of {len(ids)} ids, window {window}, stride {stride},"
    expect_float(found, expected, rtol, what)
    return asked


def random_text(rng, vocabulary: int, length: int) -> list[int]:
    """So many ids."""
    return [rng.randrange(vocabulary) for _ in range(length)]


@case("3.7")
def perplexity_by_hand(learner, rng):
    """A model that gives every token the same logit has the perplexity V; one that is sure, 1."""
    ids = random_text(rng, 10, 12)
    found, _ = drive(learner, "perplexity", torch.zeros(10, 10), ids, 16, 8, "float32")
    expect_float(found, 10.0, 1e-9, "the perplexity of a guess among 10")
    sure = torch.full((5, 5), 950.0)  # exp of that is infinite, in float64 too
    sure[torch.arange(5), torch.tensor([1, 2, 3, 4, 0])] = 1000.0  # after i comes i + 1
    found, _ = drive(learner, "perplexity", sure, [0, 1, 2, 3, 4], 8, 4, "float32")
    expect_float(found, 1.0, 1e-9, "the perplexity of a model that is sure and right")


@case("3.7")
def perplexity_in_one_window(learner, rng):
    """A text that fits a window: exp of the mean of -log p of each token but the first."""
    for length in (2, 3, 9, 16):
        ids = random_text(rng, 20, length)
        check_perplexity(learner, randn(rng, 20, 20), ids, 16, rng.randrange(1, 16))


@case("3.7")
def perplexity_in_many_windows(learner, rng):
    """Windows overlap, and every token counts once: in the first window in which another token
    stands before it.
    """
    for length, window, stride in ((40, 8, 3), (33, 8, 7), (30, 10, 5), (17, 16, 15), (12, 2, 1)):
        ids = random_text(rng, 30, length)
        check_perplexity(learner, randn(rng, 30, 30), ids, window, stride)


@case("3.7")
def perplexity_at_the_end(learner, rng):
    """The last window ends with the text and may hold fewer tokens, wherever the text ends."""
    table = randn(rng, 12, 12)
    for length in range(8, 21):
        check_perplexity(learner, table, random_text(rng, 12, length), 8, 4)


@case("3.7")
def perplexity_of_windows_asked_for(learner, rng):
    """The model is asked for ids[0:8], ids[3:11], ... as far as the end of the text, each once."""
    for length, expected in ((20, 5), (17, 4), (16, 4), (8, 1), (9, 2)):
        ids = random_text(rng, 15, length)
        asked = check_perplexity(learner, randn(rng, 15, 15), ids, 8, 3)
        expect_equal(asked, [ids[3 * k : 3 * k + 8] for k in range(expected)], "the windows")


@case("3.7")
def perplexity_in_float64(learner, rng):
    """Half-precision logits are widened first: their softmax is taken in float64."""
    for dtype in (F16, BF16):
        table = (4 * randn(rng, 300, 300)).to(dtype)
        ids = random_text(rng, 300, 60)

        def rounded(part, table=table, dtype=dtype):
            return mixed(table.float(), torch.tensor(part)).to(dtype).double().numpy()

        name = str(dtype)[6:]
        found, _ = drive(learner, "perplexity", table.float(), ids, 32, 16, name)
        expect_float(found, oracle.perplexity(rounded, ids, 32, 16), 1e-7, f"with {name} logits it")


@case("3.7")
def perplexity_as_in_transformers(learner, rng):
    """A small Llama has the perplexity on a text that Hugging Face transformers gives it."""
    entry = rng.choice(read_json("quantizer.json")["perplexity"])
    config, weights = tiny_config(entry["model"]), tiny_weights(entry["model"])
    ids, window, stride = entry["ids"], entry["window"], entry["stride"]
    rows = [
        torch.from_numpy(llama.logits(config, weights, ids[start : start + window]))
        for start in range(0, len(ids), stride)
    ]
    found = drive(learner, "perplexity_of_windows", rows, ids, window, stride)
    expect_float(found, entry["perplexity"], 1e-5, f"the perplexity of the {entry['model']} model")


@case("3.7")
def perplexity_refuses(learner, rng):
    """One id, a window under 2, a stride of 0 or of a whole window: ValueError."""
    for length, window, stride in ((1, 8, 4), (0, 8, 4), (9, 1, 1), (9, 8, 0), (9, 8, 8), (9, 8, 9),
                                   (9, 8, -1), (9, 0, 0)):  # fmt: skip
        with expect_raises("ValueError"):
            ids = random_text(rng, 6, length)
            drive(learner, "perplexity", randn(rng, 6, 6), ids, window, stride, "float32")


@case("3.7")
def agreement_by_hand(learner, rng):
    """Three of four positions with the largest logit at the same index are 0.75."""
    one = torch.tensor([[1.0, 5.0], [2.0, 0.0], [0.0, 3.0], [9.0, 1.0]])
    two = torch.tensor([[0.0, 0.1], [7.0, 6.0], [4.0, 2.0], [1.0, 0.5]])
    expect_float(learner.agreement(one, two), 0.75, 1e-9)
    expect_float(learner.agreement(one, one), 1.0, 0)
    expect_float(learner.agreement(one, -one), 0.0, 0)


@case("3.7")
def agreement_of_equal_logits(learner, rng):
    """Of equal logits the first counts: [1, 5, 5] chooses index 1, as [0, 7, 3] does, and not 2."""
    tied = torch.tensor([[1.0, 5.0, 5.0], [1.0, 5.0, 5.0], [2.0, 2.0, 2.0], [0.0, 9.0, 1.0]])
    other = torch.tensor([[0.0, 7.0, 3.0], [0.0, 3.0, 7.0], [4.0, 1.0, 0.0], [1.0, 6.0, 6.0]])
    expect_float(learner.agreement(tied, other), 0.75, 1e-9)
    expect_float(learner.agreement(other, tied), 0.75, 1e-9)


@case("3.7")
def agreement_of_any_size(learner, rng):
    """The share of positions at which the largest logit is at the same index, in any dtype."""
    for tokens, vocabulary in ((1, 5), (5, 5), (40, 30), (30, 3)):
        for dtype in (F32, BF16):
            one = randn(rng, tokens, vocabulary, dtype=dtype)
            two = (one.float() + randn(rng, tokens, vocabulary)).to(dtype)
            pairs = zip(one.tolist(), two.tolist(), strict=True)
            same = sum(a.index(max(a)) == b.index(max(b)) for a, b in pairs)
            expect_float(learner.agreement(one, two), same / tokens, 1e-6)


@case("3.7")
def agreement_refuses(learner, rng):
    """Shapes that differ, or no position at all: ValueError."""
    for one, two in (((1, 4), (3, 4)), ((3, 4), (3, 5)), ((2, 6), (3, 4)), ((0, 4), (0, 4))):
        with expect_raises("ValueError"):
            found = learner.agreement(torch.ones(one), torch.ones(two))
            raise Wrong(f"shapes {one} and {two} gave {found}")
