"""The notebooks, built from chapters/*/notebook.py and solutions/.

A code cell of the source that holds nothing but `# include: NAME, NAME` is replaced by the
definitions of these names, as they stand in the chapter's solution modules. Where the body of a
function begins, after its docstring, with `# exercise 4.2`, learners get the signature, the
docstring and a NotImplementedError in its place; the solved notebook gets it all.
`# include: imports` becomes the import block of all the modules.
"""

import ast
import functools
import itertools
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from course.manifest import Chapter, Exercise
from course.paths import ROOT

DIRECTIVE = re.compile(r"^# include: (?P<names>[\w, ]+)$")
BODY = re.compile(r"^\s*# exercise (?P<id>\d+\.\d+)$")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class BuildError(ValueError):
    """A notebook source or a solution module that cannot be built; the message says where."""


@dataclass(frozen=True)
class Definition:
    """A top-level definition of a solution module."""

    name: str
    source: str  # whole
    stub: str  # as learners get it; the same as source where there is nothing to write
    exercise: str | None
    uses: frozenset[str]


def build_notebook(chapter: Chapter, solved: bool = False) -> dict:
    """The notebook of a chapter as nbformat 4.5 data, without outputs."""
    import jupytext  # an author's tool, slow to import

    source = chapter.folder / "notebook.py"
    sheet = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent")
    cells = [_cell(chapter, cell, n, solved) for n, cell in enumerate(sheet.cells)]
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def write(notebook: dict, path: Path) -> None:
    """Write a notebook as Jupyter would: one space of indent, a newline at the end."""
    path.write_text(dump(notebook), encoding="utf-8", newline="\n")


def dump(notebook: dict) -> str:
    """The text of a notebook file."""
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def load(text: str) -> dict:
    """A notebook file's text as data."""
    return json.loads(text)


def committed(chapter: Chapter) -> Path:
    """Where the built notebook of a chapter is kept."""
    return ROOT / "notebooks" / f"{chapter.name}.ipynb"


def as_script(notebook: dict) -> str:
    """The same notebook as a .py file in percent format, for those who prefer an editor."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            lines = "\n".join(f"# {line}".rstrip() for line in text.split("\n"))
            parts.append(f"# %% [markdown]\n{lines}\n")
        else:
            parts.append(f"# %%\n{text}\n")
    return "\n".join(parts)


@functools.cache
def definitions(chapter: Chapter) -> dict[str, Definition]:
    """All top-level definitions of the chapter's solution modules, by name."""
    return {d.name: d for module in chapter.modules for d in _definitions(module)}


def reference_source(chapter: Chapter) -> str:
    """All of the chapter's solution modules as the source of one module."""
    sources = [d.source for d in definitions(chapter).values()]
    return "\n\n\n".join([_imports(chapter), *sources]) + "\n"


def untouched(chapter: Chapter, exercise: Exercise, source: str) -> bool:
    """Whether a cell is still the code that was handed out, in whatever format."""
    stub = _joined([definitions(chapter)[name].stub for name in exercise.functions])
    try:
        return ast.dump(ast.parse(source)) == ast.dump(ast.parse(stub))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def solved_cell(chapter: Chapter, exercise: Exercise) -> str:
    """The cell of an exercise with our answer in it."""
    return _included(chapter, list(exercise.functions), solved=True)[1]


def _cell(chapter: Chapter, cell, number: int, solved: bool) -> dict:
    metadata = {}
    source = cell.source
    directive = DIRECTIVE.match(source.strip()) if cell.cell_type == "code" else None
    if directive:
        names = [name.strip() for name in directive["names"].split(",")]
        exercise, source = _included(chapter, names, solved)
        if exercise:
            metadata = {"deletable": False, "tags": [f"exercise-{exercise}"]}
    built = {
        "cell_type": cell.cell_type,
        "id": f"{chapter.slug[:40].replace('_', '-')}-{number:03d}",
    }
    if cell.cell_type == "code":
        built["execution_count"] = None
    built["metadata"] = metadata
    if cell.cell_type == "code":
        built["outputs"] = []
    built["source"] = source.splitlines(keepends=True)
    return built


def _included(chapter: Chapter, names: list[str], solved: bool) -> tuple[str | None, str]:
    """The exercise that a directive holds (if any), and the source of its cell."""
    if names == ["imports"]:
        return None, f"#| provided\n{_imports(chapter)}"
    known = definitions(chapter)
    missing = [name for name in names if name not in known]
    if missing:
        modules = ", ".join(chapter.modules)
        raise BuildError(f"{chapter.name}: no {', '.join(missing)} at the top level of {modules}")
    chosen = [known[name] for name in names]
    exercises = {d.exercise for d in chosen if d.exercise}
    if len(exercises) > 1:
        raise BuildError(f"{chapter.name}: one cell for several exercises: {', '.join(names)}")
    if solved:
        chosen = _with_helpers(chosen, known)
    body = _joined([d.source if solved else d.stub for d in chosen])
    exercise = next(iter(exercises), None)
    mark = f"exercise {exercise}" if exercise else "provided"
    return exercise, f"#| {mark}\n{body}"


def _joined(sources: list[str]) -> str:
    """One-line definitions follow each other; others are set apart as in a module."""
    text = sources[0]
    for before, after in itertools.pairwise(sources):
        text += ("\n" if "\n" not in before + after else "\n\n\n") + after
    return text


def _with_helpers(chosen: list[Definition], known: dict) -> list[Definition]:
    """The private helpers that the bodies use stand before them; learners write their own."""
    helpers: list[Definition] = []
    waiting = list(chosen)
    while waiting:
        for name in sorted(waiting.pop().uses):
            helper = known.get(name)
            if name.startswith("_") and helper and helper not in [*helpers, *chosen]:
                helpers.append(helper)
                waiting.append(helper)
    return [*reversed(helpers), *chosen]


def _imports(chapter: Chapter) -> str:
    """All imports of the chapter's modules, except of each other, sorted as ruff would."""
    own = {f"solutions.{module}" for module in chapter.modules}
    plain, named = set(), {}
    for module in chapter.modules:
        for node in _tree(module)[1].body:
            if isinstance(node, ast.Import):
                plain |= {ast.unparse(node)}
            elif isinstance(node, ast.ImportFrom) and node.module not in own:
                named.setdefault(node.module, set()).update(ast.unparse(a) for a in node.names)
    lines = sorted(plain)
    lines += [
        f"from {module} import {', '.join(sorted(names, key=_rank))}"
        for module, names in sorted(named.items())
    ]
    groups = ([line for line in lines if _group(line) == number] for number in range(3))
    return "\n\n".join("\n".join(group) for group in groups if group)


def _rank(name: str) -> tuple[bool, bool, str]:
    """Constants, then classes, then functions."""
    return not name.isupper(), not name[0].isupper(), name


def _group(line: str) -> int:
    root = line.split()[1].split(".")[0]
    return 2 if root == "solutions" else 0 if root in sys.stdlib_module_names else 1


def _tree(module: str) -> tuple[list[str], ast.Module]:
    text = (ROOT / "solutions" / f"{module}.py").read_text(encoding="utf-8")
    return text.split("\n"), ast.parse(text)


def _definitions(module: str):
    lines, tree = _tree(module)
    for node in tree.body:
        name = _name(node)
        if name:
            yield _definition(name, node, lines)


def _name(node: ast.stmt) -> str | None:
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _definition(name: str, node: ast.stmt, lines: list[str]) -> Definition:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)])
    whole = lines[first - 1 : node.end_lineno]
    stub, exercises = list(whole), set()
    for function in reversed([n for n in ast.walk(node) if isinstance(n, FUNCTIONS)]):
        mark = _mark(function, lines)
        if mark:
            at, exercise = mark
            indent = " " * function.body[0].col_offset
            line = f'{indent}raise NotImplementedError("exercise {exercise}: {function.name}")'
            stub[at - first : function.end_lineno - first + 1] = [line]
            exercises.add(exercise)
    if len(exercises) > 1:
        raise BuildError(f"{name} belongs to several exercises: {', '.join(sorted(exercises))}")
    uses = frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
    return Definition(name, "\n".join(whole), "\n".join(stub), next(iter(exercises), None), uses)


def _mark(
    function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]
) -> tuple[int, str] | None:
    """(line number, exercise) of the mark behind a function's docstring."""
    after = function.body[0].end_lineno + 1  # the line behind the docstring
    match = BODY.match(lines[after - 1]) if after <= len(lines) else None
    return (after, match["id"]) if match else None
