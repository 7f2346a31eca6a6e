"""The cells of a notebook or of a .py file, and the marks that say what a cell is for.

A cell that begins with `#| exercise 4.2` holds a learner's answer; one that begins with
`#| provided` holds a definition of ours. Blank lines, comments and notebook magics may stand before
the mark. A .py file in percent format (`# %%` between cells) is as good as a notebook.
"""

import ast
import codecs
import json
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

MARK = re.compile(
    r"#[ \t]*\|[ \t]*(?:exercise[ \t:]+(\d{1,3})\.(\d{1,3})(?!\.?\w)|provided\b)",
    re.ASCII | re.IGNORECASE,
)
# What people write in its place: `# exercise 4.2`, `#| excercise 4.2`, `exercise 4,2`.
NEARLY = re.compile(
    r"(?:#\W{0,4}(?:e\w{1,12}\W{0,3})?|\W{0,4}e\w{1,12}\W{0,3})(\d{1,3})[.,](\d{1,3})(?!\w)",
    re.ASCII | re.IGNORECASE,
)
# The line between two cells of a .py file, as Jupytext, VS Code, Spyder and nbconvert write it.
BETWEEN = re.compile(r"#[ \t]*(?:%%+(?:[ \t].*)?|In\[[0-9 ]*\]:?[ \t]*)$")
LONGEST = 200_000  # characters of a cell; a parser takes memory and stack by the length
PROSE = re.compile(r"\[(?:markdown|md|raw)\]")


class SubmissionError(ValueError):
    """The file cannot be judged at all; the message says why and what to do."""


class Raw(NamedTuple):
    """A cell as it stands in its file, marked or not."""

    source: str
    number: int  # in the file, from 1, counting every cell
    first_line: int = 1  # of the source, in a .py file; 1 in a notebook
    code: bool = True  # False for text
    origin: str = "notebook"  # or "script", or "kernel" for a cell as it was run


@dataclass(frozen=True)
class Cell:
    """One marked cell: its source, where it stands, and the exercise it answers (if any)."""

    source: str  # the mark in our spelling, and blank lines for what stood before it
    number: int
    first_line: int
    exercise: str | None

    @property
    def title(self) -> str:
        """How a person finds it: by its mark, since Jupyter shows no cell numbers."""
        return f"the cell of exercise {self.exercise}" if self.exercise else "a provided cell"

    @property
    def broken(self) -> Exception | None:
        """Why it does not parse; None when it does.

        Nothing is compiled here: a few nested `finally` keep a compiler at work for days.
        """
        if len(self.source) > LONGEST:
            return ValueError(f"it is {len(self.source)} characters long; {LONGEST} are the most")
        try:
            with warnings.catch_warnings(action="ignore"):
                ast.parse(self.source)
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
        return tuple(name for name, _ in _definitions(self.source))


# ---- From bytes to cells; each raises SubmissionError with the rest of "FILE is ..." ----


def notebook_cells(data: bytes) -> list[Raw]:
    """The cells of an .ipynb file."""
    try:
        notebook = json.loads(_text(data))
        if isinstance(notebook, dict) and "worksheets" in notebook:
            raise SubmissionError(
                "a notebook in the old format 3: open it in Jupyter and save it, then try again"
            )
        return [_raw(cell, number) for number, cell in enumerate(notebook["cells"], 1)]
    except SubmissionError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise SubmissionError(
            f"not a notebook that can be read ({type(error).__name__}: {error}): "
            "was the save interrupted? Jupyter keeps an older copy in .ipynb_checkpoints"
        ) from error


def script_cells(data: bytes) -> list[Raw]:
    """The cells of a percent-format file."""
    try:
        text = _text(data)
    except ValueError as error:
        raise SubmissionError(
            f"not a Python file that can be read ({error}): save it again as UTF-8"
        ) from error
    cells, code, start, lines = [], True, 1, []
    for at, line in enumerate([*_newlines(text).split("\n"), "# %%"], 1):
        if not BETWEEN.match(line):
            lines.append(line)
            continue
        cells.append(Raw("\n".join(lines), len(cells), start, code, "script"))
        code, start, lines = not PROSE.search(line), at + 1, []
    return cells


def _text(data: bytes) -> str:
    """UTF-8, with or without the byte-order mark that some editors put first."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data[:100]:
        raise ValueError("it is UTF-16 or binary, not UTF-8")
    return data.decode("utf-8-sig")


def _raw(cell: dict[str, Any], number: int) -> Raw:
    code, source = cell["cell_type"] == "code", cell.get("source")
    lines = source if isinstance(source, list) else [source]
    if not all(isinstance(line, str) for line in lines):
        if code:
            raise ValueError(f"the source of cell {number} is not text")
        lines = []
    return Raw(_newlines("".join(lines)), number, code=code)


def _newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


# ---- What the cells say ----


def marked(cells: Iterable[Raw]) -> list[Cell]:
    """The code cells that have a mark, in order."""
    return [cell for raw in cells if raw.code and (cell := _cell(raw))]


def unmarked_names(cells: Iterable[Raw]) -> dict[str, str]:
    """For the names that code cells without a mark define, what a person should know of that."""
    found = {}
    for raw in cells:
        if raw.code and not _cell(raw):
            for name, line in _definitions(_without_magics(raw.source)):
                found[name] = (
                    f"it is defined in {_place(raw, line)}, without a mark: only marked cells are "
                    "judged, so move it into the cell of the exercise that uses it"
                )
    return found


def near_misses(cells: Iterable[Raw]) -> dict[str, str]:
    """By exercise, what is nearly its mark and what to do, as the end of a sentence."""
    found = {}
    for raw in cells:
        if raw.code and _cell(raw):
            continue
        for at, line in enumerate(_head(raw.source), 1):
            if not raw.code and (match := MARK.match(line)) and match[1]:
                found[_id(match)] = f"{_place(raw, at)} has it but is text: make that a code cell"
            elif raw.code and (match := NEARLY.match(line)):
                fix = f"make that `#| exercise {_id(match)}`"
                found[_id(match)] = f"{_place(raw, at)} is `{line[:40]}`: {fix}"
    return found


def _cell(raw: Raw) -> Cell | None:
    """The cell that a mark makes of it. What stands before the mark becomes blank lines."""
    for at, line in enumerate(_head(raw.source)):
        if match := MARK.match(line):
            exercise = _id(match) if match[1] else None
            mark = f"#| exercise {exercise}" if exercise else "#| provided"
            lines = ["" for _ in range(at)] + [mark] + raw.source.split("\n")[at + 1 :]
            return Cell("\n".join(lines).rstrip(), raw.number, raw.first_line, exercise)
    return None


def _head(source: str) -> list[str]:
    """The lines up to the first that is neither blank, a comment nor a magic, and that one."""
    head = []
    for line in source.split("\n"):
        head.append(line.strip(" \t\ufeff"))
        if head[-1][:1] not in ("", "#", "%", "!"):
            break
    return head


def _id(match: re.Match) -> str:
    return f"{int(match[1])}.{int(match[2])}"


def _place(raw: Raw, line: int = 1) -> str:
    """Where a line of a cell is, as a person finds it."""
    if raw.origin == "kernel":
        return "a cell run in this kernel"
    at = f"line {raw.first_line + line - 1}"
    return at if raw.origin == "script" else f"cell {raw.number} ({at})"


def _without_magics(source: str) -> str:
    """Lines that only a notebook understands would keep the rest from being parsed."""
    lines = source.split("\n")
    return "\n".join("" if line.lstrip()[:1] in ("%", "!") else line for line in lines)


def _definitions(source: str) -> list[tuple[str, int]]:
    """The names that the top level of a source defines, with their lines; none if it is broken."""
    if len(source) > LONGEST:
        return []
    try:
        with warnings.catch_warnings(action="ignore"):
            body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [(name, statement.lineno) for statement in body for name in _defined(statement)]


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in statement.names]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        stored = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
        return [name.id for name in stored if isinstance(name.ctx, ast.Store)]
    return []
