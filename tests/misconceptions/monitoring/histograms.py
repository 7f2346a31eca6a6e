"""Wrong versions of 8.2."""

import bisect
import itertools
import math

from course.misconceptions import misconception


@misconception("8.2", "decades")
def bounds_by_multiplication(low, high, steps):
    """You multiply the steps by powers of ten. 3 * 0.1 is 0.30000000000000004, which becomes the
    name of a bucket, and no longer fits the 0.3 of other programs: let float read the decimal
    notation, such as "3e-1".
    """
    if not 0 < low <= high < math.inf:
        raise ValueError("low and high")
    rising = all(a < b for a, b in itertools.pairwise([0, *steps, 10]))
    if not steps or steps[0] < 1 or not rising:
        raise ValueError("steps")
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    bounds = (step * 10.0**power for power in powers for step in steps)
    return tuple(bound for bound in bounds if low <= bound <= high)


@misconception("8.2", "Histogram.observe")
def bound_in_the_next_bucket(self, value):
    """You put a value that is equal to a bound into the next bucket. A bucket of Prometheus is
    called "le", less or equal: the bound belongs to the bucket that it ends.
    """
    if not 0 <= value < math.inf:
        raise ValueError(f"{value} is no duration")
    self._buckets[bisect.bisect_right(self.bounds, value)] += 1
    self.count += 1
    self.sum += value


@misconception("8.2", "Histogram.observe")
def nan_let_through(self, value):
    """You ask whether the value is negative or infinite. NaN is neither, every comparison with it
    is false, and it makes the sum NaN for ever: ask whether the value is good, as in 0 <= value.
    """
    if value < 0 or value == math.inf:
        raise ValueError(f"{value} is no duration")
    self._buckets[bisect.bisect_left(self.bounds, value)] += 1
    self.count += 1
    self.sum += value


@misconception("8.2", "Histogram.cumulative")
def not_cumulative(self):
    """You give the count of each bucket. Cumulative counts say how many values are at most the
    bound; so buckets can be left out later, and the rest stays right.
    """
    return list(zip((*self.bounds, math.inf), self._buckets, strict=True))


@misconception("8.2", "histogram_quantile")
def quantile_is_a_bound(q, buckets):
    """You give the upper bound of the bucket. That is always too much, by up to the width of the
    bucket: go as far into it as the rank does.
    """
    if not 0 < q <= 1:
        raise ValueError("q")
    if len(buckets) < 2 or buckets[-1][0] != math.inf:
        raise ValueError("buckets")
    total = buckets[-1][1]
    if not total:
        return None
    for upper, count in buckets[:-1]:
        if count >= q * total:
            return upper
    return buckets[-2][0]


@misconception("8.2", "histogram_quantile")
def quantile_at_infinity(q, buckets):
    """You interpolate in the last bucket too, which has no end: the estimate is infinite. All that
    is known is that it is larger than the largest finite bound.
    """
    if not 0 < q <= 1:
        raise ValueError("q")
    if len(buckets) < 2 or buckets[-1][0] != math.inf:
        raise ValueError("buckets")
    total = buckets[-1][1]
    if not total:
        return None
    below, lower = 0.0, 0.0
    for upper, count in buckets:
        if count >= q * total:
            return lower + (upper - lower) * (q * total - below) / (count - below)
        below, lower = count, upper
    return lower
