"""The three tests that every service should have, on the real model: load, one, many at once."""

import json
import threading

import httpx
import pytest

from course import serve, serve_http
from course.model import ensure_model
from solutions.settings import Settings
from tests.server_kit import CHAT, COMPLETIONS, GUARD, until

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def served():
    """The bundled model, as `python -m course serve` serves it: (address, what it is made of)."""
    settings = Settings(port=0, max_running=4, max_context=256, log_seconds=3600.0)
    built = serve.build(settings, ensure_model())
    ready = threading.Event()
    with serve_http.listen(settings) as sock:
        server = serve_http.make(built.app, built.service, settings, ready.set)
        thread = threading.Thread(target=lambda: server.run(sockets=[sock]), daemon=True)
        thread.start()
        assert ready.wait(120), server.failure
        yield f"http://127.0.0.1:{sock.getsockname()[1]}", built
        server.loop.call_soon_threadsafe(server.end)
        thread.join(GUARD)
        assert not thread.is_alive()
    built.monitoring.close()


def post(url: str, path: str, **body) -> dict:
    found = httpx.post(url + path, json=body, timeout=120)
    assert found.status_code == 200, found.text
    return found.json()


def test_loading(served):
    """The model is loaded, and the service says that it can serve, and which model."""
    url, built = served
    health = httpx.get(f"{url}/health")
    assert [health.status_code, health.json()["status"]] == [200, "ready"]
    card = httpx.get(f"{url}/v1/models").json()["data"][0]
    assert card["id"] == built.service.model == "smollm2-135m-instruct"
    assert built.service.batcher.check() == []


def test_one_request(served):
    """One question gets its answer, whole and as a stream, and leaves nothing behind."""
    url, built = served
    body = {"messages": QUESTION, "max_tokens": 12, "temperature": 0}
    whole = post(url, CHAT, **body)
    assert "Paris" in whole["choices"][0]["message"]["content"]
    assert whole["usage"]["prompt_tokens"] == 37
    assert whole["choices"][0]["finish_reason"] == "stop"
    text = ""
    with httpx.stream("POST", url + CHAT, json=body | {"stream": True}, timeout=120) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
    assert text == whole["choices"][0]["message"]["content"]
    until(lambda: built.service.batcher.idle, "nobody is left")
    assert built.service.batcher.cache.used_tokens == 0


def test_many_requests_at_once(served):
    """Twelve at the same time, with four rows: each gets what it would get alone."""
    url, built = served
    prompts = [f"The number after {n} is" for n in ("one", "two", "three")]
    body = {"max_tokens": 5, "temperature": 0}
    alone = [post(url, COMPLETIONS, prompt=p, **body)["choices"][0]["text"] for p in prompts]
    found: dict = {}

    def ask(number):
        answer = post(url, COMPLETIONS, prompt=prompts[number % 3], **body)
        found[number] = answer["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=[number]) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: alone[number % 3] for number in range(12)}
    until(lambda: built.service.batcher.idle, "nobody is left")
    assert built.service.batcher.cache.used_tokens == 0
    metrics = httpx.get(f"{url}/metrics").text
    assert "llm_requests_total" in metrics
