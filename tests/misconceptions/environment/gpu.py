"""Wrong versions of 1.1 parse_nvidia_smi and choose_cuda."""

import csv
import re

from course.misconceptions import misconception
from solutions.gpu import (
    CUDA,
    DEVICE,
    DRIVER,
    MEMORY,
    MIB,
    NO_DEVICES,
    Driver,
    Gpu,
    _devices,
    _from_csv,
    _major_minor,
    _mib,
)


@misconception("1.1", "_devices")
def used_for_total(lines):
    """You take the first number for the whole memory. The table shows "used / total": the first
    is what is taken already, the second is what the device has.
    """
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if device := DEVICE.match(line.strip()):
            memory = MEMORY.search(below)
            total, used = (int(n) * MIB for n in memory.groups()) if memory else (None, None)
            yield Gpu(device[1], total, used)


@misconception("1.1", "_devices")
def mib_for_mb(lines):
    """You multiply by a million. nvidia-smi counts in MiB, and one MiB is 2**20 bytes: 5 % more.
    A plan made with megabytes has less room than there is.
    """
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if device := DEVICE.match(line.strip()):
            memory = MEMORY.search(below)
            used, total = (int(n) * 10**6 for n in memory.groups()) if memory else (None, None)
            yield Gpu(device[1], total, used)


@misconception("1.1", "_devices")
def first_word_of_the_name(lines):
    """You take the first word of a name. Names have spaces in them ("NVIDIA H100 80GB HBM3"): the
    name reaches to the last word before the bar, which is the mode.
    """
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if device := DEVICE.match(line.strip()):
            memory = MEMORY.search(below)
            used, total = (int(n) * MIB for n in memory.groups()) if memory else (None, None)
            yield Gpu(device[1].split()[0], total, used)


@misconception("1.1", "_devices")
def only_on_or_off(lines):
    """You look for "On" or "Off" behind the name. That is the persistence mode of Linux; it can be
    N/A, and on Windows the driver's model stands there, WDDM or TCC.
    """
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if device := re.match(r"\|\s+\d+\s+(\S.*?)\s+(?:On|Off)\s+\|\s*[0-9A-F]{4,8}:", line):
            memory = MEMORY.search(below)
            used, total = (int(n) * MIB for n in memory.groups()) if memory else (None, None)
            yield Gpu(device[1], total, used)


@misconception("1.1", "_devices")
def without_memory_without_device(lines):
    """You leave a device out whose memory is not shown. It is there, and whoever reads the report
    should learn that something is wrong with it: None for its memory.
    """
    for line, below in zip(lines, lines[1:], strict=False):
        device, memory = DEVICE.match(line.strip()), MEMORY.search(below)
        if device and memory:
            yield Gpu(device[1], int(memory[2]) * MIB, int(memory[1]) * MIB)


@misconception("1.1", "_devices")
def processes_are_devices(lines):
    """You take every line that begins with a number for a device. Processes and MIG devices are
    listed with the number of their device in front: only a device has a bus id in the next column.
    """
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if device := re.match(r"\|\s+[0-9]+\s+(\S.*?)\s+\S+\s*\|", line):
            memory = MEMORY.search(below)
            used, total = (int(n) * MIB for n in memory.groups()) if memory else (None, None)
            yield Gpu(device[1], total, used)


@misconception("1.1", "_devices")
def memories_listed_apart(lines):
    """You collect all names and all memories and pair them in order. A device without numbers then
    gets those of the next one, or of a MIG device: look at the line right below the name.
    """
    names = [found[1] for line in lines if (found := DEVICE.match(line.strip()))]
    memories = [found.groups() for line in lines if (found := MEMORY.search(line))]
    for name, (used, total) in zip(names, memories, strict=False):
        yield Gpu(name, int(total) * MIB, int(used) * MIB)


@misconception("1.1", "parse_nvidia_smi")
def cuda_as_a_fraction(text):
    """You read the CUDA version as one number with a fraction. 12.10 then becomes 12.1, an older
    version. Major and minor are two whole numbers: split at the dot.
    """
    lines = text.strip().splitlines() or ["nothing"]
    if lines == [NO_DEVICES]:
        return Driver(None, None, ())
    if {"name", "memory.total [MiB]"} <= {column.strip() for column in lines[0].split(",")}:
        return _from_csv(lines)
    found, cuda = DRIVER.search(text), CUDA.search(text)
    if not found:
        raise ValueError(f"this is no table of nvidia-smi, it says: {lines[0].strip()}")
    number = str(float(f"{cuda[1]}.{cuda[2]}")).split(".") if cuda else None
    return Driver(found[1], cuda and tuple(map(int, number)), tuple(_devices(lines)))


@misconception("1.1", "parse_nvidia_smi")
def old_names_only(text):
    """You look for "Driver Version:" and "CUDA Version:" only. From driver 610 on they are called
    "KMD Version:" and "CUDA UMD Version:".
    """
    lines = text.strip().splitlines() or ["nothing"]
    if lines == [NO_DEVICES]:
        return Driver(None, None, ())
    if {"name", "memory.total [MiB]"} <= {column.strip() for column in lines[0].split(",")}:
        return _from_csv(lines)
    found = re.search(r"Driver Version:\s*([0-9.]+)", text)
    if not found:
        raise ValueError(f"this is no table of nvidia-smi, it says: {lines[0].strip()}")
    cuda = re.search(r"CUDA Version:\s*([0-9]+)\.([0-9]+)", text)
    return Driver(found[1], (int(cuda[1]), int(cuda[2])) if cuda else None, tuple(_devices(lines)))


@misconception("1.1", "parse_nvidia_smi")
def garbage_is_no_gpu(text):
    """You give a driver without devices for text that is no table. "No devices were found" means
    that there is none; an error message means that nobody knows. Raise ValueError and repeat it.
    """
    lines = text.strip().splitlines() or ["nothing"]
    if {"name", "memory.total [MiB]"} <= {column.strip() for column in lines[0].split(",")}:
        return _from_csv(lines)
    found, cuda = DRIVER.search(text), CUDA.search(text)
    if not found:
        return Driver(None, None, ())
    return Driver(found[1], (int(cuda[1]), int(cuda[2])) if cuda else None, tuple(_devices(lines)))


@misconception("1.1", "_from_csv")
def csv_by_position(lines):
    """You take the columns of the CSV by their place. Whoever asked for it chose the order: the
    first line says which column is which.
    """
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines[1:])]
    gpus = tuple(Gpu(row[0], _mib(row[2]), _mib(row[3])) for row in rows)
    return Driver(rows[0][1] if rows else None, None, gpus)


@misconception("1.1", "choose_cuda")
def versions_as_text(supported, available):
    """You compare versions as text. Then "12.10" comes before "12.4" and "9.2" after "10.1".
    Compare tuples of whole numbers.
    """
    choices, limit = list(available), f"{supported[0]}.{supported[1]}"
    fitting = [choice for choice in choices if choice <= limit]
    if not fitting:
        raise ValueError(f"the driver supports CUDA {limit}, available are {', '.join(choices)}")
    return max(fitting)


@misconception("1.1", "choose_cuda")
def below_and_not_equal(supported, available):
    """You take only versions below the driver's. The driver runs its own version too: at or just
    below what it supports.
    """
    choices = list(available)
    fitting = [choice for choice in choices if _major_minor(choice) < tuple(supported)]
    if not fitting:
        limit = f"{supported[0]}.{supported[1]}"
        raise ValueError(f"the driver supports CUDA {limit}, available are {', '.join(choices)}")
    return max(fitting, key=_major_minor)


@misconception("1.1", "choose_cuda")
def newest_of_all(supported, available):
    """You take the newest version there is. The driver does not carry it: installing works, and
    the first kernel fails. Nothing above what the driver supports may be chosen.
    """
    choices = list(available)
    if not choices:
        raise ValueError(f"the driver supports CUDA {supported[0]}.{supported[1]}, none available")
    return max(choices, key=_major_minor)


@misconception("1.1", "choose_cuda")
def oldest_that_fits(supported, available):
    """You take the oldest version that fits. Older ones lack what newer devices need; the rule is
    the newest at or below what the driver supports: max, not min.
    """
    choices = list(available)
    fitting = [choice for choice in choices if _major_minor(choice) <= tuple(supported)]
    if not fitting:
        limit = f"{supported[0]}.{supported[1]}"
        raise ValueError(f"the driver supports CUDA {limit}, available are {', '.join(choices)}")
    return min(fitting, key=_major_minor)


@misconception("1.1", "choose_cuda")
def versions_as_fractions(supported, available):
    """You read a version as one number with a fraction. 12.10 then becomes 12.1, older than 12.4.
    Major and minor are two whole numbers: compare tuples of them.
    """
    number = {text: float(".".join(text.split(".")[:2])) for text in available}
    limit = float(f"{supported[0]}.{supported[1]}")
    fitting = [choice for choice in available if number[choice] <= limit]
    if not fitting:
        raise ValueError(f"the driver supports CUDA {limit}, available are {', '.join(available)}")
    return max(fitting, key=number.get)


@misconception("1.1", "choose_cuda")
def newest_by_its_text(supported, available):
    """You leave out what is too new by its numbers, and then take the greatest text of the others.
    "12.4" is a greater text than "12.10" and an older version: max, too, needs the numbers as key.
    """
    fitting = [choice for choice in available if _major_minor(choice) <= tuple(supported)]
    if not fitting:
        limit = f"{supported[0]}.{supported[1]}"
        raise ValueError(f"the driver supports CUDA {limit}, available are {', '.join(available)}")
    return max(fitting)


@misconception("1.1", "_devices")
def unknown_is_nought(lines):
    """You give 0 where no memory is shown. 0 bytes would be a device without memory; nothing is
    known of this one, and None says so.
    """
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if device := DEVICE.match(line.strip()):
            memory = MEMORY.search(below)
            used, total = (int(n) * MIB for n in memory.groups()) if memory else (0, 0)
            yield Gpu(device[1], total, used)
