"""From a submission and an exercise to a verdict.

The cases run here; the learner's code runs in a worker. When a case fails, the misconceptions of
the exercise, which are code of ours, are put through the same case on the same inputs: the one that
returns what the learner's code returned is the likely cause.
"""

import functools
import importlib
import io
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from course import misconceptions, notebooks, wire
from course.cases import Case, Wrong, cases_of, describe
from course.manifest import Chapter, Exercise
from course.remote import SPARE, Gone
from course.runner import Runner
from course.submission import Built, Submission, build, problem_with, read_submission
from course.wire import Raised

SECONDS = 60.0  # for one exercise; the reference needs less than one


@dataclass(frozen=True)
class Failure:
    """What went wrong in one case, in the words that the learner reads."""

    case: str
    promise: str
    message: str
    call: str = ""
    place: str = ""
    likely: str = ""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one exercise: passed, failed, not attempted, missing or error."""

    exercise: Exercise
    status: str
    seed: int
    passed: int = 0
    cases: int = 0
    failure: Failure | None = None
    reason: str = ""
    printed: str = ""
    misconception: str = ""

    @property
    def points(self) -> int:
        """All of the exercise's points or none."""
        return self.exercise.points if self.status == "passed" else 0


class Learner:
    """What a case calls: every attribute is a function of the module under test.

    Keeps a trace of the calls and of what came back, for the messages and for the comparison with
    the misconceptions.
    """

    def __init__(self, backend):
        self._backend = backend
        self.trace: list[tuple[str, object]] = []
        self.printed = ""

    def __getattr__(self, name: str) -> Callable:
        return lambda *args, **kwargs: self._ask("call", name, args, kwargs)

    def scenario(self, name: str, *args):
        """Run a scenario function beside the learner's code and return its trace."""
        return self._ask("scenario", name, args, {})

    def _ask(self, do: str, name: str, args: tuple, kwargs: dict):
        call = f"{name}({_arguments(args, kwargs)})"
        self.trace.append((call, None))
        request = {"do": do, "name": name, "args": args, "kwargs": kwargs}
        reply = self._backend.answer(request)
        self.printed += reply.get("printed", "")
        outcome = reply["raised"] if "raised" in reply else reply["value"]
        self.trace[-1] = (call, outcome)
        if "raised" in reply:
            raise outcome
        if reply["changed"] and do == "call":
            raise Wrong(f"it changed its argument number {reply['changed'][0] + 1} in place")
        return outcome


@dataclass
class Outcome:
    """One case run once."""

    case: Case
    learner: Learner
    error: Exception | None = field(default=None)


class Local:
    """A backend in this process, for code of ours; data is copied as if it had travelled."""

    def __init__(self, runner: Runner):
        self.runner = runner

    def answer(self, request: dict) -> dict:
        """See Runner.answer."""
        return _travel(self.runner.answer(_travel(request)))


def judge(submission: Submission, exercise: Exercise, seed: int) -> Verdict:
    """Run every case of one exercise against a submission, in a worker of its own."""
    for exercise_id in (exercise.id, *_all_needs(submission.chapter, exercise)):
        problem = problem_with(submission, exercise_id)
        if problem:
            status, reason = problem
            if exercise_id != exercise.id:
                status, reason = "error", f"it needs {exercise_id}: {reason}"
            return Verdict(exercise, status, seed, reason=reason)
    if notebooks.untouched(submission.chapter, exercise, submission.answers(exercise.id)[0].source):
        return _not_attempted(exercise, seed)
    remote = SPARE.take()
    try:
        return _judge_with(remote, submission, exercise, seed)
    except Gone as gone:
        return Verdict(exercise, "error", seed, reason=str(gone))
    finally:
        remote.close()


def run_cases(backend, cases: list[Case], seed: int) -> Iterator[Outcome]:
    """Every case in turn; ends early when the worker is gone."""
    for case in cases:
        outcome = Outcome(case, Learner(backend))
        try:
            case.run(outcome.learner, case.rng(seed))
        except (Wrong, Raised, Gone) as error:
            outcome.error = error
        except Exception as error:  # a case that trips over what the learner returned
            last = outcome.learner.trace[-1][1] if outcome.learner.trace else None
            outcome.error = Wrong(
                f"it returned {describe(last)}, which is unusable here: {error!r}"
            )
        yield outcome
        if isinstance(outcome.error, Gone):
            return


def reference_built(chapter: Chapter) -> Built:
    """The chapter's solved notebook, built like any submission."""
    folder = Path(tempfile.gettempdir()) / "course-reference"
    folder.mkdir(exist_ok=True)
    path = folder / f"{chapter.name}.ipynb"
    notebooks.write(notebooks.build_notebook(chapter, solved=True), path)
    return build(read_submission(chapter, path), folder)


@functools.cache
def reference_runner(chapter: Chapter, misconception: Callable | None = None) -> Runner:
    """The reference solution, with one definition replaced by a misconception if given."""
    runner = Runner()
    built = _reference_built_once(chapter)
    errors = runner.load(str(built.path), _parts(built), _scenarios(chapter))
    if errors:
        raise RuntimeError(f"the reference of chapter {chapter.number} does not load: {errors}")
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


def _judge_with(remote, submission: Submission, exercise: Exercise, seed: int) -> Verdict:
    chapter = submission.chapter
    built = build(submission)
    errors = remote.load(str(built.path), _parts(built), _scenarios(chapter))
    broken = errors.get(exercise.id) or errors.get("")
    if broken:
        reason = f"the cell does not run: {broken}{_at(submission, built, broken.line)}"
        return Verdict(exercise, "error", seed, reason=reason)
    remote.limit(SECONDS)
    cases = [case for case in cases_of(chapter.slug) if case.exercise == exercise.id]
    outcomes = list(run_cases(remote, cases, seed))
    failed = [outcome for outcome in outcomes if outcome.error]
    printed = "".join(outcome.learner.printed for outcome in outcomes)
    counts = {"passed": len(outcomes) - len(failed), "cases": len(cases), "printed": printed}
    if not failed:
        return Verdict(exercise, "passed", seed, **counts)
    if len(failed) == len(outcomes) and all(_is_unwritten(o.error, exercise) for o in failed):
        return _not_attempted(exercise, seed)
    cause = None
    if not isinstance(failed[0].error, Gone):
        cause = likely_cause(chapter, failed, seed)
    failure = _failure(submission, built, failed[0], exercise, cause)
    name = cause.__name__ if cause else ""
    return Verdict(exercise, "failed", seed, failure=failure, misconception=name, **counts)


def _not_attempted(exercise: Exercise, seed: int) -> Verdict:
    return Verdict(exercise, "not attempted", seed, reason="nothing is written in it yet")


def _is_unwritten(error: Exception, exercise: Exercise) -> bool:
    return (
        isinstance(error, Raised)
        and error.not_attempted
        and error.message.startswith(f"exercise {exercise.id}:")
    )


def _failure(submission, built, outcome: Outcome, exercise: Exercise, cause) -> Failure:
    error = outcome.error
    place = ""
    if isinstance(error, Raised):
        message = _say_raised(error, exercise)
        place = _at(submission, built, error.line).removeprefix(", at ")
    else:
        message = str(error)
    call = outcome.learner.trace[-1][0] if outcome.learner.trace else ""
    likely = " ".join(cause.__doc__.split()) if cause else ""
    return Failure(outcome.case.name, outcome.case.promise, message, call, place, likely)


def _say_raised(error: Raised, exercise: Exercise) -> str:
    if not error.not_attempted:
        if error.kind == "AttributeError" and "has no attribute" in error.message:
            for name in exercise.functions:
                if f"'{name}'" in error.message and "'submission'" in error.message:
                    return f"the cell does not define {name}"
        return f"it raised {error}"
    return f"not written yet: {error.message or 'NotImplementedError'}"


def _at(submission: Submission, built: Built, line: int | None) -> str:
    found = built.locate(line) if line else None
    if not found:
        return ""
    cell, within = found
    source = cell.source.split("\n")[within - 1].strip()
    if submission.path.suffix == ".py":
        return f", at {submission.shown_path}, line {cell.first_line + within - 1}: {source}"
    return f", at {submission.shown_path}, cell {cell.number}, line {within}: {source}"


def _parts(built: Built) -> list:
    """The cells that can be run; the others have been reported where they are needed."""
    return [
        [part.cell.exercise or "", part.start, part.end]
        for part in built.parts
        if _parses(part.cell.source)
    ]


def _parses(source: str) -> bool:
    try:
        compile(source, "cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _scenarios(chapter: Chapter) -> str | None:
    name = f"tests.scenarios.{chapter.slug}"
    return name if importlib.util.find_spec(name) else None


def _all_needs(chapter: Chapter, exercise: Exercise) -> list[str]:
    """The exercises that this one calls, the ones that those call included."""
    needs: list[str] = []
    for exercise_id in exercise.needs:
        for needed in (*_all_needs(chapter, chapter.exercise(exercise_id)), exercise_id):
            if needed not in needs:
                needs.append(needed)
    return needs


_reference_built_once = functools.cache(reference_built)


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


def _arguments(args: tuple, kwargs: dict) -> str:
    shown = [_shown(arg) for arg in args]
    shown += [f"{name}={_shown(value)}" for name, value in kwargs.items()]
    return ", ".join(shown)


def _shown(value) -> str:
    if isinstance(value, Tensor):
        return describe(value)
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _travel(message: dict) -> dict:
    stream = io.BytesIO()
    wire.send(stream, message)
    stream.seek(0)
    return wire.receive(stream)
