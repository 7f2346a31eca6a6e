"""Chapter 02: from a folder on disk to a configuration and named tensors.

A Hugging Face checkpoint is config.json (the sizes), one or more .safetensors files (the numbers)
and an index when there are several. Nothing is copied on the way: a tensor is a view of the mapped
file, and its pages are read from disk when arithmetic first touches them.
"""

import math
import mmap
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solutions.config import Config, is_int, json_file, json_object, read_config

__all__ = [
    "Config",
    "expected_tensors",
    "load_weights",
    "read_config",
    "read_safetensors",
    "stored_tensors",
    "weight_files",
]

MAX_HEADER = 100_000_000  # bytes, the limit of the format
DERIVED = "rotary_emb.inv_freq"  # in old checkpoints; computed from rope_theta instead
MAP_NORESERVE = 0x4000  # Linux, mmap(2); the mmap module of Python 3.11 does not name it
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


# ---- .safetensors: 8 bytes of length, a JSON header, then the data ----


@dataclass(frozen=True)
class Entry:
    """One tensor of the header; `start` and `stop` are bytes from the beginning of the data."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


def read_safetensors(path: str | Path) -> dict[str, Tensor]:
    """Every tensor of a file as a view of the mapped bytes, in the dtype it is stored in.

    Writing to such a tensor never reaches the file. The header is checked against the size of the
    file first: mapped bytes beyond the end would read as zeros, or stop the process.
    Raises ValueError, naming the file and the lie, before any tensor is made.

    Source: https://github.com/huggingface/safetensors#format
    """
    path = Path(path)
    header, base = _read_header(path)
    entries = _entries(header, path.stat().st_size - base, path)
    if not entries:
        return {}
    data = _map(path)
    return {entry.name: _view(data, base, entry) for entry in entries}


def _map(path: Path) -> mmap.mmap:
    """The file as private memory: pages come from disk when touched, and go nowhere if written.

    Linux sets memory aside for every page that could be written, and so refuses a file larger
    than the machine's memory, unless told not to reserve any.
    """
    with path.open("rb") as file:
        if sys.platform != "linux":
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        return mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE | MAP_NORESERVE, protection)


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and where the data begins. The length is believed only if it fits the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            raise ValueError(
                f"{path}: a header of {length} bytes does not fit a file of {size}; "
                "it is truncated or no safetensors file. Fetch it again."
            )
        return json_object(file.read(length), f"the header of {path}"), 8 + length


def _entries(header: dict[str, Any], size: int, path: Path) -> list[Entry]:
    """Header entries in the order of their bytes, which must cover the data exactly once."""
    named = [(name, value) for name, value in header.items() if name != "__metadata__"]
    try:
        entries = sorted((_entry(*pair) for pair in named), key=lambda e: (e.start, e.stop))
        _check_coverage(entries, size)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return entries


def _entry(name: str, value: Any) -> Entry:
    """One entry, believed only if dtype, shape and offsets agree."""
    if not isinstance(value, dict):
        raise ValueError(f"the entry of {name} is not an object")
    dtype, shape, offsets = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{name} has dtype {dtype!r}; known are {', '.join(DTYPES)}")
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"{name} has shape {shape!r} and data_offsets {offsets!r}")
    entry = Entry(name, DTYPES[dtype], tuple(shape), *offsets)
    if entry.stop - entry.start != math.prod(shape) * entry.dtype.itemsize:
        raise ValueError(f"{name}: {dtype} of shape {shape} does not fill data_offsets {offsets}")
    return entry


def _are_counts(values: object) -> bool:
    """Whether this is a list of integers from zero up."""
    return isinstance(values, list) and all(is_int(v) and v >= 0 for v in values)


def _check_coverage(entries: list[Entry], size: int) -> None:
    """No byte belongs to two tensors or to none, and the last one ends with the file."""
    end = 0
    for entry in entries:
        if entry.start != end:
            what = "overlaps the tensor before it" if entry.start < end else "leaves a hole"
            raise ValueError(f"{entry.name} starts at byte {entry.start}, not {end}: it {what}")
        end = entry.stop
    if end != size:
        raise ValueError(
            f"the header describes {end} bytes of data, the file holds {size}; "
            "it is truncated or damaged. Fetch it again."
        )


def _view(data: mmap.mmap, base: int, entry: Entry) -> Tensor:
    """A tensor on the mapped bytes; only one that is empty or misaligned gets its own memory."""
    start, count = base + entry.start, math.prod(entry.shape)
    if count == 0:
        return torch.empty(entry.shape, dtype=entry.dtype)
    if start % entry.dtype.itemsize:
        data, start = bytearray(data[start : base + entry.stop]), 0
    return torch.frombuffer(data, dtype=entry.dtype, count=count, offset=start).view(entry.shape)


# ---- The folder: which tensors there must be, and all of them at once ----


def expected_tensors(config: Config) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor of a Llama model; weights are [out, in].

    A tied head is the embedding itself, so it is not in the list.
    """
    shapes = {"model.embed_tokens.weight": (config.vocab_size, config.hidden_size)}
    for layer in range(config.num_hidden_layers):
        for name, shape in _layer_tensors(config).items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    shapes["model.norm.weight"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    return shapes


def _layer_tensors(config: Config) -> dict[str, tuple[int, ...]]:
    """The nine tensors of one layer, in the order in which they are used."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    shared = config.num_key_value_heads * config.head_dim
    return {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (shared, hidden),
        "self_attn.v_proj": (shared, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }


def load_weights(
    folder: str | Path,
    config: Config,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> dict[str, Tensor]:
    """The tensors of `expected_tensors`, in one dtype on one device.

    Weights already in `dtype` on the CPU stay views of the file: nothing is read until it is used.
    Raises what `stored_tensors` raises.
    """
    stored = stored_tensors(folder, config)
    return {name: tensor.to(device, dtype) for name, tensor in stored.items()}


def stored_tensors(folder: str | Path, config: Config) -> dict[str, Tensor]:
    """The tensors of `expected_tensors` as they are stored: checked, but not yet read.

    A head that is tied and in the file all the same is dropped, since the embedding serves.
    Raises FileNotFoundError naming every missing file, or ValueError with one report of
    everything missing, unexpected and misshapen.
    """
    expected = expected_tensors(config)
    found = _merge(weight_files(folder))
    if config.tie_word_embeddings:
        found.pop("lm_head.weight", None)
    found = {name: tensor for name, tensor in found.items() if not name.endswith(DERIVED)}
    _check_tensors(found, expected, folder)
    return {name: found[name] for name in expected}


def weight_files(folder: str | Path) -> list[Path]:
    """The one file of weights, or every shard that the index names."""
    folder = Path(folder)
    if not (folder / INDEX).is_file():
        paths = [folder / SINGLE]
    else:
        paths = [folder / name for name in _shard_names(folder / INDEX)]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}. Fetch the model again.")
    return paths


def _merge(paths: list[Path]) -> dict[str, Tensor]:
    """The tensors of every file. Two of one name would leave the choice to chance."""
    found: dict[str, Tensor] = {}
    for path in paths:
        tensors = read_safetensors(path)
        if twice := sorted(tensors.keys() & found.keys()):
            raise ValueError(f"{path} holds {', '.join(twice)}, which another shard holds too")
        found |= tensors
    return found


def _shard_names(index: Path) -> list[str]:
    """The files in an index, each once. A name with a folder in it could point anywhere."""
    shards = json_file(index).get("weight_map")
    names = shards.values() if isinstance(shards, dict) else []
    if not names or not all(isinstance(n, str) and Path(n).name == n for n in names):
        raise ValueError(f"{index}: weight_map must map tensor names to names of files beside it")
    return sorted(set(names))


def _check_tensors(
    found: dict[str, Tensor], expected: dict[str, tuple[int, ...]], folder: str | Path
) -> None:
    """One report of everything that is wrong, because fixing it one error at a time is slow."""
    problems = [f"missing: {name}" for name in expected if name not in found]
    problems += [f"unexpected: {name}" for name in found if name not in expected]
    for name in expected.keys() & found.keys():
        shape, tensor = expected[name], found[name]
        if tuple(tensor.shape) != shape:
            problems.append(f"misshapen: {name} is {tuple(tensor.shape)}, expected {shape}")
        elif not tensor.is_floating_point():
            problems.append(f"not floating point: {name} is {tensor.dtype}")
    if problems:
        lines = "\n  ".join(sorted(problems))
        raise ValueError(f"{folder} does not fit its config.json:\n  {lines}")
