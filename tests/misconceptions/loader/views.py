"""Wrong versions of 2.2 read_safetensors."""

import math
import mmap
import sys
from pathlib import Path

import torch

from course.misconceptions import misconception
from solutions.safetensors_file import DTYPES, _view, map_file, read_header


@misconception("2.2", "read_safetensors")
def whole_file_read(path):
    """You read the whole file into memory. A map costs nothing until its pages are used, and the
    system can drop them again: see map_file.
    """
    header, data = read_header(path), bytearray(Path(path).read_bytes())
    return {entry.name: _view(data, header.base, entry) for entry in header.entries}


@misconception("2.2", "_view")
def sliced_first(data, base, entry):
    """You slice the map and make a tensor of the slice. Slicing a map copies: give torch.frombuffer
    the whole map, with offset and count.
    """
    count = math.prod(entry.shape)
    if count == 0:
        return torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
    part = bytearray(data[base + entry.start : base + entry.stop])
    return torch.frombuffer(part, dtype=DTYPES[entry.dtype]).view(entry.shape)


@misconception("2.2", "_view")
def offset_without_base(data, base, entry):
    """You count the offsets from the beginning of the file. They begin where the data does: behind
    the eight bytes and the header.
    """
    dtype, count = DTYPES[entry.dtype], math.prod(entry.shape)
    if count == 0:
        return torch.empty(entry.shape, dtype=dtype)
    part = bytearray(data[entry.start : entry.stop]) if entry.start % dtype.itemsize else data
    offset = 0 if entry.start % dtype.itemsize else entry.start
    return torch.frombuffer(part, dtype=dtype, count=count, offset=offset).view(entry.shape)


@misconception("2.2", "_view")
def misaligned(data, base, entry):
    """You make every tensor a view, also one whose address is no multiple of its dtype's size. Some
    processors refuse to read it and kernels may assume that it never happens: copy those few.
    """
    dtype, count = DTYPES[entry.dtype], math.prod(entry.shape)
    if count == 0:
        return torch.empty(entry.shape, dtype=dtype)
    start = base + entry.start
    return torch.frombuffer(data, dtype=dtype, count=count, offset=start).view(entry.shape)


@misconception("2.2", "_view")
def emptiness_forgotten(data, base, entry):
    """You call torch.frombuffer for a tensor without numbers, which it refuses. Such a tensor still
    has a shape, such as (0, 7): make it with torch.empty.
    """
    dtype, start = DTYPES[entry.dtype], base + entry.start
    if start % dtype.itemsize:
        data, start = bytearray(data[start : base + entry.stop]), 0
    count = math.prod(entry.shape)
    return torch.frombuffer(data, dtype=dtype, count=count, offset=start).view(entry.shape)


@misconception("2.2", "_view")
def shape_of_a_list(data, base, entry):
    """You give back the numbers as one long row: give each tensor its shape with view. A scalar
    has the shape (), not (1,).
    """
    dtype, start, count = DTYPES[entry.dtype], base + entry.start, math.prod(entry.shape)
    if count == 0:
        return torch.empty(0, dtype=dtype)
    if start % dtype.itemsize:
        data, start = bytearray(data[start : base + entry.stop]), 0
    return torch.frombuffer(data, dtype=dtype, count=count, offset=start)


@misconception("2.2", "read_safetensors")
def shared_map(path):
    """Your map is shared: what is written to a tensor is written to the file, and the model on the
    disk is another one from then on. Map it privately, as map_file does.
    """
    header = read_header(path)
    if not header.entries:
        return {}
    with Path(path).open("r+b") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE)
    return {entry.name: _view(data, header.base, entry) for entry in header.entries}


if sys.platform == "linux":  # elsewhere nothing sees it before it ends the process

    @misconception("2.2", "read_safetensors")
    def map_closed(path):
        """You close the map when the function ends (`with` does that), while tensors still use it.
        torch does not prevent it, and the first number that is read ends the process. Let the map
        go instead: each tensor holds it, and it is closed when the last of them is gone.
        """
        header = read_header(path)
        if not header.entries:
            return {}
        with map_file(path) as data:
            return {entry.name: _view(data, header.base, entry) for entry in header.entries}
