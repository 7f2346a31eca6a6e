"""Processes that workers run in: forked by a server into a sandbox, or started plainly."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from course.paths import ROOT
from course.remote import START_SECONDS, Process


class SandboxError(RuntimeError):
    """The sandbox itself failed: the grader's fault, never the learner's."""


class Server:
    """The judge's end of course/sandbox_server.py."""

    def __init__(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(START_SECONDS)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "course.sandbox_server", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            env=minimal_environment(),
        )
        theirs.close()
        self._socket = ours
        if ours.recv(64) != b"ready\n":
            raise SandboxError("the server of workers did not start")

    def start(self, order: dict, folder: Path | None) -> "Kept":
        """A worker in a sandbox of its own."""
        if folder:
            order = order | {"folder": str(folder)}
        pipes = [os.pipe() for _ in range(4)]  # requests, answers, ending, leash
        given = [pipes[0][0], pipes[1][1], pipes[2][1], pipes[3][0]]
        kept = [pipes[0][1], pipes[1][0], pipes[2][0], pipes[3][1]]
        try:
            socket.send_fds(self._socket, [json.dumps(order).encode()], given)
        except OSError as error:
            raise SandboxError(f"the server of workers is gone ({error})") from error
        finally:
            for pipe in given:
                os.close(pipe)
        return Kept(*kept, folder, self._process)

    def close(self) -> None:
        """End the server; workers end with their leashes."""
        self._socket.close()
        self._process.wait(10)


class Kept:
    """A worker in a sandbox, as Remote wants it: see course/remote.py, Process."""

    def __init__(self, requests: int, answers: int, ending: int, leash: int, folder, server):
        self.requests, self.answers = os.fdopen(requests, "wb"), os.fdopen(answers, "rb")
        self._ending, self._leash, self._folder = os.fdopen(ending, "rb"), leash, folder
        self._said: str | None = None

    def ending(self, seconds: float) -> str:
        """How it ended, in words."""
        said = self._read_ending()
        if said.startswith("setup"):
            raise SandboxError(f"the sandbox could not be made: {said.removeprefix('setup ')}")
        kind, _, amount = said.partition(" ")
        if kind == "memory":
            return f"it used more than the {amount} MiB of memory that an exercise may"
        if kind == "processes":
            return f"it started more than the {amount} processes that an exercise may"
        return f"it ended the Python process ({said})"

    def kill(self) -> None:
        """Let go of the leash: the keeper ends the worker and all that it started."""
        if self._leash is not None:
            os.close(self._leash)
            self._leash = None

    def wait(self) -> None:
        """Wait until nothing is left of it."""
        self._read_ending()
        self._ending.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _read_ending(self) -> str:
        if self._said is None:
            self._said = self._ending.read(500).decode(errors="replace") or "setup: the keeper died"
        return self._said


class PlainProcess(Process):
    """A worker in an empty folder, where the system offers no more."""

    def __init__(self, folder: Path):
        self._folder = folder
        super().__init__(cwd=folder, env={**minimal_environment(), **_kept_by_windows()})

    def wait(self) -> None:
        """Also remove what it left."""
        super().wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def minimal_environment() -> dict[str, str]:
    """What a worker is told of the machine; nothing of the user's own."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "USER": "learner",
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": "utf-8",
        "PYTHONHASHSEED": "0",  # the order of a set is the same at a regrade
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "KINETO_LOG_LEVEL": "99",
    }


def _kept_by_windows() -> dict[str, str]:
    """Without these Windows starts no Python."""
    names = ("SYSTEMROOT", "TEMP", "TMP", "PATH") if os.name == "nt" else ()
    return {name: os.environ[name] for name in names if name in os.environ}
