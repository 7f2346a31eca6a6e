"""In a running notebook the cells are judged as last executed, and the verdict says so."""

import subprocess
import sys

import pytest

from course import desk, notebook, notebooks, verdict
from course.judge import Verdict
from course.live import live_submission
from course.paths import ROOT
from course.progress import Progress
from course.submission import Kernel, SubmissionError

NORM = "#| exercise 4.1\ndef rms_norm(x, weight, eps):\n    return 'as run'"


@pytest.fixture
def folder(tmp_path, chapter, solved):
    notebooks.write(solved, tmp_path / f"{chapter.name}.ipynb")
    return tmp_path


def test_the_executed_cell_counts_and_the_difference_is_said(chapter, folder):
    submission = live_submission(chapter, ["1 + 1", NORM], folder)
    assert submission.answers("4.1")[0].source == NORM
    assert submission.kernel.differ == ("4.1",)


def test_a_cell_run_but_never_saved_is_judged(chapter, folder, solved):
    fewer = {
        **solved,
        "cells": [c for c in solved["cells"] if "rms_norm(x: T" not in "".join(c["source"])],
    }
    notebooks.write(fewer, folder / f"{chapter.name}.ipynb")
    submission = live_submission(chapter, [NORM], folder)
    assert submission.answers("4.1")[0].source == NORM
    assert submission.kernel.differ == ("4.1",)


def test_the_last_execution_counts(chapter, folder):
    newer = NORM.replace("as run", "later")
    submission = live_submission(chapter, [NORM, newer], folder)
    assert submission.answers("4.1")[0].source == newer


def test_cells_not_run_come_from_the_file_and_are_named(chapter, folder):
    submission = live_submission(chapter, [NORM], folder)
    assert len(submission.answers("4.2")) == 1
    assert submission.kernel.stale == tuple(e.id for e in chapter.exercises[1:])


def test_the_verdict_speaks_of_what_the_exercise_uses_alone(chapter, folder):
    submission = live_submission(chapter, [NORM], folder)
    first, sixth = (Verdict(chapter.exercise(e), "passed", 0) for e in ("4.1", "4.6"))
    text = " ".join(verdict.render(first, submission, 3).split())
    assert "as run in this kernel" in text
    assert "the file is not what you ran (4.1): save the notebook" in text
    assert "not run in this kernel" not in text
    text = " ".join(verdict.render(sixth, submission, 3).split())
    assert "not run in this kernel, so read from the file: 4.2, 4.3, 4.4, 4.5, 4.6" in text


def test_nothing_is_said_when_all_was_run_as_saved(chapter, folder, solved):
    executed = ["".join(c["source"]) for c in solved["cells"] if c["cell_type"] == "code"]
    assert live_submission(chapter, executed, folder).kernel == Kernel()


def test_without_a_saved_file_the_cells_run_are_enough(chapter, tmp_path):
    submission = live_submission(chapter, [NORM], tmp_path)
    assert submission.answers("4.1")[0].source == NORM
    assert submission.saved_at is None
    assert "python -m course start 4" in submission.kernel.no_file


def test_without_a_file_and_without_cells_there_is_nothing(chapter, tmp_path):
    with pytest.raises(SubmissionError):
        live_submission(chapter, ["x = 1"], tmp_path)


def test_cells_of_another_chapter_are_left_out(chapter, tmp_path):
    other = "#| exercise 5.1\ndef f(): ..."
    submission = live_submission(chapter, [other, NORM], tmp_path)
    assert [cell.exercise for cell in submission.cells] == ["4.1"]


def test_a_cell_run_under_a_magic_is_judged_as_run(chapter, folder):
    older = NORM.replace("as run", "older")
    submission = live_submission(chapter, [older, f"%%time\n{NORM}"], folder)
    assert submission.answers("4.1")[0].source.strip() == NORM


def test_names_of_unmarked_cells_are_known_from_the_kernel_and_the_file(chapter, folder):
    submission = live_submission(chapter, [NORM, "%time x = 1\ndef helper(): ..."], folder)
    assert "in a cell run in this kernel" in submission.elsewhere["helper"]
    assert "in cell " in submission.elsewhere["prompt"]
    assert "rms_norm" not in submission.elsewhere


def test_what_is_nearly_a_mark_is_known_from_the_kernel(chapter, tmp_path):
    submission = live_submission(chapter, [NORM, "# exercise 4.2\nx = 1"], tmp_path)
    assert "a cell run in this kernel" in submission.nearly["4.2"]


def test_half_a_surrogate_does_not_stop_a_check_without_a_file(chapter, tmp_path):
    assert live_submission(chapter, [NORM + "  # \ud800"], tmp_path).answers("4.1")


def test_the_kernel_s_cells_are_read_as_typed():
    """IPython keeps a second list, in which a magic swallows its whole cell as one string."""
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "shell.run_cell('%%time\\n#| exercise 4.1\\nx = 1', store_history=True)\n"
        "from course import notebook\n"
        "print(ascii(notebook._executed_cells()[-1]))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.splitlines()[-1] == r"'%%time\n#| exercise 4.1\nx = 1'"


@pytest.mark.parametrize("call", ["check", "hint", "solution"])
def test_in_a_notebook_a_fault_is_a_sentence(call, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(desk, "Progress", lambda: Progress(tmp_path / "file"))
    monkeypatch.setattr(notebook, "_read", lambda _: Progress(tmp_path / "file"))
    monkeypatch.setattr(notebook.SPARE, "warm", lambda: None)
    getattr(notebook, call)("4.1")
    assert "file" in capsys.readouterr().out
    getattr(notebook, call)("4.77")
    assert "chapter 4 has no exercise 4.77" in capsys.readouterr().out
