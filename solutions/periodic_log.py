"""Chapter 08: the numbers that matter, as a plain line every few seconds, and read back."""

import itertools
import math
import re
import statistics
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from solutions.events import Event, Finished, Rejected, Stepped, Token
from solutions.json_log import utc
from solutions.metrics import memory_bytes
from solutions.request_timing import Timings, percentile

FIELDS = (
    "seconds",
    "running",
    "waiting",
    "kv",
    "memory",
    "tokens_per_s",
    "first_token_p50_s",
    "first_token_p95_s",
    "inter_token_p50_s",
    "inter_token_p95_s",
    "finished",
    "rejected",
    "errors",
)
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"
_LINE = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) llm "
    + " ".join(f"{field}=({_NUMBER}|-)" for field in FIELDS),
    re.ASCII,  # the digits of other alphabets are damage
)


class Window:
    """A watcher that sums up what happens until somebody, on another thread, takes the sum.

    Args:
        now: where the first sum begins, seconds of the service's clock.
        limit: how many of the newest times of a kind are kept for the percentiles.
        memory: gives bytes by kind.
    """

    def __init__(
        self,
        now: float,
        limit: int = 10_000,
        memory: Callable[[], Mapping[str, int]] = memory_bytes,
    ):
        # exercise 8.5
        self._since, self._limit, self._memory, self._kv = now, limit, memory, None
        self._timings, self._lock = Timings(), threading.Lock()
        self._reset()

    def watch(self, event: Event) -> None:
        """Take an event into the sum."""
        # exercise 8.5
        with self._lock:
            self._add(event)

    def _add(self, event: Event) -> None:
        """Count one event."""
        # exercise 8.5
        timeline = self._timings.watch(event)
        if isinstance(event, Token):
            self._tokens += 1
            if timeline and timeline.gap is None:
                self._first.append(timeline.first_token)
            elif timeline:
                self._gaps.append(timeline.gap)
        elif isinstance(event, Finished):
            self._finished += 1
        elif isinstance(event, Rejected):
            self._rejected += 1
        elif isinstance(event, Stepped):
            self._kv = event.kv_used / event.kv_total
            self._errors += len(event.errors)

    def take(self, now: float) -> dict[str, float | None]:
        """The sum since the one before, and begin anew.

        Returns:
            by FIELDS, in that order:
            - seconds: how long it was;
            - running, waiting: Timings.count now;
            - kv: kv_used / kv_total of the newest Stepped, be it from an earlier sum; None before
              the first;
            - memory: bytes of all kinds together, now;
            - tokens_per_s: Token events over seconds; None over no time at all;
            - first_token_p50_s, first_token_p95_s: percentiles of Timeline.first_token, of the
              requests whose first token came in this time; None without one;
            - inter_token_p50_s, inter_token_p95_s: the same of Timeline.gap at each later token;
            - finished, rejected: how many events of these kinds;
            - errors: of Stepped.
        """
        # exercise 8.5
        with self._lock:
            values = self._sum(now - self._since)
            self._since = now
            self._reset()
        return dict(zip(FIELDS, values, strict=True))

    def _sum(self, seconds: float) -> tuple[float | None, ...]:
        """The values of FIELDS."""
        # exercise 8.5
        return (
            seconds,
            *self._timings.count(),
            self._kv,
            sum(self._memory().values()),
            self._tokens / seconds if seconds > 0 else None,
            *(percentile(self._first, p) if self._first else None for p in (50, 95)),
            *(percentile(self._gaps, p) if self._gaps else None for p in (50, 95)),
            self._finished,
            self._rejected,
            self._errors,
        )

    def _reset(self) -> None:
        """Begin anew."""
        # exercise 8.5
        self._tokens = self._finished = self._rejected = self._errors = 0
        self._first, self._gaps = deque(maxlen=self._limit), deque(maxlen=self._limit)


def format_line(now: float, record: dict[str, float | None]) -> str:
    """One line that a person can read, and read_line too.

    Args:
        now: seconds since 1970.
        record: what Window.take gives.

    Returns:
        the time as utc gives it, " llm", and for each of FIELDS " NAME=VALUE": six significant
        digits as "%g" writes them, "-" for None. No line end.
    """
    # exercise 8.5
    pairs = (f"{name}={'-' if record[name] is None else f'{record[name]:g}'}" for name in FIELDS)
    return f"{utc(now)} llm {' '.join(pairs)}"


def read_line(line: str) -> dict[str, float | None] | None:
    """A line as a record, or None when it is not a whole line of format_line.

    Args:
        line: without its line end.

    Returns:
        {"time": seconds since 1970, then FIELDS}: floats, None for "-". None, and no error, for
        anything else: a line of another program, a line of which a part is missing or doubled, a
        value that is no finite decimal number (nan and inf are damage), a day that the calendar
        does not have.
    """
    # exercise 8.5
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    moment, *values = match.groups()
    try:
        time = datetime.strptime(moment, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    numbers = [None if value == "-" else float(value) for value in values]
    if math.inf in map(abs, filter(None, numbers)):  # 1e+400
        return None
    return {"time": time, **dict(zip(FIELDS, numbers, strict=True))}


@dataclass(frozen=True)
class Series:
    """What a log holds, and what it does not.

    Args:
        records: of read_line, in the order of the log.
        damaged: numbers of the lines, from 1, that have " llm " in them and are not whole.
        gaps: (time before, time after, how many lines are missing between).
    """

    records: list[dict[str, float | None]]
    damaged: list[int]
    gaps: list[tuple[float, float, int]]


def read_series(text: str) -> Series:
    """Read a log that may be cut off, damaged, or mixed with other lines.

    A line counts once its line end is there: the last one may have been cut in the middle of a
    number, and still look whole. A line with " llm " in it that read_line does not take is
    damaged, and so is a last line with " llm " that has no end. Other lines are somebody else's.

    Usually lines are as far apart as the median of the distances between neighbours. Where two are
    more than 1.5 times that apart, round(distance / usual) - 1 lines are missing. (A clock that
    was set back is no gap; and where usual is not above 0 there are none.)

    Args:
        text: lines that end in \\n; a \\r before it belongs to the end.
    """
    # exercise 8.5
    *lines, rest = text.split("\n")
    found = [read_line(line.removesuffix("\r")) for line in lines]
    damaged = [
        number
        for number, (line, record) in enumerate(zip(lines, found, strict=True), 1)
        if record is None and " llm " in line
    ]
    if " llm " in rest:
        damaged.append(len(lines) + 1)
    records = [record for record in found if record is not None]
    return Series(records, damaged, _gaps([record["time"] for record in records]))


def _gaps(times: list[float]) -> list[tuple[float, float, int]]:
    pairs = list(itertools.pairwise(times))
    usual = statistics.median(b - a for a, b in pairs) if pairs else math.inf
    if usual <= 0:
        return []
    return [(a, b, round((b - a) / usual) - 1) for a, b in pairs if b - a > 1.5 * usual]
