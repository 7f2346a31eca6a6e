"""5.1 apply_temperature and softmax."""

import math

import torch

from course.cases import Wrong, case, expect_tensor, randn
from tests.grading.forward_pass.driving import drive
from tests.grading.sampler.checks import BF16, F16, F32, HIDDEN, close, logits_of, rows_of
from tests.oracles import sampler as oracle


def heated(learner, logits, heats: list, what: str = "the result", dtype=F32) -> None:
    """apply_temperature, compared with the oracle row by row."""
    expected = [oracle.temperature(r, h) for r, h in zip(rows_of(logits), heats, strict=True)]
    got = learner.apply_temperature(logits, torch.tensor(heats, dtype=dtype))
    finite = logits.double().abs()
    size = float(finite[finite.isfinite()].max()) / min([h for h in heats if h] or [1])
    close(got, expected, what, size if math.isfinite(size) and size < 1e6 else 0.0)


@case("5.1")
def temperature_by_hand(learner, rng):
    """[1, 2, 4] becomes [-1.5, -1, 0] at temperature 2 and [-6, -4, 0] at 0.5."""
    logits, heats = torch.tensor([[1.0, 2.0, 4.0]] * 3), torch.tensor([2.0, 0.5, 1.0])
    got = learner.apply_temperature(logits, heats)
    close(got, [[-1.5, -1.0, 0.0], [-6.0, -4.0, 0.0], [-3.0, -2.0, 0.0]], "the result")


@case("5.1")
def temperature_of_each_row(learner, rng):
    """Every row is divided by its own temperature, in a batch of any size."""
    for rows, vocabulary in ((1, 7), (3, 3), (5, 40), (4, 1), (2, 5000)):
        heats = [rng.uniform(0.2, 2) for _ in range(rows)]
        heated(learner, logits_of(rng, rows, vocabulary), heats)


@case("5.1")
def temperature_zero(learner, rng):
    """At 0 only the largest is left, at 0, whatever the size or the sign of the logits."""
    for shift in (0.0, -100.0, 1000.0):
        for rows in (3, 1):
            logits = logits_of(rng, rows, 12) + shift
            heated(learner, logits, [0.0] * rows, "at temperature 0 the result")


@case("5.1")
def temperature_zero_among_others(learner, rng):
    """Rows at 0 and rows at other temperatures share a batch."""
    heats = [0.7, 0.0, 1.3, 0.0, 1.0]
    heated(learner, logits_of(rng, 5, 20), heats)
    heated(learner, logits_of(rng, 5, 20, BF16), heats, dtype=torch.float64)


@case("5.1")
def temperature_zero_of_equals(learner, rng):
    """Of equal largest logits the lowest id is left at 0, one, not all of them."""
    logits = torch.full((3, 30), -2.0)
    for row in range(3):
        logits[row, rng.sample(range(30), 4)] = 5.0
    heated(learner, logits, [0.0, 0.0, 0.5], "with equal largest logits it")
    heated(learner, torch.zeros(2, 6), [0.0, 1.0], "with all logits equal it")


@case("5.1")
def temperature_tiny(learner, rng):
    """However small the temperature, the largest is 0, the others far below, and nothing NaN."""
    logits = logits_of(rng, 4, 10)
    for heat in (1e-37, 1e-20, 1e-6, 1e-3):
        heated(learner, logits + 200, [heat] * 4, f"with 200 added, at temperature {heat} it")
        heated(learner, logits - 200, [heat] * 4, f"with 200 less, at temperature {heat} it")
        heated(learner, logits, [heat] * 4, f"at temperature {heat} it")
    logits[:, 3] = logits[:, 7] = 50.0
    heated(learner, logits, [1e-30] * 4, "with equals at temperature 1e-30 it")


@case("5.1")
def temperature_huge(learner, rng):
    """A huge temperature brings all logits near 0; -inf stays what it is."""
    logits = logits_of(rng, 2, 10)
    logits[0, 4] = HIDDEN
    for heat in (1e4, 1e30):
        heated(learner, logits, [heat] * 2, f"at temperature {heat} it")


@case("5.1")
def temperature_of_hidden(learner, rng):
    """What is -inf stays -inf at every temperature, also at 0, and where one token is left."""
    for dtype in (F32, F16, BF16):
        logits = logits_of(rng, 4, 12, dtype)
        logits[:, rng.sample(range(12), 5)] = HIDDEN
        logits[3] = HIDDEN
        logits[3, rng.randrange(12)] = -3.0
        for heat in (0.0, 1e-20, 0.8, 2.0):
            heated(learner, logits, [heat] * 4, f"with -inf at temperature {heat} it")


@case("5.1")
def temperature_in_16_bits(learner, rng):
    """float16 and bfloat16 are widened to float32 before anything is computed."""
    for dtype in (F16, BF16):
        heats = [0.3, 0.0, 1.7]
        heated(learner, logits_of(rng, 3, 25, dtype), heats, f"for {dtype} it")
        large = torch.tensor([[6e4, -6e4, 3e4, 0.0]] * 3, dtype=dtype)
        heated(learner, large, heats, f"for large {dtype} it")


@case("5.1")
def temperature_large_logits(learner, rng):
    """Logits of any size: their differences count."""
    heated(learner, 1e30 * randn(rng, 2, 8), [0.5, 2.0], "for logits of 1e30 it")


@case("5.1")
def temperature_of_views(learner, rng):
    """It does not matter how the logits lie in memory, and they are not changed."""
    logits, heats = logits_of(rng, 3, 8), [0.5, 0.0, 1.5]
    expected = [oracle.temperature(r, h) for r, h in zip(rows_of(logits), heats, strict=True)]
    for got in drive(learner, "on_views", "apply_temperature", logits, torch.tensor(heats)):
        close(got, expected, "of a view it", 30.0)


# --- softmax ---


def softened(learner, logits, what: str = "it") -> None:
    """softmax, compared with the oracle row by row."""
    got = learner.softmax(logits)
    close(got, list(map(oracle.softmax, rows_of(logits))), what)
    total = got.double().sum(-1)
    off = (total - 1).abs() > 1e-5
    if bool(off.any()):
        raise Wrong(f"a row of softmax has the sum {float(total[off][0]):.7g}, not 1")


@case("5.1")
def softmax_by_hand(learner, rng):
    """Logits of log 1, log 2 and log 5 are 1/8, 2/8 and 5/8."""
    logits = torch.tensor([[math.log(1), math.log(2), math.log(5)], [7.0, 7.0, 7.0]])
    close(learner.softmax(logits), [[1 / 8, 2 / 8, 5 / 8], [1 / 3] * 3])


@case("5.1")
def softmax_of_each_row(learner, rng):
    """Each row has a sum of 1 of its own, for any number of rows and tokens."""
    for rows, vocabulary in ((1, 5), (3, 3), (6, 50), (3, 1), (1, 30000)):
        softened(learner, logits_of(rng, rows, vocabulary))


@case("5.1")
def softmax_of_large_logits(learner, rng):
    """exp of large logits would be infinite, of very negative ones zero: neither may happen."""
    logits = logits_of(rng, 3, 9)
    for shift in (100.0, 1e4, -1e4, -100.0):
        softened(learner, logits + shift, f"with {shift:g} added it")
    mixed = logits.clone()
    mixed[0], mixed[1] = mixed[0] + 1e4, mixed[1] - 1e4
    softened(learner, mixed, "with a large row and a small one it")


@case("5.1")
def softmax_of_hidden(learner, rng):
    """A logit of -inf has the probability 0, exactly; one token alone has 1."""
    for dtype in (F16, BF16, F32):
        logits = logits_of(rng, 4, 9, dtype)
        logits[:, rng.sample(range(9), 4)] = HIDDEN
        logits[3] = HIDDEN
        logits[3, 5] = -40.0
        softened(learner, logits, "with -inf it")
    got = learner.softmax(logits)
    expect_tensor(got[logits == HIDDEN], torch.zeros(int((logits == HIDDEN).sum())), atol=0)


@case("5.1")
def softmax_in_16_bits(learner, rng):
    """float16 and bfloat16 come back as float32, computed in float32."""
    for dtype in (F16, BF16):
        softened(learner, logits_of(rng, 2, 4000, dtype), f"for {dtype} it")
        softened(learner, torch.zeros(2, 3000, dtype=dtype), f"for zeros in {dtype} it")


@case("5.1")
def softmax_of_views(learner, rng):
    """It does not matter how the logits lie in memory, and they are not changed."""
    logits = logits_of(rng, 3, 8)
    for got in drive(learner, "on_views", "softmax", logits):
        close(got, list(map(oracle.softmax, rows_of(logits))), "of a view it")
