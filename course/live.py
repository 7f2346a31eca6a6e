"""The cells of a running notebook, as last executed, over those of its saved file."""

import hashlib
from dataclasses import replace
from pathlib import Path

from course.manifest import Chapter
from course.paths import WORK
from course.submission import (
    Cell,
    Kernel,
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

    Errors: SubmissionError when no marked cell was run and there is no file to judge.
    """
    live = {cell.key: cell for cell in marked_cells((source, 0, 1) for source in executed)}
    live = {key: cell for key, cell in live.items() if _belongs(cell, chapter)}
    try:
        saved = read_submission(chapter, find_submission(chapter, folder))
    except SubmissionError as problem:
        if not live:
            raise
        return _without_file(chapter, tuple(live.values()), folder, problem)
    cells = tuple(_merge(cell, live) for cell in saved.cells)
    pairs = zip(cells, saved.cells, strict=True)
    differ = tuple(ours.exercise for ours, theirs in pairs if ours != theirs and ours.exercise)
    stale = tuple(cell.exercise for cell in cells if cell.exercise and cell.key not in live)
    return replace(saved, cells=cells, kernel=Kernel(differ, stale))


def _belongs(cell: Cell, chapter: Chapter) -> bool:
    return cell.exercise is None or cell.exercise.split(".")[0] == str(chapter.number)


def _merge(saved: Cell, live: dict) -> Cell:
    """The live source at the saved cell's place."""
    return replace(saved, source=live[saved.key].source) if saved.key in live else saved


def _without_file(chapter: Chapter, cells: tuple[Cell, ...], folder: Path, problem) -> Submission:
    text = "\n".join(cell.source for cell in cells)
    path = folder / f"{chapter.name}.ipynb"
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return Submission(chapter, path, sha256, None, cells, Kernel(no_file=str(problem)))
