"""From a submission and an exercise to a verdict.

The cases run in this process; the learner's code runs in a worker of its own. Nothing that the code
does to its process can reach the judge: only plain data comes back.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from course import notebooks
from course.cases import Case, cases_of
from course.likely import likely_cause
from course.loading import Unusable, load, place
from course.manifest import Chapter, Exercise
from course.paths import WORK
from course.remote import SPARE, Gone, Remote
from course.runner import PRINT_LIMIT
from course.submission import Built, Submission, build, problem_with
from course.trial import Outcome, run_cases
from course.wire import Raised

SECONDS = 30.0  # for one exercise; the reference needs less than one


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


@dataclass
class Court:
    """Under what conditions a submission is judged, and what is known of it from before.

    The default is that of a learner's own `check`; `grade` has workers in a sandbox, and keeps one
    court for all exercises of a submission.
    """

    workers: object = SPARE  # its take() gives a Remote
    seconds: float | None = None  # for the cases of one exercise; None: SECONDS
    folder: Path = WORK  # where the module is built
    harmful: dict = field(default_factory=dict)  # cells that ended a worker: what happened
    right: dict = field(default_factory=dict)  # by exercise, whether it passed

    def limit(self) -> float:
        """Seconds for the cases of one exercise."""
        return SECONDS if self.seconds is None else self.seconds


def judge(
    submission: Submission, exercise: Exercise, seed: int, court: Court | None = None
) -> Verdict:
    """Run every case of one exercise against a submission, in a worker of its own."""
    court = court or Court()
    problem = problem_before(submission, exercise)
    if problem:
        return Verdict(exercise, problem[0], seed, reason=problem[1])
    if notebooks.untouched(submission.chapter, exercise, submission.answers(exercise.id)[0].source):
        return _not_attempted(exercise, seed)
    built = build(submission, court.folder)
    try:
        remote = load(submission, built, exercise, court.workers, court.harmful)
    except (Unusable, Gone) as problem:
        return Verdict(exercise, "error", seed, reason=str(problem))
    try:
        remote.limit(court.limit())
        return _judge_with(remote, submission, built, exercise, seed, court)
    finally:
        remote.close()


def problem_before(submission: Submission, exercise: Exercise) -> tuple[str, str] | None:
    """Why the exercise, or one that it uses, cannot even be run: (status, reason)."""
    problem = problem_with(submission, exercise.id)
    if problem:
        return problem
    for needed in submission.chapter.all_needs(exercise):
        problem = problem_with(submission, needed)
        if problem:
            return "error", f"it uses {needed}: {problem[1]}"
    return None


def _judge_with(
    remote: Remote,
    submission: Submission,
    built: Built,
    exercise: Exercise,
    seed: int,
    court: Court,
) -> Verdict:
    chapter = submission.chapter
    outcomes = _run(remote, chapter, exercise, seed)
    failed = [outcome for outcome in outcomes if outcome.error]
    facts = {
        "passed": len(outcomes) - len(failed),
        "cases": len(cases_for(chapter, exercise)),
        "printed": "".join(outcome.learner.printed for outcome in outcomes)[:PRINT_LIMIT],
    }
    if not failed:
        return Verdict(exercise, "passed", seed, **facts)
    if len(failed) == len(outcomes) and all(_is_unwritten(o.error, exercise) for o in failed):
        return _not_attempted(exercise, seed)
    found = None if _is_gone(failed) else likely_cause(chapter, outcomes, seed)
    if found:
        wrong, shown = found.misconception, found.shown
        words, target = " ".join(wrong.__doc__.split()), wrong.target.split(".")[-1]
        likely = words if found.is_all else f"Perhaps, and something else is wrong too: {words}"
        name = wrong.__name__ if found.is_all else ""
    else:
        shown, name, target = failed[0], "", ""
        likely = _rests_on_a_fault(remote, submission, built, shown, exercise, seed, court)
    failure = _failure(submission, built, shown, exercise, likely, target)
    return Verdict(exercise, "failed", seed, failure=failure, misconception=name, **facts)


def _run(remote: Remote, chapter: Chapter, exercise: Exercise, seed: int) -> list[Outcome]:
    return list(run_cases(remote, cases_for(chapter, exercise), seed))


def cases_for(chapter: Chapter, exercise: Exercise) -> list[Case]:
    """The cases of one exercise."""
    return [case for case in cases_of(chapter.slug) if case.exercise == exercise.id]


def _is_gone(outcomes: list[Outcome]) -> bool:
    return isinstance(outcomes[-1].error, Gone)


def _rests_on_a_fault(
    remote: Remote,
    submission: Submission,
    built: Built,
    shown: Outcome,
    exercise: Exercise,
    seed: int,
    court: Court,
) -> str:
    """Words about an exercise below this one that is not right; empty when all are."""
    if isinstance(shown.error, Gone):
        return ""
    raised_in = ""
    if isinstance(shown.error, Raised) and (found := built.locate(shown.error.line)):
        raised_in = found[0].exercise or ""
    needs = submission.chapter.all_needs(exercise)
    for needed in sorted(needs, key=lambda needed: needed != raised_in):  # that one first
        if needed not in court.right:
            below = submission.chapter.exercise(needed)
            outcomes = _run(remote, submission.chapter, below, seed)
            if _is_gone(outcomes):  # perhaps for want of time: nothing is known of it
                return ""
            court.right[needed] = not any(outcome.error for outcome in outcomes)
        if not court.right[needed]:
            return f"It uses {needed}, which does not pass its own check yet: begin there."
    if raised_in in needs:
        return f"Exercise {raised_in} is right, and refused what it was asked: look at the call."
    return ""


def _not_attempted(exercise: Exercise, seed: int) -> Verdict:
    return Verdict(exercise, "not attempted", seed, reason="nothing is written in it yet")


def _is_unwritten(error: Exception, exercise: Exercise) -> bool:
    return (
        isinstance(error, Raised)
        and error.not_attempted
        and (not error.message or error.message.startswith(f"exercise {exercise.id}:"))
    )


def _failure(
    submission: Submission,
    built: Built,
    outcome: Outcome,
    exercise: Exercise,
    likely: str,
    target: str,
) -> Failure:
    error = outcome.error
    call = outcome.learner.trace[-1][0] if outcome.learner.trace else ""
    if isinstance(error, Raised):
        message, line = _say_raised(error, submission), _own_line(built, error, exercise)
    else:
        message, case = str(error), outcome.case
        spoken = _spoken_of((call, message, case.name, case.promise), exercise.functions)
        line = _line_of(built, (target, *spoken), exercise)
    where = place(submission, built, line)
    return Failure(outcome.case.name, outcome.case.promise, message, call, where, likely)


def _say_raised(error: Raised, submission: Submission) -> str:
    if error.not_attempted:
        return f"not written yet: {error.message or 'NotImplementedError'}"
    said = f"it raised {error.kind}: {' '.join(error.message.split())}"
    unknown = re.match(r"name '(\w+)' is not defined", error.message)
    if unknown and unknown[1] in submission.elsewhere:
        return f"{said}; {submission.elsewhere[unknown[1]]}"
    return said


def _own_line(built: Built, error: Raised, exercise: Exercise) -> int | None:
    """The innermost line of the exercise's own cell on the way to an exception, or of any."""
    own = (line for line in reversed(error.lines) if _is_in(built, line, exercise))
    return next(own, error.line)


def _is_in(built: Built, line: int, exercise: Exercise) -> bool:
    """Whether a line of the built file is of the exercise's own cell."""
    found = built.locate(line)
    return found is not None and found[0].exercise == exercise.id


def _spoken_of(texts: tuple[str, ...], functions: tuple[str, ...]) -> list[str]:
    """The definitions of an exercise that the texts name, the first text first; or the only one.

    Where nothing says which of several is meant, a line would mislead: then there is none.
    """
    if len(functions) == 1:
        return list(functions)
    # letters on neither side: a case is named "pack_of_ones", and is not about unpack
    name = re.compile(rf"(?<![a-zA-Z])({'|'.join(functions)})(?![a-zA-Z])")
    return [found for text in texts for found in name.findall(text)]


def _line_of(built: Built, names: tuple[str, ...], exercise: Exercise) -> int | None:
    """Where the exercise's own cell defines the first of these functions or classes it has."""
    lines = built.path.read_text(encoding="utf-8").split("\n")
    own = [n for n in range(1, len(lines) + 1) if _is_in(built, n, exercise)]
    for name in filter(None, names):
        found = [n for n in own if re.match(rf"\s*(def|class) {name}\b", lines[n - 1])]
        if found:
            return found[-1]  # a later definition replaces an earlier one
    return None
