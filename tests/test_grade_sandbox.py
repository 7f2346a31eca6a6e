"""The sandbox and what passes through its wall: files and answers, as data, looked at first."""

import io
import os
import struct
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import torch

from course import reply, sandbox_files, sandbox_linux, share, wire
from course.judge import Court, judge
from course.manifest import chapters
from course.paths import ROOT
from course.remote import Gone, Remote
from course.sandbox import Limits, Sandbox, SandboxError
from tests import adversaries

linux = pytest.mark.skipif(not sandbox_linux.supported(), reason="the sandbox needs Linux")
MODES = ["process", pytest.param("plain", marks=linux), pytest.param("namespaces", marks=linux)]


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


@linux
@pytest.mark.parametrize("sandbox", ["plain"], indirect=True)
@pytest.mark.parametrize("name", ["memory_of_children", "all_memory"])
def test_memory_is_limited_without_namespaces_too(sandbox, submit, solved, name):
    code, why = adversaries.BODIES[name]
    result = judged(sandbox, submit(solved, ex4_4=adversaries.cell(code)), "4.4")
    assert result.failure is None or "memory" in result.failure.message.lower(), why


@linux
@pytest.mark.parametrize("sandbox", ["namespaces"], indirect=True)
def test_a_mode_that_is_asked_for_is_the_one_there_is(sandbox):
    assert sandbox.describe().startswith("namespaces: own files, no network")


@linux
def test_a_sandbox_that_cannot_be_made_is_no_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox_files, "python", lambda: ["/usr"])  # no Python to be seen
    monkeypatch.setattr("course.sandbox.FIRST_USER", -7)  # and no such user
    monkeypatch.setattr(os, "geteuid", lambda: 0)
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


# ---- answers ----


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (reply.nothing, 0),
        (reply.names, "rms_norm"),
        (reply.names, ["a", 3]),
        (reply.raised_or_nothing, {"kind": "E"}),
        (reply.raised_or_nothing, wire.Raised(3, ["E"], "x")),
        (reply.raised_or_nothing, wire.Raised("E", "E", "x")),
        (reply.raised_or_nothing, wire.Raised("E", ["E"], None)),
        (reply.raised_or_nothing, wire.Raised("E", ["E"], "x", line="4")),
        (reply.raised_or_nothing, wire.Raised("E", ["E"], "x", line=True)),
        (reply.raised_or_nothing, wire.Raised("E", ["E"], "x", not_attempted=1)),
        (reply.raised_or_nothing, wire.Raised("E", ["E"], "x", lines=[-1])),
        (reply.answer, None),
        (reply.answer, []),
        (reply.answer, {"value": 1}),
        (reply.answer, {"value": 1, "printed": ""}),
        (reply.answer, {"value": 1, "printed": 3, "changed": []}),
        (reply.answer, {"value": 1, "printed": "", "changed": [None]}),
        (reply.answer, {"changed": [], "printed": ""}),
        (reply.answer, {"raised": "E", "printed": ""}),
        (reply.answer, {"unsendable": 3}),
    ],
)
def test_a_forged_answer_is_refused(check, value):
    with pytest.raises(reply.Forged):
        check(value)


def test_an_honest_answer_is_cut_to_what_is_kept():
    got = reply.answer({"value": 1, "changed": [0], "printed": "x" * 9000, "passed": True})
    assert got == {"value": 1, "changed": [0], "printed": "x" * 4000}
    raised = reply.answer({"raised": wire.Raised("E", ["E"], "m" * 9999), "printed": ""})["raised"]
    assert len(raised.message) == 2000


# ---- a worker that does not keep to its part ----


class Pipes:
    """A worker's end in the hands of a test."""

    def __init__(self):
        requests, self.requests = os.pipe()
        answers, back = os.pipe()
        self.read, self.back = os.fdopen(requests, "rb"), os.fdopen(back, "wb")
        self.requests, self.answers = os.fdopen(self.requests, "wb"), os.fdopen(answers, "rb")

    def ending(self, seconds: float) -> str:
        return "it ended"

    def kill(self) -> None:
        for stream in (self.read, self.back):
            if not stream.closed:
                stream.close()

    def wait(self) -> None:
        pass


@pytest.fixture
def pipes():
    pipes = Pipes()
    yield pipes
    pipes.kill()


def test_a_worker_that_does_not_read_cannot_hold_the_judge_up(pipes):
    remote = Remote(pipes)
    wire.send(pipes.back, "ready")
    remote.limit(0.5)
    with pytest.raises(Gone, match="did not finish in time"):
        remote.answer({"args": [torch.zeros(10_000_000)]})
    remote.close()


def test_what_nobody_asked_for_stays_in_the_pipe(pipes):
    remote = Remote(pipes)
    wire.send(pipes.back, "ready")
    os.set_blocking(pipes.back.fileno(), False)
    sent = 0
    try:
        while sent < 2**24:
            sent += os.write(pipes.back.fileno(), struct.pack("<II", 4, 0) + b"null")
    except BlockingIOError:
        pass
    assert sent < 2**21
    assert remote._answers.qsize() <= 1
    remote.close()


def test_once_gone_a_worker_stays_gone(pipes):
    remote = Remote(pipes)
    wire.send(pipes.back, "ready")
    pipes.back.close()
    for _ in range(2):
        with pytest.raises(Gone, match="it ended"):
            remote.names()
    remote.close()


@pytest.mark.parametrize(
    "text",
    [
        b'{"$": "tensor", "dtype": "uint8", "shape": [1099511627776], "size": 0}',
        b'{"$": "tensor", "dtype": "uint8", "shape": [4], "size": 8}',
        b'{"$": "tensor", "dtype": "uint8", "shape": [8, -1], "size": 8}',
        b'{"$": "tensor", "dtype": "uint8", "shape": [true], "size": 1}',
        b'{"$": "tensor", "dtype": "float32", "shape": [3], "size": 12}',
        b'{"$": "object", "type": 3, "repr": ""}',
        b"[" * 200 + b"]" * 200,
    ],
)
def test_a_message_with_a_lie_in_it_is_refused(text):
    with pytest.raises(ValueError, match=r"tensor|text|levels"):
        wire.receive(io.BytesIO(struct.pack("<II", len(text), 8) + text + b"12345678"))


def test_a_truth_value_is_one_of_two():
    """A byte of 2 in a bool tensor would be equal to True and to False, or to neither."""
    text = b'{"$": "tensor", "dtype": "bool", "shape": [3], "size": 3}'
    got = wire.receive(io.BytesIO(struct.pack("<II", len(text), 3) + text + b"\0\1\2"))
    assert got.tolist() == [False, True, True]
    assert got.view(torch.uint8).tolist() == [0, 1, 1]


def test_text_beyond_the_limit_is_refused_before_it_is_read():
    with pytest.raises(wire.TooLarge, match="text"):
        wire.receive(io.BytesIO(struct.pack("<II", wire.TEXT_LIMIT + 1, 0)))


def test_the_scratch_of_a_sandbox_is_closed_to_nobody_who_needs_it(tmp_path):
    before = tempfile.tempdir
    with Sandbox(tmp_path, mode="process") as sandbox:
        assert Path(tempfile.gettempdir()) == sandbox.scratch / "files"
    tempfile.tempdir = before
