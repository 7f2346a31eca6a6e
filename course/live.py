"""The cells of a running notebook, as last executed, over those of its saved file."""

import hashlib
from dataclasses import replace
from pathlib import Path

from course.cells import Cell, Raw, SubmissionError, marked, near_misses, unmarked_names
from course.manifest import Chapter
from course.paths import WORK
from course.submission import Kernel, Submission, find_submission, read_submission


def live_submission(chapter: Chapter, executed: list[str], folder: Path = WORK) -> Submission:
    """The cells as last executed in a running notebook, over the saved file for the others.

    Args:
        executed: the source of every cell run in this kernel, oldest first.

    Errors: SubmissionError when no marked cell was run and there is no file to judge.
    """
    raw = [Raw(source, 0, origin="kernel") for source in executed]
    live = {cell.key: cell for cell in marked(raw) if _belongs(cell, chapter)}
    try:
        saved = read_submission(chapter, find_submission(chapter, folder))
    except SubmissionError as problem:
        if not live:
            raise
        saved = _without_file(chapter, tuple(live.values()), folder, problem)
    else:
        saved = _over(saved, live)
    elsewhere = {**saved.elsewhere, **unmarked_names(raw)}
    return replace(saved, elsewhere=elsewhere, nearly={**saved.nearly, **near_misses(raw)})


def _over(saved: Submission, live: dict[tuple, Cell]) -> Submission:
    """The saved file with what was run in place of what was saved."""
    cells = tuple(_merge(cell, live) for cell in saved.cells)
    pairs = zip(cells, saved.cells, strict=True)
    differ = tuple(ours.exercise for ours, theirs in pairs if ours != theirs and ours.exercise)
    stale = tuple(cell.exercise for cell in cells if cell.exercise and cell.key not in live)
    known = {cell.key for cell in cells}
    unsaved = tuple(cell for cell in live.values() if cell.exercise and cell.key not in known)
    differ += tuple(cell.exercise for cell in unsaved)
    return replace(saved, cells=cells + unsaved, kernel=Kernel(differ, stale))


def _belongs(cell: Cell, chapter: Chapter) -> bool:
    return cell.exercise is None or cell.exercise.split(".")[0] == str(chapter.number)


def _merge(saved: Cell, live: dict) -> Cell:
    """The live source at the saved cell's place."""
    return replace(saved, source=live[saved.key].source) if saved.key in live else saved


def _without_file(chapter: Chapter, cells: tuple[Cell, ...], folder: Path, problem) -> Submission:
    text = "\n".join(cell.source for cell in cells)
    path = folder / f"{chapter.name}.ipynb"
    sha256 = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return Submission(chapter, path, sha256, None, cells, Kernel(no_file=str(problem)))
