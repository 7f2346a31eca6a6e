"""A learner's module in a worker: all marked cells run, in order, as the notebook would."""

from course.manifest import Chapter, Exercise
from course.remote import SPARE, Gone, Remote
from course.submission import Built, Part, Submission
from course.wire import Raised

SECONDS = 20.0  # for all cells together to define what they define


class Unusable(Exception):
    """The exercise cannot be called; the message says why and where."""


def load(submission: Submission, built: Built, exercise: Exercise) -> Remote:
    """A worker in which the module of a submission is ready to be called.

    A cell that ends the worker, or does not finish, and that this exercise does not use is left
    out: one bad cell must not cost the other exercises their verdict.

    Errors: Unusable when a cell that the exercise uses does not run, or does not define what it
    should. Close the worker after use.
    """
    used = {None, exercise.id, *submission.chapter.all_needs(exercise)}
    left_out: list[Part] = []
    while True:
        remote = SPARE.take()
        try:
            harmful = _run_cells(remote, submission, built, used, left_out)
            if harmful is None:
                _require_names(remote, exercise)
                return remote
        except BaseException:
            remote.close()
            raise
        remote.close()
        left_out.append(harmful)


def place(submission: Submission, built: Built, line: int | None) -> str:
    """Where a line of the built module stands in the learner's file; empty when it does not."""
    found = built.locate(line)
    if not found:
        return ""
    cell, within = found
    source = cell.source.split("\n")[within - 1].strip()
    if submission.path.suffix == ".py":
        return f"{submission.shown_path}, line {cell.first_line + within - 1}: {source}"
    return f"{submission.shown_path}, {cell.title}, line {within}: {source}"


def _run_cells(
    remote: Remote, submission: Submission, built: Built, used: set, left_out: list[Part]
) -> Part | None:
    """Run the cells; returns one that has to be left out next time, or None when all is well."""
    chapter: Chapter = submission.chapter
    remote.limit(SECONDS)
    remote.open(str(built.path), chapter.scenarios)
    for part in built.parts:
        if part.cell.broken or part in left_out:
            continue
        try:
            raised = remote.run_cell(part.start, part.end)
        except Gone as gone:
            if part.cell.exercise in used:
                raise Unusable(f"{part.cell.title} does not run: {gone}") from None
            return part
        if raised and part.cell.exercise in used:
            raise Unusable(_say(raised, submission, built, part))
    return None


def _say(raised: Raised, submission: Submission, built: Built, part: Part) -> str:
    where = place(submission, built, raised.line)
    at = f", at {where}" if where else ""
    return f"{part.cell.title} does not run: it raised {raised.kind}: {raised.message}{at}"


def _require_names(remote: Remote, exercise: Exercise) -> None:
    defined = remote.names()
    missing = [name for name in exercise.functions if name not in defined]
    if missing:
        raise Unusable(f"its cell does not define {', '.join(missing)}: was it renamed?")
