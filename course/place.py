"""Where a verb writes: asked before the work, written whole or not at all.

A folder that is not there is made. What goes wrong names what was typed.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def check(path: Path) -> None:
    """Say before the work that a file cannot be written after it, and leave nothing behind.

    Errors: ValueError, with the file and what the system says.
    """
    if os.path.isdir(path):  # unlike Path's, false where one may not look
        raise ValueError(f"{path} is a folder: name a file")
    made = [folder for folder in path.parents if not os.path.exists(folder)]
    try:
        with written(path) as partial:
            partial.write_bytes(b"")
    finally:
        for folder in made:  # the innermost first
            with contextlib.suppress(OSError):
                folder.rmdir()


def put(path: Path, data: bytes) -> None:
    """Write a file whole, or leave nothing of it. Errors: ValueError, as `check`."""
    with written(path) as partial:
        partial.write_bytes(data)
        os.replace(partial, path)


@contextlib.contextmanager
def written(path: Path) -> Iterator[Path]:
    """Where to write first, in a folder that is there then; it is gone at the end."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
    except OSError as problem:
        reason = problem.strerror or problem
        if isinstance(problem, FileExistsError):  # of mkdir, which says no more
            reason = f"{path.parent} is no folder"
        raise ValueError(f"{path} cannot be written ({reason}): name another place") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
