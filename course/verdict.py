"""A verdict in words: what a learner reads after `check`."""

import textwrap

from course.judge import Verdict
from course.manifest import Chapter
from course.submission import Submission

WIDTH = 96
LABEL = 9


def render(verdict: Verdict, submission: Submission, hints_left: int | None) -> str:
    """The whole message, as plain text; hints_left is None where nobody counts hints."""
    lines = [headline(verdict)]
    lines += _field("judged", _identity(submission))
    for note in _notes(submission, verdict):
        lines += _field("note", note)
    if verdict.status == "passed":
        lines += _field("passed", f"{verdict.cases} public checks (seed {verdict.seed})")
    elif verdict.failure:
        lines += _explain(verdict)
    else:
        lines += _field("why", verdict.reason)
    if verdict.printed:
        lines += _field("printed", verdict.printed.strip()[:400])
    if verdict.status != "passed":
        lines += _what_next(verdict, submission.chapter, hints_left)
    return "\n".join(lines)


def no_file(chapter: Chapter, problem: Exception) -> str:
    """The message when there is nothing to judge."""
    return f"chapter {chapter.number}  nothing to judge\n" + "\n".join(_field("why", str(problem)))


def headline(verdict: Verdict) -> str:
    """Exercise, outcome and points on one line."""
    exercise = verdict.exercise
    words = {"failed": "not right yet", "error": "cannot be judged", "missing": "missing"}
    status = words.get(verdict.status, verdict.status)
    points = f"{verdict.points} of {exercise.points} points"
    return f"{exercise.id} {exercise.title}: {status}, {points}"


def _identity(submission: Submission) -> str:
    saved = submission.saved_at
    when = f"saved {saved:%Y-%m-%d %H:%M:%S}, " if saved else "not saved, "
    when = when if saved or submission.kernel else ""  # of an upload, the time says nothing
    file = f"{submission.shown_path}, {when}SHA-256 {submission.sha256[:16]}…"
    return f"as run in this kernel; file {file}" if submission.kernel else file


def _notes(submission: Submission, verdict: Verdict) -> list[str]:
    kernel, notes = submission.kernel, []
    if kernel is None:
        return notes
    if kernel.no_file:
        notes.append(f"judged from the cells run in this kernel alone, since {kernel.no_file}")
    used = (verdict.exercise.id, *submission.chapter.all_needs(verdict.exercise))
    stale = [exercise for exercise in kernel.stale if exercise in used]
    if stale:
        notes.append(f"not run in this kernel, so read from the file: {', '.join(stale)}")
    if kernel.differ:
        notes.append(
            f"the file is not what you ran ({', '.join(kernel.differ)}): save the notebook"
        )
    return notes


def _explain(verdict: Verdict) -> list[str]:
    failure = verdict.failure
    lines = _field("promise", failure.promise)
    if failure.call:
        lines += _field("called", failure.call)
    lines += _field("found", failure.message)
    if failure.place:
        lines += _field("line", failure.place)
    if failure.likely:
        lines += _field("likely", failure.likely)
    return lines + _field("so far", f"{verdict.passed} of {verdict.cases} checks pass")


def _what_next(verdict: Verdict, chapter: Chapter, hints_left: int | None) -> list[str]:
    exercise = verdict.exercise
    lines = _field("reread", f"chapters/{chapter.name}/README.md#{exercise.section}")
    lines += _field("again", f"python -m course check {exercise.id} --seed {verdict.seed}")
    if hints_left is None:
        return lines
    if hints_left:
        s = "s" if hints_left > 1 else ""
        return lines + _field("hints", f"{hints_left} hint{s} left: {_both('hint', exercise.id)}")
    return lines + _field("hints", f"none left; our answer: {_both('solution', exercise.id)}")


def _both(verb: str, exercise_id: str) -> str:
    """How to ask for it, in a notebook and on the command line."""
    return f'{verb}("{exercise_id}") or `python -m course {verb} {exercise_id}`'


def _field(label: str, text: str) -> list[str]:
    indent = " " * (LABEL + 2)
    first = f"  {label:{LABEL}}"
    lines = []
    for paragraph in "".join(c if c.isprintable() or c == "\n" else " " for c in text).split("\n"):
        lines += textwrap.wrap(
            paragraph,
            WIDTH,
            initial_indent=indent if lines else first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [indent]
    return lines
