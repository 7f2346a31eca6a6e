"""2.1 read_header, 2.2 read_safetensors: what hardly a file has, and what two calls share."""

import functools
import json

import torch

from tests.parts import part

RARE = ("U64", "U32", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ")


@part("2.1")
def common_dtypes_only(m):
    """A list of dtypes of one's own, without those that are rare."""
    m.DTYPES = {name: dtype for name, dtype in m.DTYPES.items() if name not in RARE}


@part("2.1")
def at_most_eight_dimensions(m):
    """Nobody needs more, and the docstring says 64."""
    m.MAX_DIMENSIONS = 8


@part("2.1")
def sizes_of_32_bits(m):
    """Sizes from 2**32 on are refused, in a shape with a zero too."""
    right = m._are_counts
    m._are_counts = lambda values: right(values) and all(value < 2**32 for value in values)


@part("2.1")
def length_is_signed(m):
    """2**64 - 1 is read as -1, which is less than the size, and read(-1) reads all."""
    right = m.read_header

    def read_header(path):
        if m.Path(path).is_file():
            with m.Path(path).open("rb") as file:
                if int.from_bytes(file.read(8), "little", signed=True) == -1:
                    raise ValueError(f"{path}: {file.read(-1)[:80]!r} is no header")
        return right(path)

    m.read_header = read_header


@part("2.1")
def read_and_then_compared(m):
    """N bytes are asked for first, and counted afterwards."""
    right = m.read_header

    def read_header(path):
        if m.Path(path).is_file():
            with m.Path(path).open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                text = file.read(length) if length <= m.MAX_HEADER else b""
            if len(text) < length:
                raise ValueError(f"{path}: {len(text)} of {length} bytes")
        return right(path)

    m.read_header = read_header


@part("2.1")
def headers_remembered(m):
    """What a path once said is given again, whatever lies there now."""
    m.read_header = functools.cache(m.read_header)


@part("2.1")
def underscores_mean_metadata(m):
    """Every name that begins with two underscores is left out."""
    right = m.json_object

    def json_object(text, where):
        found = right(text, where)
        return {n: v for n, v in found.items() if n == "__metadata__" or not n.startswith("__")}

    m.json_object = json_object


@part("2.1")
def twice_at_the_top_only(m):
    """Names of tensors are counted; within an entry the last of two dtypes counts."""

    def json_object(text, where):
        counted = []
        try:
            found = json.loads(text.decode(), object_pairs_hook=lambda p: counted.append(p) or p)
            if not counted or found is not counted[-1]:
                raise ValueError("no object")
            if len(dict(found)) < len(found):
                raise ValueError("a name is there twice")
            return json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise ValueError(f"{where}: {problem}") from None

    m.json_object = json_object


@part("2.2")
def rare_dtypes_as_bytes(m):
    """float8 of the rarer kinds comes as uint8."""
    right = m._view

    def view(data, base, entry):
        tensor = right(data, base, entry)
        return tensor.view(torch.uint8) if entry.dtype in RARE[2:] else tensor

    m._view = view


@part("2.2")
def aligned_to_eight(m):
    """Whatever does not begin at a multiple of 8 is copied, also numbers of 2 or 4 bytes."""
    right = m._view

    def view(data, base, entry):
        tensor = right(data, base, entry)
        return tensor.clone() if (base + entry.start) % 8 else tensor

    m._view = view


@part("2.2")
def maps_kept_for_ever(m):
    """Every map is put into a list, so that it does not close too early."""
    right, kept = m.map_file, []

    def map_file(path):
        kept.append(right(path))
        return kept[-1]

    m.map_file = map_file
