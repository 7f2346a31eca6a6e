"""SIGTERM: what was accepted is answered, what is new is refused, and the exit code is 0."""

import asyncio
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from course import serve, serve_http
from course.paths import ROOT
from solutions.settings import Settings
from tests.server_kit import COMPLETIONS, GUARD, nobody_is_left, read_all, serving, until

BODY = {"prompt": "Hello", "max_tokens": 20, "temperature": 0}


def end(running) -> None:
    """As a signal would."""
    running.loop.call_soon_threadsafe(running.server.handle_exit, signal.SIGTERM, None)
    until(lambda: running.service.lifecycle.phase != "ready", "it drains")


def test_what_was_accepted_is_answered_and_what_is_new_refused():
    with serving(rows=1, max_waiting=4, drain_timeout=GUARD) as running:
        kept = running.connect()  # a connection that was there before
        kept.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert kept.recv(1000).startswith(b"HTTP/1.1 200")
        socks = running.fill(BODY, 1, 1)
        socks.append(running.send_raw(COMPLETIONS, BODY | {"stream": True}))
        until(lambda: len(running.service.batcher.waiting) == 2, "two wait")
        end(running)
        health = running.get("/health")
        assert [health.status_code, health.json()["status"]] == [503, "draining"]
        found = running.post(COMPLETIONS, BODY)
        assert [found.status_code, found.json()["error"]["code"]] == [503, "draining"]
        assert found.headers["retry-after"] == "1"
        running.model.release()
        answers = list(map(read_all, socks))
        assert all(answer.startswith("HTTP/1.1 200") for answer in answers)
        assert "[DONE]" in answers[2]
        until(lambda: running.server.should_exit, "it leaves when the last is answered")
        kept.close()
    assert running.loop.is_closed()
    assert nobody_is_left(running)
    reasons = [event.reason for event in running.events if type(event).__name__ == "Rejected"]
    assert reasons == ["draining"]


def test_what_takes_too_long_is_ended_and_told():
    with serving(rows=1, drain_timeout=0.1) as running:
        socks = running.fill(BODY, 1, 1)
        socks.append(running.send_raw(COMPLETIONS, BODY | {"stream": True}))
        until(lambda: len(running.service.batcher.waiting) == 2, "two wait")
        end(running)
        until(lambda: running.service.batcher._cancelled, "all are ended")
        running.model.release()
        for answer in map(read_all, socks):
            assert answer.startswith("HTTP/1.1 503")
            assert '"cancelled"' in answer
    assert running.loop.is_closed()


def test_an_engine_that_hangs_does_not_keep_the_process(monkeypatch, caplog):
    """Nor its clients without a word."""
    with serving(rows=1, drain_timeout=0.05) as running:
        lifecycle = running.service.lifecycle
        drain = type(lifecycle).drain
        monkeypatch.setattr(
            type(lifecycle), "drain", lambda self, seconds, ends: drain(self, seconds, ends, 0.05)
        )
        stop = running.service.engine.stop
        monkeypatch.setattr(running.service.engine, "stop", lambda timeout: stop(0.05))
        running.server.config.timeout_graceful_shutdown = 1
        socks = [*running.fill(BODY, 1), running.send_raw(COMPLETIONS, BODY | {"stream": True})]
        until(lambda: running.service.lifecycle.inside == 2, "both are inside")
        end(running)
        for answer in map(read_all, socks):
            assert answer.startswith("HTTP/1.1 503")
            assert "the server has stopped" in answer
        assert running.service.engine._thread.is_alive()
        running.model.release()
    assert "Traceback" not in caplog.text


def test_a_second_signal_ends_at_once(caplog):
    """Those inside are told so, and are counted: they were not drained."""
    with serving(rows=1, drain_timeout=GUARD) as running:
        socks = [*running.fill(BODY, 1), running.send_raw(COMPLETIONS, BODY | {"stream": True})]
        until(lambda: running.service.lifecycle.inside == 2, "both are inside")
        end(running)
        assert not running.server.should_exit
        running.loop.call_soon_threadsafe(running.server.handle_exit, signal.SIGTERM, None)
        until(lambda: running.server.force_exit, "it leaves at once")
        for answer in map(read_all, socks):
            assert answer.startswith("HTTP/1.1 503")
            assert "the server has stopped" in answer
        assert running.server.torn == 2
        running.model.release()
    assert "Traceback" not in caplog.text


def test_a_drain_while_it_warms_up():
    """The signal comes before the service is ready: nothing waits for it."""

    async def go(service):
        service._loop = asyncio.get_running_loop()
        return await service.drain()

    with serving() as running:
        pass
    service = running.service
    fresh = type(service)(service.batcher, service.text, service.settings, "tiny")
    assert asyncio.run(go(fresh)) is True
    assert fresh.health()[1]["status"] == "stopped"


def test_a_signal_before_it_is_ready():
    """Before there is a loop it is a Ctrl-C; while it warms up, it is never said to be ready."""
    said: list[str] = []
    with serving() as running:
        pass
    server = serve_http.make(None, running.service, Settings(), lambda: said.append("ready"))
    with pytest.raises(KeyboardInterrupt):
        server.handle_exit(signal.SIGTERM, None)

    async def warm_up():
        server.service = Warming(server)
        server.loop = asyncio.get_running_loop()
        await server._start()

    asyncio.run(warm_up())
    assert (said, server.should_exit) == ([], True)


class Warming:
    """A service to which a signal comes while it starts."""

    def __init__(self, server):
        self.server = server

    async def start(self) -> None:
        self.server.handle_exit(signal.SIGTERM, None)
        while not self.server.should_exit:
            await asyncio.sleep(0)

    async def drain(self) -> None:
        pass


@pytest.mark.parametrize(
    ("args", "settings", "said"),
    [
        (["--port", "70000"], {}, "--port: port must be a whole number from 0 to 65535; got 70000"),
        ([], {"LLM_PORT": "x"}, "LLM_PORT: port must be a whole number"),
        ([], {"LLM_PROT": "8000"}, "LLM_PROT has an unknown setting 'prot'; did you mean port?"),
        (["--step-tokens", "2", "--port", "0"], {}, "step_tokens (2) must be at least max_running"),
        (["--model", "nowhere", "--port", "0"], {}, "nowhere"),
        (["--host", "256.0.0.1"], {}, "256.0.0.1 port 8000 cannot be had"),
        (["--max-context", "9000", "--max-running", "128", "--port", "0"], {}, "lower max_running"),
    ],
)
def test_what_hinders_the_start_is_one_sentence(args, settings, said, monkeypatch, capsys):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert serve.main(args) == 1
    told = capsys.readouterr().err
    assert told.startswith("serve: ")
    assert said in told
    assert len(told.strip().splitlines()) == 1


def test_a_port_that_is_taken_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "course", "serve", "--port", port]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith(f"serve: 127.0.0.1 port {port} cannot be had")
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_signal_in_the_real_process_ends_it_with_0():
    command = [sys.executable, "-m", "course", "serve", "--port", "0", "--max-context", "64"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8")
    try:
        line = next(line for line in process.stdout if line.startswith("ready"))
        url = line.split()[-1]
        body = BODY | {"max_tokens": 8}
        assert httpx.post(url + COMPLETIONS, json=body, timeout=120).status_code == 200
        process.send_signal(signal.SIGTERM if sys.platform != "win32" else signal.CTRL_BREAK_EVENT)
        assert process.wait(60) == 0
    finally:
        process.kill()
