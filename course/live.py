"""The cells of a running notebook, as last executed, over those of its saved file."""

import hashlib
from pathlib import Path

from course.manifest import Chapter
from course.paths import WORK
from course.submission import (
    Cell,
    Submission,
    SubmissionError,
    find_submission,
    marked_cells,
    read_submission,
)


def live_submission(chapter: Chapter, executed: list[str], folder: Path = WORK) -> Submission:
    """The cells as last executed in a running notebook, over the saved file for the others.

    Args:
        executed: the source of every cell run in this kernel, oldest first.
    """
    live = {cell.key: cell for cell in marked_cells((source, 0, 1) for source in executed)}
    live = {key: cell for key, cell in live.items() if _belongs(cell, chapter)}
    try:
        saved = read_submission(chapter, find_submission(chapter, folder))
    except SubmissionError as problem:
        if not live:
            raise
        return _unsaved(chapter, tuple(live.values()), folder, problem)
    cells = tuple(_merge(cell, live) for cell in saved.cells)
    differ = [f"{c.exercise}" for c, s in zip(cells, saved.cells, strict=True) if c != s]
    stale = [c.exercise for c in saved.cells if c.exercise and c.key not in live]
    notes = []
    if any(exercise != "None" for exercise in differ):
        changed = ", ".join(exercise for exercise in differ if exercise != "None")
        notes.append(f"the saved file differs from what you ran ({changed}): save the notebook")
    return Submission(
        chapter, saved.path, saved.sha256, saved.saved_at, cells, (*notes, *_stale_note(stale))
    )


def _belongs(cell: Cell, chapter: Chapter) -> bool:
    return cell.exercise is None or cell.exercise.split(".")[0] == str(chapter.number)


def _merge(saved: Cell, live: dict) -> Cell:
    """The live source at the saved cell's place."""
    source = live[saved.key].source if saved.key in live else saved.source
    return Cell(source, saved.number, saved.first_line, saved.exercise)


def _unsaved(chapter, cells, folder, problem) -> Submission:
    text = "\n".join(cell.source for cell in cells)
    note = f"judged from the cells run in this notebook alone, since {problem}"
    path = folder / f"{chapter.name}.ipynb"
    return Submission(
        chapter, path, hashlib.sha256(text.encode()).hexdigest(), None, cells, (note,)
    )


def _stale_note(stale: list[str]) -> list[str]:
    if not stale:
        return []
    return [f"not run in this kernel, so read from the saved file: {', '.join(stale)}"]
