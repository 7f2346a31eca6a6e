"""5.4 pick."""

import torch

from course.cases import Wrong, case, describe, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.grading.sampler.checks import logits_of, rows_of
from tests.oracles import sampler as oracle

JUST_BELOW_1 = 1 - 2**-53


def picked(learner, shares: list, uniforms: list, expected: list, what: str = "the ids") -> None:
    """pick of these rows gives these ids, as int64."""
    numbers = torch.tensor(uniforms, dtype=torch.float64)
    got = learner.pick(torch.tensor(shares), numbers)
    right = isinstance(got, torch.Tensor) and got.dtype == torch.int64
    if not right or list(got.shape) != [len(uniforms)]:
        raise Wrong(f"pick should return int64 [{len(uniforms)}], but returned {describe(got)}")
    if got.tolist() != expected:
        at = next(i for i, (a, b) in enumerate(zip(got.tolist(), expected, strict=True)) if a != b)
        raise Wrong(
            f"{what}: row {at} with the number {uniforms[at]!r} picked {got.tolist()[at]}, "
            f"expected {expected[at]}"
        )


@case("5.4")
def pick_by_hand(learner, rng):
    """Of 0.5, 0.25, 0.25: below 0.5 it is token 0, from 0.5 on token 1, from 0.75 on token 2."""
    numbers = [0.0, 0.3, 0.49, 0.5, 0.6, 0.74, 0.75, 0.9, JUST_BELOW_1]
    expected = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    picked(learner, [[0.5, 0.25, 0.25]] * 9, numbers, expected)
    picked(learner, [[0.25, 0.25, 0.5]], [0.5], [2])


@case("5.4")
def pick_from_each_row(learner, rng):
    """Each row has its own distribution and its own number."""
    for rows, vocabulary in ((1, 6), (5, 5), (7, 300)):
        shares = list(map(oracle.softmax, rows_of(logits_of(rng, rows, vocabulary))))
        numbers = []
        for row in shares:
            number = rng.random()
            while min(abs(number - sum(row[: i + 1])) for i in range(vocabulary)) < 1e-6:
                number = rng.random()
            numbers.append(number)
        expected = [oracle.pick(*pair) for pair in zip(shares, numbers, strict=True)]
        picked(learner, shares, numbers, expected)


@case("5.4")
def pick_nothing_impossible(learner, rng):
    """Never a token of probability 0: not the first at 0, not the last just below 1, none at the
    border between two others.
    """
    shares = [[0.0, 0.0, 0.5, 0.0, 0.5, 0.0, 0.0]] * 4
    picked(learner, shares, [0.0, 0.5, JUST_BELOW_1, 0.4999], [2, 4, 4, 2])
    place = rng.randrange(50)
    shares = torch.tensor(shares)
    numbers = torch.tensor([0.0, 0.5, JUST_BELOW_1, 0.4999], dtype=torch.float64)
    for got in drive(learner, "on_views", "pick", shares, numbers):
        expect_equal(got.tolist(), [2, 4, 4, 2], "the ids from a view")
    alone = [[float(i == place) for i in range(50)]] * 3
    picked(learner, alone, [0.0, 0.5, JUST_BELOW_1], [place] * 3)
    picked(learner, [[1.0]] * 2, [0.0, JUST_BELOW_1], [0, 0])


@case("5.4")
def pick_when_the_sum_is_off(learner, rng):
    """Where rounding has left the sum a little off 1, the number is a share of what the sum is."""
    short, long = [0.4999, 0.4999, 0.0], [0.50005, 0.50005, 0.0]
    picked(learner, [short, short, long, long], [0.49995, 0.9999, 0.49995, 0.50004], [0, 1, 0, 1])
    for row in (short, long):
        picked(learner, [row] * 2, [JUST_BELOW_1, 0.0], [1, 0])


@case("5.4")
def pick_from_many(learner, rng):
    """With 50,000 tokens the sums are still exact enough, and the last number finds a token."""
    count = 50_000
    flat = [1 / count] * count
    places = [rng.randrange(count) for _ in range(6)]
    picked(learner, [flat] * 6, [(place + 0.5) / count for place in places], places)
    flat[-7:] = [0.0] * 7
    picked(learner, [flat] * 2, [JUST_BELOW_1, 0.0], [count - 8, 0])


@case("5.4")
def pick_as_often_as_it_should(learner, rng):
    """Of 1,000 numbers evenly spread, each token gets its share, to the nearest one."""
    shares = oracle.softmax(rows_of(logits_of(rng, 1, 12))[0])
    numbers = torch.arange(1000, dtype=torch.float64).add(0.5).div(1000)
    got = learner.pick(torch.tensor([shares] * 1000), numbers)
    counts = got.bincount(minlength=12).tolist()
    off = [i for i in range(12) if abs(counts[i] - 1000 * shares[i]) > 1.01]
    if off or len(counts) > 12:
        raise Wrong(f"of 1,000 numbers evenly spread, {counts} became the tokens 0, 1, 2, ..., "
                    f"expected {[round(1000 * share, 1) for share in shares]}")  # fmt: skip
