"""What `load` plans: a Poisson process, lengths with a heavy tail, prompts as long as wished."""

import random
from itertools import islice, pairwise
from math import exp, log, sqrt
from statistics import NormalDist, mean, pvariance

import pytest

from course.load_plan import (
    MOST,
    PROMPTS,
    WORDS,
    Lengths,
    arrivals,
    plan,
    read_lengths,
    text,
    times,
)
from course.model import ensure_model
from course.text import Text

COUNT = 20_000
SIGMAS = 5  # of the estimate: one run in 1.7 million would fail by chance, and the seeds are fixed


def gaps(rate: float, seed: int) -> list[float]:
    """Gaps of a Poisson process, the first from 0."""
    due = [0.0, *islice(arrivals(rate, random.Random(seed)), COUNT)]
    return [after - before for before, after in pairwise(due)]


@pytest.mark.parametrize(("rate", "seed"), [(0.5, 0), (7.0, 1), (200.0, 2)])
def test_gaps_are_exponential(rate, seed):
    """Theory: mean 1/r, variance 1/r^2. Of n gaps, the standard error of the mean is 1/(r sqrt n),
    that of the variance sqrt(8/n)/r^2, because the fourth central moment is 9/r^4."""
    found = gaps(rate, seed)
    assert abs(mean(found) - 1 / rate) < SIGMAS / (rate * sqrt(COUNT))
    assert abs(pvariance(found) - rate**-2) < SIGMAS * sqrt(8 / COUNT) / rate**2
    for times_mean in (0.1, 1, 3):  # P(gap > t) = exp(-r t)
        share, expected = mean(gap > times_mean / rate for gap in found), exp(-times_mean)
        assert abs(share - expected) < SIGMAS * sqrt(expected * (1 - expected) / COUNT)


def test_arrivals_in_a_second_vary_as_much_as_their_mean():
    """Theory: counts are Poisson, so variance over mean is 1, with standard error sqrt(2/n)."""
    due = list(islice(arrivals(4.0, random.Random(3)), COUNT))
    seconds = int(due[-1])
    counts = [0] * (seconds + 1)
    for at in due:
        counts[int(at)] += 1
    whole = counts[:-1]
    assert abs(pvariance(whole) / mean(whole) - 1) < SIGMAS * sqrt(2 / seconds)


def test_a_gap_says_nothing_about_the_next():
    found = gaps(1.0, 4)
    middle, variance = mean(found), pvariance(found)
    covariance = mean((a - middle) * (b - middle) for a, b in pairwise(found))
    assert abs(covariance / variance) < SIGMAS / sqrt(COUNT)


def test_another_rate_is_the_same_pattern_at_another_speed():
    slow, fast = times(0.5, 7, requests=50), times(2.0, 7, requests=50)
    assert fast == pytest.approx([at / 4 for at in slow])
    assert times(0.5, 8, requests=50) != slow


def test_seconds_take_all_that_arrive_in_them():
    due = times(3.0, 1, seconds=40.0)
    longer = times(3.0, 1, requests=len(due) + 1)
    assert due == longer[:-1]
    assert due[-1] <= 40.0 < longer[-1]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"rate": 0.001, "seconds": 0.01}, "no request arrives in 0.01 s at 0.001 a second"),
        ({"rate": 100.0, "seconds": 86400.0}, f"more than {MOST} requests in one run"),
        ({"rate": 1.0, "requests": MOST + 1}, f"more than {MOST} requests in one run"),
        ({"rate": 1.0, "requests": 10**15}, f"more than {MOST} requests in one run"),
    ],
)
def test_a_run_of_nothing_or_without_end_is_refused(wish, words):
    with pytest.raises(ValueError, match=words):
        times(seed=0, **wish)


def test_lengths_are_lognormal_with_cut_ends():
    """Theory: ln X is normal with mean ln(median) and deviation sigma, so P(X > x) is known."""
    lengths, rng = Lengths(32, 1.0, 4, 512), random.Random(0)
    drawn = [lengths.draw(rng) for _ in range(COUNT)]
    for x in (8, 32, 100, 300):
        expected = 1 - NormalDist(log(32), 1.0).cdf(log(x + 0.5))  # lengths are rounded
        share = mean(length > x for length in drawn)
        assert abs(share - expected) < SIGMAS * sqrt(expected * (1 - expected) / COUNT)
    assert (min(drawn), max(drawn)) == (4, 512)


def test_the_longest_tenth_holds_the_stated_share():
    lengths, rng = Lengths(1000, 1.0, 1, 100_000), random.Random(1)
    drawn = sorted(lengths.draw(rng) for _ in range(COUNT))
    share = sum(drawn[-COUNT // 10 :]) / sum(drawn)
    stated = NormalDist().cdf(1.0 - NormalDist().inv_cdf(0.9))
    assert stated == pytest.approx(0.39, abs=0.005)
    assert share == pytest.approx(stated, abs=0.03)


def test_words_differ_between_repetitions_and_nothing_else_does():
    due = times(1.0, 5, requests=40)
    first, second = plan(due, 5, PROMPTS, PROMPTS, 0), plan(due, 5, PROMPTS, PROMPTS, 1)
    assert first == plan(due, 5, PROMPTS, PROMPTS, 0)
    assert [p.at for p in first] == [p.at for p in second] == due
    assert [p.max_tokens for p in first] == [p.max_tokens for p in second]
    lengths = [[len(p.prompt.split()) for p in made] for made in (first, second)]
    assert lengths[0] == lengths[1]
    assert len(set(lengths[0])) > 10
    assert not {p.prompt for p in first} & {p.prompt for p in second}


def test_more_requests_begin_with_the_same_ones():
    due = times(1.0, 5, requests=40)
    assert plan(due, 5, PROMPTS, PROMPTS)[:9] == plan(due[:9], 5, PROMPTS, PROMPTS)


def test_a_word_is_a_token_of_the_bundled_model():
    encode = Text(ensure_model()).encode
    assert [w for w in WORDS if len(encode(w)) != 1 or len(encode(f" {w}")) != 1] == []
    assert len(encode(text(300, random.Random(0)))) == 300


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("7", Lengths(7, 0.0, 7, 7)),
        ("32:1:4:512", Lengths(32, 1.0, 4, 512)),
        ("32:0.25:32:32", Lengths(32, 0.25, 32, 32)),
    ],
)
def test_lengths_as_typed(words, expected):
    assert read_lengths(words) == expected
    assert {expected.draw(random.Random(seed)) for seed in range(9)} <= set(range(4, 513))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "'' is not a length: write N"),
        ("-3", "is not a length"),
        ("1e3", "is not a length"),
        ("٣", "is not a length"),
        ("32:1:4", "is not a length"),
        ("32:nan:4:512", "is not a length"),
        ("9" * 5000, "9' is not a length"),
        ("0", "in the order 1, shortest, median, longest"),
        ("32:1:40:512", "got 40, 32, 512"),
        ("32:1:4:30", "got 4, 32, 30"),
        ("32:5:4:512", "a sigma of 5 is all tail"),
    ],
)
def test_lengths_that_make_no_sense_are_named(words, message):
    with pytest.raises(ValueError, match=message):
        read_lengths(words)
