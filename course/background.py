"""A server as a process of ours, in the background: until it is ready, and until it has ended."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

APART: dict = (  # of Popen: Ctrl-C is for us, who end the server then
    {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    if sys.platform == "win32"
    else {"start_new_session": True}
)
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


def follow_stdin(on_line: Callable[[], object] = lambda: None) -> None:
    """In a server: end it with its stdin, so that it never outlives whoever started it.

    Args:
        on_line: called for each line that comes.
    """
    threading.Thread(target=_follow, args=[on_line], daemon=True).start()


def _follow(on_line: Callable[[], object]) -> None:
    while read := os.read(sys.stdin.fileno(), 4096):  # sys.stdin itself would be locked at exit
        for _ in range(read.count(b"\n")):
            on_line()
    if sys.platform == "win32":
        signal.raise_signal(signal.SIGINT)
    else:  # as if somebody had pressed Ctrl-C: it drains, and a wait is broken off
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    time.sleep(STOP)
    os._exit(1)  # it hangs, and nobody is there to end it


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
