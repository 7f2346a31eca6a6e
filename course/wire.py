"""Plain data between two processes: JSON for the structure, raw bytes for the tensors.

Nothing is ever unpickled, so what a learner's process sends can only be data. A message is 8 bytes
(the lengths of the two parts, little-endian), the JSON text, then the bytes of all tensors.
"""

import dataclasses
import io
import json
import math
import struct
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

LIMIT = 256 * 2**20  # bytes; a larger answer is a mistake
TEXT_LIMIT = 16 * 2**20  # bytes of JSON, which becomes objects many times as large
DEEPEST = 100  # levels of lists and dicts
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
        *(torch.complex64, torch.complex128),
    )
}  # no other (a quantized one, say) can be built from bytes
TAG = "$"


class TooLarge(ValueError):
    """A message over LIMIT."""


@dataclasses.dataclass(frozen=True)
class Opaque:
    """Something that is not plain data: only its type and the start of its repr travel."""

    type: str
    repr: str

    def __repr__(self) -> str:
        return f"<{self.type}: {self.repr}>"


@dataclasses.dataclass
class Raised(Exception):
    """An exception in the learner's code, as data."""

    kind: str  # "ValueError"
    kinds: list  # that and its base classes
    message: str
    line: int | None = None  # in the built module, innermost frame that belongs to the learner
    not_attempted: bool = False
    lines: list = dataclasses.field(default_factory=list)  # of all the learner's frames

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclasses.dataclass
class Record:
    """An instance of a dataclass or named tuple: its type's name and its fields."""

    type: str
    fields: dict

    def __getattr__(self, name: str):
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(name) from None


def encode(value) -> bytes:
    """One message. Errors: TooLarge."""
    stream = io.BytesIO()
    send(stream, value)
    return stream.getvalue()


def send(stream: BinaryIO, value) -> None:
    """Write one message and flush. TooLarge leaves the stream untouched."""
    blobs: list[bytes] = []
    text = json.dumps(_pack(value, blobs)).encode()
    size = sum(map(len, blobs))
    _check_sizes(len(text), size)
    stream.write(struct.pack("<II", len(text), size) + text)
    for blob in blobs:
        stream.write(blob)
    stream.flush()


def receive(stream: BinaryIO):
    """Read one message. EOFError when the other side is gone, ValueError when it is not one."""
    text_size, blob_size = struct.unpack("<II", _exactly(stream, 8))
    _check_sizes(text_size, blob_size)
    text = _exactly(stream, text_size)
    return _unpack(json.loads(text), memoryview(_exactly(stream, blob_size)))


def _check_sizes(text_size: int, blob_size: int) -> None:
    if text_size > TEXT_LIMIT:
        raise TooLarge(f"{text_size} bytes of text in a message; the limit is {TEXT_LIMIT}")
    if text_size + blob_size > LIMIT:
        raise TooLarge(f"a message of {text_size + blob_size} bytes; the limit is {LIMIT}")


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the other side closed the connection")
    return data


def _pack(value, blobs: list[bytes]):
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list):
        return [_pack(item, blobs) for item in value]
    if isinstance(value, Tensor):
        return _pack_tensor(value, blobs)
    if isinstance(value, np.generic):
        return _pack_opaque(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {TAG: "tuple", "items": [_pack(item, blobs) for item in value]}
    if isinstance(value, dict) and all(type(key) in (int, float, str, bool) for key in value):
        items = [[_pack(k, blobs), _pack(v, blobs)] for k, v in value.items()]
        return {TAG: "dict", "items": items}
    fields = _fields(value)
    if fields is not None:
        packed = {name: _pack(field, blobs) for name, field in fields.items()}
        tag = "raised" if isinstance(value, Raised) else "record"
        return {TAG: tag, "type": type(value).__name__, "fields": packed}
    return _pack_opaque(value)


def _pack_opaque(value) -> dict:
    return {TAG: "object", "type": type(value).__name__, "repr": repr(value)[:200]}


def _fields(value) -> dict | None:
    if isinstance(value, Record):
        return value.fields
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return value._asdict()
    return None


def _pack_tensor(tensor: Tensor, blobs: list[bytes]) -> dict:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES or tensor.layout is not torch.strided or tensor.is_meta:
        return _pack_opaque(tensor)
    if tensor.nbytes > LIMIT:
        raise TooLarge(f"a tensor of {tensor.nbytes} bytes; the limit is {LIMIT}")
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    blobs.append(flat.view(torch.uint8).numpy().tobytes())
    return {TAG: "tensor", "dtype": dtype, "shape": list(tensor.shape), "size": len(blobs[-1])}


def _unpack(value, blob: memoryview):
    unpacked, _ = _take(value, blob, 0)
    return unpacked


def _take(value, blob: memoryview, at: int, depth: int = 0):
    """The value and where the next tensor's bytes begin: they follow in the order of the text."""
    if depth > DEEPEST:
        raise ValueError(f"more than {DEEPEST} levels of lists in a message")
    if isinstance(value, list):
        return _take_list(value, blob, at, depth)
    if not isinstance(value, dict):
        return value, at
    kind = value[TAG]
    if kind == "tensor":
        return _take_tensor(value, blob, at)
    if kind == "object":
        return Opaque(_text(value["type"]), _text(value["repr"])), at
    if kind in {"record", "raised"}:
        items, at = _take_list(list(value["fields"].values()), blob, at, depth)
        fields = dict(zip(value["fields"], items, strict=True))
        is_ours = kind == "raised"
        return (Raised(**fields) if is_ours else Record(_text(value["type"]), fields)), at
    items, at = _take_list(value["items"], blob, at, depth)
    return (tuple(items) if kind == "tuple" else dict(items)), at


def _take_list(values: list, blob: memoryview, at: int, depth: int) -> tuple[list, int]:
    items = []
    for value in values:
        item, at = _take(value, blob, at, depth + 1)
        items.append(item)
    return items, at


def _take_tensor(value: dict, blob: memoryview, at: int) -> tuple[Tensor, int]:
    """A tensor of exactly the bytes that were sent: a forged shape must not make memory."""
    dtype, shape, size = DTYPES[value["dtype"]], value["shape"], value["size"]
    if not all(type(n) is int and 0 <= n < 2**48 for n in [*shape, size]):
        raise ValueError(f"a tensor of shape {shape}")
    if math.prod(shape) * dtype.itemsize != size or at + size > len(blob):
        raise ValueError(f"a tensor of shape {shape} in {size} bytes")
    if not size:
        return torch.empty(shape, dtype=dtype), at
    data = torch.frombuffer(bytearray(blob[at : at + size]), dtype=torch.uint8)
    if dtype is torch.bool:  # a byte that is neither 0 nor 1 would be equal to both
        return (data != 0).reshape(shape), at + size
    return data.view(dtype).reshape(shape), at + size


def _text(value) -> str:
    if type(value) is not str:
        raise ValueError("a name that is no text")
    return value
