"""8.1 Timeline, Timings, percentile; 8.2 decades, Histogram, histogram_quantile."""

import math

from tests.parts import part


def answers(m, name, change) -> None:
    """change(right, timeline) takes the place of a property of Timeline."""
    right = getattr(m.Timeline, name).fget
    setattr(m.Timeline, name, property(lambda self: change(right, self)))


def method(m, owner: str, name: str, change) -> None:
    """change(right, self, *args) takes the place of a method."""
    kind = getattr(m, owner)
    right = getattr(kind, name)

    def changed(self, *args):
        return change(right, self, *args)

    setattr(kind, name, changed)


@part("8.1")
def queue_never_none(m):
    """Who was never admitted waited for 0 seconds."""
    answers(m, "queue", lambda right, self: right(self) or 0.0)


@part("8.1")
def zero_is_none(m):
    """A queue time of 0 counts as none."""
    answers(m, "queue", lambda right, self: right(self) or None)


@part("8.1")
def first_token_at_zero_is_none(m):
    """A first token after 0 seconds counts as none."""
    answers(m, "first_token", lambda right, self: right(self) or None)


@part("8.1")
def e2e_to_the_last_token(m):
    """The end is the last token."""
    answers(
        m,
        "e2e",
        lambda right, self: self.tokens[-1] - self.request.at if self.tokens else right(self),
    )


@part("8.1")
def e2e_from_admission(m):
    """The whole time without the queue."""
    answers(
        m,
        "e2e",
        lambda right, self: None if right(self) is None else right(self) - (self.queue or 0),
    )


@part("8.1")
def gap_from_the_first(m):
    """The gap goes back to the first token."""
    answers(
        m,
        "gap",
        lambda right, self: self.tokens[-1] - self.tokens[0] if len(self.tokens) > 1 else None,
    )


@part("8.1")
def first_gap_from_arrival(m):
    """inter_token begins with the first token's wait."""
    answers(
        m,
        "inter_token",
        lambda right, self: [self.first_token, *right(self)] if self.tokens else [],
    )


@part("8.1")
def all_tokens_over_their_time(m):
    """One token too many in the speed."""

    def change(right, self):
        speed, count = right(self), len(self.tokens)
        return None if speed is None else speed * count / (count - 1)

    answers(m, "tokens_per_second", change)


@part("8.1")
def speed_of_one_token(m):
    """A single token has the speed 0."""
    answers(m, "tokens_per_second", lambda right, self: right(self) if self.tokens[1:] else 0.0)


@part("8.1")
def speed_is_infinite(m):
    """Tokens at the same moment have an infinite speed."""

    def change(right, self):
        return math.inf if right(self) is None and len(self.tokens) > 1 else right(self)

    answers(m, "tokens_per_second", change)


@part("8.1")
def tokens_shared(m):
    """All timelines write into one list."""
    tokens: list = []
    right = m.Timeline.__init__

    def init(self, request, admitted=None, tokens=tokens, end=None):
        right(self, request, admitted, tokens, end)

    m.Timeline.__init__ = init


@part("8.1")
def arrival_restarts(m):
    """A second Arrived moves the start of a timeline."""

    def change(right, self, event):
        if isinstance(event, m.Arrived):
            self.request = event
            self.admitted = None
        right(self, event)

    method(m, "Timeline", "note", change)


@part("8.1")
def finished_gives_nothing(m):
    """Finished is forgotten before it is given back."""

    def change(right, self, event):
        found = right(self, event)
        return None if isinstance(event, m.Finished) else found

    method(m, "Timings", "watch", change)


@part("8.1")
def unknown_requests_begin(m):
    """A Token of an unknown request begins a timeline."""

    def change(right, self, event):
        if isinstance(event, m.Token) and event.id not in self._known:
            self._known[event.id] = m.Timeline(m.Arrived(event.id, event.at, 0, 0, 0, "", False))
        return right(self, event)

    method(m, "Timings", "watch", change)


@part("8.1")
def limit_exceeded_by_one(m):
    """One more than the limit is kept."""
    method(m, "Timings", "__init__", lambda right, self, limit=10_000: right(self, limit + 1))


@part("8.1")
def the_waiting_are_dropped_first(m):
    """Beyond the limit somebody who waits is dropped, though another is older."""

    def change(right, self, event):
        full = len(self._known) >= self.limit and event.id not in self._known
        old = [name for name, line in self._known.items() if line.admitted is None]
        if full and old:
            self._known = {old[0]: self._known[old[0]], **self._known}
        return right(self, event)

    method(m, "Timings", "_begin", change)


@part("8.1")
def known_id_keeps_its_place(m):
    """A request that begins anew keeps the place of the old one."""

    def change(right, self, event):
        if event.id in self._known:
            self._known[event.id] = m.Timeline(event)
            return self._known[event.id]
        return right(self, event)

    method(m, "Timings", "_begin", change)


@part("8.1")
def known_id_drops_somebody(m):
    """A request that begins anew counts twice against the limit."""

    def change(right, self, event):
        if event.id in self._known and len(self._known) >= self.limit:
            del self._known[next(iter(self._known))]
            self.forgotten += 1
        return right(self, event)

    method(m, "Timings", "_begin", change)


@part("8.1")
def forgotten_not_counted(m):
    """Nobody counts who was dropped."""
    m.Timings.forgotten = property(lambda self: 0, lambda self, value: None)


@part("8.1")
def waiting_counts_all(m):
    """Waiting is everybody who is not over."""

    def change(right, self):
        running, waiting = right(self)
        return running, running + waiting

    method(m, "Timings", "count", change)


@part("8.1")
def running_has_a_token(m):
    """Running begins with the first token."""

    def change(right, self):
        running = sum(bool(line.tokens) for line in self._known.values())
        return running, len(self._known) - running

    method(m, "Timings", "count", change)


@part("8.1")
def percentile_between_two(m):
    """Between two values, as statistics do it."""
    import numpy

    def linear(values, percent):
        if not len(values) or not 0 < percent <= 100:
            raise ValueError
        return float(numpy.percentile(values, percent))

    m.percentile = linear


@part("8.1")
def percentile_of_rounding(m):
    """percent / 100 first, which is not exact: 0.07 * 100 is more than 7."""

    def rounded(values, percent):
        if not len(values) or not 0 < percent <= 100:
            raise ValueError
        return sorted(values)[min(math.ceil(percent / 100 * len(values)), len(values)) - 1]

    m.percentile = rounded


@part("8.1")
def percentile_zero(m):
    """0 is a percent too."""
    right = m.percentile
    m.percentile = lambda values, percent: right(values, percent or 1e-9)


@part("8.1")
def percentile_unsorted(m):
    """The order of the values counts."""

    def unsorted(values, percent):
        if not len(values) or not 0 < percent <= 100:
            raise ValueError
        return values[math.ceil(percent * len(values) / 100) - 1]

    m.percentile = unsorted


@part("8.1")
def percentile_of_different_values(m):
    """Values that come twice count once."""
    right = m.percentile
    m.percentile = lambda values, percent: right(sorted(set(values)), percent)


# --- 8.2 ---


@part("8.2")
def high_left_out(m):
    """The upper end is not in the range."""
    right = m.decades
    m.decades = lambda low, high, steps: tuple(b for b in right(low, high, steps) if b < high)


@part("8.2")
def low_left_out(m):
    """The lower end is not in the range."""
    right = m.decades
    m.decades = lambda low, high, steps: tuple(b for b in right(low, high, steps) if b > low)


@part("8.2")
def ends_always_in(m):
    """Both ends are bounds, whatever the steps are."""
    right = m.decades

    def with_ends(low, high, steps):
        return tuple(sorted({float(low), *right(low, high, steps), float(high)}))

    m.decades = with_ends


@part("8.2")
def steps_of_any_order(m):
    """Steps that do not rise are sorted."""
    right = m.decades
    m.decades = lambda low, high, steps: right(low, high, sorted(set(steps)))


@part("8.2")
def ten_is_a_step(m):
    """A step of 10 passes."""
    right = m.decades
    m.decades = lambda low, high, steps: right(low, high, [s for s in steps if s < 10] or steps)


@part("8.2")
def below_one_is_a_step(m):
    """A step below 1 passes."""
    right = m.decades
    m.decades = lambda low, high, steps: right(low, high, [s for s in steps if s >= 1])


@part("8.2")
def infinite_range(m):
    """An infinite range is cut."""
    right = m.decades
    m.decades = lambda low, high, steps: right(low, min(high, 1e6), steps)


@part("8.2")
def from_ten_to_the_minus_three(m):
    """Only from 1 ms to 1000 s."""
    right = m.decades
    m.decades = lambda *args: tuple(b for b in right(*args) if 0.001 <= b <= 1000)


@part("8.2")
def negative_observed(m):
    """Negative values count in the first bucket."""
    method(m, "Histogram", "observe", lambda right, self, value: right(self, max(value, 0.0)))


@part("8.2")
def nan_observed(m):
    """NaN counts as 0."""
    method(
        m,
        "Histogram",
        "observe",
        lambda right, self, value: right(self, value if value == value else 0.0),
    )


@part("8.2")
def infinity_observed(m):
    """Infinity counts in the last bucket, and in the sum."""

    def change(right, self, value):
        if value == math.inf:
            self._buckets[-1] += 1
            self.count += 1
        else:
            right(self, value)

    method(m, "Histogram", "observe", change)


@part("8.2")
def zero_refused(m):
    """0 is no duration."""

    def change(right, self, value):
        right(self, value or -1.0)

    method(m, "Histogram", "observe", change)


@part("8.2")
def too_large_not_counted(m):
    """What is above the last bound is left out of the count."""

    def change(right, self, value):
        if not value > self.bounds[-1]:
            right(self, value)

    method(m, "Histogram", "observe", change)


@part("8.2")
def no_last_bucket(m):
    """cumulative ends with the last finite bound."""
    method(m, "Histogram", "cumulative", lambda right, self: right(self)[:-1])


@part("8.2")
def unsorted_bounds(m):
    """Bounds are sorted instead of refused."""

    def change(right, self, bounds):
        right(self, sorted(set(bounds)))

    method(m, "Histogram", "__init__", change)


@part("8.2")
def infinite_bound(m):
    """A last bound of infinity passes."""

    def change(right, self, bounds):
        right(self, [b for b in bounds if b != math.inf])

    method(m, "Histogram", "__init__", change)


@part("8.2")
def no_bounds(m):
    """No bounds pass."""
    method(m, "Histogram", "__init__", lambda right, self, bounds: right(self, bounds or [1.0]))


@part("8.2")
def merge_forgets_the_sum(m):
    """Only the buckets are merged."""

    def change(right, self, other):
        kept = self.sum
        right(self, other)
        self.sum = kept

    method(m, "Histogram", "merge", change)


@part("8.2")
def merge_into_both(m):
    """The other one gets the values too."""

    def change(right, self, other):
        right(self, other)
        other._buckets, other.count, other.sum = list(self._buckets), self.count, self.sum

    method(m, "Histogram", "merge", change)


@part("8.2")
def merge_of_as_many(m):
    """As many bounds are good enough."""

    def change(right, self, other):
        if len(other.bounds) == len(self.bounds):
            other.bounds = self.bounds
        right(self, other)

    method(m, "Histogram", "merge", change)


@part("8.2")
def values_kept(m):
    """All values are remembered."""

    def change(right, self, value):
        self.__dict__.setdefault("values", []).append(value)
        right(self, value)

    method(m, "Histogram", "observe", change)


@part("8.2")
def quantile_of_nothing_is_zero(m):
    """Without values it is 0."""
    right = m.histogram_quantile
    m.histogram_quantile = lambda q, buckets: right(q, buckets) or 0.0


@part("8.2")
def quantile_from_the_bound_below(m):
    """The first bucket begins at its own bound."""
    right = m.histogram_quantile

    def changed(q, buckets):
        found = right(q, buckets)
        return max(found, buckets[0][0]) if found is not None else None

    m.histogram_quantile = changed


@part("8.2")
def quantile_in_percent(m):
    """95 is taken for 0.95."""
    right = m.histogram_quantile
    m.histogram_quantile = lambda q, buckets: right(q / 100 if q > 1 else q, buckets)


@part("8.2")
def quantile_zero(m):
    """0 is the lowest."""
    right = m.histogram_quantile
    m.histogram_quantile = lambda q, buckets: right(q or 1e-12, buckets)


@part("8.2")
def quantile_without_infinity(m):
    """The last bucket may end anywhere."""
    right = m.histogram_quantile

    def changed(q, buckets):
        if len(buckets) > 1 and buckets[-1][0] != math.inf:
            buckets = [*buckets, [math.inf, buckets[-1][1]]]
        return right(q, buckets)

    m.histogram_quantile = changed


@part("8.2")
def quantile_of_one_bucket(m):
    """One bucket is enough."""
    right = m.histogram_quantile

    def changed(q, buckets):
        return 0.0 if len(buckets) == 1 and 0 < q <= 1 else right(q, buckets)

    m.histogram_quantile = changed


@part("8.2")
def quantile_above_the_rank(m):
    """A bucket whose count equals the rank does not hold the quantile."""

    def changed(q, buckets):
        if not 0 < q <= 1 or len(buckets) < 2 or buckets[-1][0] != math.inf:
            raise ValueError
        total, below, lower = buckets[-1][1], 0.0, 0.0
        if not total:
            return None
        for upper, count in buckets[:-1]:
            if count > q * total:
                return lower + (upper - lower) * (q * total - below) / (count - below)
            below, lower = count, upper
        return lower

    m.histogram_quantile = changed
