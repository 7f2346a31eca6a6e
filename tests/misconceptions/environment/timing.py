"""Wrong versions of 1.2 Timing, time_call and 1.3 bandwidth, read_through."""

import time

from course.misconceptions import misconception
from solutions.timing import Timing, _seconds, time_call


@misconception("1.2", "Timing.median")
def mean_of_the_runs(self):
    """You give the mean. One run that was interrupted moves it as far as it likes; the median stays
    where most of the runs are.
    """
    return sum(self.runs) / len(self.runs)


@misconception("1.2", "Timing.median")
def middle_without_sorting(self):
    """You take the run that was in the middle of the series. The median is the middle one when they
    are sorted.
    """
    return self.runs[len(self.runs) // 2]


@misconception("1.2", "Timing.median")
def upper_of_the_middle_two(self):
    """You sort and take the one at len // 2. Of an even number of runs two are in the middle, and
    the median is their mean.
    """
    return sorted(self.runs)[len(self.runs) // 2]


@misconception("1.2", "Timing.spread")
def spread_in_seconds(self):
    """You give seconds. A spread of 1 ms is much for a run of 2 ms and nothing for one of 2 s:
    divide by the median.
    """
    return max(self.runs) - min(self.runs)


@misconception("1.2", "Timing.spread")
def spread_divides_by_zero(self):
    """You divide by a median that may be 0, when the call is shorter than a tick of the clock. The
    docstring says what the spread is then.
    """
    return (max(self.runs) - min(self.runs)) / self.median


@misconception("1.2", "time_call")
def no_warm_up(call, clock=time.perf_counter, warmup=1, repeats=5):
    """You do not warm up. The first run pays for what happens once, so it must run, untimed, before
    the clock is read.
    """
    if warmup < 0 or repeats < 1:
        raise ValueError(f"warmup must be 0 or more, repeats 1 or more: got {warmup}, {repeats}")
    return Timing(tuple(_seconds(call, clock) for _ in range(repeats)))


@misconception("1.2", "time_call")
def warm_up_is_timed(call, clock=time.perf_counter, warmup=1, repeats=5):
    """You time the warm-up runs and keep them. They are there to be thrown away: the clock is not
    read for them.
    """
    if warmup < 0 or repeats < 1:
        raise ValueError(f"warmup must be 0 or more, repeats 1 or more: got {warmup}, {repeats}")
    return Timing(tuple(_seconds(call, clock) for _ in range(warmup + repeats)))


@misconception("1.2", "time_call")
def total_divided(call, clock=time.perf_counter, warmup=1, repeats=5):
    """You read the clock once before all runs and once after, and divide. That gives a mean, which
    one interruption moves, and no spread. Each run has its own two readings.
    """
    if warmup < 0 or repeats < 1:
        raise ValueError(f"warmup must be 0 or more, repeats 1 or more: got {warmup}, {repeats}")
    for _ in range(warmup):
        call()
    began = clock()
    for _ in range(repeats):
        call()
    return Timing(((clock() - began) / repeats,) * repeats)


@misconception("1.2", "time_call")
def sorted_runs(call, clock=time.perf_counter, warmup=1, repeats=5):
    """You sort the runs. Their order tells something: a first one that is slow, a machine that
    gets warm. The median sorts for itself.
    """
    if warmup < 0 or repeats < 1:
        raise ValueError(f"warmup must be 0 or more, repeats 1 or more: got {warmup}, {repeats}")
    for _ in range(warmup):
        call()
    return Timing(tuple(sorted(_seconds(call, clock) for _ in range(repeats))))


@misconception("1.2", "time_call")
def counts_not_checked(call, clock=time.perf_counter, warmup=1, repeats=5):
    """You do not check the counts. No run at all has no median, and a negative warm-up is a typing
    error that nobody sees: raise ValueError before the first call.
    """
    for _ in range(warmup):
        call()
    return Timing(tuple(_seconds(call, clock) for _ in range(repeats)))


@misconception("1.3", "bandwidth")
def by_the_mean(transfer, nbytes, clock=time.perf_counter, warmup=1, repeats=5):
    """You divide by the mean of the runs. One run that was interrupted moves the mean of all; the
    median stays where it was.
    """
    if nbytes < 1:
        raise ValueError(f"a transfer moves at least one byte, not {nbytes}")
    runs = time_call(transfer, clock, warmup, repeats).runs
    if sum(runs) <= 0:
        raise ValueError(f"{nbytes} bytes are too few for this clock: move more at a time")
    return nbytes * len(runs) / sum(runs)


@misconception("1.3", "bandwidth")
def by_the_best(transfer, nbytes, clock=time.perf_counter, warmup=1, repeats=5):
    """You take the fastest run. It is the luckiest one; what you can count on is the median."""
    if nbytes < 1:
        raise ValueError(f"a transfer moves at least one byte, not {nbytes}")
    seconds = min(time_call(transfer, clock, warmup, repeats).runs)
    if seconds <= 0:
        raise ValueError(f"{nbytes} bytes are too few for this clock: move more at a time")
    return nbytes / seconds


@misconception("1.3", "bandwidth")
def seconds_a_byte(transfer, nbytes, clock=time.perf_counter, warmup=1, repeats=5):
    """You divide seconds by bytes. Bandwidth is bytes a second: the bytes are above the line."""
    if nbytes < 1:
        raise ValueError(f"a transfer moves at least one byte, not {nbytes}")
    seconds = time_call(transfer, clock, warmup, repeats).median
    if seconds <= 0:
        raise ValueError(f"{nbytes} bytes are too few for this clock: move more at a time")
    return seconds / nbytes


@misconception("1.3", "bandwidth")
def all_runs_together(transfer, nbytes, clock=time.perf_counter, warmup=1, repeats=5):
    """You divide by the seconds of all runs together, but count the bytes of one. Each run moves
    all the bytes: divide by the time of one, the median.
    """
    if nbytes < 1:
        raise ValueError(f"a transfer moves at least one byte, not {nbytes}")
    seconds = sum(time_call(transfer, clock, warmup, repeats).runs)
    if seconds <= 0:
        raise ValueError(f"{nbytes} bytes are too few for this clock: move more at a time")
    return nbytes / seconds


@misconception("1.3", "bandwidth")
def nothing_is_transferred(transfer, nbytes, clock=time.perf_counter, warmup=1, repeats=5):
    """You do not refuse what has no speed: no bytes at all, or a time of 0. An infinity or a
    ZeroDivisionError says less than a ValueError with a sentence.
    """
    return nbytes / time_call(transfer, clock, warmup, repeats).median


@misconception("1.3", "read_through")
def whole_file_at_once(path, chunk=2**20):
    """You read the whole file into memory. A model can be larger than the memory: fill one buffer
    of `chunk` bytes again and again.
    """
    if chunk < 1:
        raise ValueError(f"a chunk has at least one byte, not {chunk}")
    with open(path, "rb") as file:
        return len(file.read())


@misconception("1.3", "read_through")
def pieces_are_kept(path, chunk=2**20):
    """You read piece by piece, and keep all pieces. Together they are the file again, in memory:
    count the bytes and let each piece go.
    """
    if chunk < 1:
        raise ValueError(f"a chunk has at least one byte, not {chunk}")
    with open(path, "rb") as file:
        return len(b"".join(iter(lambda: file.read(chunk), b"")))


@misconception("1.3", "read_through")
def chunks_times_size(path, chunk=2**20):
    """You count chunks and multiply. The last one is seldom full: add up what readinto
    says came.
    """
    if chunk < 1:
        raise ValueError(f"a chunk has at least one byte, not {chunk}")
    buffer, count = bytearray(chunk), 0
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            count += 1
    return count * chunk


@misconception("1.3", "read_through")
def one_chunk_only(path, chunk=2**20):
    """You read once. A read gives at most one chunk: go on until it gives 0 bytes."""
    if chunk < 1:
        raise ValueError(f"a chunk has at least one byte, not {chunk}")
    with open(path, "rb", buffering=0) as file:
        return file.readinto(bytearray(chunk))


@misconception("1.3", "bandwidth")
def mean_of_the_speeds(transfer, nbytes, clock=time.perf_counter, warmup=1, repeats=5):
    """You make a speed of every run and take their mean. A fast run then counts more than a slow
    one: take the median of the seconds first, and divide once.
    """
    if nbytes < 1:
        raise ValueError(f"a transfer moves at least one byte, not {nbytes}")
    timing = time_call(transfer, clock, warmup, repeats)
    if timing.median <= 0:
        raise ValueError(f"{nbytes} bytes are too few for this clock: move more at a time")
    return sum(nbytes / seconds for seconds in timing.runs) / repeats
