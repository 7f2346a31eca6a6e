"""Chapter 08: a histogram in cumulative buckets, and what can be read from it."""

import bisect
import itertools
import math
from collections.abc import Sequence


def decades(low: float, high: float, steps: Sequence[float]) -> tuple[float, ...]:
    """Bounds for buckets: the steps times every power of ten, from low to high.

    Latencies range over five powers of ten, and an error of 10 ms is much at 20 ms and nothing at
    20 s. So bounds grow by a factor, and round numbers are easier to read than its powers.

    Args:
        low, high: the range, both included. 0 < low <= high.
        steps: rising, at least 1 and below 10, such as (1, 2, 5).

    Returns:
        every step times a power of ten that is in the range, ascending, each exactly the float
        that its decimal notation means: 0.3, not 3 * 0.1, which is 0.30000000000000004.

    Errors: ValueError for a low, high or steps that break these rules, and for no steps.
    """
    # exercise 8.2
    if not 0 < low <= high < math.inf:
        raise ValueError(f"bounds go from low to high, 0 < low <= high, not {low} to {high}")
    rising = all(a < b for a, b in itertools.pairwise([*steps, 10]))
    if not steps or steps[0] < 1 or not rising:
        raise ValueError(f"steps rise, from 1 to below 10, not {tuple(steps)}")
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    bounds = (float(f"{step}e{power}") for power in powers for step in steps)
    return tuple(bound for bound in bounds if low <= bound <= high)


# Dense below a second, where people feel a difference; coarse up to minutes, where they have left.
# Written out: a learner's cell with them must run before decades is written.
FINE = (1, 1.5, 2, 3, 5, 7)
COARSE = (1, 2, 5)
FIRST_TOKEN_BOUNDS = (
    0.001, 0.0015, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15,
    0.2, 0.3, 0.5, 0.7, 1, 2, 5, 10, 20, 50, 100, 200, 500,
)  # fmt: skip
INTER_TOKEN_BOUNDS = (
    0.001, 0.0015, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15,
    0.2, 0.3, 0.5, 0.7, 1, 2, 5, 10, 20, 50,
)  # fmt: skip
E2E_BOUNDS = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 500,
    1000,
)  # fmt: skip
QUEUE_BOUNDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500,
)  # fmt: skip


class Histogram:
    """How many values were at most as large as each bound. Its size never depends on their number.

    Args:
        bounds: of the buckets, ascending, finite, at least one; a bound belongs to the bucket that
            it ends. One more bucket, up to infinity, takes what is larger.

    Attributes:
        count, sum: of all values.

    Errors: ValueError for bounds that are not like that.
    """

    def __init__(self, bounds: Sequence[float]):
        # exercise 8.2
        self.bounds, self.count, self.sum = tuple(bounds), 0, 0.0
        if not self.bounds or not all(math.isfinite(bound) for bound in self.bounds):
            raise ValueError(f"a histogram has at least one bound, all finite: {self.bounds}")
        if any(a >= b for a, b in itertools.pairwise(self.bounds)):
            raise ValueError(f"the bounds of a histogram ascend: {self.bounds}")
        self._buckets = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value in.

        Errors: ValueError for what is no duration: negative, infinite or NaN. Nothing has changed
        then; a single NaN would make the sum NaN for ever.
        """
        # exercise 8.2
        if not 0 <= value < math.inf:
            raise ValueError(f"{value} is no duration")
        self._buckets[bisect.bisect_left(self.bounds, value)] += 1
        self.count += 1
        self.sum += value

    def cumulative(self) -> list[tuple[float, int]]:
        """(bound, how many values are at most that), ascending; the last bound is infinity."""
        # exercise 8.2
        totals = itertools.accumulate(self._buckets)
        return list(zip((*self.bounds, math.inf), totals, strict=True))

    def merge(self, other: "Histogram") -> None:
        """Take in all values of another one.

        Quantiles cannot be averaged; counts can be added. That is why a service exports counts.

        Errors: ValueError when the bounds differ. Nothing has changed then.
        """
        # exercise 8.2
        if other.bounds != self.bounds:
            raise ValueError(f"bounds differ: {self.bounds} and {other.bounds}")
        self._buckets = [a + b for a, b in zip(self._buckets, other._buckets, strict=True)]
        self.count += other.count
        self.sum += other.sum


def histogram_quantile(q: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """Estimate a quantile from cumulative buckets, as Prometheus does.

    The rank is q times the number of values. The first bucket whose cumulative count reaches the
    rank holds the quantile; where in it nobody knows, so its values count as evenly spread:
    lower + (upper - lower) * (rank - count below) / (count in the bucket). So the estimate, up to
    the largest finite bound, is in the same bucket as the true quantile, and off by less than the
    bucket's width.

    Args:
        q: above 0 and up to 1; 0.95 is the 95th percentile.
        buckets: (bound, cumulative count), ascending, the last bound infinity, at least two.
            The lower bound of the first is 0.

    Returns:
        the estimate. Of a quantile in the last bucket nobody knows how large it is: the largest
        finite bound. None when there are no values.

    Errors: ValueError for q out of range or NaN, and for buckets that do not end at infinity or
    are fewer than two.

    Source: Prometheus documentation, histogram_quantile(), for classic histograms.
    """
    # exercise 8.2
    if not 0 < q <= 1:
        raise ValueError(f"a quantile is above 0 and up to 1, not {q}")
    if len(buckets) < 2 or buckets[-1][0] != math.inf:
        raise ValueError("there must be at least two buckets, the last up to infinity")
    total = buckets[-1][1]
    if not total:
        return None
    below, lower = 0.0, 0.0
    for upper, count in buckets[:-1]:
        if count >= q * total:
            return lower + (upper - lower) * (q * total - below) / (count - below)
        below, lower = count, upper
    return lower
