"""What the cases of chapter 05 share: inputs, and comparisons that allow for rounding."""

import math
import random

import torch
from torch import Tensor

from course.cases import Wrong, describe, expect_tensor, randn, short

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
HIDDEN = -math.inf
# The largest difference of the reference and of two other styles from the float64 oracle, over all
# cases and 15 seeds, is 2.4e-6 of the expected number plus `size`: eight times that is allowed.
RTOL = 2e-5
EDGE = 1e-4  # how far a threshold of a case keeps from the numbers that it is compared with


def logits_of(rng: random.Random, rows: int, vocabulary: int, dtype: torch.dtype = F32) -> Tensor:
    """Random logits of the size that models make."""
    return (3 * randn(rng, rows, vocabulary)).to(dtype)


def rows_of(logits: Tensor) -> list[list[float]]:
    """The rows as the oracle takes them."""
    return logits.double().tolist()


def table(rows: list) -> Tensor:
    """Expected numbers as the docstrings promise them: float32."""
    return torch.tensor(rows, dtype=torch.float64).float()


def close(got, rows: list, what: str = "it", size: float = 0.0) -> None:
    """got is float32 and near to these rows; size: of numbers that cancelled on the way."""
    near(got, table(rows), RTOL * size + 1e-9, what)


def near(got, expected: Tensor, atol: float, what: str) -> None:
    """expect_tensor; and where -inf is expected it is -inf, which no tolerance would say."""
    if isinstance(got, Tensor) and got.shape == expected.shape:
        for place in ((expected == HIDDEN) & (got != HIDDEN)).nonzero()[:1].tolist():
            number = float(got[tuple(place)])
            raise Wrong(f"{what} should be -inf at {place}, but is {number:.6g} there")
    expect_tensor(got, expected, atol=atol, rtol=RTOL, what=what)


def expect_kept(got, logits: Tensor, kept: list[set[int]], what: str) -> None:
    """got is logits, in its dtype, with -inf for every token that is not among kept."""
    if not isinstance(got, Tensor) or got.shape != logits.shape or got.dtype != logits.dtype:
        expected = f"{short(logits.dtype)} {list(logits.shape)}"
        raise Wrong(f"{what} should be {expected}, but is {describe(got)}")
    expected = torch.zeros(logits.shape, dtype=torch.bool)
    for row, ids in enumerate(kept):
        expected[row, list(ids)] = True
    expected &= logits != HIDDEN
    found = got != HIDDEN
    for row in (found != expected).any(-1).nonzero()[:1, 0].tolist():
        mine, right = found[row], expected[row]
        raise Wrong(
            f"{what}: row {row} keeps {int(mine.sum())} tokens, expected {int(right.sum())}"
            f"{_few('kept, but should be hidden', mine & ~right)}"
            f"{_few('hidden, but should be kept', right & ~mine)}"
        )
    for row, token in (expected & (got != logits)).nonzero()[:1].tolist():
        raise Wrong(
            f"{what}: the logit of token {token} in row {row} was kept, but changed from "
            f"{float(logits[row, token]):.6g} to {float(got[row, token]):.6g}"
        )


def _few(words: str, marks: Tensor) -> str:
    ids = marks.nonzero()[:8, 0].tolist()
    return f"; {words}: {ids}" if ids else ""


def split(rng: random.Random, items: list | str) -> list:
    """Cut a text or a list into pieces at random places."""
    cuts = sorted(rng.sample(range(1, len(items)), rng.randrange(len(items)))) if items else []
    return [items[a:b] for a, b in zip([0, *cuts], [*cuts, len(items)], strict=True)]
