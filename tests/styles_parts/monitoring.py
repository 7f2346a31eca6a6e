"""Right answers to exercises of chapter 08 that look at things in another way."""

import itertools
import math
from decimal import ROUND_CEILING, Decimal

from tests.parts import part


@part("8.1")
def timings_without_counting(m):
    """count keeps numbers up to date; watch takes its lock twice; count gives a list."""
    right = m.Timings

    class Counted(right):
        def count(self):
            return list(super().count())

        def watch(self, event):
            if isinstance(event, m.Rejected | m.Stepped):
                return None
            return super().watch(event)

    m.Timings = Counted


@part("8.1")
def timeline_of_slots(m):
    """A timeline with what it has worked out, instead of what it was told."""

    class Line:
        def __init__(self, request, admitted=None, tokens=(), end=None):
            self.request, self.admitted, self.end, self.gap = request, admitted, end, None
            self.tokens, self.inter_token, self.queue, self.e2e = [], [], None, None
            self.first_token = self.tokens_per_second = None

        def note(self, event):
            since = event.at - self.request.at
            if isinstance(event, m.Finished):
                self.end, self.e2e = event, since
            if isinstance(event, m.Admitted) and self.queue is None:
                self.admitted, self.queue = event.at, since
            if isinstance(event, m.Token):
                if self.tokens:
                    self.gap = event.at - self.tokens[-1]
                    self.inter_token.append(self.gap)
                else:
                    self.first_token = since
                self.tokens.append(event.at)
                taken = event.at - self.tokens[0]
                self.tokens_per_second = len(self.inter_token) / taken if taken else None

    m.Timeline = Line


@part("8.1")
def percentile_in_decimals(m):
    """The rank as a decimal number; the values need not be a list."""

    def percentile(values, percent):
        values = tuple(values)
        if not values or not 0 < percent <= 100:
            raise ValueError(f"{percent} of {len(values)} values")
        rank = Decimal(repr(percent)) * len(values) / 100
        return sorted(values)[int(rank.to_integral_value(ROUND_CEILING)) - 1]

    m.percentile = percentile


@part("8.2")
def quantile_from_the_other_side(m):
    """Interpolated downwards, as a whole number where it is one."""

    def quantile(q, buckets):
        if not 0 < q <= 1 or len(buckets) < 2 or buckets[-1][0] != math.inf:
            raise ValueError("quantile")
        rank, whole = q * buckets[-1][1], [(0, 0), *buckets]
        if buckets[-1][1] == 0:
            return None
        for (low, below), (high, count) in itertools.pairwise(whole[:-1]):
            if count >= rank:
                return high - (high - low) * (count - rank) / (count - below)
        return buckets[-2][0]

    m.histogram_quantile = quantile


@part("8.2")
def decades_as_a_list(m):
    """Bounds in a list."""
    right = m.decades
    m.decades = lambda low, high, steps: list(right(low, high, steps))


@part("8.3")
def metrics_with_created(m):
    """The series that say when others were made are left in."""
    import prometheus_client

    right = m.Metrics.__init__

    def init(self, *args):
        right(self, *args)
        prometheus_client.enable_created_metrics()

    m.Metrics.__init__ = init
    exposition = m.Metrics.exposition

    def exposed(self):
        prometheus_client.enable_created_metrics()
        try:
            return exposition(self)
        finally:
            prometheus_client.disable_created_metrics()

    m.Metrics.exposition = exposed


@part("8.3")
def metrics_with_the_client_library_alone(m):
    """running and waiting ask when they are read."""
    right = m.Metrics.__init__

    def init(self, *args):
        right(self, *args)
        for place, name in enumerate(("llm_requests_running", "llm_requests_waiting")):
            gauge = self._gauges[name].labels(self._model)
            gauge.set_function(lambda place=place: self._timings.count()[place])

    m.Metrics.__init__ = init


@part("8.4")
def errors_by_a_loop(m):
    """Frames walked by hand; a tuple of them is no list, so a list in the end."""
    import os

    def describe(error):
        chain = []
        while error is not None and len(chain) < 5:
            places, step = [], error.__traceback__
            while step is not None:
                code = step.tb_frame.f_code
                places.append(
                    f"{os.path.basename(code.co_filename)}:{step.tb_lineno} {code.co_name}"
                )
                step = step.tb_next
            chain.append({"error": type(error).__name__, "frames": places[-20:]})
            hidden = error.__suppress_context__
            error = error.__cause__ or (None if hidden else error.__context__)
        return chain

    m.describe_error = describe


@part("8.4")
def log_without_handles(m):
    """Opens the file for every line; deletes before it writes."""
    right = m.DailyLog

    class Reopened(right):
        def write(self, record):
            done = super().write(record)
            self.close()
            return done

    m.DailyLog = Reopened


@part("8.5")
def series_of_tuples(m):
    """Records in a tuple, gaps as lists, numbers in an order of their own."""
    right = m.read_series

    def read(text):
        found = right(text)
        return m.Series(tuple(found.records), tuple(found.damaged), [list(g) for g in found.gaps])

    m.read_series = read


@part("8.6")
def pauses_that_are_kept(m):
    """Two callables in gc.callbacks would do as well; here the numbers are tuples."""
    right = m.PauseWatch

    class Kept(right):
        def __init__(self, clock=m.time.perf_counter, on_pause=None):
            super().__init__(clock, on_pause)

        def __enter__(self):
            if self not in m.gc.callbacks:
                m.gc.callbacks[:0] = [self]
            return self

    m.PauseWatch = Kept


@part("8.7")
def diagnosis_as_a_tuple(m):
    """Findings in a tuple."""
    right = m.diagnose
    m.diagnose = lambda now, usual=None: tuple(right(now, usual))


@part("8.8")
def comparison_by_variances(m):
    """The pooled variance from the two variances; other words in the reasons."""
    import statistics

    right = m._student

    def student(scores, beyond):
        one, other = scores
        freedom = len(one) + len(other) - 2
        pooled = sum(statistics.variance(run) * (len(run) - 1) for run in scores) / freedom
        noise = math.sqrt(pooled / len(one) + pooled / len(other))
        return (freedom, beyond / noise) if noise else right(scores, beyond)

    m._student = student
    judge = m.judge_upgrade

    def reworded(*args, **given):
        found = judge(*args, **given)
        reasons = tuple(f"{reason}, says the gate" for reason in found.reasons)
        return m.Verdict(found.outcome, reasons, found.comparisons)

    m.judge_upgrade = reworded
