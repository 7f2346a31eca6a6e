"""Chapter 02 beside the code under test, its models: configs, reports, and loads by odd clocks.

Every scenario takes the module under test first and returns plain data.
"""

import copy
import functools
import gc
from pathlib import Path

import psutil
import torch

from tests.scenarios.helpers import Unusable, in_words, told
from tests.scenarios.loader_files import checked, give_back, in_mb, plain, refused
from tests.scenarios.memory import peak_of


def config(module, sizes: dict):
    """A Config of these sizes; what is not given is something plain.

    The module's own, which every notebook provides: where answers are graded, the solutions of
    their chapter are not to be had.
    """
    rest = {
        "max_position_embeddings": 64,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "bos_token_id": None,
        "eos_token_ids": (),
    }
    return module.Config(**{**rest, **sizes})


# --- 2.3 ---


@told
def only_reads(module, raw: dict, generation: dict) -> bool:
    """Call all four functions with copies, which must stay as they are."""
    for name, args in (
        ("check_architecture", [raw]),
        ("head_sizes", [raw]),
        ("rope_base", [raw]),
        ("end_tokens", [raw, generation]),
    ):
        given = copy.deepcopy(args)
        getattr(module, name)(*given)
        changed = [
            f"{key!r} was {old.get(key)!r} and is {new[key]!r}"
            if key in new
            else f"{key!r} is gone"
            for old, new in zip(args, given, strict=True)
            for key in {**old, **new}
            if (key in old, old.get(key)) != (key in new, new.get(key))
        ]
        if changed:
            raise Unusable(f"{name} changed the config that it was given: {changed[0]}")
    return True


def config_of_folder(module, folder: str):
    """read_config of a folder; a Record of its fields."""
    return module.read_config(folder)


# --- 2.4 ---


def shapes(module, sizes: dict):
    """expected_tensors of a Config with these sizes."""
    return module.expected_tensors(config(module, sizes))


# --- 2.6 ---


@told
def matched(module, found: dict, sizes: dict) -> list:
    """[name, whether it is the very tensor that was given] of each; what was given must stay."""
    before = {name: tensor.clone() for name, tensor in found.items()}
    given = {name: id(tensor) for name, tensor in found.items()}
    matched = checked(module.match_tensors(found, config(module, sizes)))
    if list(found) != list(before):
        raise Unusable("match_tensors changed the mapping that it was given")
    changed = [name for name, tensor in found.items() if not tensor.equal(before[name])]
    if changed:
        raise Unusable(f"match_tensors changed the numbers of {changed[0]}")
    return [[name, given.get(name) == id(tensor)] for name, tensor in matched.items()]


@told
def matched_without_numbers(module, rows: dict, sizes: dict) -> list:
    """The names from match_tensors for tensors of {name: [shape, dtype]} on the meta device."""
    found = {
        name: torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
        for name, (shape, dtype) in rows.items()
    }
    try:
        return list(checked(module.match_tensors(found, config(module, sizes))))
    except RuntimeError as error:  # torch's word for a number that is not there
        if "meta" not in str(error):
            raise
        raise Unusable(
            "match_tensors wanted to see the numbers of a tensor. Names, shapes and dtypes are "
            f"enough; numbers would have to be read from the disk ({error})"
        ) from None


@told
def report(module, found: dict, sizes: dict) -> list:
    """The lines of match_tensors' ValueError, stripped."""
    try:
        module.match_tensors(found, config(module, sizes))
    except ValueError as error:
        text = str(error)
        if len(text) > 100_000:
            raise Unusable(f"the message of the ValueError has {len(text):,} characters") from None
        return [" ".join(line.split()) for line in text.splitlines()]
    raise Unusable("match_tensors raised nothing, expected ValueError")


# --- 2.7 ---


def _loaded(found) -> tuple[dict, dict]:
    """(weights, stages) of a LoadedModel."""
    try:
        return checked(found.weights), {str(k): float(v) for k, v in found.stages.items()}
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
    rows = [[name, *plain(tensor)] for name, tensor in weights.items()]
    return {"weights": rows, "config": found.config, "stages": sorted(stages)}


@told
def load_devices(module, folder: str, dtype: str, device: str, as_name: bool) -> list:
    """The devices and dtypes of a model's weights after loading it to `device` in `dtype`."""
    place = device if as_name else torch.device(device)
    weights, _ = _loaded(module.load_model(folder, getattr(torch, dtype), place))
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
def load_step_by_step(module, folder: str) -> list:
    """At each call of progress, loading to float64: how many such tensors there are, and how often
    the clock has been read.
    """
    rows, readings = [], []

    def progress(done, total):
        new = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor)]
        rows.append([sum(t.dtype == torch.float64 for t in new), len(readings)])

    def clock():
        readings.append(float(len(readings)))
        return readings[-1]

    gc.collect()
    gc.freeze()  # what was there before is not among get_objects()
    try:
        _loaded(module.load_model(folder, torch.float64, "cpu", clock=clock, progress=progress))
    finally:
        gc.unfreeze()
    return rows


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

    give_back()
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
