"""Chapter 01: how long something takes, and what that says about memory and disk."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

Clock = Callable[[], float]  # seconds of a clock that never goes back


@dataclass(frozen=True)
class Timing:
    """Seconds of every timed run, in order, and what to quote of them."""

    runs: tuple[float, ...]  # one at least

    @property
    def median(self) -> float:
        """The run in the middle when they are sorted: one interruption does not move it.

        Of an even number of runs, the mean of the two in the middle. Seconds.
        """
        # exercise 1.2
        return median(self.runs)

    @property
    def spread(self) -> float:
        """Slowest minus fastest, over the median: how much to trust the figure.

        0.1 is a tenth of the median. 0.0 where the median is 0.
        """
        # exercise 1.2
        return (max(self.runs) - min(self.runs)) / self.median if self.median else 0.0


def time_call(
    call: Callable[[], object], clock: Clock = time.perf_counter, warmup: int = 1, repeats: int = 5
) -> Timing:
    """Time a call properly: warm up first, then several runs.

    The first run pays for what happens once: pages come from disk, caches fill, threads start. A
    single run says nothing about the next one.

    Args:
        call: what is timed; what it returns is dropped.
        clock: seconds; read exactly twice a timed run, right before and right after the call, and
            not at all during warm-up.
        warmup: runs before the first timed one, 0 or more.
        repeats: timed runs, 1 or more.

    Returns:
        Timing(runs), with `repeats` durations in the order in which they were taken.

    Errors: ValueError for warmup under 0 and for repeats under 1, before anything is called. What
    the call raises goes through.
    """
    # exercise 1.2
    if warmup < 0 or repeats < 1:
        raise ValueError(f"warmup must be 0 or more, repeats 1 or more: got {warmup}, {repeats}")
    for _ in range(warmup):
        call()
    return Timing(tuple(_seconds(call, clock) for _ in range(repeats)))


def _seconds(call: Callable[[], object], clock: Clock) -> float:
    """One run."""
    began = clock()
    call()
    return clock() - began


def bandwidth(
    transfer: Callable[[], object],
    nbytes: int,
    clock: Clock = time.perf_counter,
    warmup: int = 1,
    repeats: int = 5,
) -> float:
    """Bytes a second that a transfer moves: its bytes over the median of its runs.

    Args:
        transfer: moves the bytes once: adds up an array, copies a buffer, reads a file.
        nbytes: how many bytes one call moves, 1 or more. A copy reads and writes: twice its size.
            An empty file moves nothing, so it has no speed.
        clock, warmup, repeats: as in time_call.

    Returns:
        Bytes a second.

    Errors: ValueError for nbytes under 1, before anything is called; and when the clock did not
    move during the median run, because then the transfer is too small to be timed.
    """
    # exercise 1.3
    if nbytes < 1:
        raise ValueError(f"a transfer moves at least one byte, not {nbytes}")
    seconds = time_call(transfer, clock, warmup, repeats).median
    if seconds <= 0:
        raise ValueError(f"{nbytes} bytes are too few for this clock: move more at a time")
    return nbytes / seconds


def read_through(path: str | Path, chunk: int = 2**20) -> int:
    """Read a file from its first byte to its last, and keep none of it.

    One buffer is filled again and again, so that the memory needed is one chunk, whatever the size
    of the file. With `bandwidth` this measures the disk, or the page cache: what was read a moment
    ago comes from memory, so to measure the disk time the first run alone (warmup=0, repeats=1).

    Args:
        path: the file.
        chunk: bytes of the buffer, 1 or more.

    Returns:
        How many bytes were read: the size of the file, the last chunk being as short as it is.

    Errors: ValueError for a chunk under 1. What the system raises (FileNotFoundError,
    PermissionError, IsADirectoryError) goes through.
    """
    # exercise 1.3
    if chunk < 1:
        raise ValueError(f"a chunk has at least one byte, not {chunk}")
    buffer, total = bytearray(chunk), 0
    with open(path, "rb", buffering=0) as file:  # unbuffered: Python would copy everything once
        while count := file.readinto(buffer):
            total += count
    return total
