"""The notebooks and .py files of one submission, read into memory; nothing is unpacked to disk.

So a zip can write nowhere, whatever its names say, and a bomb is cut off at a number of bytes.
"""

import io
import math
import os
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

from course.submission import LARGEST

SUFFIXES = (".ipynb", ".py")
MOST_FILES = 200
MOST_BYTES = 4 * LARGEST  # of all files together
MOST_MEMBERS = 10_000  # names in a zip, whatever they are; in a folder, those of files that count
MOST_NAMED = 4 * 2**20  # bytes of a zip's list of names, which takes far more as objects
DEEPEST = 64  # parts of a name
LONGEST = 255  # characters of a name that are shown
MOST_NOTES = 50
LONGEST_NOTE = 600  # characters; a zip's own names may stand in what is said of it
OURS = {"benchmarks", "chapters", "course", "solutions", "tests"}  # folders of the course itself
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
        self.zipped = MOST_BYTES

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

    def take_zip(self, size: int) -> str:
        """The same of a zip, before anything of it is read."""
        if size > self.zipped:
            return f"left out: more than {MOST_BYTES // 2**20} MiB in zips"
        self.zipped -= size
        return ""


class _TooLong(Exception):
    """A zip's list of names is longer than it may be, in names or in bytes."""


class _Opening(io.BytesIO):
    """The bytes of a zip, of which only so many are read to open it: its list of names is that.

    How long the list is can be told in several ways, of which zipfile goes by one; so it is not
    looked up here, but seen when zipfile asks for it.
    """

    left: float = MOST_NAMED

    def read(self, size: int | None = -1) -> bytes:
        """As any stream's. Errors: _TooLong."""
        data = super().read(size)
        self.left -= len(data)
        if self.left < 0:
            raise _TooLong
        return data


def read_files(path: Path) -> tuple[list[Source], list[str]]:
    """All notebooks and .py files of a submission, and what could not be read and why."""
    sources, notes, budget = [], [], _Budget()
    for item in _items(path, budget):
        (sources if isinstance(item, Source) else notes).append(item)
    return sources, few(notes)


def few(notes: list[str]) -> list[str]:
    """The first of the notes, none of them long, and how many more there are: a table has cells."""
    more = [f"and {len(notes) - MOST_NOTES} more such notes"] if len(notes) > MOST_NOTES else []
    return [note[:LONGEST_NOTE] for note in notes[:MOST_NOTES]] + more


def _items(path: Path, budget: _Budget) -> Iterator[Source | str]:
    try:
        if path.is_dir():
            yield from _folder(path, budget)
        elif path.suffix.lower() == ".zip":
            yield from _zip(path, path.name, budget)
        else:
            yield _file(path, path.name, budget)
    except OSError as problem:
        yield f"{path.name} cannot be read ({problem.strerror or problem})"


def _folder(folder: Path, budget: _Budget) -> Iterator[Source | str]:
    closed: list[OSError] = []
    deep: list[Path] = []
    paths: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=closed.append):
        here = Path(place).relative_to(folder)
        folders[:] = sorted(name for name in folders if not _skipped(name))
        if len(here.parts) == DEEPEST - 1 and folders:
            deep.append(here)
            folders.clear()
        paths += [here / name for name in sorted(names) if _counts(here / name)]
        if len(paths) > MOST_MEMBERS:
            yield f"{folder.name} is left out: more than {MOST_MEMBERS} notebooks, .py files, zips"
            return
    clones = _clones(paths)
    for path in paths:
        if not _ours(path, clones):
            yield from _one(folder / path, _shown(path), budget)
    for path in deep:
        yield f"{_shown(path)}: what lies in folders that deep is left out"
    for problem in closed:
        shown = _shown(Path(problem.filename).relative_to(folder))
        yield f"the folder {shown} cannot be read ({problem.strerror})"


def _one(path: Path, shown: str, budget: _Budget) -> Iterator[Source | str]:
    """What is in one file of a folder."""
    if path.is_symlink() or not path.is_file():
        yield f"{shown} is a link or no ordinary file: left out"
    elif path.suffix.lower() == ".zip":
        yield from _zip(path, shown, budget)
    else:
        yield _file(path, shown, budget)


def _clones(paths: Iterable[PurePath]) -> set[PurePath]:
    """The folders that are a whole clone of the course, as some hand it in."""
    return {path.parents[1] for path in paths if path.parts[-2:] == ("course", "__main__.py")}


def _ours(path: PurePath, clones: set[PurePath]) -> bool:
    """Whether a file is the course's own, in a clone of it.

    Asked of the folders above it, which are few: the clones may be thousands.
    """
    return any(up in clones and path.relative_to(up).parts[0] in OURS for up in path.parents)


def _file(path: Path, shown: str, budget: _Budget) -> Source | str:
    if reason := budget.take(path.stat().st_size):
        return f"{shown} is {reason}"
    try:
        return Source(shown, path.read_bytes())
    except OSError as problem:
        return f"{shown} cannot be read ({problem.strerror or problem})"


def _zip(path: Path, shown: str, budget: _Budget) -> Iterator[Source | str]:
    """The files of a zip; a zip inside it is named and left out."""
    if reason := budget.take_zip(path.stat().st_size):
        yield f"{shown} is {reason}"
        return
    try:
        data = path.read_bytes()
    except OSError as problem:
        yield f"{shown} cannot be read ({problem.strerror or problem})"
        return
    try:
        archive = _opened(data)
    except _TooLong:
        yield f"{shown} holds more than {MOST_MEMBERS} names: left out"
        return
    except Exception as problem:  # what is no zip at all is refused in many ways
        yield f"{shown} is no zip that can be read ({problem or type(problem).__name__})"
        return
    with archive:
        clones = _clones(map(_path, archive.infolist()))
        for member in archive.infolist():
            if (item := _member(archive, member, clones, budget)) is not None:
                yield item


def _opened(data: bytes) -> zipfile.ZipFile:
    """A zip with its list of names. Errors: _TooLong; many others where it is none."""
    stream = _Opening(data)
    archive = zipfile.ZipFile(stream)
    if len(archive.infolist()) > MOST_MEMBERS:
        raise _TooLong
    stream.left = math.inf
    return archive


def _path(member: zipfile.ZipInfo) -> PurePosixPath:
    return PurePosixPath(member.filename.replace("\\", "/"))


def _shown(path: PurePath) -> str:
    """A name within the submission as it is shown: both its ends, where it is long."""
    name, half = path.as_posix(), LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[-half:]}"


def _counts(path: PurePath) -> bool:
    """Whether a file may hold exercises, told by its name."""
    return path.suffix.lower() in (*SUFFIXES, ".zip") and not _skipped(path.name)


def _member(
    archive, member: zipfile.ZipInfo, clones: set[PurePath], budget: _Budget
) -> Source | str | None:
    path = _path(member)
    name = _shown(path)
    if member.is_dir() or not _counts(path):
        return None
    if len(path.parts) > DEEPEST:
        return f"{name} is left out: more than {DEEPEST} folders deep"
    if any(map(_skipped, path.parts)) or _ours(path, clones):
        return None
    if path.suffix.lower() == ".zip":
        return f"{name} is a zip within a zip: left out"
    size = max(member.file_size, member.compress_size)  # either takes time, and may be a lie
    if reason := _not_readable(member, path) or budget.take(size):
        return f"{name} is {reason}"
    try:
        with archive.open(member) as stream:
            data = stream.read(member.file_size + 1)
    except Exception as problem:  # each kind of compression has errors of its own
        return f"{name} cannot be read ({problem or type(problem).__name__})"
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
