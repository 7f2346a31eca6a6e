"""The notebooks and .py files of one submission, read into memory; nothing is unpacked to disk.

So a zip can write nowhere, whatever its names say, and a bomb is cut off at a number of bytes.
"""

import io
import os
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

from course.submission import LARGEST

SUFFIXES = (".ipynb", ".py")
MOST_FILES = 200
MOST_BYTES = 4 * LARGEST  # of all files together
MOST_MEMBERS = 10_000  # names in a zip, whatever they are
MOST_NAMED = 4 * 2**20  # bytes of a zip's list of names, which takes far more as objects
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
    closed: list[OSError] = []
    paths = []
    for place, folders, names in os.walk(folder, onerror=closed.append):
        folders[:] = sorted(name for name in folders if not _skipped(name))
        paths += [Path(place, name).relative_to(folder) for name in sorted(names)]
    clones = _clones(paths)
    for path in paths:
        suffix = path.suffix.lower()
        if not (_skipped(path.name) or suffix not in (*SUFFIXES, ".zip") or _ours(path, clones)):
            yield from _one(folder / path, path.as_posix(), budget)
    for problem in closed:
        shown = Path(problem.filename).relative_to(folder).as_posix()
        yield f"the folder {shown} cannot be read ({problem.strerror})"


def _one(path: Path, shown: str, budget: _Budget) -> Iterator[Source | str]:
    """What is in one file of a folder."""
    if path.is_symlink() or not path.is_file():
        yield f"{shown} is a link or no ordinary file: left out"
    elif path.suffix.lower() == ".zip":
        yield from _zip(path.read_bytes() if _small(path) else None, shown, budget)
    else:
        yield _file(path, shown, budget)


def _clones(paths: Iterable[PurePath]) -> set[PurePath]:
    """The folders that are a whole clone of the course, as some hand it in."""
    return {path.parents[1] for path in paths if path.parts[-2:] == ("course", "__main__.py")}


def _ours(path: PurePath, clones: set[PurePath]) -> bool:
    """Whether a file is the course's own, in a clone of it."""
    within = (path.relative_to(clone).parts for clone in clones if path.is_relative_to(clone))
    return any(parts[0] in OURS for parts in within if parts)


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
    if _names_size(data) > MOST_NAMED:
        yield f"{shown} holds more than {MOST_MEMBERS} names: left out"
        return
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except Exception as problem:  # what is no zip at all is refused in many ways
        yield f"{shown} is no zip that can be read ({problem or type(problem).__name__})"
        return
    with archive:
        members = archive.infolist()
        if len(members) > MOST_MEMBERS:
            yield f"{shown} holds {len(members)} names: left out"
            return
        clones = _clones(map(_path, members))
        for member in members:
            if _ours(_path(member), clones):
                continue
            if (item := _member(archive, member, budget)) is not None:
                yield item


def _names_size(data: bytes) -> int:
    """Bytes of the list of names, by the record at the end (APPNOTE.TXT, 4.3.16); 0 without one."""
    at = data.rfind(b"PK\5\6", -(2**16 + 22))
    return int.from_bytes(data[at + 12 : at + 16], "little") if at >= 0 else 0


def _path(member: zipfile.ZipInfo) -> PurePosixPath:
    return PurePosixPath(member.filename.replace("\\", "/"))


def _member(archive, member: zipfile.ZipInfo, budget: _Budget) -> Source | str | None:
    path = _path(member)
    name = str(path)
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
