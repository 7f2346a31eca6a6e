"""Where in a learner's own file something was raised, or stands."""

import threading

import pytest

from course import mine_places, notebooks
from course.submission import build, read_submission

CELL = """#| exercise 4.7
def chat_ids(messages, encode, special):
    return encode(messages)
"""


@pytest.fixture
def own(submit, solved, chapter, tmp_path):
    """The learner's chat_ids, from a notebook or from a .py, and where its second line is."""

    def make(suffix: str):
        if suffix == ".ipynb":
            found = submit(solved, ex4_7=CELL)
        else:
            path = tmp_path / f"{chapter.name}.py"
            provided = f"# %%\n#| provided\n{notebooks.reference_source(chapter)}\n# %%\n"
            path.write_text(provided + CELL, encoding="utf-8")
            found = read_submission(chapter, path)
        built = build(found, tmp_path)
        mine_places.remember(found, built)
        part = next(part for part in built.parts if part.cell.exercise == "4.7")
        names: dict = {}
        code = "\n" * (part.start - 1) + part.cell.source
        exec(compile(code, str(built.path), "exec"), names)
        line = part.cell.first_line + 2
        return names["chat_ids"], found.shown_path, line

    return make


def fails(_):
    raise KeyError("what a user wrote")


def error_of(function) -> Exception:
    """What a call raises, with what stands around it: as the service raises it."""
    try:
        try:
            function("x", fails, {})
        except KeyError as problem:
            raise RuntimeError("the first request failed") from problem
    except RuntimeError as problem:
        return problem


def test_of_a_notebook_the_cell_and_its_line_are_named(own):
    function, file, _ = own(".ipynb")
    said = mine_places.raised(None, error_of(function))
    where = f"{file}, the cell of exercise 4.7, line 3: return encode(messages)"
    assert said == f"\n  raised in {where}"


def test_of_a_script_its_line_and_the_exercise_are_named(own):
    function, file, line = own(".py")
    said = mine_places.raised(error_of(function))
    where = f"{file}, line {line}, in the cell of exercise 4.7: return encode(messages)"
    assert said == f"\n  raised in {where}"


def test_what_comes_from_no_file_of_the_learners_is_not_laid_on_it():
    assert mine_places.raised(error_of(lambda *_: fails(0)), None) == ""


def test_a_thread_that_stands_in_a_learners_file_is_told(own, capsys):
    function, file, _ = own(".ipynb")
    inside, go = threading.Event(), threading.Event()

    def waits(_):
        inside.set()
        go.wait()

    thread = threading.Thread(target=function, args=["a user's words", waits, {}])
    thread.start()
    inside.wait()
    mine_places.tell()
    go.set()
    thread.join()
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"{mine_places.NOW_IN}{file}, the cell of exercise 4.7, line 3")
    assert "a user's words" not in said
