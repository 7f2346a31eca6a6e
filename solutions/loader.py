"""Chapter 02: from a folder on disk to a model in memory, timed stage by stage.

The files are described by config.py and safetensors_file.py, the folder by checkpoint.py. Here its
tensors are read, converted and moved, one at a time, so that next to the result only one is alive.
"""

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from solutions.checkpoint import INDEX, SINGLE, expected_tensors, stored_tensors, weight_files
from solutions.config import Config, read_config
from solutions.safetensors_file import read_safetensors

__all__ = [
    "INDEX",
    "SINGLE",
    "STAGES",
    "Config",
    "LoadedModel",
    "expected_tensors",
    "load_model",
    "load_weights",
    "read_config",
    "read_safetensors",
    "stored_tensors",
    "weight_files",
]

STAGES = ("config", "instantiate", "read", "move")


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, and what it cost to get it there."""

    config: Config
    weights: dict[str, Tensor]  # the tensors of `expected_tensors`, in that order
    stages: dict[str, float]  # seconds, one entry for each of STAGES


def load_model(
    folder: str | Path,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[int, int], object] | None = None,
) -> LoadedModel:
    """Load a checkpoint in four stages, each of them timed:

    config       read and check config.json;
    instantiate  open the files, and find every tensor that the config asks for, its shape checked;
    read         bring the bytes of each tensor from the disk into memory;
    move         convert it to `dtype`, put it on `device`, report progress.

    A mapped tensor is in memory only once its pages have been touched: without that, `read` would
    take no time at all, and the first token would pay for it.

    The last two stages alternate, tensor by tensor: a page is used soon after it was read. Where
    memory is short, the system drops pages that wait, and they would be read twice. Memory never
    holds more than the result, the bytes of the files, and one more tensor; a tensor that is stored
    in `dtype` and stays on the CPU may remain a view of the mapped file.

    Args:
        folder: of the checkpoint.
        dtype: of all weights afterwards; any floating dtype.
        device: where they are afterwards.
        clock: gives seconds; only differences are used. Everything between the first and the last
            call of it belongs to exactly one stage.
        progress: called as progress(done, total) when a tensor is where it shall be, once for each:
            bytes, as they are stored in the files, so that the last call has done == total.
            What it takes counts as "move".

    Returns:
        LoadedModel(config, weights, stages).

    Errors: ValueError, before anything is read, when dtype is not a floating one, naming it; those
    of `read_config` and `stored_tensors`.
    """
    # exercise 2.7
    if not dtype.is_floating_point:
        raise ValueError(f"weights are floating-point numbers; {dtype} is not")
    laps = _Laps(clock)
    config = read_config(folder)
    laps.end("config")
    stored = stored_tensors(folder, config)
    laps.end("instantiate")
    total, done = sum(tensor.nbytes for tensor in stored.values()), 0
    weights = {}
    for name in list(stored):
        tensor = stored.pop(name)
        _touch(tensor)
        laps.end("read")
        weights[name] = tensor.to(device, dtype)
        done += tensor.nbytes
        if progress:
            progress(done, total)
        laps.end("move")
    return LoadedModel(config, weights, laps.seconds)


class _Laps:
    """A stopwatch that never stops: the end of one stage is the beginning of the next."""

    def __init__(self, clock: Callable[[], float]):
        self.clock, self.seconds, self.last = clock, dict.fromkeys(STAGES, 0.0), clock()

    def end(self, stage: str) -> None:
        """All seconds since the last call belong to this stage."""
        now = self.clock()
        self.seconds[stage] += now - self.last
        self.last = now


def _touch(tensor: Tensor) -> None:
    """Look at one byte of each page, so that the system reads them all from the disk."""
    data = tensor.flatten().view(torch.uint8)
    data[:: mmap.PAGESIZE].sum(), data[-1:].sum()


def load_weights(
    folder: str | Path,
    config: Config,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> dict[str, Tensor]:
    """The tensors of `expected_tensors`, in one dtype on one device, not read before they are used.

    Weights already in `dtype` on the CPU stay views of the file.
    Raises what `stored_tensors` raises.
    """
    stored = stored_tensors(folder, config)
    return {name: tensor.to(device, dtype) for name, tensor in stored.items()}
