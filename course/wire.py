"""Plain data between two processes: JSON for the structure, raw bytes for the tensors.

Nothing is ever unpickled, so what a learner's process sends can only be data. A message is 8 bytes
(the lengths of the two parts, little-endian), the JSON text, then the bytes of all tensors.
"""

import dataclasses
import json
import struct
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

LIMIT = 256 * 2**20  # bytes; a larger answer is a mistake
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


def send(stream: BinaryIO, value) -> None:
    """Write one message and flush. TooLarge leaves the stream untouched."""
    blobs: list[bytes] = []
    text = json.dumps(_pack(value, blobs)).encode()
    size = sum(map(len, blobs))
    if len(text) + size > LIMIT:
        raise TooLarge(f"a message of {len(text) + size} bytes; the limit is {LIMIT}")
    stream.write(struct.pack("<II", len(text), size) + text)
    for blob in blobs:
        stream.write(blob)
    stream.flush()


def receive(stream: BinaryIO):
    """Read one message. EOFError when the other side is gone, ValueError when it is not one."""
    text_size, blob_size = struct.unpack("<II", _exactly(stream, 8))
    if text_size + blob_size > LIMIT:
        raise TooLarge(f"a message of {text_size + blob_size} bytes; the limit is {LIMIT}")
    text = _exactly(stream, text_size)
    return _unpack(json.loads(text), memoryview(_exactly(stream, blob_size)))


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


def _take(value, blob: memoryview, at: int):
    """The value and where the next tensor's bytes begin: they follow in the order of the text."""
    if isinstance(value, list):
        return _take_list(value, blob, at)
    if not isinstance(value, dict):
        return value, at
    kind = value[TAG]
    if kind == "tensor":
        return _take_tensor(value, blob, at)
    if kind == "object":
        return Opaque(value["type"], value["repr"]), at
    if kind in {"record", "raised"}:
        items, at = _take_list(list(value["fields"].values()), blob, at)
        fields = dict(zip(value["fields"], items, strict=True))
        return (Raised(**fields) if kind == "raised" else Record(value["type"], fields)), at
    items, at = _take_list(value["items"], blob, at)
    return (tuple(items) if kind == "tuple" else dict(items)), at


def _take_list(values: list, blob: memoryview, at: int) -> tuple[list, int]:
    items = []
    for value in values:
        item, at = _take(value, blob, at)
        items.append(item)
    return items, at


def _take_tensor(value: dict, blob: memoryview, at: int) -> tuple[Tensor, int]:
    dtype = DTYPES[value["dtype"]]
    data = bytearray(blob[at : at + value["size"]])
    if not data:
        return torch.empty(value["shape"], dtype=dtype), at
    return torch.frombuffer(data, dtype=dtype).reshape(value["shape"]), at + value["size"]
