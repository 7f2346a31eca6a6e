"""Chapter 01: what `nvidia-smi` says, and which CUDA runtime the driver can carry.

Only the standard library is used in this chapter: these functions run before any package is there.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MIB = 2**20  # bytes; nvidia-smi counts memory in these
NO_DEVICES = "No devices were found"
DRIVER = re.compile(r"(?:Driver|KMD) Version:\s*([0-9.]+)?")
CUDA = re.compile(r"CUDA (?:UMD )?Version:\s*([0-9]+)\.([0-9]+)")
DEVICE = re.compile(r"\|\s+[0-9]+\s+(\S.*?)\s+\S+\s*\|\s*[0-9A-Fa-f]{4,8}:")  # name, mode | bus id
MEMORY = re.compile(r"([0-9]+)MiB\s*/\s*([0-9]+)MiB")
VERSION = re.compile(r"([0-9]+)\.([0-9]+)(?:\.[0-9]+)*")


@dataclass(frozen=True)
class Gpu:
    """One device. Its memory is None where the driver does not tell."""

    name: str
    memory_bytes: int | None  # all of it
    used_bytes: int | None


@dataclass(frozen=True)
class Driver:
    """What the driver is, the newest CUDA version it carries, and the devices it sees."""

    version: str | None  # None where the text does not say
    cuda: tuple[int, int] | None  # None where the text does not say
    gpus: tuple[Gpu, ...]


def parse_nvidia_smi(text: str) -> Driver:
    """Read what `nvidia-smi` prints: its table for people, or its CSV for programs.

    The table changed over the years: columns were renamed and widened, and a third line for each
    device and a list of MIG devices came in. What has not changed is relied on:
    - the line with "Driver Version: 535.86" and mostly "CUDA Version: 12.2"; from driver 610 on
      they are called "KMD Version:" and "CUDA UMD Version:",
    - for each device a line "| number  name  mode | bus id ...": the mode is one word ("On",
      "Off", "WDDM"), the bus id is hexadecimal, like 00000000:3B:00.0,
    - on the line right below it "used MiB / total MiB", or else something like "N/A" or "ERR!".
    Lists of processes and of MIG devices have no bus id. They are not devices.

    The CSV is that of `nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used
    --format=csv`: the first line names the columns, then there is a line a device. It is the CSV
    when its first line has the columns "name" and "memory.total [MiB]"; "driver_version" and
    "memory.used [MiB]" may be missing. The order is any, and others may be among them. Numbers are
    written "15360 MiB" or "15360". It has no CUDA version.

    Args:
        text: the whole output. On Windows its lines end in CR LF.

    Returns:
        Driver(version, cuda, gpus), the devices in the order of the text. A name is as printed,
        without the spaces around it; in the table long ones end in "...". cuda is (major, minor).
        Memory is in bytes, a MiB being 2**20; None where no number is given, or no such column
        (0 is a number). The same for both versions ("Driver Version: N/A").

        "No devices were found" alone gives Driver(None, None, ()).

    Errors: ValueError when it is neither (empty, "NVIDIA-SMI has failed because ...", anything
    else), with the first line that is not blank in the message, or the word "nothing".
    """
    # exercise 1.1
    lines = text.strip().splitlines() or ["nothing"]
    if lines == [NO_DEVICES]:
        return Driver(None, None, ())
    if {"name", "memory.total [MiB]"} <= {column.strip() for column in lines[0].split(",")}:
        return _from_csv(lines)
    found = DRIVER.search(text)
    if not found:
        raise ValueError(f"this is no table of nvidia-smi, it says: {lines[0].strip()}")
    cuda = CUDA.search(text)
    return Driver(found[1], (int(cuda[1]), int(cuda[2])) if cuda else None, tuple(_devices(lines)))


def _devices(lines: list[str]) -> Iterator[Gpu]:
    """Each line of the table that names a device, with the memory on the line below it."""
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if device := DEVICE.match(line.strip()):
            memory = MEMORY.search(below)
            used, total = (int(n) * MIB for n in memory.groups()) if memory else (None, None)
            yield Gpu(device[1], total, used)


def _from_csv(lines: list[str]) -> Driver:
    """The answer to --query-gpu."""
    rows = list(csv.DictReader(lines, skipinitialspace=True))
    versions = [row.get("driver_version") or "" for row in rows]
    version = versions[0] if versions and versions[0][:1].isdigit() else None
    gpus = (
        Gpu(row["name"], _mib(row["memory.total [MiB]"]), _mib(row.get("memory.used [MiB]")))
        for row in rows
    )
    return Driver(version, None, tuple(gpus))


def _mib(cell: str | None) -> int | None:
    """Bytes of a cell such as "15360 MiB" or "15360"; None for "[N/A]"."""
    number = re.match("[0-9]+", cell or "")
    return int(number[0]) * MIB if number else None


def choose_cuda(supported: tuple[int, int], available: Sequence[str]) -> str:
    """The newest CUDA runtime at or below what the driver supports.

    A driver runs programs built for its own CUDA version and for older ones. A newer major version
    fails when the first kernel starts, long after the installation looked fine; a newer minor one
    may work, but fails where the driver has to compile code itself.

    Args:
        supported: (major, minor), the most that the driver carries.
        available: versions as text, such as "12.4", "11.8" or "12.4.1", in any order; only
            major and minor count.

    Returns:
        The chosen one, exactly as it was written. Of two that agree in major and minor, the first.
        Versions are compared as numbers: 12.10 is newer than 12.4.

    Errors: ValueError when none fits, naming the supported version (as "11.2") and all available
    ones; and for a text that is no version ("latest", "12.x", "12.4beta"), naming it.
    """
    # exercise 1.1
    fitting = [choice for choice in available if _major_minor(choice) <= supported]
    if not fitting:
        listed = ", ".join(available) or "none"
        raise ValueError(
            f"the driver supports CUDA {supported[0]}.{supported[1]} and older, available are "
            f"{listed}: update the driver, or use the CPU"
        )
    return max(fitting, key=_major_minor)


def _major_minor(version: str) -> tuple[int, int]:
    """(12, 10) of "12.10"; as text it would come before "12.4"."""
    found = VERSION.fullmatch(version.strip())
    if not found:
        raise ValueError(f"{version!r} is no CUDA version: write it like 12.4")
    return int(found[1]), int(found[2])
