"""1.1 parse_nvidia_smi and choose_cuda, on tables of several generations of drivers."""

from collections.abc import Callable
from contextlib import contextmanager

from course.cases import Wrong, case, describe, expect_equal, expect_raises
from course.wire import Record
from tests.grading.environment.tables import (
    FAILURE,
    MIB,
    MIG_DEVICES,
    PROCESSES,
    as_csv,
    device,
    table,
)


def expect_fields(got, kind: str, expected: dict, what: str) -> None:
    """got is a record with these fields, compared one by one."""
    if not isinstance(got, Record):
        raise Wrong(f"{what} should be a {kind}, but is {describe(got)}")
    for name, value in expected.items():
        expect_equal(getattr(got, name, "not there"), value, f"{what}.{name}")


@contextmanager
def telling(what: Callable[[], str]):
    """Adds to a complaint what the text says about it."""
    try:
        yield
    except Wrong as complaint:
        raise Wrong(f"{complaint}; the text says\n{what()}") from None


def gpu(name: str, used: int | None, total: int | None) -> dict:
    """A device whose memory is given in MiB, or not at all."""
    total, used = (None if n is None else n * MIB for n in (total, used))
    return {"name": name, "memory_bytes": total, "used_bytes": used}


def lines_of(text: str, place: int | None = None) -> str:
    """The line of the versions, or all about the device at a place, for a message."""
    lines = text.splitlines()
    if lines[0].count(","):
        return lines[1 if place is None else 1 + place]
    if place is None:
        return next((line for line in lines if " Version:" in line), "nothing")
    first = [n for n, line in enumerate(lines) if ":00.0 Off" in line][place]
    return "\n".join(lines[first : first + 2])


def expect_driver(learner, text: str, version: str | None, cuda, *gpus: dict) -> None:
    """The text gives this driver and these devices."""
    got = learner.parse_nvidia_smi(text)
    with telling(lambda: lines_of(text)):
        expect_fields(got, "Driver", {"version": version, "cuda": cuda}, "driver")
    if not isinstance(got.gpus, tuple):
        raise Wrong(f"driver.gpus should be a tuple, but is {describe(got.gpus)}")
    expect_equal(len(got.gpus), len(gpus), "the number of devices")
    for i, expected in enumerate(gpus):
        with telling(lambda i=i: lines_of(text, i)):
            expect_fields(got.gpus[i], "Gpu", expected, f"driver.gpus[{i}]")


@case("1.1")
def smi_one_old_device(learner, rng):
    """A table of 2019: one device, its name cut with "...", used before total memory."""
    used = rng.randrange(1, 9000)
    text = table(
        "418.40.04", "10.1", device(0, "Tesla V100-SXM2...", "On", f"{used}MiB / 16130MiB")
    )
    expected = gpu("Tesla V100-SXM2...", used, 16130)
    expect_driver(learner, text, "418.40.04", (10, 1), expected)
    text = text.replace("NVIDIA-SMI 418.40.04", "NVIDIA-SMI 430.50   ")  # a program of its own
    expect_driver(learner, text, "418.40.04", (10, 1), expected)


@case("1.1")
def smi_several_new_devices(learner, rng):
    """A new table: three lines a device, several devices in their order, CUDA 12.10."""
    used = [rng.randrange(1, 9000) for _ in range(3)]
    names = ["NVIDIA H100 80GB HBM3", "NVIDIA A10", "NVIDIA GeForce RTX 4090"]
    devices = [
        device(i, name, "Off" if i else "On", f"{used[i]}MiB / {81559 - i}MiB", mig=True)
        for i, name in enumerate(names)
    ]
    expected = [gpu(name, used[i], 81559 - i) for i, name in enumerate(names)]
    text = table("550.54.15", "12.10", *devices, processes=PROCESSES)
    expect_driver(learner, text, "550.54.15", (12, 10), *expected)


@case("1.1")
def smi_many_devices(learner, rng):
    """Sixteen devices: their numbers have two digits from 10 on."""
    used = [rng.randrange(1, 9000) for _ in range(16)]
    devices = [
        device(i, "Tesla V100-SXM3-32GB", "On", f"{used[i]}MiB / 32510MiB") for i in range(16)
    ]
    expected = [gpu("Tesla V100-SXM3-32GB", taken, 32510) for taken in used]
    expect_driver(learner, table("450.80.02", "11.0", *devices), "450.80.02", (11, 0), *expected)


@case("1.1")
def smi_on_windows(learner, rng):
    """On Windows the driver's model, WDDM or TCC, stands where Linux has On or Off; CR LF."""
    devices = [device(0, "NVIDIA GeForce RTX 3080", "WDDM", "812MiB / 10240MiB", mig=True)]
    devices.append(device(1, "Quadro GV100", "TCC", "3MiB / 32508MiB", mig=True))
    expected = gpu("NVIDIA GeForce RTX 3080", 812, 10240), gpu("Quadro GV100", 3, 32508)
    text = table("551.61", "12.4", *devices).replace("\n", "\r\n")
    expect_driver(learner, text, "551.61", (12, 4), *expected)


@case("1.1")
def smi_without_a_version(learner, rng):
    """A version that is not there, or is N/A or ERR!, is None: CUDA's and the driver's own."""
    lines = device(0, "GeForce GTX 1080", "Off", "10MiB / 8119MiB")
    expected = gpu("GeForce GTX 1080", 10, 8119)
    expect_driver(learner, table("384.130", None, lines), "384.130", None, expected)
    for said in ("N/A", "ERR!"):
        expect_driver(learner, table("470.57.02", said, lines), "470.57.02", None, expected)
    expect_driver(learner, table("N/A", "12.2", lines), None, (12, 2), expected)


@case("1.1")
def smi_device_without_memory(learner, rng):
    """A device whose memory is N/A or ERR! has None for it; the others keep their own memory."""
    for shown in ("N/A", "ERR!"):
        broken = device(0, "Tesla K80", "Off", shown)
        whole = device(1, "Tesla T4", "N/A", "0MiB / 15360MiB")  # nothing used is a number
        text = table("525.60.13", "12.0", broken, whole, broken, processes=PROCESSES)
        silent = gpu("Tesla K80", None, None)
        expected = silent, gpu("Tesla T4", 0, 15360), silent
        expect_driver(learner, text, "525.60.13", (12, 0), *expected)


@case("1.1")
def smi_newest_names(learner, rng):
    """From driver 610 on the versions are called KMD Version and CUDA UMD Version."""
    text = table("610.12", "13.4", device(0, "NVIDIA L4", "On", "7MiB / 23034MiB", mig=True))
    text = text.replace("Driver Version", "KMD Version").replace("CUDA Ver", "CUDA UMD Ver")
    expect_driver(learner, text, "610.12", (13, 4), gpu("NVIDIA L4", 7, 23034))


@case("1.1")
def smi_lists_that_are_no_devices(learner, rng):
    """Processes and MIG devices are listed in the same table; they are not devices."""
    used = rng.randrange(1, 9000)
    whole = device(0, "NVIDIA A100-SXM4-40GB", "Off", f"{used}MiB / 40960MiB", mig=True)
    split = device(1, "NVIDIA RTX PRO 6000 Blac...", "On", "N/A", mig=True)
    text = table("595.58.03", "13.2", whole, split, processes=MIG_DEVICES + PROCESSES)
    expected = (
        gpu("NVIDIA A100-SXM4-40GB", used, 40960),
        gpu("NVIDIA RTX PRO 6000 Blac...", *2 * [None]),
    )
    expect_driver(learner, text, "595.58.03", (13, 2), *expected)


@case("1.1")
def smi_as_csv(learner, rng):
    """The CSV of --query-gpu: columns in any order, others among them."""
    used = [rng.randrange(1, 9000) for _ in range(2)]
    rows = [["Tesla T4", "535.86.10", "15360 MiB", f"{used[0]} MiB"]]
    rows.append(["NVIDIA GeForce RTX 4090", "535.86.10", "24564 MiB", f"{used[1]} MiB"])
    order = ["name", "driver_version", "memory.total [MiB]", "memory.used [MiB]"]
    expected = gpu("Tesla T4", used[0], 15360), gpu("NVIDIA GeForce RTX 4090", used[1], 24564)
    expect_driver(learner, as_csv(order, *rows), "535.86.10", None, *expected)
    rows = [[total, "P0", version, taken, name] for name, version, total, taken in rows]
    order = ["memory.total [MiB]", "pstate", "driver_version", "memory.used [MiB]", "name"]
    expect_driver(learner, as_csv(order, *rows), "535.86.10", None, *expected)
    expect_driver(learner, as_csv(order, rows[0]), "535.86.10", None, expected[0])


@case("1.1")
def smi_csv_with_gaps(learner, rng):
    """In the CSV numbers may have no unit, and [N/A] or [Not Supported] is no number."""
    used = rng.randrange(1, 9000)
    order = ["name", "driver_version", "memory.used [MiB]", "memory.total [MiB]"]
    rows = [["NVIDIA A10", "550.54.15", str(used), "23028"]]
    rows.append(["NVIDIA GB10", "550.54.15", "[N/A]", "[N/A]"])
    rows.append(["Tesla K80", "550.54.15", "[Not Supported]", "11441"])
    rows.append(["Tesla T4", "550.54.15", "0 MiB", "15360 MiB"])
    expected = gpu("NVIDIA A10", used, 23028), gpu("NVIDIA GB10", None, None)
    expected += gpu("Tesla K80", None, 11441), gpu("Tesla T4", 0, 15360)
    expect_driver(learner, as_csv(order, *rows), "550.54.15", None, *expected)
    unknown = [[name, "[N/A]", taken, total] for name, _, taken, total in rows]
    expect_driver(learner, as_csv(order, *unknown), None, None, *expected)


@case("1.1")
def smi_csv_with_few_columns(learner, rng):
    """A CSV without driver_version or memory.used gives None for them."""
    total = rng.randrange(1000, 90000)
    text = as_csv(["memory.total [MiB]", "name"], [f"{total} MiB", "NVIDIA A10"])
    expect_driver(learner, text, None, None, gpu("NVIDIA A10", None, total))


@case("1.1")
def smi_no_devices(learner, rng):
    """The text "No devices were found" is a driver with no devices."""
    for end in ("\n", "", "\r\n"):
        expect_driver(learner, f"No devices were found{end}", None, None)


@case("1.1")
def smi_no_table(learner, rng):
    """What is no table is a ValueError that repeats its first line, or says "nothing"."""
    with expect_raises("ValueError", naming=["NVIDIA-SMI has failed"]):
        learner.parse_nvidia_smi(FAILURE)
    with expect_raises("ValueError", naming=["bash: nvidia-smi: command not found"]):
        learner.parse_nvidia_smi("\n\n  bash: nvidia-smi: command not found\nmore\n")
    for line in (
        "Failed to initialize NVML: Driver/library version mismatch",
        "container: No devices were found by the runtime",
        "name, memory",
    ):
        with expect_raises("ValueError", naming=[line]):
            learner.parse_nvidia_smi(f"{line}\nNVML library version: 535.171\n")
    for empty in ("", "  \n\n"):
        with expect_raises("ValueError", naming=["nothing"]):
            learner.parse_nvidia_smi(empty)


@case("1.1")
def cuda_at_or_below(learner, rng):
    """The newest version that is not above the driver's: equal is fine, newer is not."""
    versions = ["11.8", "12.1", "12.4", "12.6", "13.0"]
    rng.shuffle(versions)
    for supported, expected in (((12, 4), "12.4"), ((12, 5), "12.4"), ((12, 0), "11.8")):
        expect_equal(learner.choose_cuda(supported, versions), expected)
    expect_equal(learner.choose_cuda((13, 5), versions), "13.0")


@case("1.1")
def cuda_as_numbers(learner, rng):
    """Versions are numbers: 12.10 is newer than 12.4, and 9.2 older than 10.1."""
    expect_equal(learner.choose_cuda((12, 12), ["12.4", "12.10", "12.9"]), "12.10")
    expect_equal(learner.choose_cuda((12, 9), ["12.4", "12.10"]), "12.4")
    expect_equal(learner.choose_cuda((10, 0), ["9.2", "10.1"]), "9.2")
    expect_equal(learner.choose_cuda((13, 0), ["12.4", "12.10", "12.9"]), "12.10")


@case("1.1")
def cuda_as_written(learner, rng):
    """Only major and minor count; the answer is the text that was given, the first of equals."""
    expect_equal(learner.choose_cuda((12, 4), ["11.8", "12.4.1", "12.4"]), "12.4.1")
    expect_equal(learner.choose_cuda((12, 4), ["12.4", "12.4.1"]), "12.4")


@case("1.1")
def cuda_that_does_not_fit(learner, rng):
    """None fits: a ValueError with all versions in it, the supported one as well."""
    with expect_raises("ValueError", naming=["11.2", "11.8", "12.4"]):
        learner.choose_cuda((11, 2), ["12.4", "11.8"])
    with expect_raises("ValueError", naming=["11.2"]):
        learner.choose_cuda((11, 2), [])


@case("1.1")
def cuda_that_is_no_version(learner, rng):
    """A text that is no version is a ValueError that names it, even where another would fit."""
    for text in ("latest", "12.x", "12.4beta"):
        with expect_raises("ValueError", naming=[text]):
            learner.choose_cuda((11, 2), ["11.0", text])
