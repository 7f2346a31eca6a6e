"""What a grading test is made of: a case, and the ways in which it can say no.

A case is a function `(learner, rng)` in tests/grading/<slug>.py, marked with the exercise it
belongs to. It calls the learner's functions with plain data, compares what comes back with an
oracle, and raises Wrong when they differ. Its docstring is the property it checks, in words that a
learner can read. `rng` is a seeded random.Random: the same seed makes the same inputs.
"""

import importlib
import random
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from course.wire import Opaque, Raised

AROUND = 20  # characters that are shown before the place where two texts begin to differ


class Wrong(Exception):
    """The learner's code gave something else than what the docstring promises.

    The message is what the learner reads: shape and dtype first, then values.
    """


@dataclass(frozen=True)
class Case:
    """One property of one exercise."""

    exercise: str
    name: str
    run: Callable = field(repr=False)

    @property
    def promise(self) -> str:
        """The property in words: the first paragraph of the function's docstring."""
        return " ".join((self.run.__doc__ or self.name).strip().split("\n\n")[0].split())

    def rng(self, seed: int) -> random.Random:
        """Random numbers of this case alone: another case does not shift them."""
        return random.Random(f"{seed} {self.exercise} {self.name}")


def case(exercise: str) -> Callable[[Callable], Callable]:
    """Mark a function as a case of an exercise."""

    def mark(function: Callable) -> Callable:
        function.exercise = exercise
        return function

    return mark


def cases_of(slug: str) -> list[Case]:
    """All cases of a chapter, in the order in which they stand in tests/grading/<slug>.py."""
    module = importlib.import_module(f"tests.grading.{slug}")
    marked = (f for f in vars(module).values() if hasattr(f, "exercise"))
    return [Case(function.exercise, function.__name__, function) for function in marked]


def randn(rng: random.Random, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal random numbers from a case's own generator."""
    generator = torch.Generator().manual_seed(rng.getrandbits(48))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def expect_tensor(got, expected: Tensor, *, atol: float, rtol: float = 0.0, what: str = "it"):
    """got is a tensor of expected's shape and dtype, finite where expected is, and close to it.

    Args:
        got: what the learner returned, whatever it is.
        expected: from an oracle, in the dtype that the docstring promises.
        atol, rtol: |got - expected| <= atol + rtol |expected|, in float64.
        what: how the message calls it, such as "k" or "the result".

    Errors: Wrong, which names the first thing that is off.
    """
    if not isinstance(got, Tensor):
        raise Wrong(f"{what} should be a tensor, but is {describe(got)}")
    if got.shape != expected.shape:
        raise Wrong(f"{what} has shape {list(got.shape)}, expected {list(expected.shape)}")
    if got.dtype != expected.dtype:
        raise Wrong(f"{what} has dtype {short(got.dtype)}, expected {short(expected.dtype)}")
    wide, want = got.double(), expected.double()
    odd = ~wide.isfinite() & want.isfinite()
    if odd.any():
        raise Wrong(f"{what} has {_count(odd)} not finite; {_first(odd, got, expected)}")
    near = ((wide - want).abs() <= atol + rtol * want.abs()) & want.isfinite()
    far = ~near & (wide != want)
    if far.any():
        message = f"{what} differs in {_count(far)}; {_first(far, got, expected)}"
        if got.is_floating_point():  # between two token ids a difference says nothing
            message += f"; the largest difference is {float((wide - want).abs().max()):.3g}"
        raise Wrong(message)


def expect_equal(got, expected, what: str = "it") -> None:
    """got equals expected, of the same types at every depth: ints, strings, None, lists, dicts."""
    _expect_types(got, expected, what)
    if got != expected:
        mine, theirs = _brief(got), _brief(expected)
        said = "is not as expected" if mine == theirs else f"is {mine}, expected {theirs}"
        raise Wrong(f"{what} {said}{_difference(got, expected)}")


@contextmanager
def expect_raises(*kinds: str, naming: Iterable = ()):
    """The call inside raises one of these exceptions (or a subclass), its text naming these.

    Args:
        kinds: class names, such as "ValueError".
        naming: values that must occur in the message, as text.
    """
    wanted = " or ".join(kinds)
    try:
        yield
    except Raised as error:
        if error.not_attempted:
            raise
        if not set(kinds) & set(error.kinds):
            raise Wrong(f"it raised {error.kind} ({error.message}), expected {wanted}") from error
        for value in naming:
            if str(value) not in error.message:
                raise Wrong(
                    f"the message of the {error.kind} does not name {value}: {error.message!r}"
                ) from error
        return
    raise Wrong(f"it raised nothing, expected {wanted}")


def describe(value) -> str:
    """A value in a few words: its type, and for a tensor its dtype and shape."""
    if isinstance(value, Tensor):
        return f"{short(value.dtype)} {list(value.shape)}"
    if isinstance(value, Opaque):
        return f"a {value.type}"
    if value is None:
        return "None"
    return f"{type(value).__name__} {_brief(value)}"


def short(dtype: torch.dtype) -> str:
    """float32 instead of torch.float32."""
    return str(dtype).removeprefix("torch.")


def _expect_types(got, expected, what: str, path: str = "") -> None:
    """Wrong when a part of got is of another type than the same part of expected."""
    if type(got) is not type(expected):
        which = f"{what}: at {path} it" if path else what
        raise Wrong(f"{which} should be {describe(expected)}, but is {describe(got)}")
    if isinstance(expected, dict):
        for key in expected.keys() & got.keys():
            _expect_types(got[key], expected[key], what, f"{path}[{key!r}]")
    elif isinstance(expected, list | tuple):
        for i, (mine, theirs) in enumerate(zip(got, expected, strict=False)):
            _expect_types(mine, theirs, what, f"{path}[{i}]")


def _brief(value, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def _same_beginning(one: str, other: str) -> int:
    """How many characters at the beginning are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _difference(got, expected) -> str:
    """Where two long values begin to differ, and how; nothing when both are short enough to see."""
    if "…" not in _brief(got) + _brief(expected):
        return ""
    path, mine, theirs = _first_difference(got, expected, "")
    where = f"; at {path} it" if path else "; it"
    if isinstance(theirs, dict):
        return where + _odd_keys(mine, theirs)
    if isinstance(theirs, list | tuple):
        return where + _odd_end(mine, theirs)
    if isinstance(mine, str) and isinstance(theirs, str):
        place = _same_beginning(mine, theirs)
        path += f"[{place}]"
        mine, theirs = (text[max(place - AROUND, 0) :] for text in (mine, theirs))
    return f"; they differ first at {path}: {_brief(mine)} instead of {_brief(theirs)}"


def _first_difference(got, expected, path: str) -> tuple[str, object, object]:
    """(path, got there, expected there) of the deepest first part that differs."""
    if isinstance(expected, dict):
        pairs = [(key, got[key], expected[key]) for key in expected if key in got]
    elif isinstance(expected, list | tuple):
        pairs = [(n, *pair) for n, pair in enumerate(zip(got, expected, strict=False))]
    else:
        return path, got, expected
    for key, mine, theirs in pairs:
        if mine != theirs:
            return _first_difference(mine, theirs, f"{path}[{key!r}]")
    return path, got, expected


def _odd_end(got, expected) -> str:
    """What the longer of two lists has after the end of the other."""
    longer, word = (got, "too many") if len(got) > len(expected) else (expected, "missing")
    first = _brief(longer[min(len(got), len(expected))])
    return f" has {len(got)} parts instead of {len(expected)}, the first {word}: {first}"


def _odd_keys(got, expected) -> str:
    """What only one of two dicts has."""
    missing = ", ".join(sorted(f"[{key!r}]" for key in expected.keys() - got.keys()))
    extra = ", ".join(sorted(f"[{key!r}]" for key in got.keys() - expected.keys()))
    said = [f" lacks {missing}"] * bool(missing) + [f" has {extra} too many"] * bool(extra)
    return " and".join(said)


def _count(wrong: Tensor) -> str:
    return f"{int(wrong.sum())} of {wrong.numel()} values"


def _first(wrong: Tensor, got: Tensor, expected: Tensor) -> str:
    place = tuple(wrong.nonzero()[0].tolist())
    return (
        f"the first at {list(place)}: got {float(got[place]):.6g}, "
        f"expected {float(expected[place]):.6g}"
    )
