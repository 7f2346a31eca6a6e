"""Files as editors, formatters and accidents leave them: read if possible, else named in words."""

import ast
import json
import tracemalloc

import pytest

from course import notebooks
from course.cells import marked, script_cells
from course.submission import SubmissionError, _modules, build, problem_with, read_submission
from tests.conftest import replace_cell

BODY = "def rms_norm(x, weight, eps):\n    return x"
NORM = f"#| exercise 4.1\n{BODY}"


@pytest.fixture
def script(chapter, tmp_path):
    """Save text or bytes as the chapter's .py file and read it."""

    def save(text: str | bytes):
        path = tmp_path / f"{chapter.name}.py"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        return read_submission(chapter, path)

    return save


@pytest.fixture
def sheet(chapter, tmp_path):
    """Save data or bytes as the chapter's notebook and read it."""

    def save(notebook: object):
        path = tmp_path / f"{chapter.name}.ipynb"
        data = notebook if isinstance(notebook, bytes) else json.dumps(notebook).encode("utf-8")
        path.write_bytes(data)
        return read_submission(chapter, path)

    return save


def code(*sources: object) -> dict:
    """A notebook of code cells with these sources."""
    cells = [{"cell_type": "code", "source": source} for source in sources]
    return {"cells": cells, "nbformat": 4}


# ---- the mark ----


@pytest.mark.parametrize(
    "mark",
    [
        "#| exercise 4.1",
        "# | exercise 4.1",  # as Black and ruff leave it
        "#\t|  exercise\t4.1",
        "#|exercise 4.1",
        "#| Exercise 4.1",
        "# | EXERCISE 04.01",
        "#| exercise: 4.1",
        "#| exercise 4.1: RMSNorm",
        "#| exercise 4.1.",
        "\n\n#| exercise 4.1",
        "  #| exercise 4.1",
        "\ufeff#| exercise 4.1",
        "%%time\n#| exercise 4.1",
        "%load_ext autoreload\n\n# mine\n#| exercise 4.1",
    ],
)
def test_a_mark_in_another_spelling_is_the_same_mark(sheet, mark):
    (cell,) = sheet(code(f"{mark}\n{BODY}")).cells
    assert cell.exercise == "4.1"
    assert cell.source.strip() == NORM
    assert cell.source.count("\n") == mark.count("\n") + 2  # lines keep their numbers


@pytest.mark.parametrize(
    "first",
    [
        "x = 1\n#| exercise 4.1",
        "#| exercise 4.1.2",
        "#| exercise 4.1a",
        "#| exercise",
        "'#| exercise 4.1'",
    ],
)
def test_what_is_no_mark(sheet, first):
    submission = sheet(code(f"{first}\n{BODY}", "#| exercise 4.2"))
    assert [cell.exercise for cell in submission.cells] == ["4.2"]


def test_a_handout_with_every_mark_rewritten_is_still_untouched(chapter, untouched, sheet):
    text = json.dumps(untouched).replace("#| exercise", "# | exercise")
    submission = sheet(json.loads(text.replace("#| provided", "# | provided")))
    for exercise in chapter.exercises:
        (cell,) = submission.answers(exercise.id)
        assert notebooks.untouched(chapter, exercise, cell.source)
        assert problem_with(submission, exercise.id) is None


@pytest.mark.parametrize(
    "line", ["# exercise 4.1", "#| excercise 4.1", "#| 4.1", "exercise 4.1", "# Exercise 4,1: norm"]
)
def test_what_is_nearly_a_mark_is_named(sheet, line):
    submission = sheet(code("#| provided\nimport math", f"{line}\n{BODY}"))
    status, reason = problem_with(submission, "4.1")
    assert status == "missing"
    assert f"cell 2 (line 1) is `{line}`: make that `#| exercise 4.1`" in reason
    with pytest.raises(SubmissionError, match=r"make that `#\| exercise 4\.1`"):
        sheet(code(f"{line}\n{BODY}"))


def test_a_mark_in_a_cell_of_text_is_named(sheet):
    notebook = code("#| provided\nimport math", NORM)
    notebook["cells"][1]["cell_type"] = "markdown"
    assert "cell 2 (line 1) has it but is text" in problem_with(sheet(notebook), "4.1")[1]


# ---- .ipynb ----


@pytest.mark.parametrize(
    ("notebook", "words"),
    [
        (code([1, 2]), "the source of cell 1 is not text"),
        (code(NORM, None), "the source of cell 2 is not text"),
        (code({"a": "b"}), "the source of cell 1 is not text"),
        ({"cells": [{"source": NORM}]}, "not a notebook"),
        ({"cells": [3]}, "not a notebook"),
        ({"cells": 3}, "not a notebook"),
        ([], "not a notebook"),
        ({"worksheets": [], "nbformat": 3}, "format 3: open it in Jupyter and save it"),
        (json.dumps(code(NORM)).encode("utf-16"), "UTF-16 or binary, not UTF-8"),
        (json.dumps(code(NORM)).encode("utf-16-le"), "UTF-16 or binary, not UTF-8"),
        (b'{"cells": "\xe9"}', "not a notebook"),
    ],
)
def test_a_notebook_that_is_none_says_why(sheet, notebook, words):
    with pytest.raises(SubmissionError, match=words):
        sheet(notebook)


def test_a_byte_order_mark_and_windows_lines_are_no_harm(sheet):
    source = NORM.replace("\n", "\r\n")
    submission = sheet(json.dumps(code(source)).encode("utf-8-sig"))
    assert submission.cells[0].source == NORM


def test_a_folder_in_place_of_the_notebook(chapter, tmp_path):
    path = tmp_path / f"{chapter.name}.ipynb"
    path.mkdir()
    with pytest.raises(SubmissionError, match="is not a file: move it away"):
        read_submission(chapter, path)


def test_half_a_surrogate_in_a_cell_costs_that_cell_alone(sheet, chapter, tmp_path):
    submission = sheet(code(NORM, "#| exercise 4.4\nx = '\ud800'"))
    assert "does not parse" in problem_with(submission, "4.4")[1]
    assert problem_with(submission, "4.1") is None
    assert BODY in build(submission, tmp_path).path.read_text(encoding="utf-8")


# ---- .py ----


@pytest.mark.parametrize(
    "between", ["# %%", "#%%", "# %% RMSNorm", "# In[1]:", "# In[ ]:", "# %% [code]"]
)
def test_cells_of_a_script_begin_as_editors_write_it(script, between):
    text = f"{between}\n1 + 1\n\n{between}\n{NORM}\n\n{between}\nx = 3\n"
    for data in (text, text.encode("utf-8-sig"), text.replace("\n", "\r\n")):
        (cell,) = script(data).cells
        assert (cell.source, cell.first_line) == (NORM, 5)


def test_a_magic_that_jupytext_made_a_comment_begins_no_cell():
    (cell,) = marked(script_cells(f"# %%\n# %%time\n{NORM}".encode()))
    assert cell.source.strip() == NORM


@pytest.mark.parametrize("kind", ["[markdown]", "[raw]", "[md]", "Title [markdown]"])
def test_a_mark_in_a_cell_of_text_of_a_script_does_not_count(script, kind):
    submission = script(f"# %% {kind}\n{NORM}\n\n# %%\n#| exercise 4.2\n")
    assert [cell.exercise for cell in submission.cells] == ["4.2"]
    assert "line 2 has it but is text" in problem_with(submission, "4.1")[1]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1"])
def test_a_script_in_another_encoding_is_named(script, encoding):
    with pytest.raises(SubmissionError, match=r"not a Python file .* save it again as UTF-8"):
        script(f"# %%\n{NORM}  # é\n".encode(encoding))


def test_a_line_that_does_not_parse_is_counted_from_the_top_of_the_script(script):
    submission = script(f"# %%\n1 + 1\n\n# %%\n{NORM} +\n")
    assert "does not parse: line 7" in problem_with(submission, "4.1")[1]


# ---- provided cells ----


def test_a_provided_cell_that_does_not_parse_is_the_first_thing_said(sheet, solved):
    notebook = json.loads(json.dumps(solved))
    first = next(c for c in notebook["cells"] if "".join(c["source"]).startswith("#| provided"))
    first["source"].insert(1, "%load_ext autoreload\n")
    status, reason = problem_with(sheet(notebook), "4.1")
    assert status == "error"
    assert reason.startswith("a provided cell does not parse: line 2")
    assert "'%load_ext autoreload' (notebook magics do not belong" in reason
    assert reason.endswith("restore it from a fresh copy of the chapter")


def test_an_import_added_to_a_provided_cell_is_fine(sheet):
    submission = sheet(code("#| provided\nimport math\nimport torch", NORM))
    assert problem_with(submission, "4.1") is None


def test_a_provided_cell_that_answers_an_exercise_is_refused(sheet):
    submission = sheet(code(NORM, "#| provided\ndef rms_norm(): ...\nrope_tables = 3"))
    reason = problem_with(submission, "4.1")[1]
    assert "a provided cell defines rms_norm, which exercise 4.1 is about" in reason


@pytest.mark.parametrize(
    "line",
    [
        "from solutions.forward_pass import rms_norm as mine",
        "from solutions import kv_cache",
        "import solutions.chat as c",
        "import importlib; m = importlib.import_module('solutions.forward_pass')",
        "m = __import__('solutions.greedy')",
        "import sys; m = sys.modules['solutions.forward_pass']",
        "import solutions; m = solutions.forward_pass",
        "from course.assemble import REFERENCE",
        "from course import notebooks",
        "from tests.styles import numpy_style",
    ],
)
def test_our_answers_cannot_be_borrowed_by_any_marked_cell(sheet, line):
    for cells in ((f"#| exercise 4.1\n{line}\n{BODY}",), (NORM, f"#| provided\n{line}")):
        status, reason = problem_with(sheet(code(*cells)), "4.1")
        assert status == "error"
        assert "line 2, imports the chapter's own solution" in reason


def test_the_rest_of_the_course_may_be_used(sheet):
    lines = "from solutions.config import Config\nfrom course.text import Text\n"
    lines += "tests = []\ntests.append"
    assert problem_with(sheet(code(f"#| exercise 4.1\n{lines}\n{BODY}")), "4.1") is None


# ---- names outside of the marked cells ----


def test_names_of_unmarked_cells_are_known_with_their_place(sheet, script):
    scratch = "%matplotlib inline\nimport math\n\ndef helper(x):\n    return x\n\nA, b = 1, 2"
    submission = sheet(code(scratch, NORM, "this does not parse"))
    assert {name: place(said) for name, said in submission.elsewhere.items()} == {
        "math": "cell 1 (line 2)",
        "helper": "cell 1 (line 4)",
        "A": "cell 1 (line 7)",
        "b": "cell 1 (line 7)",
    }
    assert "only marked cells are judged, so move it" in submission.elsewhere["helper"]
    found = script(f"import os\n# %%\n{NORM}\n\n# %%\ndef helper(): ...\n").elsewhere
    assert {name: place(said) for name, said in found.items()} == {
        "os": "line 1",
        "helper": "line 8",
    }


def place(said: str) -> str:
    return said.removeprefix("it is defined in ").partition(", without")[0]


def test_the_solved_handout_has_no_problem(chapter, submit, solved, untouched):
    for notebook in (solved, untouched):
        submission = submit(notebook)
        assert [problem_with(submission, e.id) for e in chapter.exercises] == [None] * 8


def test_two_spellings_of_one_mark_are_two_cells_for_one_exercise(untouched, submit):
    notebook = json.loads(json.dumps(untouched))
    replace_cell(notebook, "4.4", f"# | Exercise 4.1\n{BODY}")
    assert "2 cells begin with" in problem_with(submit(notebook), "4.1")[1]


def test_names_of_imports_are_not_held_all_at_once():
    """A cell of 120 kB would be 1.2 GB of names, in the judge's own process."""
    name, many = "a" * 60_000, ",".join("b" * 20_000)
    (node,) = ast.parse(f"from {name} import {many}").body
    tracemalloc.start()
    try:
        assert sum(1 for _ in _modules(node)) == 1 + 20_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
