"""Chapter 01: whether a model fits, and if not, why and what to do."""

from dataclasses import dataclass

GB = 10**9
FILE_FACTOR = 2  # RAM over file: the file's pages and the tensors made from them, both at once
HEADROOM_PERCENT = 20  # of a device stays free: activations, fragments, what others take


@dataclass(frozen=True)
class MemoryPlan:
    """Whether it fits; every reason why not, in words."""

    fits: bool
    reasons: tuple[str, ...]


def plan_memory(
    file_bytes: int,
    weight_bytes: int,
    kv_bytes: int,
    ram_bytes: int,
    device_bytes: int | None = None,
) -> MemoryPlan:
    """Whether a model can be loaded and run, decided before the first byte is read.

    Two rules. To load, the machine must have RAM of at least twice the file. To run, weights and
    KV cache together may take at most 80 % of the memory they live in, which is the device's, or
    the RAM where there is no device.

    Args:
        file_bytes: of the checkpoint on disk.
        weight_bytes: of the weights in memory.
        kv_bytes: of the KV cache for every token that may be held.
        ram_bytes: RAM that is available.
        device_bytes: memory of the GPU that is available; None when the model runs on the CPU.

    Returns:
        MemoryPlan(fits, reasons). Exactly at a limit fits. The reasons are empty when it fits;
        otherwise one sentence for each rule that is broken, first the one about loading. Each
        gives what is needed and what is there, in GB (10**9 bytes) with two decimals ("1.08 GB");
        what is there to run in are the 80 %. The one about loading has the word "file" in it, the
        one about running the word "cache", and both say what would help.

    Errors: ValueError when any of the numbers is negative.
    """
    # exercise 1.7
    numbers = (file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes or 0)
    if min(numbers) < 0:
        raise ValueError(f"bytes cannot be negative: got {min(numbers)}")
    reasons = []
    if FILE_FACTOR * file_bytes > ram_bytes:
        reasons.append(_loading(FILE_FACTOR * file_bytes, ram_bytes))
    where, place = ("RAM", ram_bytes) if device_bytes is None else ("the device", device_bytes)
    needed = weight_bytes + kv_bytes
    if 100 * needed > (100 - HEADROOM_PERCENT) * place:
        reasons.append(_running(needed, place * (100 - HEADROOM_PERCENT) / 100, where))
    return MemoryPlan(not reasons, tuple(reasons))


def _loading(needed: float, there: float) -> str:
    """Why it cannot be loaded."""
    return (
        f"loading needs {needed / GB:.2f} GB of RAM, twice the file, and {there / GB:.2f} GB are "
        "available: close other programs, or take a file with fewer bits"
    )


def _running(needed: float, there: float, where: str) -> str:
    """Why it cannot run."""
    return (
        f"weights and cache need {needed / GB:.2f} GB, and {there / GB:.2f} GB of {where} may be "
        f"used ({HEADROOM_PERCENT} % stay free): take fewer bits, a shorter context or fewer "
        "sequences"
    )
