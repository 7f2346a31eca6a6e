"""5.5 log_probabilities."""

import math

import torch

from course.cases import Wrong, case, describe, expect_tensor
from tests.grading.forward_pass.driving import drive
from tests.grading.sampler.checks import (
    BF16,
    F16,
    F32,
    HIDDEN,
    close,
    logits_of,
    near,
    rows_of,
    table,
)
from tests.oracles import sampler as oracle

I32, I64 = torch.int32, torch.int64


def expected_of(logits, chosen: list, top: int) -> tuple[list, list, list]:
    """(values, ids, tops) of the oracle."""
    logs = list(map(oracle.log_probabilities, rows_of(logits)))
    ids = [oracle.ranking(row)[:top] for row in rows_of(logits)]
    tops = [[row[i] for i in best] for row, best in zip(logs, ids, strict=True)]
    return [row[token] for row, token in zip(logs, chosen, strict=True)], ids, tops


def compared(got, logits, chosen: list, top: int, what: str) -> None:
    """The three parts, each with its shape, dtype and values."""
    if not isinstance(got, list | tuple) or len(got) != 3:
        raise Wrong(f"it should return (values, ids, tops), but returned {describe(got)}")
    values, ids, tops = expected_of(logits, chosen, top)
    size = max(1.0, max(abs(x) for row in rows_of(logits) for x in row if x > HIDDEN))
    atol = 2e-6 * size  # the logits cancel: 16 times the rounding of the largest
    near(got[0], table(values), atol, f"{what}: values")
    shape = len(logits), min(top, logits.shape[1])
    names = torch.tensor(ids, dtype=I64).reshape(shape)
    expect_tensor(got[1], names, atol=0, what=f"{what}: ids")
    tops = torch.tensor(tops, dtype=torch.float64).float().reshape(shape)
    near(got[2], tops, atol, f"{what}: tops")


def logged(learner, rng, logits, top: int, what: str = "", chosen: list | None = None) -> None:
    """log_probabilities, compared with the oracle."""
    chosen = chosen or [rng.randrange(logits.shape[1]) for _ in range(len(logits))]
    got = learner.log_probabilities(logits, torch.tensor(chosen, dtype=rng.choice([I32, I64])), top)
    compared(got, logits, chosen, top, what or f"with top = {top}")


def apart(rng, rows: int, vocabulary: int, dtype=F32) -> torch.Tensor:
    """Random logits, no two of a row equal, so far apart that rounding does not touch their order
    (in 16 bits that of the first hundred)."""
    places = [rng.sample(range(vocabulary), vocabulary) for _ in range(rows)]
    return -torch.tensor(places, dtype=F32).sqrt().to(dtype)


@case("5.5")
def log_by_hand(learner, rng):
    """Of the probabilities 1/8, 5/8, 2/8: the logarithm of the chosen one, and the best two."""
    logits = torch.tensor([[math.log(1), math.log(5), math.log(2)]])
    got = learner.log_probabilities(logits, torch.tensor([0]), 2)
    compared(got, logits, [0], 2, "of 1/8, 5/8, 2/8")
    close(got[2], [[math.log(5 / 8), math.log(2 / 8)]], "tops")


@case("5.5")
def log_of_each_row(learner, rng):
    """Each row has its own chosen token and its own favourites, in a batch of any size."""
    for rows, vocabulary, top in ((1, 9, 3), (4, 30, 5), (6, 6, 6), (2, 50000, 20)):
        logged(learner, rng, apart(rng, rows, vocabulary), top)


@case("5.5")
def log_without_favourites(learner, rng):
    """top = 0: only the chosen tokens; ids and tops are [B, 0]."""
    for rows in (1, 3):
        logged(learner, rng, apart(rng, rows, 20), 0)


@case("5.5")
def log_of_more_than_there_are(learner, rng):
    """A top of V or more gives all V tokens in order."""
    for top in (7, 8, 20):
        logged(learner, rng, apart(rng, 3, 7), top)
    logged(learner, rng, apart(rng, 2, 1), 1)


@case("5.5")
def log_of_equals(learner, rng):
    """Of equally probable tokens the lower id comes first, also where not all of them fit."""
    logits = torch.full((4, 40), -1.0)
    for row in range(4):
        logits[row, rng.sample(range(40), 9)] = 2.0
    for top in (1, 4, 12):
        logged(learner, rng, logits, top, f"of equals with top = {top}")
    logged(learner, rng, torch.zeros(2, 3000), 5, "of all equals")
    for dtype in (F16, BF16):
        logged(learner, rng, logits_of(rng, 3, 2000).round().to(dtype), 20)


@case("5.5")
def log_of_the_improbable(learner, rng):
    """A probability too small for a float32 has a logarithm all the same: -200, not -inf."""
    logits = torch.tensor([[0.0, -200.0, -1000.0, -5.0]] * 4)
    for top in (0, 4):
        logged(learner, rng, logits, top, "of improbable tokens", [0, 1, 2, 3])


@case("5.5")
def log_of_large_logits(learner, rng):
    """Large logits overflow nothing."""
    for shift in (1e4, -1e4, 300.0):
        logged(learner, rng, apart(rng, 3, 25) + shift, 4)


@case("5.5")
def log_of_hidden(learner, rng):
    """A token that cannot come has -inf, chosen or among the favourites, and nothing is NaN."""
    for dtype in (F32, F16, BF16):
        logits = apart(rng, 3, 12, dtype)
        hidden = rng.sample(range(12), 8)
        logits[:, hidden] = HIDDEN
        logged(learner, rng, logits, 3, "", [hidden[0], hidden[1], 0])
        logged(learner, rng, logits, 7)


@case("5.5")
def log_in_16_bits(learner, rng):
    """float16 and bfloat16 are widened first: all results are float32."""
    for dtype in (F16, BF16):
        logged(learner, rng, apart(rng, 3, 3000).to(dtype), 6)


@case("5.5")
def log_of_views(learner, rng):
    """It does not matter how the logits lie in memory, and they are not changed."""
    logits, chosen = apart(rng, 3, 10), [rng.randrange(10) for _ in range(3)]
    for got in drive(learner, "on_views", "log_probabilities", logits, torch.tensor(chosen), 4):
        compared(got, logits, chosen, 4, "of a view")
