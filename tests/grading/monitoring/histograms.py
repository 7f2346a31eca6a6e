"""8.2 decades, Histogram, histogram_quantile."""

import math

from course.cases import Wrong, case, expect_equal, expect_raises
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.grading.monitoring.making import expect_near
from tests.oracles import monitoring as oracle


@case("8.2")
def decades_by_hand(learner, rng):
    """From 0.1 to 20 in steps of 1, 2, 5: exactly these floats."""
    found = list(learner.decades(0.1, 20, [1, 2, 5]))
    expect_equal(found, [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0], "decades(0.1, 20, [1, 2, 5])")


@case("8.2")
def decades_of_all_sizes(learner, rng):
    """Any steps, any range: each bound is exactly what its decimal notation means, in order."""
    for low, high, steps in (
        ("0.001", "0.7", (1, 1.5, 2, 3, 5, 7)),
        ("0.0003", "3000", (3,)),
        ("0.07", "0.07", (7,)),
        ("1", "9", (1, 2, 3, 4, 5, 6, 7, 8, 9)),
        ("0.015", "150", (1.5,)),
        ("20", "100", (1, 2.5, 5)),
        ("0.9", "1.1", (1, 9)),
        ("0.000001", "0.00001", (1, 2.2, 4.7)),
    ):
        found = list(learner.decades(float(low), float(high), list(steps)))
        expected = oracle.round_bounds(low, high, steps)
        expect_equal(found, expected, f"decades({low}, {high}, {list(steps)})")


@case("8.2")
def decades_between_steps(learner, rng):
    """A range that begins and ends between two steps has only what lies inside, or nothing."""
    expect_equal(list(learner.decades(0.13, 0.9, [1, 2, 5])), [0.2, 0.5], "decades(0.13, 0.9, ...)")
    expect_equal(list(learner.decades(3, 4, [1, 2, 5])), [], "decades(3, 4, ...)")


@case("8.2")
def decades_refuse(learner, rng):
    """low of 0 or below, high below low or infinite, steps that do not rise, below 1, from 10 on,
    or none: ValueError.
    """
    for low, high, steps in (
        (0, 1, [1]),
        (-1, 1, [1]),
        (2, 1, [1]),
        (1, math.inf, [1]),
        (0.1, 1, []),
        (0.1, 1, [2, 1]),
        (0.1, 1, [1, 1]),
        (0.1, 1, [0.5, 1]),
        (0.1, 1, [1, 10]),
    ):
        with expect_raises("ValueError"):
            learner.decades(low, high, steps)


def session(learner, bounds: list, steps: list) -> list:
    """Steps of one histogram: see histogram_session."""
    return drive(learner, "histogram_session", bounds, steps)


@case("8.2")
def histogram_by_hand(learner, rng):
    """Five values in four buckets. A value on a bound belongs to the bucket that the bound ends."""
    values = [0.05, 0.2, 0.1, 0.15, 3.0]
    found = session(learner, [0.1, 0.2, 0.5], [["observe", v] for v in values])
    _, count, total, cumulative = found[-1]
    expect_near([count, total], [5, 3.5], "[count, sum]")
    expect_near(
        cumulative, [[0.1, 2], [0.2, 4], [0.5, 4], [math.inf, 5]], "cumulative() of five values"
    )


@case("8.2")
def histogram_of_many(learner, rng):
    """Random values: the cumulative counts, how many, and their sum."""
    bounds = sorted({round(rng.uniform(0.1, 5), 2) for _ in range(9)})
    values = [round(rng.expovariate(0.5), 2) for _ in range(200)] + bounds + [0.0]
    found = session(learner, bounds, [["observe", v] for v in values])
    _, count, total, cumulative = found[-1]
    expect_near([count, total], [len(values), math.fsum(values)], "[count, sum]")
    expect_near(cumulative, oracle.counts_upto(bounds, values), "cumulative()")


@case("8.2")
def histogram_of_nothing(learner, rng):
    """Before the first value every count is 0; so it is for an empty one that is merged."""
    found = session(learner, [1.0, 2.0], [["merge", [1.0, 2.0], []]])
    expect_near(found[0][1:], [0, 0.0, [[1.0, 0], [2.0, 0], [math.inf, 0]]], "[count, sum, ...]")


@case("8.2")
def histogram_refuses_values(learner, rng):
    """Negative, infinite and NaN are ValueErrors that change nothing; 0 is a duration."""
    wrong = (-0.1, math.inf, -math.inf, math.nan)
    steps = [["observe", 0.0], ["observe", 1.5], *(["fails", [], ["observe", v]] for v in wrong)]
    found = session(learner, [1.0, 2.0], steps)
    for value, (answer, *stand) in zip(wrong, found[2:], strict=True):
        expect_failure(answer, "ValueError", f"observe({value})")
        expect_near(stand, found[1][1:], f"[count, sum, cumulative()] after observe({value})")


@case("8.2")
def histogram_refuses_bounds(learner, rng):
    """No bounds, equal or descending ones, infinity or NaN among them: ValueError."""
    for bounds in ([], [1.0, 1.0], [2.0, 1.0], [1.0, math.inf], [math.nan, 1.0], [1.0, 3.0, 2.0]):
        found = drive(learner, "histogram_refused", bounds)
        expect_failure(found, "ValueError", f"Histogram({bounds})")


@case("8.2")
def histograms_merge(learner, rng):
    """A merged histogram has the values of both; the other one stays as it was."""
    bounds = [0.5, 1.0, 4.0]
    first = [rng.uniform(0, 5) for _ in range(10)]
    second = [rng.uniform(0, 5) for _ in range(7)]
    steps = [["observe", v] for v in first] + [["merge", bounds, second], ["observe", 0.75]]
    found = session(learner, bounds, steps)
    answer, count, total, cumulative = found[-2]
    expect_near([count, total], [17, math.fsum(first + second)], "[count, sum] after merge")
    expect_near(cumulative, oracle.counts_upto(bounds, first + second), "cumulative() after merge")
    expect_near(answer, [7, math.fsum(second)], "[count, sum] of the other one")
    expected = oracle.counts_upto(bounds, [*first, *second, 0.75])
    expect_near(found[-1][3], expected, "cumulative() after one more value")


@case("8.2")
def histograms_that_do_not_fit(learner, rng):
    """Merging other bounds is a ValueError that changes nothing."""
    steps = [["observe", 0.7]]
    steps += [["fails", [], ["merge", b, [0.1]]] for b in ([0.5, 2.0], [0.5], [0.5, 1.0, 2.0])]
    found = session(learner, [0.5, 1.0], steps)
    for answer, *stand in found[1:]:
        expect_failure(answer, "ValueError", "merge of other bounds")
        expect_near(stand, found[0][1:], "[count, sum, cumulative()] after that")


@case("8.2")
def histogram_does_not_grow(learner, rng):
    """However many values there are, they are not kept."""
    if drive(learner, "histogram_bytes", [0.1, 0.5, 1.0], 20_000) is not True:
        raise Wrong("the histogram grows with the number of its values: keep counts only")


@case("8.2")
def quantile_by_hand(learner, rng):
    """Ten values, 2 up to 0.1, 8 up to 0.5, all up to 1: half of them is halfway from 2 to 8."""
    buckets = [[0.1, 2], [0.5, 8], [1.0, 10], [math.inf, 10]]
    for q, expected in ((0.5, 0.3), (0.1, 0.05), (0.2, 0.1), (0.9, 0.75), (1.0, 1.0)):
        expect_near(learner.histogram_quantile(q, buckets), expected, f"quantile {q}")


@case("8.2")
def quantile_of_many(learner, rng):
    """Random buckets, empty ones among them: the point on the curve of the cumulative counts."""
    for _ in range(5):
        bounds = sorted(rng.uniform(0.01, 20) for _ in range(8))
        counts = [rng.choice([0, 0, rng.randrange(1, 50)]) for _ in bounds]
        counts[rng.randrange(8)] += 1
        buckets = [[b, sum(counts[: n + 1])] for n, b in enumerate(bounds)]
        buckets.append([math.inf, sum(counts) + rng.choice([0, 5])])
        for q in (0.01, 0.25, 0.5, 0.9, 0.99, 1.0):
            expected = oracle.interpolated(q, buckets)
            expect_near(learner.histogram_quantile(q, buckets), expected, f"quantile {q}")


@case("8.2")
def quantile_is_near_the_true_one(learner, rng):
    """The estimate lies in the same bucket as the value of that rank."""
    bounds = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0]
    values = [min(rng.expovariate(1.0), 4.9) for _ in range(120)]
    buckets = oracle.counts_upto(bounds, values)
    for percent in (5, 50, 95):
        true = oracle.nearest_rank(values, percent)
        low = max([0.0, *(b for b in bounds if b < true)])
        high = min(b for b in bounds if b >= true)
        found = learner.histogram_quantile(percent / 100, buckets)
        if not isinstance(found, float) or not low <= found <= high + 1e-9:
            raise Wrong(f"quantile {percent / 100} is {found}, but lies between {low} and {high}")


@case("8.2")
def quantile_at_the_end(learner, rng):
    """In the last bucket nobody knows how large: the largest finite bound. Without values: None."""
    buckets = [[0.5, 3], [2.0, 4], [math.inf, 100]]
    expect_near(learner.histogram_quantile(0.5, buckets), 2.0, "a quantile in the last bucket")
    expect_near(learner.histogram_quantile(0.04, buckets), 2.0, "a quantile that ends a bucket")
    only = [[0.5, 0], [math.inf, 9]]
    expect_near(learner.histogram_quantile(0.1, only), 0.5, "a quantile of the last bucket alone")
    empty = [[0.5, 0], [2.0, 0], [math.inf, 0]]
    expect_equal(learner.histogram_quantile(0.5, empty), None, "a quantile of nothing")


@case("8.2")
def quantile_refuses(learner, rng):
    """q that is not above 0 and up to 1, NaN, buckets without infinity, fewer than two of them."""
    buckets = [[0.5, 3], [math.inf, 4]]
    for q in (0, -0.1, 1.01, 95, math.nan):
        with expect_raises("ValueError"):
            learner.histogram_quantile(q, buckets)
    for few in ([[0.5, 3], [1.0, 4]], [[math.inf, 4]], []):
        with expect_raises("ValueError"):
            learner.histogram_quantile(0.5, few)
