"""A server as a process of ours, in the background: until it is ready, and until it has ended."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx

START = 180.0  # seconds to load and warm up, at most
STOP = 40.0  # seconds to drain, at most


class NotReady(RuntimeError):
    """The server did not come up; the message has the last that it said."""


def address_when_ready(process: subprocess.Popen, said: Path, seconds: float = START) -> str:
    """Where `course serve` listens, as soon as it says that it can serve.

    Args:
        process: of the server.
        said: the file that its stderr goes to.

    Errors: NotReady when it ends before, or is not ready within so many seconds.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = said.read_text(encoding="utf-8", errors="replace")
        if process.poll() is not None:
            raise NotReady(f"the server ended before it was ready:\n{text[-2000:]}")
        if ", warming up" in text:
            url = text.split(", warming up")[0].split(" at ")[-1]
            if _is_ready(url):
                return url
        time.sleep(0.1)
    raise NotReady(f"the server is not ready after {seconds:g} s:\n{text[-2000:]}")


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def end(process: subprocess.Popen, ask: Callable[[], object]) -> None:
    """Ask a server to end and wait for it; kill it when it does not.

    Args:
        ask: asks it; not called when it has ended already.
    """
    if process.poll() is None:
        ask()
        try:
            process.wait(STOP)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
