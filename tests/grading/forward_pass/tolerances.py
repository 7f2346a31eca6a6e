"""How far a correct answer may be from the float64 oracle, and the inputs that cases share.

An error counts relative to the value plus the root mean square of all values, so that a number
close to zero need not be more exact than its neighbours.
"""

import random

import torch
from torch import Tensor

from course.cases import expect_tensor
from tests.reference.arrays import tiny_config, tiny_weights

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
# Measured by `python -m tests.reference.measure_spread`: the largest error of the reference and of
# two answers in other styles, over all cases and 40 seeds. Allowed is about 8 times that in
# float32, and 4 times in 16 bits, where the rounding of each step bounds the error.
TOLERANCES: dict[tuple[str, torch.dtype], float] = {
    ("rms_norm", F32): 4e-6,  # 4.4e-7
    ("rms_norm", F16): 4e-3,  # 7.9e-4
    ("rms_norm", BF16): 3e-2,  # 6.1e-3
    ("rope_tables", F32): 5e-5,  # 5.6e-6
    ("rope_tables far", F32): 2.5e-3,  # 3.3e-4, from float32 angles of thousands of radians
    ("apply_rope", F32): 2e-6,  # 2.0e-7
    ("apply_rope", F16): 6e-3,  # 1.2e-3
    ("apply_rope", BF16): 4e-2,  # 8.8e-3
    ("attention", F32): 1e-5,  # 1.1e-6
    ("attention", F16): 7e-3,  # 1.7e-3
    ("attention", BF16): 6e-2,  # 1.5e-2
    ("attention large", F32): 1.5e-4,  # 1.5e-5, from scores in the hundreds
    ("feed_forward", F32): 8e-6,  # 9.8e-7
    ("feed_forward", F16): 1.2e-2,  # 2.9e-3
    ("feed_forward", BF16): 1e-1,  # 2.8e-2
    ("attend", F32): 1.5e-5,  # 1.9e-6
    ("logits", F32): 8e-5,  # 9.6e-6
    ("logits", F16): 6e-2,  # 1.6e-2
    ("logits", BF16): 4e-1,  # 9.5e-2
}


def close(got, expected, function: str, dtype: torch.dtype = F32, what: str = "it") -> None:
    """got is a tensor of dtype and of the oracle's shape, within the function's tolerance."""
    want = torch.as_tensor(expected).double()
    tolerance = TOLERANCES[function, dtype]
    size = float(want.square().mean().sqrt()) if want.numel() else 0.0
    expect_tensor(got, want.to(dtype), atol=tolerance * size, rtol=tolerance, what=what)


def places(rng: random.Random, lengths: list[int], width: int, firsts=None) -> Tensor:
    """Positions [B, width]: each row counts up from its first (0) in columns chosen at random."""
    table = torch.full((len(lengths), width), -1)
    for row, length in enumerate(lengths):
        first = firsts[row] if firsts else 0
        columns = sorted(rng.sample(range(width), length))
        table[row, columns] = torch.arange(first, first + length)
    return table


def random_ids(rng: random.Random, vocabulary: int, *shape: int) -> Tensor:
    """Token ids of any shape."""
    generator = torch.Generator().manual_seed(rng.getrandbits(48))
    return torch.randint(vocabulary, shape, generator=generator)


def last_layer(name: str, part: str) -> torch.Tensor:
    """A weight of the last layer of a tiny model."""
    layer = tiny_config(name)["num_hidden_layers"] - 1
    return tiny_weights(name)[f"model.layers.{layer}.{part}.weight"]
