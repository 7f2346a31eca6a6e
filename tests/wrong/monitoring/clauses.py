"""Single clauses of the docstrings, 8.1 to 8.8, that are easily passed over."""

import itertools
import math
import re
from collections import deque
from datetime import UTC, datetime

from tests.parts import part
from tests.wrong.monitoring.times import method


@part("8.1")
def whatever_comes_ends(m):
    """What is neither a Token nor an Admitted ends a timeline."""

    def change(right, self, event):
        right(self, event)
        if not isinstance(event, m.Token | m.Admitted):
            self.end = event

    method(m, "Timeline", "note", change)


@part("8.2")
def merged_for_ever(m):
    """After merge both count in the same list."""

    def change(right, self, other):
        right(self, other)
        other._buckets = self._buckets

    method(m, "Histogram", "merge", change)


@part("8.3")
def zero_not_counted(m):
    """0 seconds are no time."""

    def change(right, self, name, value):
        if value:
            right(self, name, value)

    method(m, "Metrics", "_observe", change)


@part("8.3")
def end_without_a_token_not_timed(m):
    """Only the end of a request that got a token has a time."""

    def change(right, self, event):
        known = self._timings._known.get(getattr(event, "id", None))
        if isinstance(event, m.Finished) and known and not known.tokens:
            self._timings.watch(event)
        right(self, event)

    method(m, "Metrics", "watch", change)


@part("8.3")
def each_class_once(m):
    """Two errors of one class in a step count once."""

    def change(right, self, event):
        errors = tuple(dict.fromkeys(event.errors))
        right(self, m.Stepped(event.at, event.seconds, 0, 0, event.kv_used, event.kv_total, errors))

    method(m, "Metrics", "_stepped", change)


@part("8.3")
def no_memory_no_series(m):
    """A kind of memory of which nothing is held is left out."""
    init = m.Metrics.__init__

    def changed(self, model_name, memory=m.memory_bytes):
        init(self, model_name, lambda: {kind: held for kind, held in memory().items() if held})

    m.Metrics.__init__ = changed


@part("8.4")
def keys_sorted(m):
    """The keys of a line are in the order of the alphabet."""

    def change(right, self, record):
        return right(self, dict(sorted(record.items())))

    method(m, "DailyLog", "write", change)


@part("8.4")
def time_put_into_the_record(m):
    """The time is put into the record itself."""

    def change(right, self, record):
        found = right(self, record)
        record["at"] = 0
        return found

    method(m, "DailyLog", "write", change)


@part("8.4")
def yesterday_left_open(m):
    """The file of the day before is not closed."""

    def change(right, self):
        self._path = self._file = None

    method(m, "DailyLog", "_drop", change)
    kept = []
    opened = m.DailyLog._open

    def keeping(self, path):
        opened(self, path)
        kept.append(self._file)  # or Python closes it

    m.DailyLog._open = keeping


@part("8.4")
def short_write_unseen(m):
    """write() of the system may take a part of a line: nobody looks how much."""

    def append(right, self, line):
        self._file.write(line)
        self._torn = False

    method(m, "DailyLog", "_append", append)


@part("8.4")
def only_newer_days(m):
    """A clock that was set back a day goes on with the newer file."""

    def change(right, self, path):
        if self._path is None or path > self._path:
            right(self, path)

    method(m, "DailyLog", "_open", change)


@part("8.4")
def old_files_must_go(m):
    """A line is lost when an old file cannot be deleted."""

    def sweep(right, self):
        pattern = re.compile(re.escape(self.name) + r"-\d{4}-\d\d-\d\d\.jsonl")
        dated = sorted(p for p in self.folder.iterdir() if pattern.fullmatch(p.name))
        others = [path for path in dated if path != self._path]
        for path in others[: max(len(others) - self.keep + 1, 0)]:
            path.unlink()

    method(m, "DailyLog", "_sweep", sweep)


@part("8.5")
def strangers_finish_unseen(m):
    """Finished of an unknown request is not counted."""

    def change(right, self, event):
        if not isinstance(event, m.Finished) or event.id in self._timings._known:
            right(self, event)

    method(m, "Window", "_add", change)


@part("8.5")
def all_first_tokens_kept(m):
    """The limit is for gaps only."""

    def change(right, self):
        right(self)
        self._first = deque()

    method(m, "Window", "_reset", change)


@part("8.5")
def first_tokens_of_newcomers(m):
    """Only who arrived since the last line has a first token."""

    def change(right, self, event):
        known = self._timings._known.get(getattr(event, "id", None))
        old = known and not known.tokens and known.request.at < self._since
        kept = self._first.copy()
        right(self, event)
        if old and isinstance(event, m.Token):
            self._first = kept

    method(m, "Window", "_add", change)


@part("8.5")
def errors_by_class(m):
    """Two errors of one class in a step count once."""

    def change(right, self, event):
        if isinstance(event, m.Stepped):
            used, errors = (event.kv_used, event.kv_total), tuple(set(event.errors))
            event = m.Stepped(event.at, event.seconds, 0, 0, *used, errors)
        right(self, event)

    method(m, "Window", "_add", change)


@part("8.5")
def only_whole_seconds(m):
    """Less than a second is no time."""

    def change(right, self, now):
        found = right(self, now)
        return found if found["seconds"] >= 1 else {**found, "tokens_per_s": None}

    method(m, "Window", "take", change)


@part("8.5")
def percentile_96(m):
    """The percentile beside the one that is meant."""
    right = m.percentile
    m.percentile = lambda values, percent: right(values, percent + (percent == 95))


@part("8.5")
def time_of_the_reader(m):
    """The time of a line is taken for local time."""
    right = m.read_line

    def read_line(line):
        found = right(line)
        if found is None:
            return None
        moment = datetime.fromtimestamp(found["time"], UTC).replace(tzinfo=None)
        return found | {"time": moment.timestamp()}

    m.read_line = read_line


@part("8.5")
def no_gaps_of_seconds(m):
    """A line a second has no gaps."""

    def gaps(right, times):
        found = right(times)
        return [(a, b, n) for a, b, n in found if (b - a) / (n + 1) > 1]

    original = m._gaps
    m._gaps = lambda times: gaps(original, times)


@part("8.5")
def infinity_is_a_number(m):
    """Whatever float reads is a number: nan, inf, 1_000."""
    fields = " ".join(rf"{name}=(\S+)" for name in m.FIELDS)
    line_of = re.compile(rf"(\S+) llm {fields}")
    right = m.read_line

    def read_line(line):
        match = line_of.fullmatch(line)
        if match is None:
            return None
        try:
            numbers = [None if v == "-" else float(v) for v in match.groups()[1:]]
        except ValueError:
            return None
        plain = f"{match[1]} llm " + " ".join(f"{name}=0" for name in m.FIELDS)
        found = right(plain)
        return found and {"time": found["time"], **dict(zip(m.FIELDS, numbers, strict=True))}

    m.read_line = read_line


@part("8.5")
def lines_of_any_end(m):
    """Whatever Python takes for a line end ends a line."""
    right = m.read_series

    def read_series(text):
        lines = text.splitlines(keepends=True)
        return right(
            "".join(re.sub(r"[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]$", "\n", x) for x in lines)
        )

    m.read_series = read_series


@part("8.5")
def lines_stripped(m):
    """Spaces around a line do not matter."""
    right = m.read_series
    m.read_series = lambda text: right(re.sub(r"[ \t]*\n[ \t]*", "\n", text).lstrip(" \t"))


@part("8.5")
def damaged_with_a_time_only(m):
    """A line that does not begin with a time is never damaged."""
    right = m.read_series

    def read_series(text):
        found = right(text)
        lines = text.split("\n")
        damaged = [n for n in found.damaged if re.match(r"\d{4}-\d\d-\d\dT", lines[n - 1])]
        return m.Series(found.records, damaged, found.gaps)

    m.read_series = read_series


def counted(m, count) -> None:
    """count(distance / usual) lines are missing in a gap."""
    right = m.read_series

    def read_series(text):
        found = right(text)
        times = [record["time"] for record in found.records]
        usual = sorted(b - a for a, b in itertools.pairwise(times))
        usual = usual[len(usual) // 2] if usual else 1.0
        gaps = [(a, b, count((b - a) / usual)) for a, b, _ in found.gaps]
        return m.Series(found.records, found.damaged, gaps)

    m.read_series = read_series


@part("8.5")
def missing_rounded_up(m):
    """A late line counts as one that is missing."""
    counted(m, lambda times: math.ceil(times) - 1)


@part("8.5")
def missing_rounded_down(m):
    """Where nearly two are missing, one is."""
    counted(m, lambda times: math.floor(times) - 1)


@part("8.5")
def shortest_is_usual(m):
    """The shortest distance is the usual one."""

    def gaps(times):
        pairs = list(itertools.pairwise(times))
        usual = min((b - a for a, b in pairs), default=math.inf)
        if usual <= 0:
            return []
        return [(a, b, round((b - a) / usual) - 1) for a, b in pairs if b - a > 1.5 * usual]

    m._gaps = gaps


@part("8.6")
def young_garbage_only(m):
    """Only what is young is collected before it is frozen."""
    collect = m.gc.collect

    class Gc:
        """The module, with another collect."""

        def __getattr__(self, name):
            return getattr(gc_module, name)

        def collect(self):
            return collect(0)

    gc_module, m.gc = m.gc, Gc()


@part("8.7")
def new_series_began_anew(m):
    """A series that was not there, and is 0, has fallen."""
    right = m.increase

    def increase(earlier, later, name):
        now, before = later.get(name, {}), earlier.get(name, {})
        if any(not value and key not in before for key, value in now.items()):
            return dict(now)
        return right(earlier, later, name)

    m.increase = increase


@part("8.7")
def restart_unseen_in_quantiles(m):
    """quantile_between subtracts, whatever has begun anew."""

    def quantile_between(earlier, later, name, q):
        before, now = earlier.get(f"{name}_bucket", {}), later.get(f"{name}_bucket", {})
        grown = {bound: count - before.get(bound, 0.0) for bound, count in now.items()}
        if not grown:
            return None
        return m.histogram_quantile(q, sorted((float(b), c) for b, c in grown.items()))

    m.quantile_between = quantile_between


@part("8.8")
def lower_unless_said(m):
    """A figure that does not say what is better is better lower."""
    right = m._figure

    def figure(path, name, found):
        if isinstance(found, dict) and "better" not in found:
            found = {**found, "better": "lower"}
        return right(path, name, found)

    m._figure = figure


@part("8.8")
def tolerance_for_shares(m):
    """Shares may get worse by as many points as times by percent."""
    right = m.compare_figure

    def compare_figure(before, after, tolerance=0.05, level=0.05, count=1):
        m.POINT = min(0.01, tolerance)
        return right(before, after, tolerance, level, count)

    m.compare_figure = compare_figure
