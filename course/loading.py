"""A learner's module in a worker: all marked cells run, in order, as the notebook would."""

from collections import Counter

from course.manifest import Chapter, Exercise
from course.remote import SPARE, Gone, Remote
from course.submission import Built, Part, Submission
from course.wire import Raised

SECONDS = 20.0  # for all cells together to define what they define
LONGEST_LINE = 200  # characters of a learner's line that are shown


class Unusable(Exception):
    """The exercise cannot be called; the message says why and where."""


def load(
    submission: Submission,
    built: Built,
    exercise: Exercise,
    workers=SPARE,
    harmful: dict | None = None,
) -> Remote:
    """A worker in which the module of a submission is ready to be called.

    A cell that ends the worker, or does not finish, and that this exercise does not use is left
    out: one bad cell must not cost the other exercises their verdict.

    Args:
        workers: its take() gives a Remote.
        harmful: the cells known to do so, and what they did; what is found is added.

    Errors: Unusable when a cell that the exercise uses does not run, or does not define what it
    should. Close the worker after use.
    """
    used = {None, exercise.id, *submission.chapter.all_needs(exercise)}
    harmful = {} if harmful is None else harmful
    while True:
        _refuse_harm(harmful, used)
        remote = workers.take()
        try:
            if _run_cells(remote, submission, built, used, harmful):
                _require_names(remote, exercise)
                return remote
        except BaseException:
            remote.close()
            raise
        remote.close()


def place(submission: Submission, built: Built, line: int | None) -> str:
    """Where a line of the built module stands in the learner's file; empty when it does not."""
    found = built.locate(line)
    if not found:
        return ""
    cell, within = found
    source = cell.source.split("\n")[within - 1].strip()
    source = source if len(source) <= LONGEST_LINE else f"{source[:LONGEST_LINE]}…"
    if submission.path.suffix == ".py":
        return f"{submission.shown_path}, line {cell.first_line + within - 1}: {source}"
    return f"{submission.shown_path}, {cell.title}, line {within}: {source}"


def _refuse_harm(harmful: dict, used: set) -> None:
    for cell, did in harmful.items():
        if cell.exercise in used:
            raise Unusable(f"{cell.title} does not run: {did}")


def _run_cells(
    remote: Remote, submission: Submission, built: Built, used: set, harmful: dict
) -> bool:
    """Run the cells; False when one of them has to be left out next time."""
    chapter: Chapter = submission.chapter
    remote.limit(SECONDS)
    remote.open(str(built.path), chapter.scenarios)
    counts = Counter(cell.exercise for cell in submission.cells)
    known = {None, *(e.id for e in chapter.exercises if counts[e.id] == 1)}
    for part in built.parts:
        cell = part.cell
        if cell.exercise not in known or cell in harmful or cell.broken:
            continue  # of two cells for one exercise none counts; so there are few that may hang
        try:
            raised = remote.run_cell(part.start, part.end)
        except Gone as gone:
            harmful[part.cell] = str(gone)
            return False
        if raised and part.cell.exercise in used:
            raise Unusable(_say(raised, submission, built, part))
    return True


def _say(raised: Raised, submission: Submission, built: Built, part: Part) -> str:
    where = place(submission, built, raised.line)
    at = f", at {where}" if where else ""
    return f"{part.cell.title} does not run: it raised {raised.kind}: {raised.message}{at}"


def _require_names(remote: Remote, exercise: Exercise) -> None:
    defined = remote.names()
    missing = [name for name in exercise.functions if name not in defined]
    if missing:
        raise Unusable(f"its cell does not define {', '.join(missing)}: was it renamed?")
