"""The server of a drill, a process of its own, with its usual clients, and its fault's begin."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from course import background
from course.drills import DRILLS, clients
from course.paths import MODELS, ROOT


@dataclass(frozen=True)
class Incident:
    """A drill that runs: where, and the folder of its logs."""

    name: str
    url: str
    logs: Path
    process: subprocess.Popen
    stop: threading.Event  # of the clients

    def begin(self) -> None:
        """From here on the fault is there."""
        with contextlib.suppress(OSError):  # it has ended: whoever asks for answers notices
            self.process.stdin.write(b"begin\n")
            self.process.stdin.flush()
        clients.start(self.url, DRILLS[self.name].load, self.stop)


@contextmanager
def incident(name: str, logs: Path) -> Iterator[Incident]:
    """The server of a drill, ready, with its usual clients; ended with the block.

    Errors: NotReady.
    """
    logs.mkdir(parents=True, exist_ok=True)
    said, stop = logs / "server.log", threading.Event()
    with said.open("wb") as stderr:
        process = _start(name, logs, stderr)
    try:
        url = background.address_when_ready(process, said)
        clients.start(url, clients.USUAL, stop)
        yield Incident(name, url, logs, process, stop)
    finally:
        stop.set()
        background.end(process, process.stdin.close)


def _start(name: str, logs: Path, stderr) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "course.drills.server", name, str(logs)],
        cwd=ROOT,
        env=os.environ | {"COURSE_MODELS": str(MODELS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        **background.APART,
    )
