"""5.2 keep_top_k, keep_top_p and keep_min_p."""

import math

import torch

from course.cases import case
from tests.grading.forward_pass.driving import drive
from tests.grading.sampler.checks import (
    BF16,
    EDGE,
    F16,
    F32,
    HIDDEN,
    expect_kept,
    logits_of,
    rows_of,
)
from tests.oracles import sampler as oracle

I32, I64 = torch.int32, torch.int64


def logs(*shares: float) -> torch.Tensor:
    """Logits [1, V] with these probabilities."""
    return torch.tensor([[math.log(share) if share else HIDDEN for share in shares]])


def top_k(learner, logits, ks: list, what: str = "the result", dtype=I64) -> None:
    """keep_top_k, compared with the oracle."""
    kept = [oracle.top_k(row, k) for row, k in zip(rows_of(logits), ks, strict=True)]
    got = learner.keep_top_k(logits, torch.tensor(ks, dtype=dtype))
    expect_kept(got, logits, kept, f"{what} with k = {ks[:8]}")


@case("5.2")
def k_by_hand(learner, rng):
    """Of [1, 5, 3, 4], k = 2 keeps 5 and 4; k = 1 keeps 5."""
    logits = torch.tensor([[1.0, 5.0, 3.0, 4.0]] * 3)
    got = learner.keep_top_k(logits, torch.tensor([2, 1, 3]))
    expect_kept(got, logits, [{1, 3}, {1}, {1, 2, 3}], "the result with k = [2, 1, 3]")


@case("5.2")
def k_of_each_row(learner, rng):
    """Each row keeps as many as its own k says, in a batch of any size."""
    for rows, vocabulary in ((1, 10), (3, 30), (8, 8), (2, 49152)):
        ks = [rng.randrange(1, vocabulary + 1) for _ in range(rows)]
        top_k(learner, logits_of(rng, rows, vocabulary), ks, dtype=rng.choice([I32, I64]))


@case("5.2")
def k_off(learner, rng):
    """0 and -1 are off, beside rows where it is on, and where it is off for all."""
    logits = logits_of(rng, 4, 15)
    for ks in ([0, 3, -1, 1], [0, 0, 0, 0], [-1, -1, -1, -1], [2, 0, 2, 0]):
        top_k(learner, logits, ks, dtype=rng.choice([I32, I64]))


@case("5.2")
def k_beyond_the_vocabulary(learner, rng):
    """A k of V or more keeps all, beside smaller ones and alone."""
    logits = logits_of(rng, 3, 12)
    for ks in ([12, 2, 11], [13, 5, 1], [10**9, 2**31 - 1, 3], [40, 50, 60]):
        top_k(learner, logits, ks)
    top_k(learner, logits_of(rng, 2, 1), [1, 5])


@case("5.2")
def k_of_equals(learner, rng):
    """All that are equal to the k-th stay, though they are more than k."""
    logits = torch.tensor([[3.0, 1.0, 3.0, 3.0, 2.0, 0.0]] * 4)
    top_k(learner, logits, [1, 2, 3, 4], "with equal logits the result")
    top_k(learner, torch.zeros(3, 7), [1, 4, 7], "with all logits equal the result")
    coarse = logits_of(rng, 3, 60).round()
    top_k(learner, coarse, [rng.randrange(1, 40) for _ in range(3)])


@case("5.2")
def k_of_hidden(learner, rng):
    """-inf stays -inf, and does not count against what is left."""
    for dtype in (F32, F16, BF16):
        logits = logits_of(rng, 3, 12, dtype)
        logits[:, rng.sample(range(12), 7)] = HIDDEN
        top_k(learner, logits, [2, 5, 9], "with -inf among the logits the result")


@case("5.2")
def k_in_16_bits(learner, rng):
    """Logits stay in their dtype, unchanged; equal ones are common in 16 bits."""
    for dtype in (F16, BF16):
        ks = [1, 7, 0, 90, 300]
        top_k(learner, logits_of(rng, 5, 300, dtype), ks, f"for {dtype} the result")


# --- top-p ---


def clear_p(rng, row: list[float]) -> float:
    """A random p that no sum of the row's most probable tokens comes near: half-way into one."""
    shares = sorted(oracle.softmax(row), reverse=True)
    rank = rng.choice([i for i, share in enumerate(shares) if share > 4e-5])
    return math.fsum(shares[:rank]) + shares[rank] / 2


def top_p(learner, logits, ps: list, what: str = "the result", dtype=F32) -> None:
    """keep_top_p, compared with the oracle."""
    kept = [oracle.top_p(row, p) for row, p in zip(rows_of(logits), ps, strict=True)]
    got = learner.keep_top_p(logits, torch.tensor(ps, dtype=dtype))
    shown = ", ".join(f"{p:.3g}" for p in ps[:8])
    expect_kept(got, logits, kept, f"{what} with p = [{shown}]")


@case("5.2")
def p_by_hand(learner, rng):
    """Of 0.5, 0.25, 0.15, 0.1: p = 0.4 keeps the first, 0.6 two, 0.8 three, 0.95 all."""
    order = rng.sample(range(4), 4)
    shares = [0.5, 0.25, 0.15, 0.1]
    logits = logs(*(shares[i] for i in order)).repeat(4, 1)
    kept = [{i for i in range(4) if order[i] < count} for count in (1, 2, 3, 4)]
    got = learner.keep_top_p(logits, torch.tensor([0.4, 0.6, 0.8, 0.95]))
    expect_kept(got, logits, kept, "the result with p = [0.4, 0.6, 0.8, 0.95]")


@case("5.2")
def p_that_is_reached_exactly(learner, rng):
    """A token stays while the sum before it is below p: with p = 0.5, one of two equals is enough;
    of equals the lower ids stay.
    """
    for count, ps, sizes in (
        (2, [0.5, 0.25, 0.75], [1, 1, 2]),
        (4, [0.5, 0.75, 0.51, 0.25], [2, 3, 3, 1]),
        (1024, [0.125, 0.5, 0.375], [128, 512, 384]),
    ):
        logits = torch.full((len(ps), count), rng.choice([0.0, -1.0, 2.0]))
        kept = [set(range(size)) for size in sizes]
        what = f"the result of {count} equals with p = {ps}"
        expect_kept(learner.keep_top_p(logits, torch.tensor(ps)), logits, kept, what)


@case("5.2")
def p_of_equals_among_others(learner, rng):
    """Where some of several equal tokens are enough, those with the lower ids stay."""
    logits = logs(0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1)
    logits = logits[:, rng.sample(range(7), 7)]
    top_p(learner, logits.repeat(5, 1), [0.3, 0.5, 0.15, 0.65, 0.85], "with equals the result")
    for dtype in (F16, BF16):
        logits = logits_of(rng, 4, 400, dtype)
        top_p(learner, logits, [clear_p(rng, row) for row in rows_of(logits)], f"for {dtype} it")


@case("5.2")
def p_of_each_row(learner, rng):
    """Each row has its own p, in a batch of any size."""
    for rows, vocabulary in ((1, 8), (4, 30), (7, 7), (3, 3000)):
        logits = logits_of(rng, rows, vocabulary) * rng.choice([0.3, 1.0, 2.0])
        ps = [clear_p(rng, row) for row in rows_of(logits)]
        top_p(learner, logits, ps, dtype=rng.choice([F32, torch.float64]))


@case("5.2")
def p_of_a_large_vocabulary(learner, rng):
    """Sure and unsure rows share a batch, with a vocabulary as large as the model's."""
    logits = logits_of(rng, 2, 49152) * torch.tensor([[rng.choice([0.3, 1.0])], [4.0]])
    top_p(learner, logits, [clear_p(rng, row) for row in rows_of(logits)])


@case("5.2")
def p_tiny(learner, rng):
    """The most probable token always stays, however small p is: 0, as float32 has a p of 1e-300."""
    logits = logits_of(rng, 3, 40)
    for p in (1e-3, 1e-6, 1e-30, 0.0):
        top_p(learner, logits, [p] * 3)
    top_p(learner, logits_of(rng, 2, 1), [0.2, 1e-9])


@case("5.2")
def p_one(learner, rng):
    """1 is off: every token stays, though rounding may bring the sum to 1 before the last, and
    though it be far too improbable to add to it; beside rows where it is on.
    """
    logits = logits_of(rng, 3, 9)
    logits[:, 4] = -500.0
    logits[:, 6] = HIDDEN
    top_p(learner, logits, [1.0, clear_p(rng, rows_of(logits)[1]), 1.0])
    top_p(learner, logits, [1.0, 1.0, 1.0])
    top_p(learner, logits_of(rng, 1, 9000) / 8, [1.0])


@case("5.2")
def p_of_what_is_left(learner, rng):
    """What is -inf has no probability and the others share it: 0.4, 0.3, 0.2 are 0.44, 0.33, 0.22,
    so p = 0.75 keeps two.
    """
    top_p(learner, logs(0.4, 0.0, 0.3, 0.0, 0.2), [0.75], "with -inf among the logits the result")
    for dtype in (F32, F32, F16, BF16):
        logits = logits_of(rng, 6, 30, dtype)
        logits[:, rng.sample(range(30), 15)] = HIDDEN
        top_p(learner, logits, [clear_p(rng, row) for row in rows_of(logits)])


@case("5.2")
def p_of_logits_of_any_size(learner, rng):
    """Neither large logits nor very negative ones disturb it."""
    for shift in (1e3, -1e3):
        logits = logits_of(rng, 2, 25) + shift
        top_p(learner, logits, [clear_p(rng, row) for row in rows_of(logits)])


# --- min-p ---


def clear_min_p(rng, row: list[float]) -> float:
    """A random p such that no token has nearly p times the largest probability."""
    shares = torch.tensor(oracle.softmax(row))
    while True:
        p = 10 ** rng.uniform(-4, -0.05)
        if bool(((shares / shares.max() / p - 1).abs() > EDGE).all()):
            return p


def min_p(learner, logits, ps: list, what: str = "the result", dtype=F32) -> None:
    """keep_min_p, compared with the oracle."""
    kept = [oracle.min_p(row, p) for row, p in zip(rows_of(logits), ps, strict=True)]
    got = learner.keep_min_p(logits, torch.tensor(ps, dtype=dtype))
    shown = ", ".join(f"{p:.3g}" for p in ps[:8])
    expect_kept(got, logits, kept, f"{what} with min-p = [{shown}]")


@case("5.2")
def min_p_by_hand(learner, rng):
    """Of 0.6, 0.3, 0.08, 0.02: with p = 0.4 at least 0.24 is asked for, with 0.1 at least 0.06."""
    logits = logs(0.02, 0.6, 0.08, 0.3).repeat(3, 1)
    got = learner.keep_min_p(logits, torch.tensor([0.4, 0.1, 0.01]))
    expect_kept(got, logits, [{1, 3}, {1, 2, 3}, {0, 1, 2, 3}], "with p = [0.4, 0.1, 0.01] it")


@case("5.2")
def min_p_of_each_row(learner, rng):
    """Each row is measured by its own largest probability and its own p."""
    for rows, vocabulary in ((1, 8), (4, 30), (6, 6), (2, 49152)):
        logits = logits_of(rng, rows, vocabulary) + torch.linspace(-20, 20, rows)[:, None]
        ps = [clear_min_p(rng, row) for row in rows_of(logits)]
        min_p(learner, logits, ps, dtype=rng.choice([F32, torch.float64]))


@case("5.2")
def min_p_off(learner, rng):
    """0 is off: even a token whose probability is zero in float32 stays."""
    logits = logits_of(rng, 3, 10)
    logits[:, 2], logits[:, 5] = -1000.0, HIDDEN
    min_p(learner, logits, [0.0, clear_min_p(rng, rows_of(logits)[1]), 0.0])
    min_p(learner, logits, [0.0, 0.0, 0.0])


@case("5.2")
def min_p_one(learner, rng):
    """1 keeps the most probable token and its equals; so always at least one stays."""
    logits = logits_of(rng, 3, 20)
    logits[1, [2, 9, 17]] = 40.0
    min_p(learner, logits, [1.0, 1.0, 1.0])
    min_p(learner, torch.zeros(1, 5), [1.0], "of equals the result")
    min_p(learner, logits_of(rng, 2, 1), [1.0, 0.5])


@case("5.2")
def min_p_of_hidden(learner, rng):
    """-inf stays -inf."""
    logits = logits_of(rng, 2, 20, rng.choice([F32, F16, BF16]))
    logits[:, rng.sample(range(20), 9)] = HIDDEN
    min_p(learner, logits, [clear_min_p(rng, row) for row in rows_of(logits)])


@case("5.2")
def min_p_in_16_bits(learner, rng):
    """float16 and bfloat16 stay what they are; the comparison is made in float32."""
    for dtype in (F16, BF16):
        logits = logits_of(rng, 3, 200, dtype)
        ps = [clear_min_p(rng, row) for row in rows_of(logits)]
        min_p(learner, logits, ps, f"for {dtype} the result")


@case("5.2")
def filters_of_views(learner, rng):
    """It does not matter how the logits lie in memory, and they are not changed."""
    logits = logits_of(rng, 3, 14)
    rows = rows_of(logits)
    ks, ps, qs = [3, 0, 8], [clear_p(rng, r) for r in rows], [clear_min_p(rng, r) for r in rows]
    for name, wishes, filter_of in (
        ("keep_top_k", ks, oracle.top_k),
        ("keep_top_p", ps, oracle.top_p),
        ("keep_min_p", qs, oracle.min_p),
    ):
        kept = [filter_of(row, wish) for row, wish in zip(rows, wishes, strict=True)]
        for got in drive(learner, "on_views", name, logits, torch.tensor(wishes)):
            expect_kept(got, logits, kept, f"{name} of a view")
