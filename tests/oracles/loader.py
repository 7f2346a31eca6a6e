"""What chapter 02 should find: files written byte by byte, and numbers converted by hand.

Nothing here reads a file. tests/test_oracles_02.py holds it against the safetensors package, torch
and transformers.
"""

import json
import struct

import numpy as np
import torch

# Bytes a number, as the format's description has them.
ITEM = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "C64": 8,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "F8_E8M0": 1,
}  # fmt: skip


def entry(dtype: str, shape, start: int, stop: int) -> dict:
    """One entry of a header."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


def entries(tensors: list[tuple[str, str, tuple]]) -> dict:
    """The entries of (name, dtype, shape) tensors whose bytes follow each other."""
    found, at = {}, 0
    for name, dtype, shape in tensors:
        stop = at + int(np.prod(shape, dtype=np.int64)) * ITEM[dtype]
        found[name], at = entry(dtype, shape, at, stop), stop
    return found


def file_bytes(header, data: bytes = b"", length: int | None = None, spaces: int = 0) -> bytes:
    """A whole file. header: anything for JSON, or bytes; length: what the first 8 bytes claim."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode("utf-8")
    text += b" " * spaces
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor's numbers, in order."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 to the bits of bfloat16, uint16: the upper half, rounded to the nearest, to even."""
    bits = values.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """The bits of bfloat16, uint16, to float32: sixteen zeros behind them."""
    return (bits.astype(np.uint32) << 16).view("<f4")


def expected_shapes(c: dict) -> list[tuple[str, tuple]]:
    """(name, shape) of every tensor of a Llama, from a table."""
    width = {
        "E": c["hidden_size"],
        "F": c["intermediate_size"],
        "V": c["vocab_size"],
        "H": c["num_attention_heads"] * c["head_dim"],
        "K": c["num_key_value_heads"] * c["head_dim"],
    }
    layer = [
        *("input_layernorm:E", "self_attn.q_proj:HE", "self_attn.k_proj:KE"),
        *("self_attn.v_proj:KE", "self_attn.o_proj:EH", "post_attention_layernorm:E"),
        *("mlp.gate_proj:FE", "mlp.up_proj:FE", "mlp.down_proj:EF"),
    ]
    table = ["model.embed_tokens:VE"]
    for i in range(c["num_hidden_layers"]):
        table += [f"model.layers.{i}.{row}" for row in layer]
    table += ["model.norm:E"] + ([] if c["tie_word_embeddings"] else ["lm_head:VE"])
    rows = (row.split(":") for row in table)
    return [(f"{name}.weight", tuple(width[letter] for letter in shape)) for name, shape in rows]
