"""1.1 parse_nvidia_smi and choose_cuda, 1.2 time_call, 1.3 bandwidth and read_through."""

import itertools
import re
from pathlib import Path

from tests.parts import part


@part("1.1")
def version_of_the_program(m):
    """The version behind "NVIDIA-SMI", which is the program's and not the driver's."""
    m.DRIVER = re.compile(r"NVIDIA-SMI ([0-9.]+)")


@part("1.1")
def two_spaces_behind_a_name(m):
    """Long names have a single space between them and the mode."""
    m.DEVICE = re.compile(r"\|\s+[0-9]+\s+(\S.*?)\s{2,}\S+\s*\|\s*[0-9A-Fa-f]{4,8}:")


@part("1.1")
def numbers_of_one_digit(m):
    """Device numbers from 10 on are passed over."""
    m.DEVICE = re.compile(r"\|\s+[0-9]\s+(\S.*?)\s+\S+\s*\|\s*[0-9A-Fa-f]{4,8}:")


@part("1.1")
def csv_of_the_first_device(m):
    """The CSV ends after its first device."""
    right = m._from_csv
    m._from_csv = lambda lines: right(lines[:2])


@part("1.1")
def units_needed(m):
    """A number without MiB behind it is no number."""
    right = m._mib
    m._mib = lambda cell: right(cell) if cell and "MiB" in cell else None


@part("1.1")
def no_devices_anywhere(m):
    """Any text with these words in it is a driver without devices."""
    right = m.parse_nvidia_smi
    nothing = m.Driver(None, None, ())
    m.parse_nvidia_smi = lambda text: nothing if m.NO_DEVICES in text else right(text)


@part("1.1")
def patch_level_counts(m):
    """12.4.1 does not run on a driver for 12.4."""

    def choose_cuda(supported, available):
        fitting = {tuple(map(int, text.split("."))): text for text in available}
        fitting = {number: text for number, text in fitting.items() if number <= tuple(supported)}
        if not fitting:
            raise ValueError(f"{supported[0]}.{supported[1]}: none of {list(available)}")
        return fitting[max(fitting)]

    m.choose_cuda = choose_cuda


@part("1.2")
def runs_in_a_list(m):
    """runs is a list: the dataclass is frozen and its content is not."""
    right = m.time_call

    def time_call(*args, **kwargs):
        return m.Timing(list(right(*args, **kwargs).runs))

    m.time_call = time_call


@part("1.2")
def clock_read_once_between(m):
    """The end of one run is the beginning of the next."""

    def time_call(call, clock=m.time.perf_counter, warmup=1, repeats=5):
        if warmup < 0 or repeats < 1:
            raise ValueError(f"{warmup} {repeats}")
        for _ in range(warmup):
            call()
        marks = [clock()]
        for _ in range(repeats):
            call()
            marks.append(clock())
        return m.Timing(tuple(b - a for a, b in itertools.pairwise(marks)))

    m.time_call = time_call


@part("1.2")
def counts_checked_late(m):
    """The counts are checked when the warm-up has run."""
    right = m.time_call

    def time_call(call, clock=m.time.perf_counter, warmup=1, repeats=5):
        for _ in range(warmup):
            call()
        if warmup < 0:
            raise ValueError(warmup)
        return right(call, clock, 0, repeats)

    m.time_call = time_call


@part("1.2")
def sorts_its_runs(m):
    """median puts the runs in order, in place."""

    def median(self):
        ordered = sorted(self.runs)
        object.__setattr__(self, "runs", tuple(ordered))
        return m.median(ordered)

    m.Timing.median = property(median)


@part("1.3")
def warm_up_not_passed_on(m):
    """bandwidth warms up once, whatever it is told."""

    def bandwidth(transfer, nbytes, clock=m.time.perf_counter, warmup=1, repeats=5):
        if nbytes < 1:
            raise ValueError(nbytes)
        seconds = m.time_call(transfer, clock, repeats=repeats).median
        if seconds <= 0:
            raise ValueError("no time")
        return nbytes / seconds

    m.bandwidth = bandwidth


@part("1.3")
def stops_at_a_short_piece(m):
    """Reads whole chunks only, and drops the last, shorter one."""

    def read_through(path, chunk=2**20):
        if chunk < 1:
            raise ValueError(chunk)
        total, buffer = 0, bytearray(chunk)
        with open(path, "rb") as file:
            while file.readinto(buffer) == chunk:
                total += chunk
        return total

    m.read_through = read_through


@part("1.3")
def size_without_reading(m):
    """Asks the system for the size and reads nothing."""

    def read_through(path, chunk=2**20):
        if chunk < 1:
            raise ValueError(chunk)
        return Path(path).stat().st_size

    m.read_through = read_through
