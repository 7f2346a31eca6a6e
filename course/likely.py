"""Why it is wrong: the misconception that returns what the learner's code returned.

Misconceptions are code of ours (tests/misconceptions/), so they run in this process: the reference
with one definition replaced, put through the failed cases on the same inputs.
"""

import functools
import inspect
import math
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from course import misconceptions, notebooks, wire
from course.cases import Case
from course.manifest import Chapter
from course.runner import Runner
from course.trial import Local, Outcome, run_cases
from course.wire import Raised

# A misconception runs under what this gives: in a class, the limits of a learner's worker.
surroundings: Callable[[], AbstractContextManager] = nullcontext


@functools.cache
def reference_runner(chapter: Chapter, misconception: Callable | None = None) -> Runner:
    """The reference solution, with one definition replaced by a misconception if given."""
    runner = Runner()
    runner.load_source(notebooks.reference_source(chapter), chapter.scenarios)
    if misconception is not None:
        _replace(runner.module, misconception)
    return runner


Pairs = Iterator[tuple[Outcome, Outcome]]  # the learner's and a misconception's, of one case


@dataclass(frozen=True)
class Cause:
    """What is probably wrong.

    Args:
        misconception: the definition that goes wrong in the same way.
        shown: the first outcome that it explains.
        is_all: it explains everything; otherwise something else is wrong as well.
    """

    misconception: Callable
    shown: Outcome
    is_all: bool


def likely_cause(chapter: Chapter, outcomes: list[Outcome], seed: int) -> Cause | None:
    """The misconception that does what the learner's code did, over all cases of an exercise.

    It must return the same in more cases than those in which only one of the two fails, or both
    do differently. Without one, the only one that never fails where the learner's code does not,
    and in most cases fails exactly as that does: two mistakes look like this.
    """
    exercise = outcomes[0].case.exercise
    known = [wrong for wrong in misconceptions.load(chapter.slug) if wrong.exercise == exercise]
    ordered = sorted(outcomes, key=lambda outcome: outcome.error is None)  # failures decide soon
    for rule in (_agreements, _shared):
        scores = {wrong: rule(_pairs(chapter, wrong, ordered, seed)) for wrong in known}
        top = max(scores.values(), default=0)
        best = [wrong for wrong in known if scores[wrong] == top]
        if top > 0 and (rule is _agreements or len(best) == 1):
            pairs = _pairs(chapter, best[0], outcomes, seed)
            shown = next(mine for mine, theirs in pairs if _agreement(mine, theirs) > 0)
            return Cause(best[0], shown, rule is _agreements)
    return None


def _agreements(pairs: Pairs) -> float:
    """The sum of the agreements; nothing more is run once the misconception is ruled out."""
    score = 0.0
    for pair in pairs:
        score += _agreement(*pair)
        if score == -math.inf:
            break
    return score


def _shared(pairs: Pairs) -> int:
    """How often both fail in the same way; 0 when the misconception fails where mine does not."""
    same = 0
    for mine, theirs in pairs:
        if mine.error is None and (not same or theirs.error is not None):
            return 0
        same += theirs.error is not None and _same_calls(mine, theirs)
    return same


def _pairs(chapter: Chapter, wrong: Callable, outcomes: list[Outcome], seed: int) -> Pairs:
    """Each outcome with the misconception's of the same case, which is run when it is asked for."""
    return ((mine, _outcome(chapter, wrong, mine.case, seed)) for mine in outcomes)


@functools.lru_cache(maxsize=10_000)
def _outcome(chapter: Chapter, wrong: Callable, case: Case, seed: int) -> Outcome:
    with surroundings():
        return next(run_cases(Local(reference_runner(chapter, wrong)), [case], seed))


def _agreement(mine: Outcome, theirs: Outcome) -> float:
    """1 for the same failure, 0 when both pass, -1 when one fails or they raise differently.

    Two different values rule the misconception out: whatever the code does, it is not that.
    """
    if mine.error is None and theirs.error is None:
        return 0
    if mine.error is None or theirs.error is None:
        return -1
    if _same_calls(mine, theirs):
        return 1
    return -1 if Raised in (type(mine.error), type(theirs.error)) else -math.inf


def _replace(module: types.ModuleType, wrong: Callable) -> None:
    """Put a misconception in its target's place, as if it had been written in that module."""
    *owner, name = wrong.target.split(".")
    plain = inspect.unwrap(wrong)  # of a context manager, the generator function
    function = types.FunctionType(
        plain.__code__, vars(module), name, plain.__defaults__, plain.__closure__
    )
    function.__kwdefaults__ = plain.__kwdefaults__
    if plain is not wrong:
        function = contextmanager(function)
    place = getattr(module, owner[0]) if owner else module
    is_property = isinstance(vars(place).get(name), property)
    setattr(place, name, property(function) if is_property else function)


def _same_calls(mine: Outcome, theirs: Outcome) -> bool:
    """Every call on the way to the failure was the same and returned the same."""
    if len(mine.learner.trace) != len(theirs.learner.trace):
        return False
    pairs = zip(mine.learner.trace, theirs.learner.trace, strict=True)
    return all(a[0] == b[0] and _alike(a[1], b[1]) for a, b in pairs)


def _alike(a, b) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _alike_tensors(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, Raised):
        return (a.kind, a.message) == (b.kind, b.message)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, dict):
        # A "message" is in the words of whoever wrote the code.
        return a.keys() == b.keys() and all(_alike(a[k], b[k]) for k in a if k != "message")
    if isinstance(a, wire.Record):
        return _alike(a.fields, b.fields)
    if isinstance(a, float):
        return math.isclose(a, b, rel_tol=1e-6) or (a != a and b != b)
    return a == b


def _alike_tensors(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    rtol = max(1e-4, 4 * torch.finfo(a.dtype).eps)
    return torch.allclose(a.double(), b.double(), rtol=rtol, atol=rtol, equal_nan=True)
