"""Wrong versions of 2.1 read_header."""

import json
from pathlib import Path

from course.misconceptions import misconception
from solutions.config import json_object
from solutions.safetensors_file import (
    DTYPES,
    MAX_HEADER,
    Entry,
    Header,
    _are_counts,
    _check_coverage,
    _entry,
    _metadata,
)


@misconception("2.1", "read_header")
def length_believed(path):
    """You read as many bytes as the first eight say, before you have held that number against
    anything. A damaged file then asks for 2**60 bytes, or for all the memory there is: compare it
    with the size of the file and with MAX_HEADER first.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        raw = json_object(file.read(length), f"the header of {path}")
    try:
        metadata = _metadata(raw.pop("__metadata__", {}))
        entries = sorted((_entry(*pair) for pair in raw.items()), key=lambda e: (e.start, e.stop))
        _check_coverage(entries, path.stat().st_size - 8 - length)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return Header(tuple(entries), metadata, 8 + length)


@misconception("2.1", "read_header")
def length_without_maximum(path):
    """You compare the length with the size of the file only. A file of 150 MB that is nothing but
    header is still read and parsed: MAX_HEADER is the second bound.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise ValueError(f"{path}: a header of {length} bytes in a file of {size}")
        raw = json_object(file.read(length), f"the header of {path}")
    try:
        metadata = _metadata(raw.pop("__metadata__", {}))
        entries = sorted((_entry(*pair) for pair in raw.items()), key=lambda e: (e.start, e.stop))
        _check_coverage(entries, size - 8 - length)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return Header(tuple(entries), metadata, 8 + length)


@misconception("2.1", "read_header")
def length_big_endian(path):
    """You read the length with its most significant byte first. The format is little-endian: the
    first byte is the smallest part.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "big")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            raise ValueError(f"{path}: a header of {length} bytes in a file of {size}")
        raw = json_object(file.read(length), f"the header of {path}")
    entries = [_entry(*pair) for pair in raw.items() if pair[0] != "__metadata__"]
    return Header(tuple(entries), raw.get("__metadata__", {}), 8 + length)


@misconception("2.1", "read_header")
def json_without_suspicion(path):
    """You parse the header with json.loads alone. Of a name that is there twice Python keeps the
    last and another program the first: json_object refuses it.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            raise ValueError(f"{path}: a header of {length} bytes in a file of {size}")
        try:
            raw = json.loads(file.read(length).decode("utf-8"))
        except (ValueError, RecursionError) as problem:
            raise ValueError(f"{path}: {problem}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: the header is not an object")
    try:
        metadata = _metadata(raw.pop("__metadata__", {}))
        entries = sorted((_entry(*pair) for pair in raw.items()), key=lambda e: (e.start, e.stop))
        _check_coverage(entries, size - 8 - length)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return Header(tuple(entries), metadata, 8 + length)


@misconception("2.1", "_metadata")
def metadata_believed(value):
    """You take the metadata as it is. It must be an object whose values are all strings: whoever
    reads a version out of it later would stumble over a list.
    """
    return value


@misconception("2.1", "_are_counts")
def true_is_an_integer(values):
    """You ask isinstance(value, int), and to Python True is an int: a shape of [true] would be a
    shape of [1]. Use is_int.
    """
    if not isinstance(values, list) or len(values) > 64:
        return False
    return all(isinstance(value, int) and 0 <= value < 2**63 for value in values)


@misconception("2.1", "_check_coverage")
def order_of_the_json(entries, size):
    """You compare neighbours in the order of the JSON, where any order is allowed, or leave the
    entries in it. Sort them by start, then by stop.
    """
    end = 0
    for entry in sorted(entries, key=lambda e: e.name):
        if entry.start != end:
            raise ValueError(f"{entry.name} starts at byte {entry.start}, not {end}")
        end = entry.stop
    if end != size:
        raise ValueError(f"the header describes {end} bytes of data, the file holds {size}")


@misconception("2.1", "_check_coverage")
def only_the_end_checked(entries, size):
    """You compare the last byte of the last tensor with the end of the file, and nothing before it:
    tensors may then overlap, and bytes may belong to none.
    """
    end = max((entry.stop for entry in entries), default=0)
    if end != size:
        raise ValueError(f"the header describes {end} bytes of data, the file holds {size}")


@misconception("2.1", "_check_coverage")
def only_the_sum_checked(entries, size):
    """You add up the sizes of all tensors and compare the sum with the data. A hole is then made
    good by an overlap elsewhere: walk along the bytes, from one tensor to the next.
    """
    total = sum(entry.stop - entry.start for entry in entries)
    if total != size or any(entry.stop > size for entry in entries):
        raise ValueError(f"the header describes {total} bytes of data, the file holds {size}")


@misconception("2.1", "_check_coverage")
def end_not_checked(entries, size):
    """You compare each tensor with the one before, but not the last one with the end of the file:
    of a truncated file the missing bytes would read as zeros, or end the process.
    """
    end = 0
    for entry in entries:
        if entry.start != end:
            raise ValueError(f"{entry.name} starts at byte {entry.start}, not {end}")
        end = entry.stop


@misconception("2.1", "_entry")
def offsets_not_compared_with_the_shape(name, value):
    """You take shape and data_offsets as they are. stop - start must be the size of the dtype times
    all of the shape, or the tensor would be made from a neighbour's bytes.
    """
    if not isinstance(value, dict):
        raise ValueError(f"the entry of {name} is not an object")
    dtype, shape, offsets = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{name} has dtype {dtype!r}")
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"{name} has shape {shape!r:.80} and data_offsets {offsets!r:.80}")
    return Entry(name, dtype, tuple(shape), *offsets)
