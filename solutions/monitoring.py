"""Chapter 08: all watchers of a service in one place."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from solutions.collector import CALM, PauseWatch, tamed
from solutions.events import Event, Finished, Rejected
from solutions.json_log import DailyLog, describe_error, request_record
from solutions.metrics import Metrics
from solutions.periodic_log import Window, format_line
from solutions.request_timing import Timings
from solutions.timing import Clock


@dataclass(frozen=True)
class MonitoringSettings:
    """What is watched, and where it is written.

    Args:
        model_name: the label of all metrics.
        log_folder: of the JSON logs; None for none.
        keep_days: files of each log that stay.
        every: seconds from one periodic line to the next; 0 for none.
        freeze: tame the garbage collector.
    """

    model_name: str
    log_folder: Path | None = None
    keep_days: int = 7
    every: float = 10.0
    freeze: bool = True


class ServiceLogs:
    """The three logs of a service: requests, errors, performance.

    Args:
        folder, keep, now: see DailyLog.
    """

    def __init__(self, folder: Path, keep: int = 7, now: Callable[[], float] = time.time):
        names = ("requests", "errors", "performance")
        self.requests, self.errors, self.performance = (
            DailyLog(folder, name, keep, now) for name in names
        )
        self._timings = Timings()

    @property
    def lost(self) -> int:
        """Lines that could not be written."""
        return self.requests.lost + self.errors.lost + self.performance.lost

    def watch(self, event: Event) -> None:
        """Log what is over, what was turned away, and what ended with an error."""
        timeline = self._timings.watch(event)
        match event:
            case Finished():
                if timeline:
                    self.requests.write(request_record(timeline))
                if event.error:
                    self.errors.write({"id": event.id, "error": event.error})
            case Rejected():
                self.requests.write({"id": None, "reason": event.reason})

    def error(self, error: BaseException) -> None:
        """Log where an exception came from, without its message: see describe_error."""
        first, *earlier = describe_error(error)
        self.errors.write({"id": None, **first, "because": earlier})

    def close(self) -> None:
        """Close the files."""
        for log in (self.requests, self.errors, self.performance):
            log.close()


class Monitoring:
    """Watches a service: give it `watch` and `error`, its /metrics `exposition`; close it at last.

    Args:
        settings: see MonitoringSettings.
        clock: the service's: seconds that never go backwards.
        now: seconds since 1970, for logs.
        write_line: gets each periodic line.

    Attributes:
        metrics, logs: the parts; logs is None without a folder.
    """

    def __init__(
        self,
        settings: MonitoringSettings,
        clock: Clock = time.monotonic,
        now: Callable[[], float] = time.time,
        write_line: Callable[[str], None] | None = None,
    ):
        self.metrics = Metrics(settings.model_name)
        folder, keep = settings.log_folder, settings.keep_days
        self.logs = None if folder is None else ServiceLogs(folder, keep, now)
        self._settings, self._clock, self._now = settings, clock, now
        self._write_line = write_line or _to_stderr
        self._window, self._lost = Window(clock()), 0
        self._closing, self._stack = threading.Event(), contextlib.ExitStack()

    def start(self) -> None:
        """Tame the collector and begin the periodic lines; once the model is warm."""
        if self._settings.freeze:
            self._stack.enter_context(tamed(CALM))
        self._stack.enter_context(PauseWatch(on_pause=lambda _, taken: self.metrics.pause(taken)))
        if self._settings.every > 0:
            ticker = threading.Thread(target=self._tick, name="monitoring", daemon=True)
            ticker.start()
            self._stack.callback(ticker.join)

    def watch(self, event: Event) -> None:
        """Give the event to every watcher, also when one fails; the first error is raised then."""
        watchers = [self.metrics.watch, self._window.watch]
        if self.logs:
            watchers.append(self.logs.watch)
        errors = [error for watch in watchers if (error := _attempt(lambda w=watch: w(event)))]
        if errors:
            raise errors[0]

    def error(self, error: BaseException) -> None:
        """An exception that the service met: see ServiceLogs.error."""
        if self.logs:
            self.logs.error(error)

    def exposition(self) -> bytes:
        """For /metrics: see Metrics.exposition."""
        return self.metrics.exposition()

    def summarize(self) -> None:
        """Write the numbers to the performance log, and the same as a periodic line. Another line
        says when more lines of the logs are lost than before.
        """
        record = self._window.take(self._clock())
        if self.logs:  # first: nobody may read the line, and then it raises
            self.logs.performance.write(record)
        self._write_line(format_line(self._now(), record))
        if self.logs and self.logs.lost > self._lost:
            self._lost = self.logs.lost
            self._write_line(f"{self._lost} lines of the logs are lost: is the disk full?")

    def close(self) -> None:
        """Write a last line, stop all that start began, close the files. Again is no error."""
        self._closing.set()
        self._stack.close()
        if self.logs:
            self.logs.close()

    def _tick(self) -> None:
        """A line every few seconds, and the last one at the end."""
        while not self._closing.wait(self._settings.every):
            _attempt(self.summarize)  # nobody may read what we print: that harms nobody
        _attempt(self.summarize)


def _attempt(call: Callable[[], None]) -> Exception | None:
    """What the call raised."""
    try:
        call()
    except Exception as error:
        return error
    return None


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
