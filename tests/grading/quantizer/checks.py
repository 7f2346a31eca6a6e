"""What the cases of chapter 03 share: inputs, and comparisons that allow for rounding."""

import random

import torch
from torch import Tensor

from course.cases import Wrong, describe, expect_tensor, randn

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
# Of a tie: a quotient this close to k + 0.5 may go to either side. Another order of float32
# operations moves a quotient of up to 255 by about 255 * 2 ** -23 = 3e-5.
TIE = 1e-3
NO_MATRICES = (
    *(torch.ones(4), torch.ones(2, 3, 4), torch.ones(2, 3, dtype=torch.int32)),
    *(torch.ones(0, 4), torch.ones(4, 0)),
)


def in_words(bits: int, size: int | None) -> str:
    """A format as the engine calls it."""
    return "int8 rows" if size is None else f"{bits} bits, groups of {size}"


def weight_of(rng: random.Random, rows: int, columns: int, dtype: torch.dtype = F32) -> Tensor:
    """Normal numbers of the size that weights have, a little larger in each row."""
    return (randn(rng, rows, columns) * torch.linspace(0.02, 0.2, rows)[:, None]).to(dtype)


def tensor_of(array) -> Tensor | None:
    """A numpy array of an oracle as a tensor; None stays None."""
    return None if array is None else torch.from_numpy(array)


def expect_kind(got, dtype: torch.dtype, shape: tuple, what: str) -> None:
    """got is a tensor of this dtype and shape, finite everywhere."""
    if isinstance(got, Tensor) and got.dtype == dtype and tuple(got.shape) == tuple(shape):
        expect_tensor(got, got.nan_to_num(), atol=0, what=what)
        return
    name = str(dtype).removeprefix("torch.")
    raise Wrong(f"{what} should be {name} {list(shape)}, but is {describe(got)}")


def expect_parts(got, *names: str) -> tuple:
    """got is a tuple or list of as many parts as there are names."""
    if not isinstance(got, list | tuple) or len(got) != len(names):
        raise Wrong(f"it should return ({', '.join(names)}), but returned {describe(got)}")
    return tuple(got)


def expect_numbers(q: Tensor, quotient: Tensor, low: int, high: int, what: str = "q") -> None:
    """q is the quotient, rounded to the nearest and clamped; at a tie either neighbour will do."""
    beyond = (q.double() < low) | (q.double() > high)
    if bool(beyond.any()):
        place = beyond.nonzero()[0].tolist()
        raise Wrong(f"{what} is {int(q[tuple(place)])} at {place}, outside {low} to {high}")
    off = (q.double() - quotient.clamp(low, high)).abs() > 0.5 + TIE
    if bool(off.any()):
        place = tuple(off.nonzero()[0].tolist())
        raise Wrong(
            f"{what} differs in {int(off.sum())} of {off.numel()} numbers; the first at "
            f"{list(place)}: got {int(q[place])}, expected {float(quotient[place]):.4f} rounded "
            f"and kept within {low} to {high}"
        )


def expect_within(error: Tensor, bound: Tensor, what: str) -> None:
    """No error is beyond its bound."""
    over = ~(error <= bound)
    if bool(over.any()):
        place = tuple(over.nonzero()[0].tolist())
        raise Wrong(
            f"{what} is off by more than it may be in {int(over.sum())} of {over.numel()} numbers; "
            f"the first at {list(place)}: by {float(error[place]):.4g}, "
            f"at most {float(bound[place]):.4g}"
        )


def expect_float(got, expected: float, rtol: float, what: str = "it") -> None:
    """got is a Python float, close to what is expected."""
    if type(got) is not float:
        raise Wrong(f"{what} should be a float, but is {describe(got)}")
    if not (got == expected or abs(got - expected) <= rtol * abs(expected)):
        digits = next(n for n in (8, 17) if f"{got:.{n}g}" != f"{expected:.{n}g}")
        raise Wrong(f"{what} is {got:.{digits}g}, expected {expected:.{digits}g}")


def awkward_weights(rng: random.Random) -> dict[str, Tensor]:
    """Matrices [4, 40] that break careless code, by a name for the message."""
    normal = weight_of(rng, 4, 40)
    outlier, dead = normal.clone(), normal.clone()
    outlier[rng.randrange(4), rng.randrange(40)] = 300.0
    dead[rng.randrange(4)] = 0.0
    return {
        "random numbers": normal,
        "one outlier": outlier,
        "a row of zeros": dead,
        "zeros": torch.zeros(4, 40),
        "a constant": torch.full((4, 40), rng.uniform(0.01, 3)),
        "a negative constant": torch.full((4, 40), -rng.uniform(0.01, 3)),
        "positive numbers": normal.abs() + 0.7,
        "small numbers": 3e-5 * normal,
        "tiny numbers": 1e-7 * normal,
        "denormals": torch.tensor([[k * 1.4e-45 for k in range(-20, 20)]] * 4) * 3,
        "large numbers": 4e4 * normal,
        "float16": normal.half(),
        "bfloat16": normal.bfloat16(),
    }
