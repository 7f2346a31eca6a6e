"""Chapter 02: the bytes of a GGUF tensor as float32, one reader for each way of storing it.

Source: ggml's ggml-common.h (the layout of a block) and ggml-quants.c (its meaning).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


def decode_f32(raw: np.ndarray) -> np.ndarray:
    """Four bytes a weight, little-endian, as they are."""
    return raw.view("<f4")


def decode_f16(raw: np.ndarray) -> np.ndarray:
    """Two bytes a weight."""
    return raw.view("<f2").astype(np.float32)


def decode_q8_0(raw: np.ndarray) -> np.ndarray:
    """34 bytes for 32 weights: a float16 scale d, then 32 int8 q. w = d * q.

    raw: uint8 [blocks * 34]. Returns float32 [blocks, 32].
    """
    blocks = raw.reshape(-1, 34)
    scale = blocks[:, :2].view("<f2").astype(np.float32)  # [blocks, 1]
    return scale * blocks[:, 2:].view(np.int8)


def decode_q4_1(raw: np.ndarray) -> np.ndarray:
    """20 bytes for 32 weights: a float16 scale d, a float16 minimum m, 16 bytes. w = d * q + m.

    The low nibbles are weights 0 to 15 of the block, the high nibbles 16 to 31.

    raw: uint8 [blocks * 20]. Returns float32 [blocks, 32].
    """
    blocks = raw.reshape(-1, 20)
    scale, minimum = blocks[:, :4].view("<f2").astype(np.float32).T[:, :, None]  # [blocks, 1] each
    packed = blocks[:, 4:]
    return scale * np.concatenate([packed & 15, packed >> 4], axis=1) + minimum


@dataclass(frozen=True)
class TensorType:
    """How one tensor type is stored: `nbytes` bytes for each block of `block` weights."""

    name: str
    block: int
    nbytes: int
    decode: Callable[[np.ndarray], np.ndarray]

    @property
    def bits(self) -> float:
        """Bits a weight, scales included."""
        return 8 * self.nbytes / self.block


# By the number that a GGUF file calls the type.
TENSOR_TYPES = {
    0: TensorType("F32", 1, 4, decode_f32),
    1: TensorType("F16", 1, 2, decode_f16),
    3: TensorType("Q4_1", 32, 20, decode_q4_1),
    8: TensorType("Q8_0", 32, 34, decode_q8_0),
}
