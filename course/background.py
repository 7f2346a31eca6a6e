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
WARMING = ", warming up"  # it says so when the model is loaded, after its address
START = 180.0  # seconds to load and warm up, at most
STOP = 40.0  # seconds to drain, at most


LAST = 20  # lines of a server that are repeated


class NotReady(RuntimeError):
    """The server did not come up; the message has the last lines that it said.

    Args:
        why: what happened, without its words.
        said: all that it said on stderr.
        code: its exit code; None when it has not ended.
    """

    def __init__(self, why: str, said: str, code: int | None = None):
        self.why, self.said, self.code = why, said, code
        lines = said.rstrip().split("\n")[-LAST:]
        super().__init__("\n".join([f"{why}:", *lines]) if said.strip() else why)


def address_when_ready(
    process: subprocess.Popen,
    said: Path,
    seconds: float = START,
    waiting: Callable[[float, str], object] = lambda *_: None,
) -> str:
    """Where `course serve` listens, as soon as it says that it can serve.

    Args:
        process: of the server.
        said: the file that its stderr goes to.
        waiting: called again and again, with the seconds so far and all that it said.

    Errors: NotReady when it ends before, or is not ready within so many seconds.
    """
    began, text = time.monotonic(), ""
    while (taken := time.monotonic() - began) < seconds:
        code = process.poll()  # before its words: after its end there are no more
        text = said.read_text(encoding="utf-8", errors="replace")
        if code is not None:
            raise NotReady(f"the server ended before it was ready, {_ended(code)}", text, code)
        if WARMING in text:
            url = text.split(WARMING)[0].split(" at ")[-1]
            if _is_ready(url):
                return url
        waiting(taken, text)
        time.sleep(0.1)
    raise NotReady(f"the server is not ready after {seconds:g} s", text)


def _ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


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
