"""The verbs as typed: words, exit codes, nothing lost."""

import os
import subprocess
import sys

import pytest

from course import cli, desk
from course.paths import ROOT
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
        (["check", "4.²"], "'4.²' is not an exercise: write its number, such as 4.2"),
        (["check", "²"], "'²' is no chapter: write its number, such as 4.2"),
        (["check", "4." + "1" * 5000], "1'… is not an exercise"),
        (["check", "1" * 5000], "1'… is no chapter"),
        (["check", "٤"], "'٤' is no chapter"),
        (["check", "4.1.2"], "'4.1.2' is not an exercise"),
        (["check", "rms_norm"], "'rms_norm' is no chapter: write the number of its exercise, 4.1"),
        (["hint", "rms_norm"], "is not an exercise: write the number of its exercise, 4.1"),
        (["start", "99"], "there is no chapter 99"),
    ],
)
def test_a_wrong_word_is_answered_in_words(argv, words, work, capsys):
    assert cli.main(argv) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said) < 2500


@pytest.mark.parametrize("argv", [["hint", "4.1"], ["progress"], ["solution", "4.1", "--yes"]])
@pytest.mark.parametrize("fault", ["the folder is a file", "the record is a folder"])
def test_what_the_system_refuses_is_a_sentence(argv, fault, work, monkeypatch, capsys):
    folder = work / "place"
    if fault == "the folder is a file":
        folder.write_text("", encoding="utf-8")
    else:
        (folder / ".progress.json").mkdir(parents=True)
    monkeypatch.setattr(desk, "Progress", lambda: Progress(folder))
    monkeypatch.setattr("course.paths.WORK", work)
    assert cli.main(argv) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"{argv[0]}: {folder}")
    assert "set COURSE_WORK to another folder" in said


def run_cli(verb: str, prepare: str = "", **options) -> subprocess.CompletedProcess:
    """A verb in a Python of its own, whose streams may be spoilt."""
    code = f"import sys; {prepare}\nfrom course import cli; sys.exit(cli.main([{verb!r}]))"
    command, encoding = [sys.executable, "-c", code], "utf-8"
    return subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, encoding=encoding, **options)


@pytest.mark.parametrize("closed", ["sys.stdout = None", "sys.stderr = sys.stdout = None"])
def test_closed_streams_are_no_error(closed):
    done = run_cli("help", closed)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows reports another error")
def test_a_reader_that_has_gone_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = run_cli("help", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_a_sentence():
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = run_cli("help", stdout=full)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("variable", ["COURSE_WORK", "COURSE_MODELS"])
def test_a_variable_that_names_no_folder_is_a_sentence(variable, monkeypatch):
    monkeypatch.setenv(variable, "~no such user/x")
    done = run_cli("progress")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{variable} is '~no such user/x', which names no folder")
    assert len(done.stderr.splitlines()) == 1


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
