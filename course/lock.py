"""One process at a time: a lock that the operating system drops if its holder dies."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def exclusive(path: Path, waiting: str, keep: bool = True) -> Iterator[None]:
    """Hold the lock file `path`; print `waiting` once if another process holds it first.

    keep: false removes the file at the end. Whoever waited for it then holds a file without a
    name, sees that, and begins anew with the one that has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    told = False
    while True:
        with path.open("a", encoding="utf-8") as handle:
            while not _try_lock(handle):
                if not told:
                    print(waiting, file=sys.stderr, flush=True)
                told = True
                time.sleep(0.2)
            if not keep and not _has_its_name(handle, path):
                continue
            try:
                yield
            finally:  # closing the file lets go of the lock
                if not keep:
                    _remove(path)
        if not keep and os.name == "nt":  # which removes no open file, whoever has it open
            _remove(path)
        return


def _has_its_name(handle: IO[str], path: Path) -> bool:
    """Whether the file that was locked is still the one of that name."""
    if os.name == "nt":
        return True  # nobody could remove it
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


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
