"""The sandbox and what passes through its wall: files and answers, as data, looked at first."""

import re
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import torch

from course import sandbox_files, sandbox_linux, share, wire
from course.judge import Court, judge
from course.manifest import chapters
from course.paths import ROOT
from course.sandbox import Limits, Sandbox, SandboxError
from tests import adversaries, adversaries_sandbox, classroom

linux = pytest.mark.skipif(not sandbox_linux.supported(), reason="the sandbox needs Linux")
LINUX_MODES = [pytest.param(mode, marks=linux) for mode in ("plain", "user", "namespaces")]
MODES = ["process", *LINUX_MODES]


@pytest.fixture
def sandbox(tmp_path, request):
    """A sandbox of the mode that the test is for, if the system has it."""
    before = tempfile.tempdir
    try:
        made = Sandbox(tmp_path, Limits(seconds=4, memory=600 * 2**20), mode=request.param)
    except SandboxError as problem:
        pytest.skip(f"not on this system: {problem}")
    with made:
        yield made
    tempfile.tempdir = before


def judged(sandbox, submission, exercise: str):
    court = Court(sandbox.for_chapter(submission.chapter), sandbox.limits.seconds, sandbox.scratch)
    return judge(submission, submission.chapter.exercise(exercise), 7, court)


@pytest.mark.parametrize("sandbox", MODES, indirect=True)
def test_right_work_passes_in_every_mode(sandbox, submit, solved):
    assert judged(sandbox, submit(solved), "4.4").status == "passed"


@pytest.mark.parametrize("sandbox", MODES, indirect=True)
@pytest.mark.parametrize("name", ["os_exit", "endless_loop", "child_in_a_session_of_its_own"])
def test_what_runs_away_is_ended_in_every_mode(sandbox, submit, solved, name):
    if sandbox.mode == "process" and "session" in name:
        pytest.skip("without Linux a process may leave its group; INSTRUCTORS.md says so")
    submission = submit(solved, ex4_4=adversaries.cell(adversaries.BODIES[name][0]))
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    assert judged(sandbox, submission, "4.4").points == 0
    deadline = time.monotonic() + 20
    while left := started_since(before):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def started_since(before: set[int]) -> list:
    """Descendants of this process that were not there before, and are no remains."""
    now = psutil.Process().children(recursive=True)
    return [p for p in now if p.pid not in before and p.status() != psutil.STATUS_ZOMBIE]


FILTERED = [name for name in adversaries_sandbox.BODIES if name != "files_without_end"]


@pytest.mark.parametrize("sandbox", LINUX_MODES, indirect=True)
@pytest.mark.parametrize("name", ["memory_of_children", "all_memory", *FILTERED])
def test_limits_have_no_gaps_without_namespaces_either(sandbox, submit, solved, name):
    code, why = adversaries.BODIES[name]
    result = judged(sandbox, submit(solved, ex4_4=adversaries.cell(code)), "4.4")
    assert result.points == 0
    assert re.search(why, result.failure.message), result.failure.message


def test_where_there_is_no_linux_workers_are_processes_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox_linux, "supported", lambda: False)
    before = tempfile.tempdir
    with Sandbox(tmp_path) as sandbox:
        assert sandbox.describe().startswith("process: ")
        assert "files, network and memory are open" in sandbox.describe()
        remote = sandbox.for_chapter(chapters()[3]).take()
        assert "submission" not in remote.names()
        remote.close()
    tempfile.tempdir = before


def test_a_class_is_graded_without_linux_too(tmp_path):
    """The whole way with `--sandbox process`: right, wrong, and what every system can bear."""
    folder, out = tmp_path / "class", tmp_path / "grades"
    folder.mkdir()
    names = ("os_exit", "endless_loop", "patches_the_comparison", "forges_an_answer", "huge_text")
    cells = {name: adversaries.cell(adversaries.BODIES[name][0]) for name in names}
    for name, cell in {**cells, "honest": classroom.FEED_FORWARD}.items():
        sheet = classroom.sheet(classroom.IMPORTS, classroom.RMS_NORM, cell)
        (folder / f"{name}.ipynb").write_text(sheet, encoding="utf-8")
    only = ("--only", "4.1", "4.4", "--seconds", "5", "--sandbox", "process", "--jobs", "2")
    assert classroom.grade(folder, out, *only) == 0
    found = {name: classroom.exercises(out, f"{name}.ipynb") for name in [*names, "honest"]}
    assert [e["points"] for e in found.pop("honest").values()] == [8, 6]
    for name, (first, attacked) in ((name, found[name].values()) for name in names):
        assert (first["points"], attacked["points"]) == (8, 0)
        assert re.search(adversaries.BODIES[name][1], attacked["reason"]), attacked["reason"]
    assert "Sandbox: process: " in (out / "summary.md").read_text(encoding="utf-8")


@linux
@pytest.mark.parametrize("sandbox", ["namespaces"], indirect=True)
def test_a_mode_that_is_asked_for_is_the_one_there_is(sandbox):
    assert sandbox.describe().startswith("namespaces: own files, no network")


@linux
def test_a_sandbox_that_cannot_be_made_is_no_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox_files, "python", lambda: ["/usr"])  # no Python to be seen
    monkeypatch.setattr(Sandbox, "_user", lambda self: -7)  # and no such user
    before = tempfile.tempdir
    with pytest.raises(SandboxError, match="namespaces: "):
        Sandbox(tmp_path, mode="namespaces")
    tempfile.tempdir = before


# ---- what is visible ----


@pytest.mark.parametrize("chapter", chapters(), ids=lambda c: c.name)
def test_no_answer_and_no_case_is_visible(chapter):
    names = {path.relative_to(ROOT).as_posix() for path in sandbox_files.course_files(chapter)}
    assert not names & {f"solutions/{module}.py" for module in chapter.modules}
    hidden = ("tests/grading", "tests/misconceptions", "tests/styles", "tests/wrong", "notebooks")
    assert not [name for name in names if name.startswith(hidden)]
    assert "course/worker.py" in names
    assert chapter.scenarios.replace(".", "/") + ".py" in names


def test_what_the_environment_adds_to_the_path_of_modules_is_not_visible(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(tmp_path) not in sandbox_files.python()
    assert str(Path(torch.__file__).parents[1]) in sandbox_files.python() or any(
        Path(torch.__file__).is_relative_to(place) for place in sandbox_files.python()
    )


@linux
def test_what_is_covered_is_not_visible_inside_what_is_shown(tmp_path, submit, solved):
    """As for a class, or the course itself, that lies in a folder below /usr."""
    inside = Path(torch.__file__).parents[1] / "tqdm"
    before = tempfile.tempdir
    try:
        sandbox = Sandbox(tmp_path, Limits(20), mode="namespaces", covered=[inside])
    except SandboxError as problem:
        pytest.skip(f"not on this system: {problem}")
    body = f"import os; raise LookupError(repr(os.listdir({str(inside)!r})))"
    with sandbox:
        result = judged(sandbox, submit(solved, ex4_4=adversaries.cell(body)), "4.4")
    tempfile.tempdir = before
    assert "raised LookupError: []" in result.failure.message
    assert inside.joinpath("__init__.py").is_file()


# ---- files ----


def test_files_arrive_as_they_are_and_news_are_sent_once(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "a" / "b").mkdir(parents=True)
    (here / "a" / "b" / "x").write_bytes(b"12345")
    with (here / "sparse").open("wb") as file:
        file.write(b"head")
        file.truncate(2**40)
    sender = share.Share(here, there)
    share.receive(sender.news())
    assert (there / "a" / "b" / "x").read_bytes() == b"12345"
    assert (there / "sparse").stat().st_size == 2**40
    with (there / "sparse").open("rb") as file:
        assert file.read(6) == b"head\0\0"
    assert sender.news() is None
    (here / "a" / "b" / "x").write_bytes(b"123")
    (here / "sparse").unlink()
    share.receive(sender.news())
    assert (there / "a" / "b" / "x").read_bytes() == b"123"
    assert not (there / "sparse").exists()


def test_paths_are_the_workers_on_the_way_there_and_ours_on_the_way_back(tmp_path):
    sender = share.Share(tmp_path / "here", tmp_path / "there")
    asked = {"args": (f"{tmp_path}/here/x", [1, {"k": f"{tmp_path}/here"}]), "n": 3}
    sent = sender.outgoing(asked)
    assert sent == {"args": (f"{tmp_path}/there/x", [1, {"k": f"{tmp_path}/there"}]), "n": 3}
    assert sender.incoming(sent) == asked
    raised = wire.Raised("E", ["E"], f"no {tmp_path}/there/y")
    assert sender.incoming(raised).message == f"no {tmp_path}/here/y"
    record = sender.incoming(wire.Record("R", {"path": f"{tmp_path}/there"}))
    assert record.fields == {"path": f"{tmp_path}/here"}


def test_the_scratch_of_a_sandbox_is_closed_to_nobody_who_needs_it(tmp_path):
    before = tempfile.tempdir
    with Sandbox(tmp_path, mode="process") as sandbox:
        assert Path(tempfile.gettempdir()) == sandbox.scratch / "files"
    tempfile.tempdir = before
