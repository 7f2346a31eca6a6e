"""Wrong versions of 8.5."""

from datetime import UTC, datetime

from course.misconceptions import misconception
from solutions.json_log import utc
from solutions.periodic_log import FIELDS, Series, _gaps, read_line


@misconception("8.5", "Window.take")
def never_begun_anew(self, now):
    """Your sum goes on from the start of the service. After an hour one bad minute is a sixtieth
    of it, and nobody sees it: begin anew with each line.
    """
    with self._lock:
        values = self._sum(now - self._since)
    return dict(zip(FIELDS, values, strict=True))


@misconception("8.5", "Window._reset")
def cache_forgotten(self):
    """You forget how full the cache is with each line. It is a state, not something that happens:
    the newest value stays true until another step says otherwise.
    """
    self._tokens = self._finished = self._rejected = self._errors = 0
    self._first, self._gaps = deque(maxlen=self._limit), deque(maxlen=self._limit)  # noqa: F821
    self._kv = None


@misconception("8.5", "format_line")
def nothing_is_zero(now, record):
    """You write 0 where nothing was measured. A first token after 0 seconds would be splendid; no
    first token at all is something else: write "-".
    """
    pairs = (f"{name}={record[name] or 0:g}" for name in FIELDS)
    return f"{utc(now)} llm {' '.join(pairs)}"


@misconception("8.5", "read_line")
def reads_what_it_can(line):
    """You take every NAME=VALUE that you find. A line of which the middle is missing, or two lines
    in one, then look like a whole one: the line must have exactly its fields, in their order.
    """
    try:
        moment, _, *pairs = line.split()
        found = dict(pair.split("=") for pair in pairs)
        time = datetime.strptime(moment, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC).timestamp()
        numbers = {n: None if found[n] == "-" else float(found[n]) for n in FIELDS if n in found}
        return {"time": time, **numbers}
    except ValueError:
        return None


@misconception("8.5", "read_series")
def last_line_counts(text):
    """You take the last line though it has no line end. It may have been cut in the middle of a
    number: 0.07 of 0.0712 looks whole.
    """
    lines = text.splitlines()
    found = [read_line(line) for line in lines]
    damaged = [n for n, (a, b) in enumerate(zip(lines, found), 1) if b is None and " llm " in a]
    records = [record for record in found if record is not None]
    return Series(records, damaged, _gaps([record["time"] for record in records]))
