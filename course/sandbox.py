"""Where other people's code runs: workers that can read little, write nothing and reach nobody.

How much of that holds depends on the system. `Sandbox.describe()` says it, and `grade` prints it:

- "namespaces" (Linux, as root or where users may make namespaces): a tree of files with Python and
  the course's own modules, read-only; no network; no other process to be seen; limits of memory,
  processes and time; all of the worker's processes end with it.
- "user" (Linux, root in a container that may make no namespaces): a user of its own, who can read
  what all users can and write to folders open to all; the network is open. The limits hold.
- "plain" (Linux otherwise): the limits hold, and all processes end; files and network are open.
- "process" (macOS, Windows): a process of its own in an empty folder, and the limit of time.

No sandbox is perfect. Where the code may be hostile, grade in a container or on a machine that
holds nothing else.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from course import sandbox_files, sandbox_linux
from course.manifest import Chapter
from course.paths import ROOT
from course.remote import Gone, Process, Remote
from course.share import Share

FIRST_USER = 61_184  # the first of the numbers that systemd keeps for users that come and go
ROOM = 256 * 2**20  # bytes that a worker may write, in namespaces
PROCESSES = 64
START_SECONDS = 120  # to import torch, on a slow disk
PROMISES = {
    "namespaces": "own files, no network, own processes, limits of memory, time and processes",
    "user": "own user, limits of memory, time and processes; the network is open, and so is every "
    "file that any user may read",
    "plain": "limits of memory, time and processes; files and network are open",
    "process": "a process of its own and a limit of time; files, network and memory are open",
}


class SandboxError(RuntimeError):
    """The sandbox itself failed: the grader's fault, never the learner's."""


@dataclass(frozen=True)
class Limits:
    """Of one exercise."""

    seconds: float = 15.0  # for its cases; the reference needs less than one
    memory: int = 2 * 2**30  # bytes, beyond what Python and torch take


LIMITS = Limits()


class Sandbox:
    """Makes workers for one judge. A context manager: at its end nothing is left."""

    def __init__(self, scratch: Path, limits: Limits = LIMITS, slot: int = 0, mode: str = ""):
        """A sandbox of this mode, or of the strongest that works here.

        Args:
            scratch: an empty folder of the judge's, in one that other users may enter.
            slot: a number; no two judges at work have the same.

        Errors: SandboxError when no worker can be started that way.
        """
        self.scratch, self.limits, self._slot = scratch, limits, slot
        self._files = scratch / "files"
        self._files.mkdir()
        (scratch / "root").mkdir()
        (scratch / ".build").mkdir()
        for folder in (scratch, scratch / ".build"):
            folder.chmod(0o755)  # another user reads what is in it
        tempfile.tempdir = str(self._files)  # the files that cases make for a learner's functions
        self._server: _Server | None = None
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        self._modes = [mode] if mode else ["namespaces", *(["user"] if is_root else []), "plain"]
        self.mode = "process" if mode == "process" else self._best()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_) -> None:
        if self._server:
            self._server.close()
        tempfile.tempdir = None

    def describe(self) -> str:
        """What holds here, in one line."""
        return f"{self.mode}: {PROMISES[self.mode]}"

    def forget(self) -> None:
        """Remove the modules built so far: the next learner's code may read that folder."""
        for path in (self.scratch / ".build").iterdir():
            path.unlink()

    def for_chapter(self, chapter: Chapter) -> "_Workers":
        """Something whose take() gives a worker that sees what this chapter's exercises may see."""
        return _Workers(partial(self._start, chapter))

    def _start(self, chapter: Chapter | None) -> Remote:
        self._empty_files()
        folder = self._folder()
        if self.mode == "process":
            return Remote(_PlainProcess(folder))
        share = None if self.mode == "plain" else Share(self._files, self._files_there(folder))
        return Remote(self._server.start(self._order(chapter), folder), share)

    def _files_there(self, folder: Path | None) -> Path:
        """Where a worker has its copy of the cases' files: in the same place, if it may."""
        return folder / "files" if folder else self._files

    def _empty_files(self) -> None:
        """Remove what cases made for an earlier exercise; the folders at the top are in use."""
        for path in self._files.glob("*/*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _folder(self) -> Path | None:
        """The worker's own folder, where it has no files of its own altogether."""
        if self.mode == "namespaces":
            return None
        folder = Path(tempfile.mkdtemp(prefix="own-", dir=self.scratch))
        if self.mode == "user":
            os.chown(folder, self._user(), self._user())
        return folder

    def _user(self) -> int | None:
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        return FIRST_USER + self._slot if is_root and self.mode != "plain" else None

    def _order(self, chapter: Chapter | None) -> dict:
        shown = sandbox_files.visible(chapter) if chapter else sandbox_files.python()
        return {
            "mode": self.mode,
            "root": str(self.scratch / "root"),
            "shown": [*shown, str(self.scratch / ".build")],
            "files": str(self._files),
            "folder": "/tmp",
            "user": self._user(),
            "memory": self.limits.memory,
            "processes": PROCESSES,
            "cpu": int(3 * self.limits.seconds) + 60,
            "room": ROOM,
        }

    def _best(self) -> str:
        """The strongest mode in which a worker starts and answers."""
        if not sandbox_linux.supported():
            return "process"
        self._server = _Server()
        problems = []
        for mode in self._modes:
            self.mode = mode
            try:
                self._try()
                return mode
            except (Gone, SandboxError) as problem:
                problems.append(f"{self.mode}: {problem}")
        raise SandboxError(f"no worker can be started ({'; '.join(problems)})")

    def _try(self) -> None:
        remote = self._start(None)
        try:
            remote.names()
        finally:
            remote.close()


class _Workers:
    """What the judge takes workers from."""

    def __init__(self, take):
        self.take = take


class _Server:
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

    def start(self, order: dict, folder: Path | None) -> "_Kept":
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
        return _Kept(*kept, folder, self._process)

    def close(self) -> None:
        """End the server; workers end with their leashes."""
        self._socket.close()
        self._process.wait(10)


class _Kept:
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


class _PlainProcess(Process):
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
