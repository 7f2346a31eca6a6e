"""The verbs as typed: words, exit codes, nothing lost."""

import pytest

from course import cli, desk
from course.progress import Progress


@pytest.fixture
def work(tmp_path, monkeypatch):
    """An empty work folder in place of the learner's."""
    for module in ("desk", "start", "progress", "submission", "live"):
        monkeypatch.setattr(f"course.{module}.WORK", tmp_path, raising=False)
    monkeypatch.setattr(desk, "Progress", lambda: Progress(tmp_path))
    monkeypatch.setattr(desk.find_submission, "__defaults__", (tmp_path,))
    return tmp_path


@pytest.mark.parametrize("argv", [[], ["help"], ["--help"]])
def test_help_names_every_verb(argv, capsys):
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {verb}" in out for verb in cli._VERBS)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["chek"], "no verb 'chek'"),
        (["check", "4.77"], "chapter 4 has no exercise 4.77: it has 4.1"),
        (["check", "99"], "there is no chapter 99"),
        (["hint", "x.y"], "write its number, such as 4.2"),
        (["solution", "4"], "write its number, such as 4.2"),
        (["start", "99"], "there is no chapter 99"),
    ],
)
def test_a_wrong_word_is_answered_in_words(argv, words, work, capsys):
    assert cli.main(argv) == 2
    assert words in capsys.readouterr().err


def test_check_without_a_file_says_what_to_type(work, capsys):
    assert cli.main(["check", "4.1"]) == 1
    assert "python -m course start 4" in " ".join(capsys.readouterr().out.split())


def test_check_before_anything_was_begun(work, capsys):
    assert cli.main(["check"]) == 1
    assert "python -m course start" in capsys.readouterr().out


def test_hints_come_one_by_one_and_are_counted(work, chapter, capsys):
    hints = chapter.exercise("4.1").hints
    for read, shown in ((1, [0]), (2, [1]), (3, [2]), (3, [0, 1, 2])):
        assert cli.main(["hint", "4.1"]) == 0
        out = capsys.readouterr().out
        assert [n for n, hint in enumerate(hints) if hint in out] == shown
        assert Progress(work).get("4.1")["hints"] == read
    assert Progress(work).hints_left(chapter.exercise("4.1")) == 0


def test_a_solution_is_shown_after_one_question(work, monkeypatch, capsys):
    answers = iter(["n", "y"])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert cli.main(["solution", "4.1"]) == 1
    assert "def rms_norm" not in capsys.readouterr().out
    assert not Progress(work).get("4.1").get("revealed")
    for _ in range(2):  # the second time nothing is asked
        assert cli.main(["solution", "4.1"]) == 0
        assert "def rms_norm" in capsys.readouterr().out
    assert Progress(work).get("4.1")["revealed"]


def test_progress_shows_chapters_exercises_points_and_verdicts(work, chapter, capsys):
    progress = Progress(work)
    progress.update("4.1", status="passed", points=8, at="2026-11-30T10:00:00")
    assert cli.main(["progress"]) == 0
    out = capsys.readouterr().out
    assert all(e.id in out and e.title in out for e in chapter.exercises)
    assert "8 of 100" in out
    assert "2026-11-30 10:00:00" in out
    assert "not checked yet" in out


def test_a_damaged_record_is_kept_aside(work, capsys):
    (work / ".progress.json").write_text('{"4.1": ', encoding="utf-8")
    assert cli.main(["progress"]) == 0
    assert "damaged" in capsys.readouterr().out
    assert (work / ".progress.broken.json").read_text(encoding="utf-8") == '{"4.1": '
