"""A learner's copy is made once and never touched again."""

import json
import os

import pytest

from course import notebooks, start
from course.start import take_copy
from course.submission import read_submission


def test_the_copy_is_the_committed_notebook(chapter, tmp_path):
    path = take_copy(chapter, folder=tmp_path / "work")
    assert path.read_bytes() == notebooks.committed(chapter).read_bytes()


def test_a_second_start_keeps_what_the_learner_wrote(chapter, tmp_path, capsys):
    path = take_copy(chapter, folder=tmp_path)
    path.write_text("mine", encoding="utf-8")
    before = os.stat(path)
    assert take_copy(chapter, folder=tmp_path) == path
    assert take_copy(chapter, script=True, folder=tmp_path) == path
    assert path.read_text(encoding="utf-8") == "mine"
    assert os.stat(path).st_mtime_ns == before.st_mtime_ns
    assert "Going on with" in capsys.readouterr().out


def test_a_copy_that_appears_in_the_meantime_is_kept(chapter, tmp_path, monkeypatch):
    mine = tmp_path / f"{chapter.name}.ipynb"
    real = notebooks.committed

    def slow(chapter):
        mine.write_text("mine", encoding="utf-8")  # another process was faster
        return real(chapter)

    monkeypatch.setattr(notebooks, "committed", slow)
    assert take_copy(chapter, folder=tmp_path) == mine
    assert mine.read_text(encoding="utf-8") == "mine"
    assert [p.name for p in tmp_path.iterdir()] == [mine.name]


def test_the_script_holds_the_same_marked_cells(chapter, tmp_path):
    script = take_copy(chapter, script=True, folder=tmp_path / "py")
    notebook = take_copy(chapter, folder=tmp_path / "nb")
    as_script = read_submission(chapter, script).cells
    as_notebook = read_submission(chapter, notebook).cells
    assert [c.source for c in as_script] == [c.source for c in as_notebook]
    assert [c.exercise for c in as_script] == [c.exercise for c in as_notebook]
    lines = script.read_text(encoding="utf-8").split("\n")
    assert all(lines[c.first_line - 1] == c.source.split("\n")[0] for c in as_script)


def test_the_copy_has_no_outputs(chapter, tmp_path):
    cells = json.loads(take_copy(chapter, folder=tmp_path).read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


def test_a_folder_in_place_of_the_notebook_is_refused(chapter, tmp_path):
    (tmp_path / f"{chapter.name}.ipynb").mkdir()
    with pytest.raises(IsADirectoryError) as refused:
        take_copy(chapter, folder=tmp_path)
    assert refused.value.filename == str(tmp_path / f"{chapter.name}.ipynb")


def test_an_interrupted_copy_leaves_nothing(chapter, tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "as_script", lambda _: 3)  # writing it raises a TypeError
    with pytest.raises(TypeError):
        take_copy(chapter, script=True, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_arguments_for_jupyter_that_cannot_be_split_are_named(capsys):
    with pytest.raises(SystemExit) as stop:
        start.main(["4", "--jupyter-args", "--port '88"])
    assert stop.value.code == 2
    assert "cannot be split" in capsys.readouterr().err
