"""The judge's side of a worker process, with a time limit on every answer."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from course import wire
from course.paths import ROOT

START_SECONDS = 120  # to import torch, on a slow disk


class Gone(Exception):
    """The worker ended or was ended; the message says why, in the learner's terms."""


@dataclass(frozen=True)
class _Lost:
    """In place of an answer: why there will be none."""

    error: Exception


class Remote:
    """A worker that runs a learner's module. Use it for one exercise, then close it."""

    def __init__(self):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "course.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment,
            start_new_session=os.name == "posix",  # so that its children can be ended with it
        )
        self.answers: queue.SimpleQueue = queue.SimpleQueue()
        self.seconds_left = float("inf")
        self.ready = False
        threading.Thread(target=self._read, daemon=True).start()

    def open(self, path: str, scenarios: str) -> None:
        """See Runner.open."""
        self.ask({"do": "open", "path": path, "scenarios": scenarios})

    def run_cell(self, start: int, end: int) -> wire.Raised | None:
        """See Runner.run_cell."""
        return self.ask({"do": "cell", "start": start, "end": end})

    def names(self) -> list[str]:
        """See Runner.names."""
        return self.ask({"do": "names"})

    def limit(self, seconds: float) -> None:
        """From now on, all answers together may take this long."""
        self.seconds_left = seconds

    def answer(self, request: dict) -> dict:
        """One request and its answer; see Runner.answer."""
        return self.ask(request)

    def ask(self, request):
        """Send, wait, receive. Gone when there is no answer."""
        if not self.ready:
            self._wait(START_SECONDS, "the worker process did not start")
            self.ready = True
        with contextlib.suppress(OSError):  # a dead worker shows when its answer is read
            wire.send(self.process.stdin, request)
        began = time.monotonic()
        seconds = min(self.seconds_left, 24 * 3600)
        reply = self._wait(seconds, "it did not finish in time: is there a loop without an end?")
        self.seconds_left -= time.monotonic() - began
        return reply

    def close(self) -> None:
        """End the worker and what it started, whatever they are doing."""
        self._kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def _kill(self) -> None:
        if os.name != "posix":
            self.process.kill()
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _wait(self, seconds: float, reason: str):
        try:
            reply = self.answers.get(timeout=max(seconds, 0))
        except queue.Empty:
            self._kill()
            raise Gone(reason) from None
        if isinstance(reply, _Lost) and isinstance(reply.error, EOFError | OSError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)  # so that the code is its own, not that of our kill
            code = self.process.poll()
            self._kill()
            raise Gone(f"it ended the Python process (exit code {code})") from None
        if isinstance(reply, _Lost):
            self._kill()
            raise Gone(f"its answer cannot be read ({type(reply.error).__name__})") from None
        return reply

    def _read(self) -> None:
        """Runs in a thread of its own, so that waiting can have a limit."""
        try:
            while True:
                self.answers.put(wire.receive(self.process.stdout))
        except Exception as error:  # EOF, or bytes that are no message: either way it is over
            self.answers.put(_Lost(error))


class Spare:
    """Keeps one started worker ahead, so that a check need not wait for torch to import."""

    def __init__(self):
        self.remote: Remote | None = None

    def warm(self) -> None:
        """Start the next worker now."""
        if self.remote is None:
            self.remote = Remote()

    def take(self) -> Remote:
        """The worker that was started ahead, or a new one."""
        remote, self.remote = self.remote or Remote(), None
        return remote

    def close(self) -> None:
        """End the spare worker."""
        if self.remote is not None:
            self.remote.close()
            self.remote = None


SPARE = Spare()
