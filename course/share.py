"""Files that a case makes for a learner's functions, where the worker cannot see the judge's disk.

The judge sends what is new as data; the worker makes a copy. So nothing the learner's code does to
a file, or puts in its place, is ever followed by the judge.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from course.wire import LIMIT, Raised, Record


class Share:
    """The judge's side: one folder, and what a worker has of it."""

    def __init__(self, folder: Path, there: Path):
        """there: where the worker has its copy; the same path if it can be."""
        self.folder, self.there = folder, there
        self._known: dict[str, tuple] = {}

    def news(self) -> dict | None:
        """What changed since the last time, as a request to the worker; None when nothing did."""
        found = dict(_entries(self.folder))
        gone = [name for name in self._known if name not in found]
        made = [n for n, signature in found.items() if self._known.get(n) != signature]
        self._known = found
        if not gone and not made:
            return None
        files = [[name, *_content(self.folder / name)] for name in made]
        return {"do": "files", "folder": str(self.there), "gone": gone, "made": files}

    def outgoing(self, value):
        """A request with the worker's paths in it."""
        return _renamed(value, str(self.folder), str(self.there))

    def incoming(self, value):
        """An answer with the judge's paths in it."""
        return _renamed(value, str(self.there), str(self.folder))


def receive(request: dict) -> None:
    """The worker's side: make, change and remove files as the judge says."""
    folder = Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    for name in request["gone"]:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for name, size, parts in request["made"]:
        path = folder / name
        if size is None:
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.unlink(missing_ok=True)  # one that is mapped keeps what it was
        with path.open("wb") as file:
            for start, data in parts:
                file.seek(start)
                file.write(data.numpy().tobytes())
            file.truncate(size)


def _entries(folder: Path):
    """Every folder and file below one, with what changes when it does; parents come first."""
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        signature = () if path.is_dir() else (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        yield path.relative_to(folder).as_posix(), signature


def _content(path: Path) -> tuple[int | None, list]:
    """A file's size and the stretches of it that are not holes; None for a folder."""
    if path.is_dir():
        return None, []
    size = path.stat().st_size
    with path.open("rb") as file:
        parts = [[start, _read(file, start, end)] for start, end in _stretches(file, size)]
    return size, parts


def _read(file, start: int, end: int) -> Tensor:
    if end - start > LIMIT:
        raise ValueError(f"{file.name} has {end - start} bytes: too many to send")
    file.seek(start)
    return torch.from_numpy(np.frombuffer(bytearray(file.read(end - start)), dtype=np.uint8))


def _stretches(file, size: int) -> list[tuple[int, int]]:
    """Where a file has data (lseek(2), SEEK_DATA); a sparse file may be larger than memory."""
    found, at = [], 0
    while at < size:
        try:
            start = os.lseek(file.fileno(), at, os.SEEK_DATA)
        except OSError:  # there is none behind
            break
        at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
        found.append((start, at))
    return found


def _renamed(value, old: str, new: str):
    """The value with a path at the beginning of another path put in place of it."""
    if old == new:
        return value
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {key: _renamed(item, old, new) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_renamed(item, old, new) for item in value)
    if isinstance(value, Record):
        return Record(value.type, _renamed(value.fields, old, new))
    if isinstance(value, Raised):
        value.message = _renamed(value.message, old, new)
    return value
