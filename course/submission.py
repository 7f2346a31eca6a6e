"""A learner's file as the judge sees it: its marked cells, and the module built from them.

The notebook is the submission. A cell whose first line is `#| exercise 4.2` holds a learner's
answer; one that begins with `#| provided` holds a definition of ours. All other cells are for
looking around and never run here. A .py file in percent format (`# %%` between cells) with the
same marks is as good as a notebook.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from course.manifest import Chapter
from course.paths import ROOT, WORK

MARK = re.compile(r"^#\|[ \t]*(?:exercise[ \t]+(?P<exercise>\d+\.\d+)|provided)\b")
LARGEST = 20 * 2**20  # bytes; a notebook beyond this carries outputs that do not belong in it


class SubmissionError(ValueError):
    """The file cannot be judged at all; the message says why and what to do."""


@dataclass(frozen=True)
class Cell:
    """One marked cell: its source, where it stands, and the exercise it answers (if any)."""

    source: str
    number: int  # in the file, from 1, counting every cell
    first_line: int  # of the source, in a .py file; 1 in a notebook
    exercise: str | None

    @property
    def title(self) -> str:
        """How a person finds it: by its mark, since Jupyter shows no cell numbers."""
        return f"the cell of exercise {self.exercise}" if self.exercise else "a provided cell"

    @property
    def broken(self) -> Exception | None:
        """Why it does not parse; None when it does."""
        try:
            compile(self.source, "cell", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return error
        return None

    @property
    def key(self) -> tuple:
        """What makes it the same cell in two versions of a file."""
        return ("exercise", self.exercise) if self.exercise else ("provided", self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that its top level defines; none when it does not parse."""
        if self.broken:
            return ()
        body = ast.parse(self.source).body
        return tuple(name for statement in body for name in _defined(statement))


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

    @property
    def shown_path(self) -> str:
        """The path as a person would type it."""
        return shown(self.path)

    def answers(self, exercise_id: str) -> list[Cell]:
        """The cells that claim to answer an exercise; one, if all is well."""
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

    def runnable(self) -> list[list]:
        """[exercise or "", first line, last line] of the parts that parse, for Runner.load."""
        return [[p.cell.exercise or "", p.start, p.end] for p in self.parts if not p.cell.broken]

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

    Errors: SubmissionError when it is empty, too large, not a notebook, or has no marked cell.
    """
    data = _bytes(path)
    cells = tuple(
        marked_cells(_notebook_cells(data, path) if path.suffix == ".ipynb" else _py(data))
    )
    if not cells:
        raise SubmissionError(
            f"{shown(path)} has no cell that begins with `#| exercise N.M`: the marks tell the "
            "judge which cells to read; take them from a fresh copy of the chapter"
        )
    saved_at = datetime.fromtimestamp(path.stat().st_mtime)
    return Submission(chapter, path, hashlib.sha256(data).hexdigest(), saved_at, cells)


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
    path.write_text(text, encoding="utf-8")
    return Built(path, tuple(parts))


def problem_with(submission: Submission, exercise_id: str) -> tuple[str, str] | None:
    """Why an exercise cannot even be run: (status, reason), or None when it can."""
    cells = submission.answers(exercise_id)
    if not cells:
        return "missing", (
            f"{submission.shown_path} has no cell that begins with `#| exercise {exercise_id}`; "
            "take the cell from a fresh copy of the chapter"
        )
    if len(cells) > 1:
        return "error", (
            f"{len(cells)} cells begin with `#| exercise {exercise_id}`: keep one, and remove the "
            "mark from the others"
        )
    return _unparsable(cells[0]) or _borrowed(cells[0], submission.chapter)


def shown(path: Path) -> str:
    """A path relative to the project where it lies inside, with forward slashes."""
    try:
        return path.resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return str(path)


def _bytes(path: Path) -> bytes:
    size = path.stat().st_size
    if size == 0:
        raise SubmissionError(f"{shown(path)} is empty: nothing was saved in it")
    if size > LARGEST:
        raise SubmissionError(
            f"{shown(path)} has {size / 2**20:.0f} MiB; clear the outputs (Edit, Clear Outputs of "
            f"All Cells), save, and try again: the limit is {LARGEST // 2**20} MiB"
        )
    return path.read_bytes()


def _notebook_cells(data: bytes, path: Path):
    try:
        cells = json.loads(data.decode("utf-8"))["cells"]
        code = [(n, c["source"]) for n, c in enumerate(cells, 1) if c["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SubmissionError(
            f"{shown(path)} is not a notebook that can be read ({type(error).__name__}: {error}): "
            "was the save interrupted? Jupyter keeps an older copy in .ipynb_checkpoints"
        ) from error
    for number, source in code:
        yield ("".join(source) if isinstance(source, list) else str(source)), number, 1


def _py(data: bytes):
    """Cells of a percent-format file: (source, number, first line)."""
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n")
    start, lines, number = 1, [], 0
    for at, line in enumerate([*text.split("\n"), "# %%"], 1):
        if not line.startswith("# %%"):
            lines.append(line)
            continue
        yield "\n".join(lines), number, start
        start, lines, number = at + 1, [], number + 1


def marked_cells(cells: Iterable[tuple[str, int, int]]) -> Iterator[Cell]:
    """The cells that begin with a mark, of (source, number, first line)."""
    for source, number, first_line in cells:
        stripped = source.lstrip("\n")
        match = MARK.match(stripped)
        if match:
            skipped = len(source) - len(stripped)
            yield Cell(stripped.rstrip(), number, first_line + skipped, match["exercise"])


def _unparsable(cell: Cell) -> tuple[str, str] | None:
    error = cell.broken
    if error is None:
        return None
    line = getattr(error, "lineno", None) or 1
    text = [*cell.source.split("\n"), ""][line - 1].strip()
    magic = " (notebook magics do not belong in an exercise)" if text[:1] in ("%", "!") else ""
    return "error", (
        f"{cell.title} does not parse: line {line}, {getattr(error, 'msg', error)}: {text!r}{magic}"
    )


def _borrowed(cell: Cell, chapter: Chapter) -> tuple[str, str] | None:
    """An answer that imports the reference answers is not one."""
    own = {f"solutions.{module}" for module in chapter.modules}
    for node in ast.walk(ast.parse(cell.source)):
        modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        if own & set(modules):
            return "error", (
                f"{cell.title}, line {node.lineno}, imports the chapter's own solution: "
                f"write it yourself, or read it with `python -m course solution {cell.exercise}`"
            )
    return None


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in statement.names]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return [statement.target.id]
    return []


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
