"""Notebooks are made from their sources and from nothing else."""

import ast

import nbformat
import pytest

from course import build, notebooks
from course.manifest import chapters
from course.notebooks import BuildError


@pytest.mark.parametrize("chapter", chapters(), ids=lambda c: c.name)
def test_the_committed_notebook_is_what_its_sources_make(chapter, capsys):
    assert build.check(chapter) == 0


def test_a_difference_is_shown(chapter, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(notebooks, "committed", lambda _: tmp_path / "old.ipynb")
    assert build.check(chapter) == 1
    assert "python -m course notebooks" in capsys.readouterr().err


def test_a_committed_notebook_that_is_not_utf_8_differs(chapter, tmp_path, monkeypatch, capsys):
    path = tmp_path / "old.ipynb"
    path.write_bytes(b'{"cells": "\xff"}')
    monkeypatch.setattr(notebooks, "committed", lambda _: path)
    assert build.check(chapter) == 1
    assert "python -m course notebooks" in capsys.readouterr().err


def test_every_exercise_has_one_cell_with_stubs(untouched, chapter):
    for exercise in chapter.exercises:
        cells = [s for s in sources(untouched) if s.startswith(f"#| exercise {exercise.id}\n")]
        assert len(cells) == 1
        names = {n.name for n in ast.parse(cells[0]).body if hasattr(n, "name")}
        assert set(exercise.functions) <= names
        assert f'raise NotImplementedError("exercise {exercise.id}: ' in cells[0]
        assert notebooks.untouched(chapter, exercise, cells[0])


def test_a_stub_as_a_formatter_leaves_it_is_untouched(chapter):
    exercise = chapter.exercise("4.1")
    stub = notebooks.definitions(chapter)["rms_norm"].stub
    signature = stub[: stub.index("->")].strip()
    opened = signature.replace("(", "(\n    ").replace(")", ",\n)")
    assert opened != signature
    for source in (stub.replace(signature, opened), f"# mine\n\n{stub}  # later"):
        assert notebooks.untouched(chapter, exercise, source)
    for source in (stub.replace("eps", "epsilon"), f"{stub}\n    return x", stub + "("):
        assert not notebooks.untouched(chapter, exercise, source)


def test_no_answer_is_left_in_the_handout(untouched, chapter):
    text = "\n".join(sources(untouched))
    for definition in notebooks.definitions(chapter).values():
        if definition.exercise:
            written = set(definition.source.split("\n")) - set(definition.stub.split("\n"))
            telling = [line for line in written if len(line.strip()) > 30]
            assert telling
            assert not any(line in text for line in telling)


def test_the_solved_notebook_has_no_stub(solved):
    assert not any("NotImplementedError" in source for source in sources(solved))


def test_docstrings_are_the_same_in_both(solved, untouched):
    assert docstrings(solved) == docstrings(untouched)


def test_cells_have_ids_of_their_own(untouched):
    ids = [cell["id"] for cell in untouched["cells"]]
    assert len(set(ids)) == len(ids)


def test_no_code_cell_that_we_wrote_is_long(untouched):
    long = [s for s in sources(untouched) if not s.startswith("#|") and s.count("\n") > 26]
    assert not long


def test_an_unknown_name_in_a_directive_is_refused(chapter):
    with pytest.raises(BuildError, match="no_such_function"):
        notebooks._included(chapter, ["no_such_function"], solved=False)


def test_one_cell_for_two_exercises_is_refused(chapter):
    with pytest.raises(BuildError, match="several exercises"):
        notebooks._included(chapter, ["rms_norm", "attention"], solved=False)


def sources(notebook: dict) -> list[str]:
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]


def docstrings(notebook: dict) -> list[str]:
    marked = [s for s in sources(notebook) if s.startswith("#|")]
    public = [
        node
        for source in marked
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    return [ast.get_docstring(node) for node in public]


@pytest.mark.parametrize(
    ("source", "printed", "told"),
    [
        ('check("4.1")', "4.1: passed, 8 of 8 points", False),
        ('check("4.1")', "4.1: failed", True),
        ('# the first\ncheck("4.1")', "4.1: failed", True),
        ('check("4.1")\ncheck("4.2")', "4.1: passed, 8 of 8 points\n4.2: failed", True),
        ('print("check(")', "x", False),
    ],
)
def test_every_check_of_a_solved_notebook_must_pass(source, printed, told):
    cell = nbformat.v4.new_code_cell(source)
    cell.outputs = [nbformat.v4.new_output("stream", text=printed)]
    sheet = nbformat.v4.new_notebook(cells=[cell])
    assert bool(build._failed_checks(sheet)) is told


def test_imports_are_in_the_order_of_ruff():
    chapter = next(c for c in chapters() if c.number == 2)
    groups = [part.split("\n") for part in notebooks._imports(chapter).split("\n\n")]
    assert groups[0][0] == "import codecs"
    assert "import numpy as np" in groups[1]
    for group in groups:
        plain = [line for line in group if line.startswith("import ")]
        assert group[: len(plain)] == sorted(plain)
