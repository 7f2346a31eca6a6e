"""In a running notebook the cells are judged as last executed, and the verdict says so."""

import pytest

from course import notebooks, verdict
from course.judge import Verdict
from course.live import live_submission
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
