"""Why it is wrong: the misconception that returns what the learner's code returned.

Misconceptions are code of ours (tests/misconceptions/), so they run in this process: the reference
with one definition replaced, put through the failed cases on the same inputs.
"""

import functools
import types
from collections.abc import Callable

import torch
from torch import Tensor

from course import misconceptions, notebooks, wire
from course.manifest import Chapter
from course.runner import Runner
from course.trial import Local, Outcome, run_cases
from course.wire import Raised


@functools.cache
def reference_runner(chapter: Chapter, misconception: Callable | None = None) -> Runner:
    """The reference solution, with one definition replaced by a misconception if given."""
    runner = Runner()
    runner.load_source(notebooks.reference_source(chapter), chapter.scenarios)
    if misconception is not None:
        _replace(runner.module, misconception)
    return runner


def likely_cause(chapter: Chapter, failed: list[Outcome], seed: int) -> Callable | None:
    """The misconception that returns what the learner's code did, in most of the failed cases."""
    counts: dict[Callable, int] = {}
    for wrong in misconceptions.load(chapter.slug):
        if wrong.exercise == failed[0].case.exercise:
            backend = Local(reference_runner(chapter, wrong))
            again = run_cases(backend, [outcome.case for outcome in failed], seed)
            counts[wrong] = sum(map(_same_failure, failed, again))
    best = max(counts, key=counts.get, default=None)
    return best if best is not None and counts[best] else None


def _replace(module: types.ModuleType, wrong: Callable) -> None:
    """Put a misconception in its target's place, as if it had been written in that module."""
    *owner, name = wrong.target.split(".")
    function = types.FunctionType(
        wrong.__code__, vars(module), name, wrong.__defaults__, wrong.__closure__
    )
    function.__kwdefaults__ = wrong.__kwdefaults__
    setattr(getattr(module, owner[0]) if owner else module, name, function)


def _same_failure(mine: Outcome, theirs: Outcome) -> bool:
    """Both failed the case, and every call on the way returned the same."""
    if theirs.error is None or len(mine.learner.trace) != len(theirs.learner.trace):
        return False
    pairs = zip(mine.learner.trace, theirs.learner.trace, strict=True)
    return all(a[0] == b[0] and _alike(a[1], b[1]) for a, b in pairs)


def _alike(a, b) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _alike_tensors(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, Raised):
        return a.kind == b.kind
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, wire.Record):
        return _alike(a.fields, b.fields)
    return a == b or a != a


def _alike_tensors(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    rtol = max(1e-4, 4 * torch.finfo(a.dtype).eps)
    return torch.allclose(a.double(), b.double(), rtol=rtol, atol=rtol, equal_nan=True)
