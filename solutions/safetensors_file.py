"""Chapter 02: a .safetensors file, which is a length, a JSON header, then the numbers.

The header is believed only after every number in it has been held against the size of the file.
After that nothing is copied: a tensor is a view of the mapped file, and its pages are read from
disk when arithmetic first touches them.

Source: https://github.com/huggingface/safetensors#format
"""

import math
import mmap
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solutions.config import is_int, json_object

MAX_HEADER = 100_000_000  # bytes, the limit of the format
MAX_DIMENSIONS = 64  # torch's own limit; a product of millions of sizes would take for ever
MAP_NORESERVE = 0x4000  # Linux, mmap(2); the mmap module of Python 3.11 does not name it
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True)
class Entry:
    """One tensor of a header."""

    name: str
    dtype: str  # a key of DTYPES
    shape: tuple[int, ...]
    start: int  # bytes, counted from where the data begins
    stop: int  # the byte after its last


@dataclass(frozen=True)
class Header:
    """What a file says about itself, checked."""

    entries: tuple[Entry, ...]  # in the order of their bytes
    metadata: dict[str, str]
    base: int  # the byte of the file at which the data begins


def read_header(path: str | Path) -> Header:
    """The header of a .safetensors file, refused unless it accounts for every byte.

    A file is 8 bytes N (little-endian, unsigned), N bytes of a JSON object in UTF-8, then the data.
    The object maps each tensor's name to {"dtype", "shape", "data_offsets": [start, stop]}; the
    name "__metadata__" is kept for an object of strings. Other keys of an entry mean nothing.

    Args:
        path: of the file. Of its data nothing is read.

    Returns:
        A Header, its entries sorted by start, and by stop where the starts are equal; metadata is
        {} where there is none.

    Errors: FileNotFoundError where there is no file. ValueError, naming the path and what is wrong:
    - N is more than MAX_HEADER or reaches past the end of the file (nothing is read or allocated
      then), or the file has fewer than 8 bytes;
    - the N bytes are not a JSON object in UTF-8, or have a name twice (`json_object` says so);
    - metadata is not an object whose values are all strings;
    - an entry is not an object, its dtype is not in DTYPES (the message has the tensor's name and
      the dtype), or its shape and data_offsets are not lists of integers from 0 to 2**63 - 1, the
      shape of at most MAX_DIMENSIONS and data_offsets of two (True is no integer);
    - stop - start is not the size of that dtype times all of the shape;
    - a byte of the data belongs to two tensors or to none, or the data ends before or after
      the last tensor does.
    """
    # exercise 2.1
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing, or no file")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            raise ValueError(
                f"{path}: a header of {length} bytes does not fit a file of {size}; "
                "it is truncated or no safetensors file. Fetch it again."
            )
        raw = json_object(file.read(length), f"the header of {path}")
    try:
        metadata = _metadata(raw.pop("__metadata__", {}))
        entries = sorted((_entry(*pair) for pair in raw.items()), key=lambda e: (e.start, e.stop))
        _check_coverage(entries, size - 8 - length)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return Header(tuple(entries), metadata, 8 + length)


def _metadata(value: Any) -> dict[str, str]:
    """Free text about the file: a version, a format."""
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError(f"__metadata__ must be an object of strings, not {value!r:.80}")
    return value


def _entry(name: str, value: Any) -> Entry:
    """One entry, believed only if dtype, shape and offsets agree."""
    if not isinstance(value, dict):
        raise ValueError(f"the entry of {name} is not an object")
    dtype, shape, offsets = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{name} has dtype {dtype!r:.40}; known are {', '.join(DTYPES)}")
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"{name} has shape {shape!r:.80} and data_offsets {offsets!r:.80}")
    start, stop = offsets
    if stop - start != math.prod(shape) * DTYPES[dtype].itemsize:
        raise ValueError(
            f"{name}: {dtype} of shape {shape!r:.80} does not fill data_offsets {offsets!r:.80}"
        )
    if math.prod(size or 1 for size in shape) * DTYPES[dtype].itemsize >= 2**63:  # empty, but wide
        raise ValueError(f"{name}: torch has no tensor of shape {shape!r:.80}")
    return Entry(name, dtype, tuple(shape), start, stop)


def _are_counts(values: object) -> bool:
    """Whether this is a list, not a long one, of integers from zero up."""
    if not isinstance(values, list) or len(values) > MAX_DIMENSIONS:
        return False
    return all(is_int(value) and 0 <= value < 2**63 for value in values)


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


def read_safetensors(path: str | Path) -> dict[str, Tensor]:
    """Every tensor of a file as a view of the mapped bytes, in the dtype it is stored in.

    Nothing is read but the header: opening a file of any size takes next to no time and memory.

    Args:
        path: of the file.

    Returns:
        {name: tensor} in the order of the bytes, each in its shape, one without numbers too (which
        torch.frombuffer cannot make). A tensor goes on being good after this function
        has returned, and when the others are gone or the file has been deleted; with the last of
        them goes the map. Writing to one is allowed and never reaches the file. Every tensor starts
        at an address that is a multiple of its dtype's size: only those that do not in the file are
        copied.

    Errors: those of `read_header`, before any tensor is made.
    """
    # exercise 2.2
    header = read_header(path)
    if not header.entries:
        return {}
    data = map_file(path)
    return {entry.name: _view(data, header.base, entry) for entry in header.entries}


def map_file(path: str | Path) -> mmap.mmap:
    """The file as private memory: pages come from disk when touched, and go nowhere if written.

    The map is closed when the last object that uses it is gone; the file itself need not stay open.
    Linux sets memory aside for every page that could be written, and so refuses a file larger
    than the machine's memory, unless told not to reserve any.

    Errors: ValueError for an empty file, of which there is nothing to map.
    """
    with Path(path).open("rb") as file:
        if sys.platform != "linux":
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        return mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE | MAP_NORESERVE, protection)


def _view(data: mmap.mmap, base: int, entry: Entry) -> Tensor:
    """A tensor on the mapped bytes; only one that is empty or misaligned gets its own memory.

    The tensor holds on to the buffer that it was made from, and so the map stays.
    """
    dtype, start, count = DTYPES[entry.dtype], base + entry.start, math.prod(entry.shape)
    if count == 0:
        return torch.empty(entry.shape, dtype=dtype)
    if start % dtype.itemsize:
        data, start = bytearray(data[start : base + entry.stop]), 0
    return torch.frombuffer(data, dtype=dtype, count=count, offset=start).view(entry.shape)
