"""What a worker sends is looked at first, and one that does not keep to its part is ended."""

import io
import math
import os
import random
import struct

import pytest
import torch

from course import reply, wire
from course.cases import Wrong, cases_of
from course.likely import reference_runner
from course.manifest import chapters
from course.remote import Gone, Remote
from course.trial import Local, run_cases


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


def test_all_answers_together_are_bounded(pipes, monkeypatch):
    """The judge keeps what it has heard: many large answers must not fill its memory."""
    monkeypatch.setattr("course.remote.MOST_ANSWERED", 1000)
    remote = Remote(pipes)
    for message in ("ready", *[["x" * 300]] * 4):
        wire.send(pipes.back, message)
    for _ in range(2):
        assert remote.names() == ["x" * 300]
    with pytest.raises(Gone, match="cannot be read"):
        [remote.names() for _ in range(2)]
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


# ---- answers with one lie in them ----

LIES = [
    0,
    -1,
    10**18,
    2**63,
    1e308,
    math.nan,
    math.inf,
    True,
    None,
    "",
    "x" * 100_000,
    "-1",
    [],
    {},
]
LIES += [[], {}, wire.Opaque("T", "r"), wire.Record("R", {}), torch.zeros(0), torch.tensor(5)]


class Liar:
    """A backend that answers as our solution does, but for one part of one answer."""

    def __init__(self, backend: Local, dice: random.Random):
        self.backend, self.dice, self.at = backend, dice, dice.choice((0, 0, 1, 2, 5))

    def answer(self, request: dict) -> dict:
        told = self.backend.answer(request)
        if "value" in told and self.at == 0:
            told["value"] = forged(told["value"], self.dice)
        self.at -= 1
        return told


def forged(value, dice: random.Random):
    """The value with something else in one place, at any depth."""
    if isinstance(value, dict) and value and dice.random() < 0.8:
        key = dice.choice(list(value))
        return {**value, key: forged(value[key], dice)}
    if isinstance(value, list | tuple) and value and dice.random() < 0.8:
        at = dice.randrange(len(value))
        return type(value)(forged(v, dice) if n == at else v for n, v in enumerate(value))
    if isinstance(value, wire.Record) and value.fields and dice.random() < 0.8:
        return wire.Record(value.type, forged(value.fields, dice))
    return dice.choice(LIES)


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")  # what a lie makes of an index
@pytest.mark.parametrize("chapter", chapters(), ids=lambda chapter: chapter.name)
def test_no_lie_ends_a_judge_or_holds_it_up(chapter):
    """Whatever comes back, a case says no (or does not look there); it never fails itself."""
    dice = random.Random(chapter.number)
    backend = Local(reference_runner(chapter))
    for case in dice.sample(cases_of(chapter.slug), 30):
        for _ in range(2):
            (outcome,) = run_cases(Liar(backend, dice), [case], 1729)
            assert outcome.error is None or isinstance(outcome.error, Wrong | wire.Raised)
            assert "MemoryError" not in str(outcome.error)
