"""A learner's file as the judge sees it: its marked cells, and the module built from them.

The notebook is the submission. Cells without a mark (course/cells.py) are for looking around and
never run here.
"""

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from course.cells import (
    LONGEST,
    Cell,
    Raw,
    SubmissionError,
    marked,
    near_misses,
    notebook_cells,
    script_cells,
    unmarked_names,
)
from course.manifest import Chapter
from course.paths import ROOT, WORK

LARGEST = 20 * 2**20  # bytes; a notebook beyond this carries outputs that do not belong in it
MOST_CODE = 2 * LONGEST  # characters in all marked cells that can be read, which is done often
MOST_CELLS = 500


@dataclass(frozen=True)
class Kernel:
    """What the cells of a running notebook have to do with its saved file."""

    differ: tuple[str, ...] = ()  # exercises whose cell, as run, is not as saved
    stale: tuple[str, ...] = ()  # exercises whose cell was not run, so read from the file
    no_file: str = ""  # why there is no file


@dataclass(frozen=True)
class Submission:
    """All marked cells of one chapter's file, and what identifies the file."""

    chapter: Chapter
    path: Path
    sha256: str
    saved_at: datetime | None
    cells: tuple[Cell, ...]
    kernel: Kernel | None = None
    # By name, that a cell without a mark defines it; by exercise, what is nearly its mark.
    elsewhere: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    nearly: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def shown_path(self) -> str:
        """The path as a person would type it."""
        return shown(self.path)

    def answers(self, exercise_id: str | None) -> list[Cell]:
        """The cells that claim to answer an exercise; one, if all is well. None: the provided."""
        return [cell for cell in self.cells if cell.exercise == exercise_id]


@dataclass(frozen=True)
class Part:
    """A stretch of the built module that came from one cell."""

    cell: Cell
    start: int  # first line in the built file, from 1
    end: int


@dataclass(frozen=True)
class Built:
    """The module file made from a submission, and which lines came from where."""

    path: Path
    parts: tuple[Part, ...] = field(repr=False)

    def locate(self, line: int | None) -> tuple[Cell, int] | None:
        """The cell and the line within it (from 1) of a line of the built file."""
        for part in self.parts:
            if line is not None and part.start <= line <= part.end:
                return part.cell, line - part.start + 1
        return None


def find_submission(chapter: Chapter, folder: Path = WORK) -> Path:
    """The learner's one file for a chapter, a notebook or a .py.

    Errors: SubmissionError when there is none, or when there are two.
    """
    found = [p for suffix in (".ipynb", ".py") if (p := folder / (chapter.name + suffix)).exists()]
    if len(found) == 2:
        raise SubmissionError(
            f"there are two files for chapter {chapter.number}, {shown(found[0])} and "
            f"{shown(found[1])}: keep the one you work in and move the other away"
        )
    if not found:
        raise SubmissionError(
            f"there is no {shown(folder / chapter.name)}.ipynb (or .py) to judge: type "
            f"`python -m course start {chapter.number}` to get one; if you renamed it, name it back"
        )
    return found[0]


def read_submission(chapter: Chapter, path: Path) -> Submission:
    """Read a chapter's file.

    Errors: SubmissionError when it cannot be read, is empty, too large, not a notebook, or has no
    marked cell.
    """
    try:
        data, saved_at = _bytes(path), datetime.fromtimestamp(path.stat().st_mtime)
    except OSError as problem:
        raise SubmissionError(
            f"{shown(path)} cannot be read ({problem.strerror or problem}): move it away or mend it"
        ) from problem
    except SubmissionError as problem:
        raise SubmissionError(f"{shown(path)} is {problem}") from problem.__cause__
    return submission_of(chapter, path, data, saved_at)


def submission_of(
    chapter: Chapter, path: Path, data: bytes, saved_at: datetime | None = None
) -> Submission:
    """The submission that these bytes are; path only names them. Errors: see read_submission."""
    try:
        raw = notebook_cells(data) if path.suffix == ".ipynb" else script_cells(data)
    except SubmissionError as problem:
        raise SubmissionError(f"{shown(path)} is {problem}") from problem.__cause__
    cells, nearly = tuple(marked(raw)), near_misses(raw)
    if not cells:
        fix = next(iter(nearly.values()), "take the marks from a fresh copy of the chapter")
        raise SubmissionError(
            f"{shown(path)} has no cell that begins with `#| exercise N.M`, the mark that tells "
            f"the judge which cells to read; {fix}"
        )
    size = sum(len(cell.source) for cell in cells if len(cell.source) <= LONGEST)
    if size > MOST_CODE or len(cells) > MOST_CELLS:
        raise SubmissionError(
            f"{shown(path)} has {size} characters in {len(cells)} marked cells: {MOST_CODE} in "
            f"{MOST_CELLS} are the most; take out what does not belong in them"
        )
    sha256 = hashlib.sha256(data).hexdigest()
    return Submission(
        chapter, path, sha256, saved_at, cells, elsewhere=_elsewhere(raw), nearly=nearly
    )


def _elsewhere(raw: list[Raw]) -> dict[str, str]:
    """What cells without a mark define; of a file with very much code it is not asked."""
    small = sum(len(cell.source) for cell in raw if cell.code) <= 2 * MOST_CODE
    return unmarked_names(raw) if small else {}


def build(submission: Submission, folder: Path = WORK) -> Built:
    """Write the marked cells as one module under .build/, so that tracebacks show real lines.

    Cells that do not parse are written too, and skipped when the module is loaded.
    """
    lines: list[str] = []
    parts = []
    for cell in submission.cells:
        where = f"{submission.path.name}, cell {cell.number}"
        lines += ["", f"# ---- {where} ----"]
        source = cell.source.split("\n")
        parts.append(Part(cell, len(lines) + 1, len(lines) + len(source)))
        lines += source
    text = "\n".join(lines) + "\n"
    path = folder / ".build" / f"{submission.chapter.name}_{_digest(text)}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="replace")  # half a surrogate does not parse
    return Built(path, tuple(parts))


def problem_with(submission: Submission, exercise_id: str) -> tuple[str, str] | None:
    """Why an exercise cannot even be run: (status, reason), or None when it can."""
    for cell in submission.answers(None):
        if reason := _spoiled(cell, submission.chapter):
            return "error", f"{reason}; restore it from a fresh copy of the chapter"
    cells = submission.answers(exercise_id)
    if not cells:
        fix = submission.nearly.get(exercise_id, "take the cell from a fresh copy of the chapter")
        return "missing", (
            f"{submission.shown_path} has no cell that begins with `#| exercise {exercise_id}`; "
            f"{fix}"
        )
    if len(cells) > 1:
        return "error", (
            f"{len(cells)} cells begin with `#| exercise {exercise_id}`: keep one, and remove the "
            "mark from the others"
        )
    if reason := _unparsable(cells[0]):
        return "error", reason
    if reason := _borrowed(cells[0], submission.chapter):
        read = f"`python -m course solution {exercise_id}`"
        return "error", f"{reason}: write it yourself, or read it with {read}"
    return None


def shown(path: Path) -> str:
    """A path relative to the project where it lies inside, with forward slashes."""
    try:
        return path.resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return str(path)


def _bytes(path: Path) -> bytes:
    size = path.stat().st_size
    if not path.is_file():
        raise SubmissionError("not a file: move it away")
    if size == 0:
        raise SubmissionError("empty: nothing was saved in it")
    if size > LARGEST:
        raise SubmissionError(
            f"{size / 2**20:.0f} MiB large; clear the outputs (Edit, Clear Outputs of All Cells), "
            f"save, and try again: the limit is {LARGEST // 2**20} MiB"
        )
    return path.read_bytes()


def _spoiled(cell: Cell, chapter: Chapter) -> str:
    """Why a provided cell is not what it was in a way that would mislead; empty when it is fine."""
    if reason := _unparsable(cell) or _borrowed(cell, chapter):
        return reason
    for exercise in chapter.exercises:
        if mine := sorted(set(exercise.functions) & set(cell.names)):
            return f"{cell.title} defines {', '.join(mine)}, which exercise {exercise.id} is about"
    return ""


def _unparsable(cell: Cell) -> str:
    error = cell.broken
    if error is None:
        return ""
    line = getattr(error, "lineno", None) or 1
    text = [*cell.source.split("\n"), ""][line - 1].strip()
    where = "an exercise" if cell.exercise else "a provided cell"
    magic = f" (notebook magics do not belong in {where})" if text[:1] in ("%", "!") else ""
    at = f"line {cell.first_line + line - 1}"
    said = getattr(error, "msg", "") or str(error) or "nested too deeply"
    return f"{cell.title} does not parse: {at}, {said}: {text[:200]!r}{magic}"


def _borrowed(cell: Cell, chapter: Chapter) -> str:
    """An answer that uses the reference answers, or other right ones of ours, is not one."""
    own = {f"solutions.{module}" for module in chapter.modules}
    own |= {"course.assemble", "course.likely", "course.notebooks"}
    for node in ast.walk(ast.parse(cell.source)):
        if any(module in own or module.startswith("tests.") for module in _modules(node)):
            line = cell.first_line + node.lineno - 1
            return f"{cell.title}, line {line}, imports the chapter's own solution"
    return ""


def _modules(node: ast.AST) -> Iterator[str]:
    """The modules that a piece of code may reach, by import, by attribute or by a string.

    One at a time: 50,000 names from a module whose own name is as long would take gigabytes.
    """
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        name = f"{node.value.id}.{node.attr}"
        if not name.startswith("tests."):  # a list of a learner's may be tests
            yield name
    elif (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"\w+(\.\w+)+", node.value)
    ):
        yield node.value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
