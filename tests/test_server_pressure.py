"""The server under pressure: it says no at once, keeps time, and tells the truth about itself."""

import json
import re
import threading

import pytest

from solutions.events import Arrived, Finished, Rejected, Stepped
from solutions.request import Request
from solutions.sampling_params import SamplingParams
from solutions.service import LARGE
from tests.server_kit import CHAT, COMPLETIONS, GUARD, nobody_is_left, read_all, serving, until

BODY = {"prompt": "Hello", "max_tokens": 3, "temperature": 0}
LONG = BODY | {"max_tokens": 100}


def test_one_too_many_gets_503_without_a_step():
    with serving(rows=2, max_waiting=3) as running:
        socks = running.fill(LONG, 2, 3)
        calls = running.model.calls
        for body in (BODY, BODY | {"stream": True}):
            found = running.post(COMPLETIONS, body)
            error = found.json()["error"]
            assert [found.status_code, error["code"]] == [503, "queue_full"]
            assert int(found.headers["retry-after"]) >= 1
        assert running.model.calls == calls  # the step that was held is held still
        assert running.post(COMPLETIONS, BODY | {"n": 4}).status_code == 400
        assert [e.reason for e in running.events if isinstance(e, Rejected)] == ["queue_full"] * 2
        running.model.release()
        for sock in socks:
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
            sock.close()
        assert running.post(COMPLETIONS, BODY).status_code == 200
        until(lambda: nobody_is_left(running), "all is free")


def test_several_answers_wait_together_or_not_at_all():
    with serving(rows=2, max_waiting=3) as running:
        socks = running.fill(LONG, 2, 2)
        assert running.post(COMPLETIONS, BODY | {"n": 2}).status_code == 503
        assert len(running.service.batcher.waiting) == 2
        running.model.release()
        for sock in socks:
            sock.close()


def test_who_waits_too_long_is_told_to_come_again():
    with serving(rows=1, max_waiting=3, queue_timeout=30) as running:
        socks = running.fill(LONG, 1, 1)
        running.clock.ahead += 31
        running.model.release()
        told = list(map(read_all, socks))
        assert told[0].startswith("HTTP/1.1 200")
        assert told[1].startswith("HTTP/1.1 503")
        assert "queue_timeout" in told[1]
        assert "retry-after" in told[1]


def test_a_stream_that_waits_too_long_is_told_so_by_its_status():
    """No comment is sent while it waits, though it waits for long: its status would be 200."""
    with serving(rows=1, max_waiting=3, queue_timeout=30, keep_alive=0.02) as running:
        first = running.fill(LONG, 1)[0]
        sock = running.send_raw(COMPLETIONS, LONG | {"stream": True})
        until(lambda: len(running.service.batcher.waiting) == 1, "it waits")
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        sock.settimeout(GUARD)
        running.clock.ahead += 31
        running.model.release()
        told = read_all(sock)
        assert told.startswith("HTTP/1.1 503")
        assert "retry-after" in told
        assert ": still here" not in told
        assert read_all(first).startswith("HTTP/1.1 200")


def test_who_takes_too_long_gets_504_or_an_error_event():
    with serving(rows=2, request_timeout=300) as running:
        socks = running.fill(LONG, 1) + running.fill(LONG | {"stream": True}, 1)
        arrived = [event.id for event in running.events if isinstance(event, Arrived)]
        until(lambda: running.model.nudge() or "Token" in running.kinds(arrived[1]), "both write")
        running.clock.ahead += 301
        running.model.release()
        told, events = map(read_all, socks)
        assert told.startswith("HTTP/1.1 504")
        assert "x-should-retry: false" in told  # or clients would do it all again
        assert '"timeout"' in told
        assert events.startswith("HTTP/1.1 200")
        data = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]
        assert "choices" in data[0]
        assert data[-1]["error"]["code"] == "timeout"
        until(lambda: nobody_is_left(running), "all is free")


def test_an_engine_that_hangs_is_seen_and_nobody_waits_for_ever(monkeypatch):
    monkeypatch.setattr("solutions.exchange.GRACE", 0.1)
    with serving(rows=2, request_timeout=0.2, stall_timeout=0.2) as running:
        running.model.hold()
        found = running.post(COMPLETIONS, BODY)
        assert [found.status_code, found.json()["error"]["code"]] == [504, "timeout"]
        health = running.get("/health")
        assert [health.status_code, health.json()["status"]] == [503, "stalled"]
        running.model.release()
        until(lambda: running.get("/health").status_code == 200, "it is well again")
        until(lambda: nobody_is_left(running), "all is free")


def test_an_engine_that_dies_is_dead_for_everybody(caplog):
    with serving(rows=1, max_waiting=5) as running:
        socks = running.fill(LONG, 1, 3)
        running.model.breaks = {running.model.calls: "SystemExit"}
        running.model.release()
        for sock in socks:
            answer = read_all(sock)
            assert answer.startswith("HTTP/1.1 500")
            assert "engine_error" in answer
        health = running.get("/health")
        assert [health.status_code, health.json()["status"]] == [503, "dead"]
        found = running.post(CHAT, {"messages": [{"role": "user", "content": "x"}]})
        assert [found.status_code, found.json()["error"]["code"]] == [503, "dead"]
        assert int(found.headers["retry-after"]) > 0
        ends = [(e.reason, e.error) for e in running.events if isinstance(e, Finished)]
        assert [reason for reason, _ in ends] == ["error"] * 4
        assert running.service.lifecycle.inside == 0
        assert [type(error) for error in running.errors] == [SystemExit]
    said = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert len(said) == 1
    assert re.fullmatch(r"the engine has ended: SystemExit at \w+\.py:\d+ \w+", said[0])


def test_what_ended_an_engine_is_told_though_nobody_was_inside(caplog):
    """Its class and its place are told, not its words, which may be a user's."""

    def broken(error):
        raise OSError("the disk is full")

    with serving() as running:
        batcher, running.service._on_error = running.service.batcher, broken

        def step():
            batcher.waiting.remove(asked)
            raise RuntimeError("the books are wrong: my secret")

        batcher.step = step
        asked = Request([1], SamplingParams(max_tokens=1))
        batcher.submit(asked)
        running.service.engine.cancel(Request([1], SamplingParams()))  # it wakes
        until(lambda: not running.service.engine.is_alive, "it dies")
        assert running.get("/health").json()["status"] == "dead"
    assert re.search(r"the engine has ended: RuntimeError at \w+\.py:\d+ step", caplog.text)
    assert "secret" not in caplog.text


def test_a_job_is_not_over_before_its_last_answer_is():
    """Between the end of a request and the answer lie the watchers: one may be slow."""
    ends, kept, second, go_on = [], [], threading.Event(), threading.Event()

    def slow(event):
        if not isinstance(event, Finished):
            return
        ends.append(event.id)
        if len(ends) == 1:  # the loop hears of the first when the second is finished as well
            running.loop.call_soon_threadsafe(second.wait, GUARD)
        elif len(ends) == 2:
            second.set()
            go_on.wait(GUARD)

    with serving() as running:
        keep = running.service.results.keep
        running.service.announcer.watchers.append(slow)
        running.service.results.keep = lambda *it: (kept.append(it[0]), keep(*it))
        other = running.fill(LONG, 1)[0]
        sock = running.send_raw(COMPLETIONS, BODY | {"n": 2})
        until(lambda: len(running.service.batcher.waiting) == 2, "both wait, to end in one step")
        running.model.release()
        until(lambda: len(ends) == 2, "both are over")
        job = ends[0].rsplit("-", 1)[0]
        assert running.get(f"/v1/results/{job}").status_code == 202
        go_on.set()
        answer = json.loads(read_all(sock).split("\r\n\r\n", 1)[1])
        assert [choice["finish_reason"] for choice in answer["choices"]] == ["length"] * 2
        assert read_all(other).startswith("HTTP/1.1 200")
        until(lambda: nobody_is_left(running), "all is free")
        assert kept.count(job) == 1


def test_a_large_body_is_read_and_tokenized_beside_the_event_loop():
    with serving(length=4000) as running:
        text = running.service.text
        small, large = "x" * 100, "x" * (LARGE + 100)
        text.threads.clear()
        running.post(COMPLETIONS, BODY | {"prompt": small})
        loops = set(text.threads)
        text.threads.clear()
        assert running.post(COMPLETIONS, BODY | {"prompt": large}).status_code == 400
        assert text.threads
        assert not text.threads & loops


def test_a_place_is_taken_while_a_body_is_tokenized():
    """Two large bodies at once, and one place: the second is told so while the first is read."""
    with serving(rows=1, max_waiting=1, length=4000) as running:
        text, reading, go_on = running.service.text, threading.Event(), threading.Event()
        encode = text.encode

        def slow(words):
            reading.set()
            go_on.wait(20)
            return encode(words)[:5]

        text.encode = slow
        body = BODY | {"prompt": "x" * (LARGE + 10)}
        sock = running.send_raw(COMPLETIONS, body)
        assert reading.wait(20)
        found = running.post(COMPLETIONS, BODY)
        assert [found.status_code, found.json()["error"]["code"]] == [503, "queue_full"]
        go_on.set()
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        sock.close()


def test_silence_is_filled_while_a_stream_waits():
    with serving(rows=1, keep_alive=0.05) as running:
        running.model.hold()
        sock = running.send_raw(COMPLETIONS, BODY | {"stream": True})
        data = b""
        while data.count(b": still here\n\n") < 3:
            data += sock.recv(1000)
        running.model.release()
        while b"[DONE]" not in data:
            data += sock.recv(1000)
        assert b"200 OK" in data
        sock.close()


def test_what_watchers_hear():
    """Arrived, Admitted, a Token each, Finished; steps in between; and a watcher that fails harms
    nobody.
    """
    with serving() as running:

        def bad(event):
            raise KeyError("on purpose")

        running.service.announcer.watchers.insert(0, bad)
        id = running.post(CHAT, {"messages": [{"role": "user", "content": "secret"}]}).json()["id"]
        kinds = running.kinds(id)
        assert kinds[:3] == ["Arrived", "Admitted", "Token"]
        assert kinds[-1] == "Finished"
        assert kinds.count("Token") == len(kinds) - 3 == 256 - running_prompt(running)
        times = [event.at for event in running.events if getattr(event, "id", None) == id]
        assert times == sorted(times)
        announcer = running.service.announcer
        until(lambda: announcer.failures == len(running.events), "each event met the bad one")
        assert "secret" not in repr(running.events)
        steps = [event for event in running.events if isinstance(event, Stepped)]
        assert all(event.kv_total == 4 * 256 and event.seconds > 0 for event in steps)
        prints = []
        for prompt in ("a", "a", "b"):
            running.post(COMPLETIONS, BODY | {"prompt": prompt})
            prints.append(arrivals(running)[-1].fingerprint)
        assert prints[0] == prints[1] != prints[2]


def arrivals(running) -> list:
    return [event for event in running.events if isinstance(event, Arrived)]


def running_prompt(running) -> int:
    return arrivals(running)[0].prompt_tokens
