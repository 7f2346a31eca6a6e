"""kill -TERM under load: what was accepted is answered, what comes later is refused."""

import json
import signal
import threading
import time

import httpx
import pytest

from tests.real.storm import body_of

PATIENCE = 300  # seconds; only a guard against waiting for ever
PATIENT = {"max_running": 2, "drain_timeout": PATIENCE, "queue_timeout": PATIENCE}
REQUESTS, TOKENS = 12, 32


class Asked(threading.Thread):
    """One request in a thread: how it ended, as a status and the tokens of the answer."""

    def __init__(self, url: str, stream: bool, tokens: int):
        super().__init__()
        self.url, self.stream, self.tokens = url, stream, tokens
        self.status, self.made, self.reason, self.done, self.error = None, None, None, False, None

    def run(self) -> None:
        more = {"stream_options": {"include_usage": True}} if self.stream else {}
        body = body_of("the sea", self.tokens, stream=self.stream, **more)
        url = f"{self.url}/v1/completions"
        try:
            with httpx.stream("POST", url, content=body, timeout=PATIENCE) as answer:
                self.status = answer.status_code
                text = answer.read().decode()
        except httpx.HTTPError as problem:
            self.error = type(problem).__name__
            return
        lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
        self.done = not self.stream or lines[-1:] == ["[DONE]"]
        for event in map(json.loads, (line for line in lines or [text] if line != "[DONE]")):
            self._note(event)

    def _note(self, event: dict) -> None:
        self.error = event.get("error", self.error)
        for choice in event.get("choices", []):
            self.reason = choice["finish_reason"] or self.reason
        if event.get("usage"):
            self.made = event["usage"]["completion_tokens"]


def accepted(server) -> float:
    """Requests that are running or waiting, or were answered already."""
    lines = server.get("/metrics").text.splitlines()
    names = ("llm_requests_running", "llm_requests_waiting", "llm_requests_total")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names))


def under_load(server, tokens: int, count: int = REQUESTS) -> list[Asked]:
    """So many requests, half of them streamed, as soon as all have been accepted."""
    asked = [Asked(server.url, n % 2 == 0, tokens) for n in range(count)]
    for thread in asked:
        thread.start()
    end = time.monotonic() + PATIENCE
    while accepted(server) < count:
        assert time.monotonic() < end, f"only {accepted(server)} of {count} were accepted"
    return asked


def test_no_accepted_request_is_lost(start):
    """Two run at a time, so that most wait when the signal comes."""
    server = start(**PATIENT)
    asked = under_load(server, TOKENS)
    server.process.send_signal(signal.SIGTERM)
    for thread in asked:
        thread.join(PATIENCE)
    assert server.process.wait(PATIENCE) == 0
    for thread in asked:
        assert (thread.status, thread.error) == (200, None)
        assert (thread.made, thread.reason, thread.done) == (TOKENS, "length", True)
    assert "Traceback" not in server.log.read_text(encoding="utf-8")


def test_what_comes_later_is_refused_and_health_says_so(start):
    """A connection that is open already hears 503; a new one may find nobody."""
    server = start(**PATIENT)
    with httpx.Client(base_url=server.url) as known:
        assert known.get("/health").status_code == 200
        asked = under_load(server, TOKENS)
        server.process.send_signal(signal.SIGTERM)
        statuses = {200}
        end = time.monotonic() + PATIENCE
        while statuses == {200} and time.monotonic() < end:
            statuses = {status_of(known, "GET", "/health")}
        assert statuses <= {503, None}
        assert status_of(known, "POST", "/v1/completions") in (503, None)
    for thread in asked:
        thread.join(PATIENCE)
    assert [thread.made for thread in asked] == [TOKENS] * REQUESTS
    assert server.process.wait(PATIENCE) == 0


def status_of(client: httpx.Client, method: str, path: str) -> int | None:
    """The status, or None where nobody listens any more."""
    try:
        return client.request(method, path, content=body_of("Hi", 1, stream=False)).status_code
    except httpx.HTTPError:
        return None


def test_the_drain_has_a_limit(start):
    """What cannot be finished in time is told so, in the protocol; the exit code is 0 all the
    same, because the server did what it was asked to."""
    server = start(drain_timeout=1)
    asked = under_load(server, 5000, count=4)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE) == 0
    for thread in asked:
        thread.join(PATIENCE)
        assert thread.error or thread.status in (503, 504) or thread.reason == "timeout"
        if thread.stream:
            assert thread.status == 200
            assert thread.error["message"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once(start, number):
    server = start()
    server.process.send_signal(number)
    assert server.process.wait(PATIENCE) == 0
