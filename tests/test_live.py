"""In a running notebook the cells are judged as last executed, and the verdict says so."""

import pytest

from course import notebooks
from course.live import live_submission
from course.submission import SubmissionError

NORM = "#| exercise 4.1\ndef rms_norm(x, weight, eps):\n    return 'as run'"


@pytest.fixture
def folder(tmp_path, chapter, solved):
    notebooks.write(solved, tmp_path / f"{chapter.name}.ipynb")
    return tmp_path


def test_the_executed_cell_counts_and_the_difference_is_said(chapter, folder):
    submission = live_submission(chapter, ["1 + 1", NORM], folder)
    assert submission.answers("4.1")[0].source == NORM
    assert any("save the notebook" in note and "4.1" in note for note in submission.notes)


def test_the_last_execution_counts(chapter, folder):
    newer = NORM.replace("as run", "later")
    submission = live_submission(chapter, [NORM, newer], folder)
    assert submission.answers("4.1")[0].source == newer


def test_cells_not_run_come_from_the_file_and_are_named(chapter, folder):
    submission = live_submission(chapter, [NORM], folder)
    assert len(submission.answers("4.2")) == 1
    assert any("4.2" in note and "4.1" not in note.split(":")[-1] for note in submission.notes[1:])


def test_nothing_is_said_when_all_was_run_as_saved(chapter, folder, solved):
    executed = ["".join(c["source"]) for c in solved["cells"] if c["cell_type"] == "code"]
    assert live_submission(chapter, executed, folder).notes == ()


def test_without_a_saved_file_the_cells_run_are_enough(chapter, tmp_path):
    submission = live_submission(chapter, [NORM], tmp_path)
    assert submission.answers("4.1")[0].source == NORM
    assert submission.saved_at is None
    assert "judged from the cells run" in submission.notes[0]


def test_without_a_file_and_without_cells_there_is_nothing(chapter, tmp_path):
    with pytest.raises(SubmissionError):
        live_submission(chapter, ["x = 1"], tmp_path)


def test_cells_of_another_chapter_are_left_out(chapter, tmp_path):
    other = "#| exercise 5.1\ndef f(): ..."
    submission = live_submission(chapter, [other, NORM], tmp_path)
    assert [cell.exercise for cell in submission.cells] == ["4.1"]
