"""GGUF: one file with a model's metadata, vocabulary and quantized weights.

The layout is `magic version tensor-count pair-count`, then the key-value pairs, then one entry a
tensor, then padding, then the data. Every number is little-endian. gguf_blocks.py reads the data.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from solutions.gguf_blocks import TENSOR_TYPES

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
DECODE = {kind.name: kind.decode for kind in TENSOR_TYPES.values()}
# What a metadata value's type number means to `struct`; strings and arrays are read apart.
SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i",
    6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip


@dataclass(frozen=True)
class TensorInfo:
    """One entry of the index: what a tensor is and where its bytes lie in the file."""

    name: str
    shape: tuple[int, ...]  # row-major, as numpy and torch write it
    type: str
    offset: int  # bytes from the start of the file
    nbytes: int


@dataclass(frozen=True)
class GGUF:
    """An open file: metadata read, tensors indexed, weights still on disk behind the map."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    data: mmap.mmap


class _Cursor:
    """Reads forward through the mapped bytes, and refuses to pass the end."""

    def __init__(self, data: mmap.mmap, path: Path):
        self.data, self.path, self.at = data, path, 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes. The check comes first, so a false length allocates nothing."""
        if count > len(self.data) - self.at:
            raise ValueError(
                f"{self.path} ends at byte {len(self.data)}, but {count} more are needed at byte "
                f"{self.at}: it is truncated or damaged. Fetch it again."
            )
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def string(self) -> str:
        try:
            return self.take(self.number("<Q")).decode("utf-8")
        except UnicodeDecodeError as problem:
            raise ValueError(f"{self.path} holds text that is not UTF-8: {problem}") from None

    def value(self, kind: int) -> Any:
        """One metadata value of the type numbered `kind`."""
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            return self.array(self.number("<I"), self.number("<Q"))
        if kind not in SCALARS:
            raise ValueError(f"{self.path} holds a metadata value of unknown type {kind}.")
        return self.number(SCALARS[kind])

    def array(self, kind: int, count: int) -> list[Any]:
        """`count` values of one type; arrays of arrays exist on paper, never in a model file."""
        if kind == ARRAY:
            raise ValueError(f"{self.path} holds an array of arrays, which is not supported.")
        return [self.value(kind) for _ in range(count)]


def read_gguf(path: str | Path) -> GGUF:
    """Read everything but the weights, which stay on disk until `read_tensor` asks for one.

    Raises ValueError for a file that is not GGUF, is truncated, or holds an unknown type.
    """
    path = Path(path)
    cursor = _Cursor(_map(path), path)
    tensor_count, pair_count = _header(cursor)
    metadata = dict(_pair(cursor) for _ in range(pair_count))
    entries = [_entry(cursor) for _ in range(tensor_count)]
    if len(metadata) < pair_count or len({entry[0] for entry in entries}) < tensor_count:
        raise ValueError(f"{path} has a name twice. Fetch it again.")
    base = _align(cursor.at, metadata.get("general.alignment", 32))
    tensors = {entry[0]: _place(entry, base, cursor) for entry in entries}
    return GGUF(metadata, tensors, cursor.data)


def _map(path: Path) -> mmap.mmap:
    """The file as bytes that the operating system reads when they are touched."""
    if path.stat().st_size < len(MAGIC):
        raise ValueError(f"{path} is too short to be a GGUF file. Fetch it again.")
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _header(cursor: _Cursor) -> tuple[int, int]:
    """Check magic and version; return how many tensors and how many metadata pairs follow."""
    if cursor.take(4) != MAGIC:
        raise ValueError(f"{cursor.path} is not a GGUF file: it does not start with 'GGUF'.")
    version = cursor.number("<I")
    if version not in VERSIONS:
        raise ValueError(f"{cursor.path} is GGUF version {version}; this reader knows 2 and 3.")
    return cursor.number("<Q"), cursor.number("<Q")


def _pair(cursor: _Cursor) -> tuple[str, Any]:
    key = cursor.string()
    return key, cursor.value(cursor.number("<I"))


def _entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, type number and offset of one tensor. GGUF lists the fastest axis first."""
    name, axes = cursor.string(), cursor.number("<I")
    shape = tuple(cursor.number("<Q") for _ in range(axes))[::-1]
    return name, shape, cursor.number("<I"), cursor.number("<Q")


def _align(position: int, alignment: int) -> int:
    """The first multiple of `alignment` at or after `position`."""
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment must be a positive integer, not {alignment!r}.")
    return -(-position // alignment) * alignment


def _place(entry: tuple, base: int, cursor: _Cursor) -> TensorInfo:
    """An index entry with its size worked out, checked to lie inside the file."""
    name, shape, number, offset = entry
    if number not in TENSOR_TYPES:
        known = ", ".join(kind.name for kind in TENSOR_TYPES.values())
        raise ValueError(f"{name} has tensor type number {number}; this reader knows {known}.")
    kind = TENSOR_TYPES[number]
    if not shape or shape[-1] % kind.block:
        raise ValueError(f"{name}, shape {shape}: rows must be whole blocks of {kind.block}.")
    nbytes = math.prod(shape) // kind.block * kind.nbytes
    if base + offset + nbytes > len(cursor.data):
        raise ValueError(f"{cursor.path} ends inside {name}: it is truncated. Fetch it again.")
    return TensorInfo(name, shape, kind.name, base + offset, nbytes)


def read_tensor(file: GGUF, name: str) -> np.ndarray:
    """One tensor as float32, in the shape of the index. Raises KeyError for an unknown name."""
    info = file.tensors[name]
    raw = np.frombuffer(file.data, np.uint8, info.nbytes, info.offset)
    return DECODE[info.type](raw).reshape(info.shape)


# ---- From llama.cpp's names and layout to Hugging Face's ----

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    stem = name.removesuffix(".weight")
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if layer and layer[2] in _INNER:
        return f"model.layers.{layer[1]}.{_INNER[layer[2]]}.weight"
    if stem in _OUTER:
        return f"{_OUTER[stem]}.weight"
    raise ValueError(f"{name} is not a tensor of a Llama model.")


def undo_rope_permutation(weight: np.ndarray, heads: int) -> np.ndarray:
    """Put the rows of q_proj or k_proj back into the half-split order.

    GGUF stores the two rows that RoPE rotates together next to each other (0, 1), (2, 3), ...;
    Hugging Face keeps them half a head apart: row i goes with row i + head_dim / 2.

    weight: [heads * head_dim, hidden]
    """
    rows, hidden = weight.shape
    if rows % (2 * heads):
        raise ValueError(f"{rows} rows do not divide into {heads} heads of pairs.")
    pairs = weight.reshape(heads, rows // heads // 2, 2, hidden)
    return pairs.swapaxes(1, 2).reshape(rows, hidden)


def hf_tensors(file: GGUF) -> Iterator[tuple[str, np.ndarray]]:
    """Each tensor under its Hugging Face name, as float32, one at a time to keep memory low."""
    queries = file.metadata["llama.attention.head_count"]
    heads = {
        "attn_q": queries,
        "attn_k": file.metadata.get("llama.attention.head_count_kv", queries),
    }
    for name in file.tensors:
        known, weight = hf_name(name), read_tensor(file, name)
        part = name.removesuffix(".weight").rpartition(".")[2]
        yield known, undo_rope_permutation(weight, heads[part]) if part in heads else weight
