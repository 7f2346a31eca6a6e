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

from course import reply, wire
from course.paths import ROOT
from course.share import Share

START_SECONDS = 120  # to import torch, on a slow disk
MOST_ANSWERED = 128 * 2**20  # bytes in all answers of a worker: the judge keeps them; ours need two
NO_END = "it did not finish in time: is there a loop without an end, or a lock taken twice?"


class Gone(Exception):
    """The worker ended or was ended; the message says why, in the learner's terms."""


@dataclass(frozen=True)
class _Lost:
    """In place of an answer: why there will be none."""

    error: Exception


class _Bounded:
    """The stream of a worker's answers, of which only so many bytes are ever read."""

    def __init__(self, stream, room: int):
        self._stream, self._room = stream, room

    def read(self, size: int) -> bytes:
        """The next bytes. Errors: wire.TooLarge."""
        self._room -= size
        if self._room < 0:
            raise wire.TooLarge("more in all answers than any right one has")
        return self._stream.read(size)


class Process:
    """A worker as an ordinary process of this user: for a learner's own code on their machine."""

    def __init__(self, cwd=ROOT, env: dict | None = None):
        ours = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "course.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
            env={**(os.environ if env is None else env), **ours},
            start_new_session=os.name == "posix",  # so that its children can be ended with it
        )
        self.requests, self.answers = self._process.stdin, self._process.stdout

    def ending(self, seconds: float) -> str:
        """How it ended, in words, waiting this long for it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)  # so that the code is its own, not that of our kill
        return f"it ended the Python process (exit code {self._process.poll()})"

    def kill(self) -> None:
        """End it and what it started, whatever they are doing."""
        if os.name != "posix":
            self._process.kill()
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Wait until a killed process is no more."""
        self._process.wait()


class Remote:
    """A worker that runs a learner's module. Use it for one exercise, then close it."""

    def __init__(self, process=None, share: Share | None = None):
        """share: of files, where the worker does not see this process's."""
        self.process, self._share = process or Process(), share
        self.seconds_left = float("inf")
        self.ready = False
        self.gone: Gone | None = None
        self._answers: queue.SimpleQueue = queue.SimpleQueue()
        self._wanted: queue.SimpleQueue = queue.SimpleQueue()
        self._requests: queue.SimpleQueue = queue.SimpleQueue()
        self._wanted.put(True)  # that it is ready
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def open(self, path: str, scenarios: str) -> None:
        """See Runner.open."""
        self._ask({"do": "open", "path": path, "scenarios": scenarios}, reply.nothing)

    def run_cell(self, start: int, end: int) -> wire.Raised | None:
        """See Runner.run_cell."""
        return self._ask({"do": "cell", "start": start, "end": end}, reply.raised_or_nothing)

    def names(self) -> list[str]:
        """See Runner.names."""
        return self._ask({"do": "names"}, reply.names)

    def limit(self, seconds: float) -> None:
        """From now on, all answers together may take this long."""
        self.seconds_left = seconds

    def answer(self, request: dict) -> dict:
        """One request and its answer; see Runner.answer."""
        if self._share is None:
            return self._ask(request, reply.answer)
        if news := self._share.news():
            self._ask(news, reply.nothing)
        return self._share.incoming(self._ask(self._share.outgoing(request), reply.answer))

    def close(self) -> None:
        """End the worker and what it started, whatever they are doing."""
        self.process.kill()
        self._wanted.put(False)
        self._requests.put(None)
        self.process.wait()

    def _ask(self, request, check):
        """Send, wait, receive, see that it is a reply. Gone when there is none."""
        if self.gone:
            raise self.gone
        if not self.ready:
            self._receive(START_SECONDS, "the worker process did not start")
            self.ready = True
        self._wanted.put(True)
        self._requests.put(wire.encode(request))
        began = time.monotonic()
        answer = self._receive(min(self.seconds_left, 24 * 3600), NO_END)
        self.seconds_left -= time.monotonic() - began
        try:
            return check(answer)
        except reply.Forged as error:
            self._end(f"its answer cannot be read ({error})")

    def _receive(self, seconds: float, reason: str):
        try:
            answer = self._answers.get(timeout=max(seconds, 0))
        except queue.Empty:
            self._end(reason)
        if isinstance(answer, _Lost) and isinstance(answer.error, EOFError | OSError):
            self._end(self.process.ending(1))
        if isinstance(answer, _Lost):
            self._end(f"its answer cannot be read ({type(answer.error).__name__})")
        return answer

    def _end(self, reason: str):
        self.process.kill()
        self.gone = Gone(reason)
        raise self.gone from None

    def _read(self) -> None:
        """Runs in a thread of its own, so that waiting can have a limit.

        It reads one message for each that is wanted: what nobody asked for stays in the pipe, which
        is full after 64 KiB, and takes no memory here.
        """
        answers = _Bounded(self.process.answers, MOST_ANSWERED)
        try:
            while self._wanted.get():
                self._answers.put(wire.receive(answers))
        except Exception as error:  # EOF, or bytes that are no message: either way it is over
            self._answers.put(_Lost(error))
        with contextlib.suppress(OSError):
            self.process.answers.close()

    def _write(self) -> None:
        """Runs in a thread of its own: a worker that does not read must not stop the judge."""
        with contextlib.suppress(OSError):  # a dead worker shows when its answer is read
            while (message := self._requests.get()) is not None:
                self.process.requests.write(message)
                self.process.requests.flush()
        with contextlib.suppress(OSError):
            self.process.requests.close()


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
