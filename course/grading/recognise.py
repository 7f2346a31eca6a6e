"""Which chapters a submission answers, told by the exercise marks in its files, not by names."""

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

from course import manifest, notebooks
from course.cells import LONGEST, Cell, SubmissionError, near_misses, notebook_cells, script_cells
from course.cells import marked as marked_cells
from course.grading.files import Source
from course.manifest import Chapter
from course.submission import Submission, submission_of

MOST_NAMED = 5  # files of a kind


@dataclass
class Handed:
    """What was handed in: a file for each chapter, or why there is none that can be judged."""

    answers: dict[Chapter, Submission] = field(default_factory=dict)
    problems: dict[Chapter, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def recognise(sources: list[Source]) -> Handed:
    """Sort the files of a submission by chapter.

    Of two files for one chapter, one that is still as it was handed out, or whose marked cells are
    those of the other, does not count. Where two are left, the chapter cannot be judged.
    """
    handed = Handed()
    unmarked: list[str] = []
    found: dict[Chapter, list[Submission]] = defaultdict(list)
    for source in sources:
        try:
            for submission in _by_chapter(source, handed.notes, unmarked):
                found[submission.chapter].append(submission)
        except SubmissionError as problem:
            handed.notes.append(str(problem))
    handed.notes += _say_unmarked(unmarked)
    for chapter in sorted(found, key=lambda chapter: chapter.number):
        candidates = _different([s for s in found[chapter] if _begun(s)] or found[chapter])
        if len(candidates) == 1:
            handed.answers[chapter] = candidates[0]
        else:
            handed.problems[chapter] = _ambiguous(chapter, candidates)
        if len(found[chapter]) > 1 and len(candidates) == 1:
            handed.notes.append(
                f"chapter {chapter.number}: {len(found[chapter])} files answer it; judged is "
                f"{candidates[0].path}, since the others are copies of it or not begun"
            )
    return handed


def fingerprint(submission: Submission) -> str:
    """What two files with the same answers share, however they were saved."""
    cells = sorted((cell.exercise or "", _plain(cell.source)) for cell in submission.cells)
    return hashlib.sha256(repr(cells).encode(errors="replace")).hexdigest()


def answers_fingerprint(submission: Submission) -> str:
    """As fingerprint, of the exercises that were begun alone; empty where none was."""
    cells = sorted(_plain(cell.source) for cell in _begun_cells(submission))
    return hashlib.sha256(repr(cells).encode(errors="replace")).hexdigest() if cells else ""


def _say_unmarked(names: list[str]) -> list[str]:
    """One note on all files in which nothing is marked."""
    what = "no cell that begins with `#| exercise N.M`"
    if len(names) < 2:
        return [f"{name} has {what}: not judged" for name in names]
    return [f"{len(names)} files have {what}: not judged are {', '.join(_first(names))}"]


def _first(names: list[str]) -> list[str]:
    """The first names, and a sign that there are more."""
    return [*names[:MOST_NAMED], *["…"] * (len(names) > MOST_NAMED)]


def _by_chapter(source: Source, notes: list[str], unmarked: list[str]) -> list[Submission]:
    """One submission for each chapter that has a mark in a file."""
    path = Path(source.name)
    if not source.data:
        raise SubmissionError(f"{source.name} is empty: nothing was saved in it")
    suffix = path.suffix.lower()
    try:
        raw = (notebook_cells if suffix == ".ipynb" else script_cells)(source.data)
    except SubmissionError as problem:
        raise SubmissionError(f"{source.name} is {problem}") from None
    ids = {cell.exercise for cell in marked_cells(raw) if cell.exercise}
    if not ids:
        notes.extend(f"{source.name}: {fix}" for fix in near_misses(raw).values())
        unmarked.append(source.name)
        return []
    found = []
    for number in sorted({int(exercise.split(".")[0]) for exercise in ids}):
        try:
            chapter = manifest.find_chapter(number)
        except manifest.Unknown as problem:
            notes.append(f"{source.name}: {problem}")
            continue
        whole = submission_of(chapter, path.with_suffix(suffix), source.data)
        cells = tuple(cell for cell in whole.cells if _belongs(cell, chapter))
        known = {exercise.id for exercise in chapter.exercises}
        strange = sorted({c.exercise for c in cells if c.exercise} - known)
        if strange:
            notes.append(f"{source.name}: there is no exercise {', '.join(strange)}")
        found.append(replace(whole, path=path, cells=cells))
    return found


def _belongs(cell: Cell, chapter: Chapter) -> bool:
    return cell.exercise is None or cell.exercise.split(".")[0] == str(chapter.number)


def _begun(submission: Submission) -> bool:
    return bool(_begun_cells(submission))


def _begun_cells(submission: Submission) -> list[Cell]:
    """The exercise cells that are not as they were handed out."""
    chapter = submission.chapter
    exercises = {exercise.id: exercise for exercise in chapter.exercises}
    return [
        cell
        for cell in submission.cells
        if cell.exercise in exercises
        and (
            len(cell.source) > LONGEST  # than which no parser shall see more
            or not notebooks.untouched(chapter, exercises[cell.exercise], cell.source)
        )
    ]


def _different(submissions: list[Submission]) -> list[Submission]:
    """One of each group with the same marked cells: the first by name."""
    by_name = sorted(submissions, key=lambda s: (len(str(s.path)), str(s.path)), reverse=True)
    return list({fingerprint(submission): submission for submission in by_name}.values())


def _ambiguous(chapter: Chapter, candidates: list[Submission]) -> str:
    names = " and ".join(_first(sorted(str(candidate.path) for candidate in candidates)))
    both = "both" if len(candidates) == 2 else "all"
    return f"{names} {both} answer chapter {chapter.number}: hand in the one that counts"


def _plain(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().split("\n"))
