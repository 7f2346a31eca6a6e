"""8.5 Window, format_line, read_line, read_series; 8.6 PauseWatch, tamed."""

import contextlib
import gc
import itertools
import re

from tests.parts import part
from tests.wrong.monitoring.times import method


def taken(m, change) -> None:
    """change(record, window) takes the place of a sum."""

    def take(right, self, now):
        return change(right(self, now), self)

    method(m, "Window", "take", take)


def read(m, change) -> None:
    """change(right, line) takes the place of read_line."""
    right = m.read_line
    m.read_line = lambda line: change(right, line)


@part("8.5")
def speed_in_minutes(m):
    """Tokens a minute."""

    def change(record, _):
        speed = record["tokens_per_s"]
        return record | {"tokens_per_s": speed and speed * 60}

    taken(m, change)


@part("8.5")
def no_time_is_zero(m):
    """Over no time the speed is 0."""
    taken(m, lambda record, _: record | {"tokens_per_s": record["tokens_per_s"] or 0.0})


@part("8.5")
def nothing_measured_is_zero(m):
    """Percentiles of nothing are 0."""
    taken(
        m,
        lambda record, _: {
            k: 0.0 if v is None and "_p" in k and "per" not in k else v for k, v in record.items()
        },
    )


@part("8.5")
def memory_of_the_process_only(m):
    """The device's memory is left out."""

    def init(right, self, now, limit=10_000, memory=None):
        right(self, now, limit, lambda: dict(list(memory().items())[:1]))

    right = m.Window.__init__
    m.Window.__init__ = lambda self, *args, **given: init(right, self, *args, **given)


@part("8.5")
def empty_cache_at_first(m):
    """Before the first step the cache is empty."""
    taken(m, lambda record, _: record | {"kv": record["kv"] or 0.0})


@part("8.5")
def running_of_the_step(m):
    """running is that of the newest step."""

    def add(right, self, event):
        right(self, event)
        if isinstance(event, m.Stepped):
            self.told = event.running

    method(m, "Window", "_add", add)
    taken(m, lambda record, self: record | {"running": getattr(self, "told", record["running"])})


@part("8.5")
def in_another_order(m):
    """The fields are sorted."""
    taken(m, lambda record, _: dict(sorted(record.items())))


@part("8.5")
def with_more_fields(m):
    """There are more fields."""
    taken(m, lambda record, _: record | {"tokens": 1})


@part("8.5")
def errors_of_steps_with_errors(m):
    """A step with two errors counts one."""

    def add(right, self, event):
        before = self._errors
        right(self, event)
        self._errors = min(self._errors, before + 1)

    method(m, "Window", "_add", add)


@part("8.5")
def oldest_times_kept(m):
    """Beyond the limit the newest are left out."""

    class Oldest(list):
        def __init__(self, maxlen):
            super().__init__()
            self.maxlen = maxlen

        def append(self, value):
            if len(self) < self.maxlen:
                super().append(value)

    m.deque = lambda maxlen: Oldest(maxlen)


@part("8.5")
def endless_times(m):
    """All times are kept."""
    from collections import deque

    m.deque = lambda maxlen: deque()


@part("8.5")
def first_tokens_of_all(m):
    """The first token's percentile goes over every token."""

    def add(right, self, event):
        right(self, event)
        if isinstance(event, m.Token):
            line = self._timings._known.get(event.id)
            if line is not None and line.gap is not None:
                self._first.append(event.at - line.request.at)

    method(m, "Window", "_add", add)


@part("8.5")
def time_goes_on_from_the_start(m):
    """seconds is the time since the window was made."""
    right = m.Window.take

    def take(self, now):
        start = self.__dict__.setdefault("start", self._since)
        found = right(self, now)
        return found | {"seconds": now - start}

    m.Window.take = take


@part("8.5")
def first_percentile_twice(m):
    """p95 is the same as p50."""
    taken(m, lambda record, _: record | {"inter_token_p95_s": record["inter_token_p50_s"]})


@part("8.5")
def rejected_not_counted(m):
    """Rejections are not counted."""
    taken(m, lambda record, _: record | {"rejected": 0})


@part("8.5")
def tokens_of_the_known_only(m):
    """Tokens of unknown requests do not count for the speed."""

    def add(right, self, event):
        if not isinstance(event, m.Token) or event.id in self._timings._known:
            right(self, event)

    method(m, "Window", "_add", add)


@part("8.5")
def line_with_its_end(m):
    """The line has its line end."""
    right = m.format_line
    m.format_line = lambda now, record: right(now, record) + "\n"


@part("8.5")
def all_digits(m):
    """Numbers with all their digits."""

    def line(now, record):
        pairs = (f"{n}={'-' if record[n] is None else record[n]}" for n in m.FIELDS)
        return f"{m.utc(now)} llm {' '.join(pairs)}"

    m.format_line = line


@part("8.5")
def none_as_none(m):
    """None is written as None."""
    right = m.format_line
    m.format_line = lambda now, record: re.sub(r"=-(?= |$)", "=None", right(now, record))


@part("8.5")
def zero_as_nothing(m):
    """0 is written as "-"."""
    right = m.format_line
    m.format_line = lambda now, record: right(now, {k: v or None for k, v in record.items()})


@part("8.5")
def exponents_unread(m):
    """Numbers with an exponent are not read."""
    read(m, lambda right, line: None if re.search(r"=[\d.]+e", line) else right(line))


@part("8.5")
def a_start_is_enough(m):
    """What follows after the line is ignored."""
    pattern = m._LINE

    class Loose:
        def fullmatch(self, line):
            return pattern.match(line)

    m._LINE = Loose()


@part("8.5")
def somewhere_in_the_line(m):
    """The line may stand behind something else."""
    pattern = m._LINE

    class Loose:
        def fullmatch(self, line):
            found = pattern.search(line)
            return found if found and found.end() == len(line) else None

    m._LINE = Loose()


@part("8.5")
def bad_days_raise(m):
    """A day that there is not raises."""

    def change(right, line):
        found = right(line)
        if found is None and re.match(r"\d{4}-11-31T", line):
            raise ValueError("no such day")
        return found

    read(m, change)


@part("8.5")
def spaces_do_not_matter(m):
    """Any number of spaces."""
    read(m, lambda right, line: right(" ".join(line.split())))


@part("8.5")
def time_without_milliseconds(m):
    """The time in whole seconds."""

    def change(right, line):
        found = right(line)
        return found and found | {"time": float(int(found["time"]))}

    read(m, change)


@part("8.5")
def local_time(m):
    """The time an hour off."""

    def change(right, line):
        found = right(line)
        return found and found | {"time": found["time"] - 3600}

    read(m, change)


def series(m, change) -> None:
    """change(series, text) takes the place of read_series."""
    right = m.read_series
    m.read_series = lambda text: change(right(text), text)


@part("8.5")
def others_are_damaged(m):
    """Every line that is not ours is damaged."""

    def change(found, text):
        lines = text.split("\n")[:-1]
        bad = [n for n, line in enumerate(lines, 1) if m.read_line(line.removesuffix("\r")) is None]
        return m.Series(found.records, bad, found.gaps)

    series(m, change)


@part("8.5")
def damaged_from_zero(m):
    """Lines are counted from 0."""
    series(m, lambda found, _: m.Series(found.records, [n - 1 for n in found.damaged], found.gaps))


@part("8.5")
def damaged_unseen(m):
    """Damaged lines are passed over in silence."""
    series(m, lambda found, _: m.Series(found.records, [], found.gaps))


@part("8.5")
def cut_end_unseen(m):
    """A last line that was cut is passed over in silence."""

    def change(found, text):
        last = text.count("\n") + 1
        return m.Series(found.records, [n for n in found.damaged if n != last], found.gaps)

    series(m, change)


@part("8.5")
def one_missing_too_many(m):
    """A gap of three distances misses three lines."""
    series(m, lambda f, _: m.Series(f.records, f.damaged, [(a, b, n + 1) for a, b, n in f.gaps]))


@part("8.5")
def gaps_beyond_the_mean(m):
    """The mean of the distances counts as usual."""

    def gaps(times):
        pairs = list(itertools.pairwise(times))
        usual = sum(b - a for a, b in pairs) / len(pairs) if pairs else 0
        return [(a, b, round((b - a) / usual) - 1) for a, b in pairs if 0 < 1.5 * usual < b - a]

    m._gaps = gaps


@part("8.5")
def every_delay_is_a_gap(m):
    """A line that comes late is a gap."""

    def gaps(times):
        pairs = list(itertools.pairwise(times))
        usual = sorted(b - a for a, b in pairs)[len(pairs) // 2] if pairs else 0
        return [(a, b, round((b - a) / usual) - 1) for a, b in pairs if 0 < 1.1 * usual < b - a]

    m._gaps = gaps


@part("8.5")
def back_is_a_gap(m):
    """A clock that was set back makes a gap."""
    right = m._gaps

    def gaps(times):
        back = [(a, b, 0) for a, b in itertools.pairwise(times) if b < a]
        return [*right(times), *back]

    m._gaps = gaps


# --- 8.6 ---


@part("8.6")
def sum_of_all(m):
    """All generations are one."""

    def call(right, self, phase, info):
        right(self, phase, {**info, "generation": 0})

    method(m, "PauseWatch", "__call__", call)


@part("8.6")
def longest_is_the_last(m):
    """The longest is the newest."""

    def call(right, self, phase, info):
        before = self.seconds[info["generation"]]
        right(self, phase, info)
        if phase == "stop" and self.seconds[info["generation"]] > before:
            self.longest[info["generation"]] = self.seconds[info["generation"]] - before

    method(m, "PauseWatch", "__call__", call)


@part("8.6")
def clock_read_always(m):
    """The clock is read at a stop that has no start too."""

    def call(right, self, phase, info):
        if phase == "stop" and self._began is None:
            self._clock()
        right(self, phase, info)

    method(m, "PauseWatch", "__call__", call)


@part("8.6")
def second_stop_counts(m):
    """A second stop counts again."""

    def call(right, self, phase, info):
        began = self._began
        right(self, phase, info)
        if phase == "stop":
            self._began = began

    method(m, "PauseWatch", "__call__", call)


@part("8.6")
def zero_is_no_start(m):
    """A start at 0.0 is none."""

    def call(right, self, phase, info):
        if phase == "stop" and not self._began:
            self._began = None
        right(self, phase, info)

    method(m, "PauseWatch", "__call__", call)


@part("8.6")
def somebody_must_listen(m):
    """Without on_pause nothing is measured."""

    def call(right, self, phase, info):
        if self._on_pause is not None:
            right(self, phase, info)

    method(m, "PauseWatch", "__call__", call)


@part("8.6")
def joined_twice(m):
    """It is in gc.callbacks as often as it was entered."""

    def enter(self):
        gc.callbacks.append(self)
        return self

    m.PauseWatch.__enter__ = enter


@part("8.6")
def enters_as_nothing(m):
    """The block gets nothing to ask."""
    method(m, "PauseWatch", "__enter__", lambda right, self: right(self) and None)


@part("8.6")
def never_leaves(m):
    """It stays in gc.callbacks."""
    m.PauseWatch.__exit__ = lambda self, *_: None


@part("8.6")
def swallows(m):
    """An exception in the block is swallowed."""

    def leave(right, self, *error):
        right(self, *error)
        return True

    method(m, "PauseWatch", "__exit__", leave)


@part("8.6")
def leaves_once(m):
    """Leaving twice is an error."""
    m.PauseWatch.__exit__ = lambda self, *_: gc.callbacks.remove(self)


@part("8.6")
def joins_when_made(m):
    """It joins gc.callbacks when it is made."""

    def init(right, self, *args):
        right(self, *args)
        self.__enter__()

    method(m, "PauseWatch", "__init__", init)


def tame(m, before=lambda: None, after=lambda: None, thresholds=None) -> None:
    """Something else happens around the right block."""
    right = m.tamed

    @contextlib.contextmanager
    def block(given=m.CALM):
        with right(thresholds or given):
            before()
            try:
                yield
            finally:
                after()

    m.tamed = block


@part("8.6")
def nothing_frozen(m):
    """Nothing is frozen."""
    tame(m, before=gc.unfreeze)


@part("8.6")
def always_calm(m):
    """The thresholds are always the same."""
    tame(m, thresholds=(50_000, 20, 100))


@part("8.6")
def switched_on(m):
    """The collector is switched on."""
    tame(m, before=gc.enable)


@part("8.6")
def thresholds_of_python(m):
    """Afterwards the thresholds are Python's own."""
    right = m.tamed

    @contextlib.contextmanager
    def block(thresholds=m.CALM):
        try:
            with right(thresholds):
                yield
        finally:
            gc.set_threshold(700, 10, 10)

    m.tamed = block


@part("8.6")
def stays_frozen(m):
    """Afterwards what was frozen stays frozen."""
    right = m.tamed

    @contextlib.contextmanager
    def block(thresholds=m.CALM):
        try:
            with right(thresholds):
                yield
        finally:
            gc.freeze()

    m.tamed = block


@part("8.6")
def swallowed_in_the_block(m):
    """An exception in the tamed block is swallowed."""
    right = m.tamed

    @contextlib.contextmanager
    def block(thresholds=m.CALM):
        with contextlib.suppress(Exception), right(thresholds):
            yield

    m.tamed = block


@part("8.6")
def tamed_when_made(m):
    """It happens when it is made, not when it is entered."""
    right = m.tamed

    def made(thresholds=m.CALM):
        block = right(thresholds)
        block.__enter__()

        @contextlib.contextmanager
        def later():
            try:
                yield
            finally:
                block.__exit__(None, None, None)

        return later()

    m.tamed = made
