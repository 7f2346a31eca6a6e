"""Where other people's code runs: workers that can read little, write nothing and reach nobody.

How much of that holds depends on the system. `Sandbox.describe()` says it, and `grade` prints it:

- "namespaces" (Linux, as root or where users may make namespaces): a tree of files with Python and
  the course's own modules, read-only; no network; no other process to be seen; limits of memory,
  processes and time; all of the worker's processes end with it.
- "user" (Linux, root in a container that may make no namespaces): a user of its own, who can read
  what all users can and write to folders open to all; the network is open. The limits hold.
- "plain" (Linux otherwise): limits for code that means no harm (it may end its own keeper, and
  this judge); files and network are open.
- "process" (macOS, Windows): a process of its own in an empty folder, and the limit of time.

No sandbox is perfect. Where the code may be hostile, grade in a container or on a machine that
holds nothing else.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from course import sandbox_files, sandbox_linux
from course.manifest import Chapter
from course.paths import ROOT
from course.remote import Gone, Remote
from course.sandbox_process import PlainProcess, SandboxError, Server
from course.share import Share

FIRST_USER = 61_184  # the first of the numbers that systemd keeps for users that come and go
SLOTS = 65_519 - FIRST_USER + 1  # how many they are
ROOM = 256 * 2**20  # bytes that a worker may write, in namespaces
PROCESSES = 64
PROMISES = {
    "namespaces": "own files, no network, own processes, limits of memory, time and processes",
    "user": "own user, limits of memory, time and processes; the network is open, and so is every "
    "file that any user may read",
    "plain": "limits of memory, time and processes, for code that means no harm; files and network "
    "are open",
    "process": "a process of its own and a limit of time; files, network and memory are open",
}


@dataclass(frozen=True)
class Limits:
    """Of one exercise."""

    seconds: float = 15.0  # for its cases; the reference needs less than one
    memory: int = 2 * 2**30  # bytes, beyond what Python and torch take


LIMITS = Limits()


class Sandbox:
    """Makes workers for one judge. A context manager: at its end nothing is left."""

    def __init__(
        self,
        scratch: Path,
        limits: Limits = LIMITS,
        slot: int = 0,
        mode: str = "",
        covered: Iterable[Path] = (),
    ):
        """A sandbox of this mode, or of the strongest that works here.

        Args:
            scratch: an empty folder of the judge's, in one that other users may enter.
            slot: a number below SLOTS; no two judges at work have the same.
            covered: folders that no worker sees, wherever they lie; the course's own is one.

        Errors: SandboxError when no worker can be started that way.
        """
        self.scratch, self.limits, self._slot = scratch, limits, slot
        self._covered = (ROOT, *covered)
        self._files = scratch / "files"
        self._files.mkdir()
        (scratch / "root").mkdir()
        (scratch / ".build").mkdir()
        self._open_to_worker(scratch)
        (scratch / ".build").chmod(0o755)
        tempfile.tempdir = str(self._files)  # the files that cases make for a learner's functions
        self._server: Server | None = None
        self._modes = [mode] if mode else ["namespaces", *(["user"] if is_root() else []), "plain"]
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

    def for_chapter(self, chapter: Chapter) -> SimpleNamespace:
        """Something whose take() gives a worker that sees what this chapter's exercises may see."""
        return SimpleNamespace(take=partial(self._start, chapter))

    def _start(self, chapter: Chapter | None) -> Remote:
        self._empty_files()
        folder = self._folder()
        if self.mode == "process":
            return Remote(PlainProcess(folder))
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

    def _open_to_worker(self, scratch: Path) -> None:
        """Its user reads what is in there; the users of other judges' workers do not."""
        if is_root():
            os.chown(scratch, 0, FIRST_USER + self._slot)
            scratch.chmod(0o750)

    def _user(self) -> int | None:
        return FIRST_USER + self._slot if is_root() and self.mode != "plain" else None

    def _order(self, chapter: Chapter | None) -> dict:
        shown = sandbox_files.visible(chapter) if chapter else sandbox_files.python()
        return {
            "mode": self.mode,
            "root": str(self.scratch / "root"),
            "shown": [*shown, str(self.scratch / ".build")],
            "covered": [str(path) for path in self._covered],
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
        self._server = Server()
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


def is_root() -> bool:
    """Whether this process may become any user."""
    return hasattr(os, "geteuid") and os.geteuid() == 0
