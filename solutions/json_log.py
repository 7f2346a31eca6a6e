"""Chapter 08: logs of JSON objects, a file a day, without a word of what users wrote."""

import contextlib
import json
import math
import os
import re
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from solutions.request_timing import Timeline, percentile

LONGEST_CHAIN = 5  # exceptions that led to one another
DEEPEST = 20  # frames of each


def utc(now: float) -> str:
    """Seconds since 1970 as ISO 8601 with milliseconds: 2026-11-30T12:00:00.000Z."""
    moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


def describe_error(error: BaseException) -> list[dict]:
    """What went wrong, without anything that a user may have written.

    Messages quote what they complain about: a KeyError is its key, a UnicodeDecodeError holds the
    whole text. So the message, the arguments, the notes and the values of variables stay out; the
    class and the places in our code say where to look.

    Returns:
        the error, then the one that led to it, and so on, at most LONGEST_CHAIN: __cause__ where
        there is one, else __context__ unless it is suppressed. Each is {"error": the name of its
        class, "frames": ["batcher.py:212 step", ...]}: name of the file without its folder, line,
        function; outermost first, the innermost DEEPEST of them.
    """
    # exercise 8.4
    chain: list[dict] = []
    while error is not None and len(chain) < LONGEST_CHAIN:
        frames = traceback.extract_tb(error.__traceback__)[-DEEPEST:]
        places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        chain.append({"error": type(error).__name__, "frames": places})
        context = None if error.__suppress_context__ else error.__context__
        error = context if error.__cause__ is None else error.__cause__
    return chain


def request_record(timeline: Timeline) -> dict:
    """The line of the request log for a request that is over.

    Of its prompt there is the length and the fingerprint: enough to see that the same prompt came
    again, and nothing to read.

    Returns:
        {"id", "reason", "error", "stream", "prompt_tokens", "characters", "fingerprint",
        "max_tokens", "tokens"} as the events have them (tokens: of Finished), and "queue_s",
        "first_token_s", "inter_token_p50_s", "inter_token_max_s", "e2e_s", "tokens_per_s":
        rounded to six digits after the point, None where the timeline has none.
    """
    # exercise 8.4
    asked, end, gaps = timeline.request, timeline.end, timeline.inter_token
    times = {
        "queue_s": timeline.queue,
        "first_token_s": timeline.first_token,
        "inter_token_p50_s": percentile(gaps, 50) if gaps else None,
        "inter_token_max_s": max(gaps, default=None),
        "e2e_s": timeline.e2e,
        "tokens_per_s": timeline.tokens_per_second,
    }
    return {
        "id": asked.id,
        "reason": end.reason,
        "error": end.error,
        "stream": asked.stream,
        "prompt_tokens": asked.prompt_tokens,
        "characters": asked.characters,
        "fingerprint": asked.fingerprint,
        "max_tokens": asked.max_tokens,
        "tokens": end.tokens,
        **{name: None if value is None else round(value, 6) for name, value in times.items()},
    }


class DailyLog:
    """A log that begins a new file each day (UTC), keeps a few, and never harms who writes.

    The file of a day is NAME-2026-11-30.jsonl. A line is one JSON object in ASCII, at once in the
    file and whole, whatever other threads write. When the disk is full the line is lost, and
    counted; the next one is tried again.

    Args:
        folder: made when it is not there.
        name: what the names of its files begin with.
        keep: files that stay, the one that is written included; older ones are deleted. One that
            cannot be deleted stays too, and costs no line.
        now: seconds since 1970.

    Attributes:
        lost: lines that could not be written.
    """

    def __init__(
        self, folder: str | Path, name: str, keep: int = 7, now: Callable[[], float] = time.time
    ):
        # exercise 8.4
        self.folder, self.name, self.keep, self.lost = Path(folder), name, keep, 0
        self._now, self._lock = now, threading.Lock()
        self._path, self._file, self._torn = None, None, False

    def write(self, record: Mapping) -> bool:
        """Write one line: "at", the time as utc gives it, then the record.

        Numbers that are not finite, which JSON does not have, become null, at any depth. A line
        that was cut off, by a full disk or a crash, is ended first, so that it spoils no other.

        Args:
            record: what JSON can say: str keys; str, numbers, bool, None, lists, tuples, dicts.

        Returns:
            False when the line is lost. Nothing that the operating system refuses is raised.
        """
        # exercise 8.4
        with self._lock:
            moment = utc(self._now())
            line = json.dumps(_finite({"at": moment, **record})).encode("ascii") + b"\n"
            try:
                self._open(self.folder / f"{self.name}-{moment[:10]}.jsonl")
                self._append(b"\n" + line if self._torn else line)
            except OSError:
                self.lost += 1
                self._drop()
                return False
            return True

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        # exercise 8.4
        with self._lock:
            self._drop()

    def _open(self, path: Path) -> None:
        """Go to the file of the day, unless it is open."""
        # exercise 8.4
        if path == self._path:
            return
        self._drop()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+", buffering=0)  # whole lines, at once
        self._path, self._torn = path, _is_cut(self._file)
        self._sweep()

    def _append(self, line: bytes) -> None:
        """All of the line; OSError when only a part of it fits."""
        # exercise 8.4
        written = self._file.write(line)
        self._torn = written < len(line)
        if self._torn:
            raise OSError("the disk took only a part of the line")

    def _drop(self) -> None:
        """Close the file that is open, if one is."""
        # exercise 8.4
        if self._file is not None:
            self._file.close()
        self._path = self._file = None

    def _sweep(self) -> None:
        """Delete the oldest files of this log, never the one that is open."""
        # exercise 8.4
        pattern = re.compile(re.escape(self.name) + r"-\d{4}-\d\d-\d\d\.jsonl")
        dated = sorted(p for p in self.folder.iterdir() if pattern.fullmatch(p.name))
        others = [path for path in dated if path != self._path]
        for path in others[: max(len(others) - self.keep + 1, 0)]:
            with contextlib.suppress(OSError):  # somebody has it open, or may not let it go
                path.unlink()


def _is_cut(file) -> bool:
    """Whether the last line of an open file lacks its end."""
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def _finite(value):
    """The value with None for each number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
