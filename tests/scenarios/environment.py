"""Chapter 01's live objects: clocks and calls, driven beside the code under test."""

import itertools
import sys
import tempfile
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import psutil

from course.cases import describe

MAP = "<a map>"
NO_TEXT = bytes(range(256)) + b"\r\n"  # every byte, and what text mode makes one character of


class Stopwatch:
    """A clock that only the timed call moves, and a log of what happened in which order."""

    def __init__(self, seconds: list[float]):
        self.now, self.seconds, self.log = 1000.0, list(seconds), []

    def clock(self) -> float:
        self.log.append("clock")
        return self.now

    def call(self) -> str:
        self.log.append("call")
        self.now += self.seconds.pop(0) if self.seconds else 0.0  # called more often than asked
        return "dropped"


def time_call_with(module, seconds: list, counts: dict) -> dict:
    """The runs of time_call on a call that takes these seconds, and the log."""
    watch = Stopwatch(seconds)
    timing = module.time_call(watch.call, watch.clock, **counts)
    runs = getattr(timing, "runs", None)
    return {"runs": runs, "returned": describe(timing), "log": watch.log}


def Timing_of(module, runs: list) -> dict:
    """What a Timing of these runs says of them."""
    timing = module.Timing(tuple(runs))
    return {"median": timing.median, "spread": timing.spread, "runs": list(timing.runs)}


def calls_before_the_error(module, name: str, *numbers) -> list:
    """What was called before a function refused its numbers: nothing, if all is well."""
    watch = Stopwatch([1.0] * 50)
    try:
        if name == "time_call":
            module.time_call(watch.call, watch.clock, *numbers)
        else:
            module.bandwidth(watch.call, numbers[0], watch.clock)
    except ValueError:
        return ["refused", *watch.log]
    return ["no error", *watch.log]


def error_in_the_call(module, which: int) -> str:
    """The exception that one of the calls raises, the first being number 0, as it comes out."""
    number = itertools.count()

    def call():
        if next(number) == which:
            raise KeyError("from the call")

    try:
        module.time_call(call, lambda: 0.0)
    except KeyError as error:
        return str(error)
    return "nothing came out"


def bandwidth_with(module, seconds: list, nbytes: int, counts: dict) -> dict:
    """bandwidth of a transfer that takes these seconds, and how often it was called."""
    watch = Stopwatch(seconds)
    value = module.bandwidth(watch.call, nbytes, watch.clock, **counts)
    return {"value": value, "calls": watch.log.count("call")}


def read_through_with(module, size: int, chunk: int) -> dict:
    """read_through of a file of `size` bytes, and the memory that it took, in whole chunks."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes((NO_TEXT * (size // len(NO_TEXT) + 1))[:size])
        with _watched_opens(Path(folder)) as opened:
            count = _bytes_read_by(lambda: module.read_through(path, chunk))  # loads things once
        mapped = MAP in opened
        counted = _bytes_read_by(path.read_bytes) >= size  # not by every system
        read = count >= size or mapped or not counted
        total, peak = _peak(lambda: module.read_through(str(path), chunk))
    found = {"total": total, "chunks": round(peak / chunk), "opened": opened != []}
    return {**found, "mapped": mapped, "read": read}


def _bytes_read_by(call) -> int:
    """What this process reads in a call, from a disk or a cache; 0 where no system says so."""
    before = _bytes_read()
    call()
    return _bytes_read() - before


def _bytes_read() -> int:
    try:
        counters = psutil.Process().io_counters()
    except (AttributeError, NotImplementedError, OSError, psutil.Error):  # macOS; some containers
        return 0
    return getattr(counters, "read_chars", counters.read_bytes)  # read_chars: Linux


def sha256_file_with(module, size: int, chunk: int) -> dict:
    """sha256_file of a file of zeros, and the memory that it took, in whole chunks."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(b"\0" * size)
        module.sha256_file(path, chunk)
        digest, peak = _peak(lambda: module.sha256_file(str(path), chunk))
    return {"digest": digest, "chunks": round(peak / chunk)}


def check_manifest_with(module, folder: str, files: dict) -> dict:
    """check_manifest: its lines or its error, the files that were opened, the bytes told of."""
    told, found = [], {}
    with _watched_opens(Path(folder)) as opened:
        try:
            found["lines"] = module.check_manifest(Path(folder), files, progress=told.append)
        except ValueError:
            found["lines"] = "ValueError"
    return {**found, "opened": sorted(set(opened) - {MAP}), "told": sum(told)}


def sha256_file_tells(module, size: int, chunk: int) -> list:
    """What the progress of sha256_file is told of a file."""
    told = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(b"\0" * size)
        module.sha256_file(path, chunk, told.append)
    return told


@contextmanager
def _watched_opens(folder: Path):
    """The names of the files in a folder that are opened, in whatever way, and MAP for a map."""
    opened, watching = [], True

    def hook(event: str, args: tuple) -> None:
        if watching and event == "mmap.__new__":
            opened.append(MAP)
        if watching and event == "open" and isinstance(args[0], str | Path):
            path = Path(args[0])
            if path.is_relative_to(folder):
                opened.append(path.relative_to(folder).as_posix())

    sys.addaudithook(hook)  # cannot be taken away again, only told to look away
    try:
        yield opened
    finally:
        watching = False


def _peak(call):
    """What a call returns, and the most bytes that Python had allocated meanwhile."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        value = call()
        return value, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
