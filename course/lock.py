"""One process at a time: a lock that the operating system drops if its holder dies."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def exclusive(path: Path, waiting: str) -> Iterator[None]:
    """Hold the lock file `path`; print `waiting` once if another process holds it first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as handle:
        told = False
        while not _try_lock(handle):
            if not told:
                print(waiting, flush=True)
            told = True
            time.sleep(0.2)
        yield  # closing the file lets go of the lock


def _try_lock(handle: IO[str]) -> bool:
    """Take the lock if it is free. Windows has no flock; its byte lock serves as well."""
    try:
        if os.name == "nt":
            import msvcrt

            handle.seek(0)
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
