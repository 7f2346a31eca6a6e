"""The server that the capstone tests: how it is asked, and what makes a check fail."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from course.load_stream import EventStream, finish_reason, piece, read_event

GUARD = 120.0  # seconds for one answer, and for what must come to pass
COMPLETIONS = "/v1/completions"


class Failed(Exception):
    """What was seen in place of what was promised."""


@dataclass
class Target:
    """A running server: where it is, its process, and the folder of its logs."""

    url: str
    process: subprocess.Popen
    logs: Path

    def post(self, path: str, **body) -> httpx.Response:
        """One request, whatever comes back."""
        return httpx.post(self.url + path, json=body, timeout=GUARD)

    def ask(self, path: str, **body) -> dict:
        """One request that must be answered."""
        found = self.post(path, **body)
        require(found.status_code == 200, f"{path} answered {found.status_code}: {found.text:.200}")
        return found.json()

    def complete(self, prompt, **body) -> str:
        """The text that continues a prompt, greedily unless told otherwise."""
        body = {"temperature": 0, "max_tokens": 8} | body
        return self.ask(COMPLETIONS, prompt=prompt, **body)["choices"][0]["text"]

    def stream(self, path: str, **body) -> tuple[str, str | None, str]:
        """The text of a stream, why it ended, and the data of its last event."""
        events, data = EventStream(), []
        wanted = body | {"stream": True}
        with httpx.stream("POST", self.url + path, json=wanted, timeout=GUARD) as response:
            require(response.status_code == 200, f"the stream answered {response.status_code}")
            for chunk in response.iter_bytes():
                data += events.feed(chunk)
        require(bool(data), "the stream had no event")
        told = [read_event(one) for one in data if one != "[DONE]"]
        reasons = [reason for event in told if (reason := finish_reason(event))]
        return "".join(map(piece, told)), reasons[-1] if reasons else None, data[-1]

    def metrics(self) -> dict[str, float]:
        """Every series of /metrics by its name and its other labels."""
        from prometheus_client.parser import text_string_to_metric_families as families

        found = {}
        for family in families(httpx.get(self.url + "/metrics", timeout=GUARD).text):
            for sample in family.samples:
                others = [v for k, v in sorted(sample.labels.items()) if k != "model_name"]
                found[" ".join([sample.name, *others])] = sample.value
        return found

    def empty(self, seconds: float = 30.0) -> None:
        """Nobody runs or waits, and no room in the cache is reserved: soon, or Failed."""
        names = ("llm_requests_running", "llm_requests_waiting", "llm_kv_cache_usage_ratio")

        def left() -> dict[str, float]:
            now = self.metrics()
            return {name: now[name] for name in names if now[name]}

        until(lambda: not left(), lambda: f"there is something left: {left()}", seconds)

    def send(self, path: str, **body) -> socket.socket:
        """A request on a connection of its own, whose answer nobody reads yet."""
        port, data = int(self.url.rsplit(":", 1)[1]), json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        sock = socket.create_connection(("127.0.0.1", port), timeout=GUARD)
        sock.sendall(head.encode() + data)
        return sock


def require(holds: bool, said: str) -> None:
    """Failed with what was seen, unless it holds."""
    if not holds:
        raise Failed(said)


def until(holds: Callable[[], bool], said: Callable[[], str], seconds: float = 30.0) -> None:
    """Wait until it holds; Failed with what was seen when it does not within so many seconds."""
    end = time.monotonic() + seconds
    while not holds():
        require(time.monotonic() < end, said())
        time.sleep(0.05)


def stop(process: subprocess.Popen) -> None:
    """Ask a server to drain, as a service manager does."""
    windows = sys.platform == "win32"
    process.send_signal(signal.CTRL_BREAK_EVENT if windows else signal.SIGTERM)
