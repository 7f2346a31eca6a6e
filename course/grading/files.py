"""The notebooks and .py files of one submission, read into memory; nothing is unpacked to disk.

So a zip can write nowhere, whatever its names say, and a bomb is cut off at a number of bytes.
"""

import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from course.submission import LARGEST

SUFFIXES = (".ipynb", ".py")
MOST_FILES = 200
MOST_BYTES = 4 * LARGEST  # of all files together
MOST_MEMBERS = 10_000  # names in a zip, whatever they are
SKIPPED = {"__MACOSX", "__pycache__", "node_modules", "site-packages"}


@dataclass(frozen=True)
class Source:
    """One file that may hold exercises."""

    name: str  # within the submission, with forward slashes
    data: bytes


class _Budget:
    """What may still be read."""

    def __init__(self):
        self.files, self.bytes = MOST_FILES, MOST_BYTES

    def take(self, size: int) -> str:
        """Account for a file; the reason why it may not be read, or nothing."""
        if size > LARGEST:
            return (
                f"{size / 2**20:.0f} MiB large; the limit is {LARGEST // 2**20} MiB: clear the "
                "outputs of the notebook and save it"
            )
        if self.files == 0:
            return f"left out: more than {MOST_FILES} files"
        if size > self.bytes:
            return f"left out: more than {MOST_BYTES // 2**20} MiB together"
        self.files, self.bytes = self.files - 1, self.bytes - size
        return ""


def read_files(path: Path) -> tuple[list[Source], list[str]]:
    """All notebooks and .py files of a submission, and what could not be read and why."""
    sources, notes, budget = [], [], _Budget()
    for item in _items(path, budget):
        (sources if isinstance(item, Source) else notes).append(item)
    return sources, notes


def _items(path: Path, budget: _Budget) -> Iterator[Source | str]:
    try:
        if path.is_dir():
            yield from _folder(path, budget)
        elif path.suffix.lower() == ".zip":
            yield from _zip(path.read_bytes() if _small(path) else None, path.name, budget)
        else:
            yield _file(path, path.name, budget)
    except OSError as problem:
        yield f"{path.name} cannot be read ({problem.strerror or problem})"


def _folder(folder: Path, budget: _Budget) -> Iterator[Source | str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _skipped(name))
        for name in sorted(names):
            path = Path(place) / name
            shown = path.relative_to(folder).as_posix()
            suffix = path.suffix.lower()
            if _skipped(name) or suffix not in (*SUFFIXES, ".zip"):
                continue
            if path.is_symlink() or not path.is_file():
                yield f"{shown} is a link or no ordinary file: left out"
            elif suffix == ".zip":
                yield from _zip(path.read_bytes() if _small(path) else None, shown, budget)
            else:
                yield _file(path, shown, budget)


def _file(path: Path, shown: str, budget: _Budget) -> Source | str:
    if reason := budget.take(path.stat().st_size):
        return f"{shown} is {reason}"
    try:
        return Source(shown, path.read_bytes())
    except OSError as problem:
        return f"{shown} cannot be read ({problem.strerror or problem})"


def _small(path: Path) -> bool:
    return path.stat().st_size <= MOST_BYTES


def _zip(data: bytes | None, shown: str, budget: _Budget) -> Iterator[Source | str]:
    """The files of a zip; a zip inside it is named and left out."""
    if data is None:
        yield f"{shown} is larger than {MOST_BYTES // 2**20} MiB: left out"
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                yield f"{shown} holds {len(members)} names: left out"
                return
            for member in members:
                if (item := _member(archive, member, budget)) is not None:
                    yield item
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as problem:
        yield f"{shown} is no zip that can be read ({problem})"


def _member(archive, member: zipfile.ZipInfo, budget: _Budget) -> Source | str | None:
    name = member.filename.replace("\\", "/")
    path = PurePosixPath(name)
    if member.is_dir() or any(map(_skipped, path.parts)):
        return None
    if path.suffix.lower() == ".zip":
        return f"{name} is a zip within a zip: left out"
    if path.suffix.lower() not in SUFFIXES:
        return None
    if reason := _not_readable(member, path) or budget.take(member.file_size):
        return f"{name} is {reason}"
    try:
        with archive.open(member) as stream:
            data = stream.read(member.file_size + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as problem:
        return f"{name} cannot be read ({problem})"
    return Source(name, data)


def _not_readable(member: zipfile.ZipInfo, path: PurePosixPath) -> str:
    """Why a member is not what it should be: its name or its kind."""
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        return "a name that leads out of the zip: left out"
    if (member.external_attr >> 16) & 0o170000 == 0o120000:
        return "a link: left out"
    if member.flag_bits & 1:
        return "locked with a password: left out"
    return ""


def _skipped(name: str) -> bool:
    """Folders and files of systems and tools; `..` is not one of them, it is to be reported."""
    return (name.startswith(".") and name != "..") or name in SKIPPED
