"""How far a correct answer may be from the float64 oracle, and the inputs that cases share.

An error counts relative to the value plus the root mean square of all values, so that a number
close to zero need not be more exact than its neighbours.
"""

import random

import torch
from torch import Tensor

from course.cases import expect_tensor

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
TOLERANCES: dict = {}


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
