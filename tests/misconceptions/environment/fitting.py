"""Wrong versions of 1.7 plan_memory."""

from course.misconceptions import misconception
from solutions.fitting import (
    FILE_FACTOR,
    HEADROOM_PERCENT,
    MemoryPlan,
    _loading,
    _running,
)


@misconception("1.7", "plan_memory")
def file_counted_once(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
    """You compare the RAM with the file once. While it is loaded, the pages of the file and the
    tensors made from them are there at the same time: twice the file.
    """
    numbers = (file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes or 0)
    if min(numbers) < 0:
        raise ValueError(f"bytes cannot be negative: got {min(numbers)}")
    reasons = []
    if file_bytes > ram_bytes:
        reasons.append(_loading(file_bytes, ram_bytes))
    where, place = ("RAM", ram_bytes) if device_bytes is None else ("the device", device_bytes)
    needed = weight_bytes + kv_bytes
    if 100 * needed > (100 - HEADROOM_PERCENT) * place:
        reasons.append(_running(needed, place * (100 - HEADROOM_PERCENT) / 100, where))
    return MemoryPlan(not reasons, tuple(reasons))


@misconception("1.7", "plan_memory")
def no_headroom(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
    """You fill the memory to the last byte. Activations, fragments and other programs need room
    too: weights and cache may take 80 %.
    """
    numbers = (file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes or 0)
    if min(numbers) < 0:
        raise ValueError(f"bytes cannot be negative: got {min(numbers)}")
    reasons = []
    if FILE_FACTOR * file_bytes > ram_bytes:
        reasons.append(_loading(FILE_FACTOR * file_bytes, ram_bytes))
    where, place = ("RAM", ram_bytes) if device_bytes is None else ("the device", device_bytes)
    needed = weight_bytes + kv_bytes
    if needed > place:
        reasons.append(_running(needed, place, where))
    return MemoryPlan(not reasons, tuple(reasons))


@misconception("1.7", "plan_memory")
def cache_not_counted(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
    """You leave the KV cache out. It lives in the same memory as the weights, and grows with every
    token of every request.
    """
    numbers = (file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes or 0)
    if min(numbers) < 0:
        raise ValueError(f"bytes cannot be negative: got {min(numbers)}")
    reasons = []
    if FILE_FACTOR * file_bytes > ram_bytes:
        reasons.append(_loading(FILE_FACTOR * file_bytes, ram_bytes))
    where, place = ("RAM", ram_bytes) if device_bytes is None else ("the device", device_bytes)
    if 100 * weight_bytes > (100 - HEADROOM_PERCENT) * place:
        reasons.append(_running(weight_bytes, place * (100 - HEADROOM_PERCENT) / 100, where))
    return MemoryPlan(not reasons, tuple(reasons))


@misconception("1.7", "plan_memory")
def first_reason_only(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
    """You stop at the first reason. Whoever mends one then meets the next: name all
    of them at once.
    """
    numbers = (file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes or 0)
    if min(numbers) < 0:
        raise ValueError(f"bytes cannot be negative: got {min(numbers)}")
    if FILE_FACTOR * file_bytes > ram_bytes:
        return MemoryPlan(False, (_loading(FILE_FACTOR * file_bytes, ram_bytes),))
    where, place = ("RAM", ram_bytes) if device_bytes is None else ("the device", device_bytes)
    needed = weight_bytes + kv_bytes
    if 100 * needed > (100 - HEADROOM_PERCENT) * place:
        room = place * (100 - HEADROOM_PERCENT) / 100
        return MemoryPlan(False, (_running(needed, room, where),))
    return MemoryPlan(True, ())


@misconception("1.7", "plan_memory")
def full_device_is_no_device(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
    """You ask `if device_bytes`, and 0 bytes left counts as no device. Only None means that there
    is none: `is None`.
    """
    numbers = (file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes or 0)
    if min(numbers) < 0:
        raise ValueError(f"bytes cannot be negative: got {min(numbers)}")
    reasons = []
    if FILE_FACTOR * file_bytes > ram_bytes:
        reasons.append(_loading(FILE_FACTOR * file_bytes, ram_bytes))
    where, place = ("the device", device_bytes) if device_bytes else ("RAM", ram_bytes)
    needed = weight_bytes + kv_bytes
    if 100 * needed > (100 - HEADROOM_PERCENT) * place:
        reasons.append(_running(needed, place * (100 - HEADROOM_PERCENT) / 100, where))
    return MemoryPlan(not reasons, tuple(reasons))


@misconception("1.7", "plan_memory")
def ram_for_the_device(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
    """You compare weights and cache with the RAM although there is a device. They live in the
    device's memory; the RAM is only passed through.
    """
    numbers = (file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes or 0)
    if min(numbers) < 0:
        raise ValueError(f"bytes cannot be negative: got {min(numbers)}")
    reasons = []
    if FILE_FACTOR * file_bytes > ram_bytes:
        reasons.append(_loading(FILE_FACTOR * file_bytes, ram_bytes))
    needed = weight_bytes + kv_bytes
    if 100 * needed > (100 - HEADROOM_PERCENT) * ram_bytes:
        reasons.append(_running(needed, ram_bytes * (100 - HEADROOM_PERCENT) / 100, "RAM"))
    return MemoryPlan(not reasons, tuple(reasons))


@misconception("1.7", "plan_memory")
def gib_in_the_reasons(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
    """You divide by 2**30 and write GB. That is GiB, 7 % larger: with 10**9 the numbers are those
    that makers of memory cards and of models print.
    """
    numbers = (file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes or 0)
    if min(numbers) < 0:
        raise ValueError(f"bytes cannot be negative: got {min(numbers)}")
    reasons, share = [], 10**9 / 2**30
    if FILE_FACTOR * file_bytes > ram_bytes:
        reasons.append(_loading(FILE_FACTOR * file_bytes * share, ram_bytes * share))
    where, place = ("RAM", ram_bytes) if device_bytes is None else ("the device", device_bytes)
    needed = weight_bytes + kv_bytes
    if 100 * needed > (100 - HEADROOM_PERCENT) * place:
        room = place * (100 - HEADROOM_PERCENT) / 100
        reasons.append(_running(needed * share, room * share, where))
    return MemoryPlan(not reasons, tuple(reasons))
