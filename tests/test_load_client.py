"""The open loop in a time of its own, and every way in which an answer can go wrong."""

import asyncio
import json
import math
import time

import pytest

from course.load_client import LoadError, Target, find_model, open_loop, send
from course.load_figures import ANSWERED, NO_SERVER, REJECTED, UNFINISHED, Outcome
from course.load_plan import Planned
from tests.fake_server import chunk, events, model_of_three, models, response, serve, usage


class Time:
    """A clock that moves only when somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        end = self.now + seconds
        await asyncio.sleep(0)  # who is ready goes first: time passes only when nobody is
        self.now = max(self.now, end)


def requests(*due: float) -> list[Planned]:
    return [Planned(at, "the", 1) for at in due]


def test_nobody_waits_for_anybody():
    """All go out at their time although the first has not come back when the last is sent."""
    time_, outcomes, in_flight = Time(), [], []

    async def run():
        release = asyncio.Event()

        async def hang(planned, outcome):
            outcome.sent = time_.now
            in_flight.append(outcome)
            if len(in_flight) == 5:
                release.set()
            await release.wait()
            outcome.ended, outcome.kind = time_.now, ANSWERED

        plan = requests(0.5, 0.75, 0.75, 1.0, 4.0)
        async with asyncio.timeout(30):  # a closed loop would wait for ever
            await open_loop(plan, hang, outcomes, time_.clock, time_.sleep)

    asyncio.run(run())
    assert [o.sent for o in outcomes] == [o.planned for o in outcomes] == [0.5, 0.75, 0.75, 1, 4]
    assert {o.ended for o in outcomes} == {4.0}


def test_a_late_generator_says_how_late():
    time_, outcomes = Time(), []

    async def slow_to_send(planned, outcome):
        outcome.sent = time_.now
        time_.now += 0.2  # the processor is busy, and nothing else runs

    asyncio.run(
        open_loop(requests(1.0, 1.1, 1.2), slow_to_send, outcomes, time_.clock, time_.sleep)
    )
    assert [o.late for o in outcomes] == pytest.approx([0.0, 0.1, 0.2])


def test_stop_is_asked_before_each():
    time_, outcomes = Time(), []

    async def note(planned, outcome):
        outcome.kind = NO_SERVER

    def stop() -> bool:
        return len(outcomes) == 2

    asyncio.run(open_loop(requests(1, 2, 3, 4), note, outcomes, time_.clock, time_.sleep, stop))
    assert [o.planned for o in outcomes] == [1, 2]


def ask(url: str, prompt: str = "the of and", **target) -> Outcome:
    """One request to a server that is there or not."""
    outcome = Outcome(0.0)

    async def run():
        made = Target(url, "tiny", **target)
        async with made.client() as client:
            await send(client, made, Planned(0.0, prompt, 3), outcome, time.perf_counter)

    asyncio.run(run())
    return outcome


def test_a_stream_is_read_piece_by_piece():
    with serve(model_of_three) as (url, seen):
        outcome = ask(url, key="secret")
    assert outcome.kind == ANSWERED
    assert (outcome.prompt_tokens, outcome.tokens, outcome.finish_reason) == (3, 3, "length")
    assert len(outcome.pieces) == 3
    assert outcome.sent <= outcome.pieces[0] <= outcome.pieces[-1] <= outcome.ended
    ((path, body, headers),) = seen
    assert path == "/v1/completions"
    assert body == {
        "model": "tiny",
        "max_tokens": 3,
        "temperature": 0.0,
        "stream": True,
        "prompt": "the of and",
        "stream_options": {"include_usage": True},
    }
    assert headers["authorization"] == "Bearer secret"
    with serve(model_of_three) as (url, seen):
        assert ask(url, key="clé").kind == ANSWERED
    assert seen[0][2]["authorization"] == "Bearer clé"  # in UTF-8, as the service takes it
    assert headers["accept-encoding"] == "identity"


def test_a_conversation_and_an_answer_in_one_piece():
    with serve(model_of_three) as (url, seen):
        outcome = ask(url, chat=True, stream=False)
    assert (outcome.kind, outcome.pieces, outcome.tokens) == (ANSWERED, [], 3)
    ((path, body, headers),) = seen
    assert path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "the of and"}]
    assert "stream_options" not in body
    assert "authorization" not in headers


FULL = json.dumps({"error": {"type": "overloaded", "message": "full", "param": None, "code": None}})


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        (response(b"{}", "500 Internal Server Error"), "status 500"),
        (response(b"", "404 Not Found"), "status 404"),
        (events(chunk(" a"), chunk(" b"), done=False), "the stream ended before its [DONE]"),
        (events(done=False), "the stream ended before its [DONE]"),
        (events(chunk(" a"), FULL), "error in the stream: overloaded"),
        (events("{}", '{"error": "text"}'), "error in the stream: unknown"),
        (events("nonsense"), "not an answer of this protocol"),
        (events("[1]"), "not an answer of this protocol"),
        (events("[" * 100_000), "not an answer of this protocol"),
        (events('{"choices": 3}'), "not an answer of this protocol"),
        (response(b"data: x", length=1000), "the connection broke"),
        ([b"nonsense\r\n\r\n"], "the connection broke"),
        ([], "the connection broke"),
    ],
)
def test_what_goes_wrong_has_a_name(parts, kind):
    with serve(lambda path, body: parts) as (url, _):
        outcome = ask(url)
    assert outcome.kind == kind
    assert not math.isnan(outcome.ended)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices": []}', b"nonsense"])
def test_a_whole_answer_that_is_none(body):
    with serve(lambda path, _: response(body)) as (url, _):
        assert ask(url, stream=False).kind == "not an answer of this protocol"


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        ("503 Service Unavailable", "Retry-After: 4", 4.0),
        ("429 Too Many Requests", "Retry-After: 1", 1.0),
        ("503 Service Unavailable", "X-Other: 1", None),
        ("503 Service Unavailable", "Retry-After: Mon, 30 Nov 2026 12:00:00 GMT", None),
    ],
)
def test_a_rejection_and_when_to_come_again(status, header, seconds):
    with serve(lambda path, body: response(b"{}", status, header)) as (url, _):
        outcome = ask(url)
    assert (outcome.kind, outcome.retry_after) == (REJECTED, seconds)


def test_no_server_is_a_kind_of_its_own():
    with serve(model_of_three) as (url, _):
        pass
    assert ask(url).kind == NO_SERVER


SILENT = [*events(chunk(" a"), done=False), None]  # one piece, then nothing


def test_a_server_that_says_nothing_is_given_up():
    with serve(lambda path, body: SILENT) as (url, _):
        assert ask(url, timeout=0.2).kind == "nothing came for 0.2 s"


def test_a_request_that_was_stopped_is_not_finished_and_no_error():
    outcome = Outcome(0.0)

    async def run():
        made = Target(url, "tiny")
        async with made.client() as client:
            sending = send(client, made, Planned(0.0, "the", 3), outcome, time.perf_counter)
            task = asyncio.create_task(sending)
            while not outcome.pieces:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with serve(lambda path, body: SILENT) as (url, _):
        asyncio.run(run())
    assert outcome.kind == UNFINISHED


def model_of(url: str) -> str:
    async def run():
        async with Target(url).client() as client:
            return await find_model(client, url)

    return asyncio.run(run())


def test_the_first_model_is_asked():
    with serve(lambda path, body: models("first")) as (url, _):
        assert model_of(url) == "first"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (response(b"{}", "401 Unauthorized"), "wants an API key: give it with --api-key"),
        (response(b"<html>", "404 Not Found"), "answers 404 and names no model"),
        (response(b'{"data": []}'), "answers 200 and names no model"),
        (response(b"[]"), "names no model"),
    ],
)
def test_another_kind_of_server_is_named(parts, words):
    with serve(lambda path, body: parts) as (url, _), pytest.raises(LoadError, match=words):
        model_of(url)


def test_usage_of_nonsense_is_not_counted():
    with serve(lambda path, body: events(chunk(" a"), usage(1, 2).replace("2", '"2"'))) as (url, _):
        outcome = ask(url)
    assert (outcome.kind, outcome.tokens, outcome.made) == (ANSWERED, None, 1)
