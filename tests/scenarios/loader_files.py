"""Chapter 02 beside the code under test, its files: opened, tensors spoilt and kept, bytes counted.

Every scenario takes the module under test first and returns plain data.
"""

import ctypes
import functools
import gc
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import torch

from tests.scenarios.helpers import Unusable, in_words, told
from tests.scenarios.memory import python_peak_of

MB = 1_000_000


def in_mb(size: float) -> int:
    """Whole megabytes: two programs that do the same shall be seen to do the same."""
    return round(size / MB)


def give_back() -> None:
    """Return memory that is free to the system: new tensors in it would not be seen to come."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim:
        trim(0)


def refused(call, names: list) -> dict:
    """What a call that should fail did: {"raised", "unnamed"}, or {"returned"} in words."""
    try:
        return {"returned": in_words(call())}
    except NotImplementedError:
        raise
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        text = " ".join(str(error).split())
        return {"raised": kinds, "unnamed": [name for name in names if name not in text]}


def attempts(module, name: str, calls: list) -> list:
    """Calls of a function that should fail: [[argument], [what the message must name]] each."""
    function = getattr(module, name)
    return [refused(functools.partial(function, *args), names) for args, names in calls]


# --- 2.1 ---


def _size(entry) -> tuple:
    """The shape of an entry, in whatever kind of tuple."""
    if not isinstance(entry.shape, tuple):
        raise Unusable(
            f"the shape of an Entry should be a tuple, but that of {entry.name} is "
            f"{in_words(entry.shape)}"
        )
    return tuple(entry.shape)


def _header(found) -> dict:
    """A Header in plain words, whatever its containers are."""
    try:
        rows = [(e.name, e.dtype, _size(e), e.start, e.stop) for e in found.entries]
        return {"entries": rows, "metadata": dict(found.metadata), "base": found.base}
    except (AttributeError, TypeError, ValueError) as problem:
        raise Unusable(
            f"read_header should return a Header, but returned {in_words(found)} ({problem})"
        ) from None


@told
def headers(module, paths: list, as_path: bool = False) -> list:
    """The headers of these files, as dicts."""
    return [_header(module.read_header(Path(path) if as_path else path)) for path in paths]


@told
def header_memory(module, path: str, fails: bool) -> dict:
    """Megabytes that read_header needs for a large file, and what it did."""
    call = functools.partial(module.read_header, path)
    found, peak = python_peak_of(lambda: refused(call, []) if fails else _header(call()))
    return {"found": found, "MB": in_mb(peak)}


# --- 2.2 ---


def checked(found) -> dict:
    """A mapping of tensors, checked to be one, and to have memory."""
    right = isinstance(found, Mapping) and all(torch.is_tensor(t) for t in found.values())
    if not right:
        raise Unusable(f"it should return a dict of tensors, but returned {in_words(found)}")
    memory = _memory()
    for name, tensor in found.items():
        if tensor.numel() and not tensor.is_meta and _rights(tensor, memory) == "":
            raise Unusable(
                f"the memory of {name} is gone: its map was closed while the tensor uses it. "
                "Reading one number would end the process"
            )
    return dict(found)


def _memory() -> list | None:
    """(start, stop, rights) of all memory of this process, rights such as "rw-p".

    None where the system does not tell: there a wrong access ends the process without a word.
    """
    if sys.platform != "linux":
        return None
    found = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        place, rights, *_ = line.split(maxsplit=2)
        found.append((*(int(number, 16) for number in place.split("-")), rights))
    return found


def _rights(tensor, memory: list | None) -> str | None:
    """The rights of the memory that a tensor begins in; "" when there is none, None if unknown."""
    if memory is None:
        return None
    start = tensor.data_ptr()
    return next((rights for a, b, rights in memory if a <= start < b), "")


def plain(tensor) -> list:
    """[dtype, shape, its bytes]: some dtypes cannot travel as they are."""
    data = tensor.detach().contiguous().flatten().view(torch.uint8).clone()
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), data]


@told
def tensors(module, path: str, as_path: bool = False) -> list:
    """[name, dtype, shape, bytes] of each tensor of a file, in the order of the dict."""
    found = checked(module.read_safetensors(Path(path) if as_path else path))
    return [[name, *plain(tensor)] for name, tensor in found.items()]


@told
def addresses(module, path: str) -> list:
    """[name, bytes past a multiple of the dtype's size, bytes] of each tensor."""
    found = checked(module.read_safetensors(path))
    return [[n, t.data_ptr() % t.dtype.itemsize, plain(t)[2]] for n, t in found.items()]


@told
def one_outlives(module, path: str, name: str, delete: bool) -> list:
    """One tensor of a file after the others are gone, and where it can be, the file too."""
    kept = checked(module.read_safetensors(path))[name]
    if delete and os.name == "posix":  # elsewhere a mapped file cannot be deleted
        Path(path).unlink()
    return plain(kept)


@told
def spoilt(module, path: str) -> dict:
    """Write to every tensor of a file: what is in the file, and what a second reading gives."""
    before = Path(path).read_bytes()
    found = checked(module.read_safetensors(path))
    _require_writable(found)
    for number, tensor in enumerate(found.values()):
        tensor.view(-1).view(torch.uint8).fill_(number + 1)  # view(-1) never copies
    kept = {name: plain(tensor)[2] for name, tensor in found.items()}
    again = {name: plain(t)[2] for name, t in checked(module.read_safetensors(path)).items()}
    del found
    return {"file is as before": Path(path).read_bytes() == before, "kept": kept, "again": again}


def _require_writable(found: dict) -> None:
    """Writing to memory that is only for reading would end the process without a word."""
    memory = _memory()
    for name, tensor in found.items():
        rights = _rights(tensor, memory) if tensor.numel() else None
        if rights is not None and "w" not in rights:
            raise Unusable(
                f"{name} lies in memory that is only for reading: the first write to it ends the "
                "process. Map the file privately (map_file does)"
            )


@told
def opening_memory(module, path: str) -> dict:
    """What a file costs when it is opened: see `_cost`."""
    return _cost(lambda: checked(module.read_safetensors(path)))


def _cost(call) -> dict:
    """Megabytes that Python and numpy allocate for a call, and those that become resident, to the
    nearest 16. Large tensors show in the latter.
    """
    call()  # once, for whatever is imported or made once
    give_back()
    process = psutil.Process()
    before = process.memory_info().rss
    kept = call()
    resident = process.memory_info().rss - before
    del kept
    _, peak = python_peak_of(call)
    return {"copied": in_mb(peak), "resident": 16 * in_mb(resident / 16)}


@told
def still_mapped(module, path: str) -> bool:
    """Whether a file is mapped more often than before when all its tensors are gone."""
    before = _maps_of(path)
    found = checked(module.read_safetensors(path))
    for tensor in found.values():
        tensor.sum()
    del found, tensor
    gc.collect()
    return _maps_of(path) > before


def _maps_of(path: str) -> int:
    """How often this process has a file mapped; 0 where the system does not tell."""
    maps = Path("/proc/self/maps")
    text = maps.read_text(encoding="utf-8") if maps.is_file() else ""
    return text.count(os.path.realpath(path))


# --- 2.5 ---


@told
def files(module, folder: str, as_path: bool = False) -> list:
    """weight_files of a folder as names, and whether each path lies in the folder."""
    found = module.weight_files(Path(folder) if as_path else folder)
    if not isinstance(found, list) or not all(isinstance(path, Path) for path in found):
        raise Unusable(
            f"weight_files should return a list of Paths, but returned {in_words(found)}"
        )
    return [[path.name, path.parent.samefile(folder)] for path in found]


@told
def checkpoint(module, folder: str) -> list:
    """[name, dtype, shape, bytes] of each tensor of a folder."""
    found = checked(module.read_checkpoint(folder))
    return [[name, *plain(tensor)] for name, tensor in found.items()]


@told
def checkpoint_memory(module, folder: str) -> dict:
    """What a folder costs when it is opened: see `_cost`."""
    return _cost(lambda: checked(module.read_checkpoint(folder)))
