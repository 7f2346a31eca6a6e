"""The real server, as a process of its own on a free port, for clients that are real as well."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from course.paths import ROOT

PATIENCE = 120  # seconds for a start or an answer; only a guard against waiting for ever


@dataclass
class Server:
    """A running server: its address, its process, and the file that holds what it printed."""

    url: str
    process: subprocess.Popen
    log: Path

    def get(self, path: str) -> httpx.Response:
        """One request. httpx itself would give up after 5 s, which a busy machine may take."""
        return httpx.get(f"{self.url}{path}", timeout=PATIENCE)

    def post(self, path: str, **body: object) -> httpx.Response:
        """One request with a body: json=... or content=..."""
        return httpx.post(f"{self.url}{path}", timeout=PATIENCE, **body)

    def stop(self) -> None:
        """End it at once, as a crash would; nothing happens when it has ended."""
        self.process.kill()
        self.process.wait()


def run_apart(work: Coroutine):
    """asyncio.run in a thread of its own: in this one, Playwright's loop may be running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_server(log: Path, port: int | None = None, **settings: object) -> Server:
    """Start `python -m course serve` and wait until it is healthy. Settings: LLM_<NAME>=value."""
    port = port or free_port()
    environment = os.environ | {f"LLM_{name.upper()}": str(v) for name, v in settings.items()}
    environment |= {"LLM_PORT": str(port), "OMP_NUM_THREADS": "1"}
    with log.open("a", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "course", "serve"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    server = Server(f"http://127.0.0.1:{port}", process, log)
    try:
        _await_health(server)
    except BaseException:
        server.stop()
        raise
    return server


def _await_health(server: Server) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and server.process.poll() is None:
        try:
            if httpx.get(f"{server.url}/health").status_code == 200:
                return
        except httpx.HTTPError:
            pass  # not listening yet
        time.sleep(0.1)
    printed = server.log.read_text(encoding="utf-8")
    pytest.fail(f"the server did not become healthy; it printed:\n{printed[-3000:]}")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with the default settings, for all tests that do it no harm."""
    running = start_server(tmp_path_factory.mktemp("server") / "log.txt")
    yield running
    running.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start more servers, with settings of their own; all are ended after the test."""
    started = []

    def begin(port: int | None = None, **settings: object) -> Server:
        started.append(start_server(tmp_path / "log.txt", port, **settings))
        return started[-1]

    yield begin
    for running in started:
        running.stop()
