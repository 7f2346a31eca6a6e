"""Chapter 02 beside the code under test: files opened, tensors spoilt and kept, bytes counted.

Every function takes the module under test first and returns plain data.
"""

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import torch

from solutions.config import Config
from tests.scenarios.helpers import Unusable, in_words, told
from tests.scenarios.memory import peak_of, python_peak_of

MB = 1_000_000


def config(sizes: dict) -> Config:
    """A Config of these sizes; what is not given is something plain."""
    plain = {
        "max_position_embeddings": 64,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "bos_token_id": None,
        "eos_token_ids": (),
    }
    return Config(**{**plain, **sizes})


def in_mb(size: float) -> int:
    """Whole megabytes: two programs that do the same shall be seen to do the same."""
    return round(size / MB)


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


def _header(found) -> dict:
    """A Header in plain words, whatever its containers are."""
    try:
        rows = [(e.name, e.dtype, tuple(e.shape), e.start, e.stop) for e in found.entries]
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


def _tensors(found) -> dict:
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


def _plain(tensor) -> list:
    """[dtype, shape, its bytes]: some dtypes cannot travel as they are."""
    data = tensor.detach().contiguous().flatten().view(torch.uint8).clone()
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), data]


@told
def tensors(module, path: str, as_path: bool = False) -> list:
    """[name, dtype, shape, bytes] of each tensor of a file, in the order of the dict."""
    found = _tensors(module.read_safetensors(Path(path) if as_path else path))
    return [[name, *_plain(tensor)] for name, tensor in found.items()]


@told
def addresses(module, path: str) -> list:
    """[name, bytes past a multiple of the dtype's size, bytes] of each tensor."""
    found = _tensors(module.read_safetensors(path))
    return [[n, t.data_ptr() % t.dtype.itemsize, _plain(t)[2]] for n, t in found.items()]


@told
def one_outlives(module, path: str, name: str, delete: bool) -> list:
    """One tensor of a file after the others are gone, and where it can be, the file too."""
    kept = _tensors(module.read_safetensors(path))[name]
    if delete and os.name == "posix":  # elsewhere a mapped file cannot be deleted
        Path(path).unlink()
    return _plain(kept)


@told
def spoilt(module, path: str) -> dict:
    """Write to every tensor of a file: what is in the file, and what a second reading gives."""
    before = Path(path).read_bytes()
    found = _tensors(module.read_safetensors(path))
    _require_writable(found)
    for number, tensor in enumerate(found.values()):
        tensor.view(-1).view(torch.uint8).fill_(number + 1)  # view(-1) never copies
    kept = {name: _plain(tensor)[2] for name, tensor in found.items()}
    again = {name: _plain(t)[2] for name, t in _tensors(module.read_safetensors(path)).items()}
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
    return _cost(lambda: _tensors(module.read_safetensors(path)))


def _cost(call) -> dict:
    """Megabytes that Python and numpy allocate for a call, and those that become resident, to the
    nearest 16. Large tensors show in the latter: memory for them is never kept back from before.
    """
    call()  # once, for whatever is imported or made once
    process = psutil.Process()
    before = process.memory_info().rss
    kept = call()
    resident = process.memory_info().rss - before
    del kept
    _, peak = python_peak_of(call)
    return {"copied": in_mb(peak), "resident": 16 * in_mb(resident / 16)}


# --- 2.3 ---


def config_of_folder(module, folder: str):
    """read_config of a folder; a Record of its fields."""
    return module.read_config(folder)


# --- 2.4 ---


def shapes(module, sizes: dict):
    """expected_tensors of a Config with these sizes."""
    return module.expected_tensors(config(sizes))


# --- 2.5 ---


@told
def files(module, folder: str, as_path: bool = False) -> list:
    """weight_files of a folder as names, with the folder that each lies in."""
    found = module.weight_files(Path(folder) if as_path else folder)
    if not isinstance(found, list) or not all(isinstance(path, Path) for path in found):
        raise Unusable(
            f"weight_files should return a list of Paths, but returned {in_words(found)}"
        )
    return [[path.name, str(path.parent)] for path in found]


@told
def checkpoint(module, folder: str) -> list:
    """[name, dtype, shape, bytes] of each tensor of a folder."""
    found = _tensors(module.read_checkpoint(folder))
    return [[name, *_plain(tensor)] for name, tensor in found.items()]


@told
def checkpoint_memory(module, folder: str) -> dict:
    """What a folder costs when it is opened: see `_cost`."""
    return _cost(lambda: _tensors(module.read_checkpoint(folder)))


# --- 2.6 ---


@told
def matched(module, found: dict, sizes: dict) -> list:
    """[name, whether it is the very tensor that was given] of each; the mapping must stay."""
    before = list(found)
    given = {name: id(tensor) for name, tensor in found.items()}
    matched = _tensors(module.match_tensors(found, config(sizes)))
    if list(found) != before:
        raise Unusable("match_tensors changed the mapping that it was given")
    return [[name, given.get(name) == id(tensor)] for name, tensor in matched.items()]


@told
def report(module, found: dict, sizes: dict) -> list:
    """The lines of match_tensors' ValueError, stripped."""
    try:
        module.match_tensors(found, config(sizes))
    except ValueError as error:
        return [" ".join(line.split()) for line in str(error).splitlines()]
    raise Unusable("match_tensors raised nothing, expected ValueError")


# --- 2.7 ---


def _loaded(found) -> tuple[dict, dict]:
    """(weights, stages) of a LoadedModel."""
    try:
        return _tensors(found.weights), {str(k): float(v) for k, v in found.stages.items()}
    except (AttributeError, TypeError, ValueError) as problem:
        raise Unusable(
            f"load_model should return a LoadedModel, but returned {in_words(found)} ({problem})"
        ) from None


@told
def load(module, folder: str, dtype: str | None, as_path: bool = False) -> dict:
    """A model in a dtype: [name, dtype, shape, bytes] of its weights, config, names of stages."""
    folder = Path(folder) if as_path else folder
    args = () if dtype is None else (getattr(torch, dtype),)
    found = module.load_model(folder, *args)
    weights, stages = _loaded(found)
    rows = [[name, *_plain(tensor)] for name, tensor in weights.items()]
    return {"weights": rows, "config": found.config, "stages": sorted(stages)}


@told
def load_devices(module, folder: str, device: str) -> list:
    """The devices and dtypes of a model's weights after loading it to `device`, in float16."""
    weights, _ = _loaded(module.load_model(folder, torch.float16, device))
    return sorted({(t.device.type, str(t.dtype).removeprefix("torch.")) for t in weights.values()})


@told
def load_progress(module, folder: str, dtype: str) -> dict:
    """What progress is told, with stages by a clock that only progress moves, by 1 s a call."""
    told_of, now = [], [100.0]

    def progress(done, total):
        told_of.append([int(done), int(total)])
        now[0] += 1.0

    loaded = module.load_model(
        folder, getattr(torch, dtype), "cpu", clock=lambda: now[0], progress=progress
    )
    return {"told": told_of, "stages": _loaded(loaded)[1]}


@told
def load_clock(module, folder: str, steps: list) -> dict:
    """Stages by a clock that goes on by these seconds in turn; and its first and last reading."""
    readings = []

    def clock():
        step = steps[len(readings) % len(steps)]
        readings.append((readings[-1] if readings else 0.0) + step)
        return readings[-1]

    stages = _loaded(module.load_model(folder, clock=clock))[1]
    return {"stages": stages, "first": readings[0], "last": readings[-1]}


@told
def load_resident(module, folder: str) -> dict:
    """How much became resident, as parts of the model: by stages (resident memory is the clock),
    in all, and at the first use. To the nearest half, because the system counts in its own way.
    """
    process = psutil.Process()

    def resident() -> float:
        return float(process.memory_info().rss)

    before = resident()
    weights, stages = _loaded(module.load_model(folder, torch.float32, clock=resident))
    size, after = sum(tensor.nbytes for tensor in weights.values()), resident()
    for tensor in weights.values():
        tensor.flatten().view(torch.uint8)[::4096].sum()
    parts = {"in all": after - before, "when used": resident() - after, **stages}
    return {name: round(2 * part / size) / 2 for name, part in parts.items()}


@told
def load_memory(module, folder: str, dtype: str) -> dict:
    """Megabytes alive at the peak of load_model, and those of what it returns."""
    loaded, peak = peak_of(lambda: module.load_model(folder, getattr(torch, dtype)))
    weights, _ = _loaded(loaded)
    return {"peak": in_mb(peak.total), "result": in_mb(sum(t.nbytes for t in weights.values()))}


def load_failures(module, calls: list) -> list:
    """Calls of load_model that should fail: [folder, dtype, what the message must name] each."""
    load = module.load_model
    return [
        refused(functools.partial(load, folder, getattr(torch, dtype)), names)
        for folder, dtype, names in calls
    ]
