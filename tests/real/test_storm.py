"""Many clients at once, of every kind, against the running server.

STORM_SECONDS says how long; what is asked of the server is two minutes.
"""

import asyncio
import os
import random
import statistics
import threading
import time

import httpx
import psutil
import pytest

from solutions.api_error import ApiError
from solutions.responses import error_body, to_json
from tests.real.conftest import run_apart, start_server
from tests.real.storm import ACTIONS, ANSWER, LEFT, REFUSAL, Storm, body_of, client, judge

SECONDS = float(os.environ.get("STORM_SECONDS", "20"))
CLIENTS = 64
PATIENCE = 180  # seconds; only a guard against waiting for ever
GROWTH = 1.02, 16 * 2**20  # of the last third over the first: 2 % and 16 MiB for the allocator
MODEL_MUST_BE_FREE = ("llm_requests_running", "llm_requests_waiting", "llm_kv_cache_usage_ratio")


def series(server) -> dict[str, float]:
    """Every line of /metrics: the series as it is written, and its value."""
    lines = server.get("/metrics").text.splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def gauges(server) -> dict[str, float]:
    """What must be 0 in a server that has nothing to do."""
    found = {name.partition("{")[0]: value for name, value in series(server).items()}
    return {name: found[name] for name in MODEL_MUST_BE_FREE}


def await_free(server) -> dict[str, float]:
    """The gauges when all are 0, or when there is no hope left."""
    end = time.monotonic() + PATIENCE
    while any((found := gauges(server)).values()) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def blow(server, seconds: float, seed: int) -> Storm:
    """A storm of so many seconds, all of its requests ended."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    storm, end = Storm(host, int(port), random.Random(seed)), time.monotonic() + seconds

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client(storm, lambda: time.monotonic() < end))

    run_apart(run())
    return storm


class Watch:
    """Resident bytes of a process, twice a second, until told to stop."""

    def __init__(self, process: psutil.Process):
        self.process, self.samples, self._stop = process, [], threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self.samples.append(self.process.memory_info().rss)


@pytest.fixture(scope="module")
def stormed(tmp_path_factory):
    """A server after the storm, the storm, and the server's memory meanwhile. Its queue is shorter
    than the clients are many. A short storm goes before, so that whatever is made once is there."""
    server = start_server(tmp_path_factory.mktemp("stormed") / "log.txt", max_waiting=24)
    try:
        yield server, *under_watch(server)
    finally:
        server.stop()


def under_watch(server) -> tuple[Storm, list[int]]:
    """The storm, and resident bytes while it blew."""
    blow(server, min(5.0, SECONDS), seed=1)
    await_free(server)
    with Watch(psutil.Process(server.process.pid)) as watch:
        storm = blow(server, SECONDS, seed=0)
    print(f"\n{SECONDS:g} s, {CLIENTS} clients: {sum(storm.ended.values())} requests")
    for (action, end), count in sorted(storm.ended.items()):
        print(f"  {action:20} {end:20} {count}")
    return storm, watch.samples


@pytest.mark.parametrize("word", ["error", "usage", "message"])
def test_a_word_of_the_model_is_no_error_and_no_end(word):
    piece = b"data: " + to_json({"choices": [{"text": word}]}) + b"\n\n"
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    assert judge(head + piece) == "half an answer"
    assert judge(head + piece + b"data: [DONE]\n\n") == ANSWER
    failed = b"data: " + to_json(error_body(ApiError(500, "it failed"))) + b"\n\n"
    assert judge(head + piece + failed) == REFUSAL


def test_every_request_ends_in_an_answer_a_refusal_or_a_disconnect(stormed):
    _, storm, _ = stormed
    assert storm.wrong() == {}


def test_it_was_a_storm(stormed):
    """Every kind of client was there, and every kind of end."""
    _, storm, _ = stormed
    assert {action for action, _ in storm.ended} == {action.__name__ for action in ACTIONS}
    assert all(storm.total(end) >= 5 for end in (ANSWER, REFUSAL, LEFT))


def test_afterwards_everything_is_free(stormed):
    server, _, _ = stormed
    assert set(await_free(server).values()) == {0.0}


def test_disconnects_were_noticed_and_no_step_failed(stormed):
    server, _, _ = stormed
    found = series(server)
    total = {
        reason: sum(n for name, n in found.items() if f'finish_reason="{reason}"' in name)
        for reason in ("cancelled", "error", "length")
    }
    assert total["cancelled"] > 0
    assert total["length"] > 0
    assert total["error"] == 0
    errors = [n for name, n in found.items() if name.startswith("llm_step_errors_total")]
    assert errors
    assert sum(errors) == 0


def test_no_connection_is_left(stormed):
    server, _, _ = stormed
    end = time.monotonic() + PATIENCE
    process = psutil.Process(server.process.pid)

    def open_() -> list:
        return [c for c in process.net_connections("tcp") if c.status != psutil.CONN_LISTEN]

    while open_() and time.monotonic() < end:
        time.sleep(0.2)
    assert open_() == []


def test_the_server_is_well_afterwards(stormed):
    server, _, _ = stormed
    assert server.get("/health").status_code == 200
    answer = server.post("/v1/completions", content=body_of("Hi", 3, stream=False))
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 3
    assert "Traceback" not in server.log.read_text(encoding="utf-8")


def test_resident_memory_is_flat(stormed):
    _, _, samples = stormed
    third = len(samples) // 3
    first, last = (statistics.median(part) for part in (samples[:third], samples[-third:]))
    share, more = GROWTH
    print(f"\nresident: {first / 1e6:.0f} MB, then {last / 1e6:.0f} MB")
    assert last <= first * share + more


# ---- the small beside the long ----


def first_token(server, prompt: str, order: list, name: str) -> None:
    """Ask, and note in `order` when the first token came; what comes later is read and dropped."""
    body = body_of(prompt, 2)
    with httpx.stream("POST", f"{server.url}/v1/completions", content=body, timeout=PATIENCE) as a:
        for line in a.iter_lines():
            if line.startswith("data: ") and name not in order:
                order.append(name)


@pytest.mark.parametrize("others", [0, 4])
def test_a_small_request_does_not_wait_behind_a_whole_long_prefill(server, others):
    """No clock: the long prompt was let in first, and yet the small one has its token first. Also
    when others are in the middle of their answers."""
    await_free(server)
    busy = [Busy(server) for _ in range(others)]
    order: list[str] = []
    long = threading.Thread(target=first_token, args=(server, "the " * 1900, order, "long"))
    small = threading.Thread(target=first_token, args=(server, "Hi", order, "small"))
    long.start()
    end = time.monotonic() + PATIENCE
    while gauges(server)["llm_requests_running"] < others + 1:
        assert time.monotonic() < end, "the long request was not let in"
    small.start()
    for thread in (long, small):
        thread.join()
    for other in busy:
        other.leave()
    assert order == ["small", "long"]


class Busy:
    """A long answer of which the first token has come; nobody reads on."""

    def __init__(self, server):
        self._client = httpx.Client(base_url=server.url, timeout=PATIENCE)
        body = body_of("the", 2000)
        request = self._client.build_request("POST", "/v1/completions", content=body)
        self._answer = self._client.send(request, stream=True)
        self._lines = self._answer.iter_lines()  # kept: without it the answer would be closed
        next(self._lines)

    def leave(self) -> None:
        self._answer.close()
        self._client.close()
