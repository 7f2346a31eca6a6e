"""Model folders that are whole or not there: hashes, manifests, renames; standard library only."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from solutions.integrity import check_manifest

MANIFEST = "manifest.json"
FORMAT = 1  # raise it when the converter's output changes, and every folder is made again
CHUNK = 1 << 20
MOST_LINES, MOST_CHARACTERS = 60, 1000  # of a message, in which a stranger's file has a say


class ModelError(Exception):
    """Something the user can act on; the text is one sentence with what to do next.

    Names out of a file stand in it: what a terminal would obey is written out, what would fill it
    is cut.
    """

    def __str__(self) -> str:
        lines = super().__str__().split("\n")
        left = len(lines) - MOST_LINES
        more = [f"  and {left:,} lines more"] if left > 0 else []
        return "\n".join([*map(_printable, lines[:MOST_LINES]), *more])


def _printable(line: str) -> str:
    """A line without control characters; of a very long one the beginning and the end."""
    half = MOST_CHARACTERS // 2
    shown = line if len(line) <= MOST_CHARACTERS else f"{line[:half]}…{line[-half:]}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)


def resolved(path: Path) -> Path:
    """The path without links, under a name that a manifest can hold and tokenizers can open.

    Errors: ModelError for a link that leads nowhere, and for a name that is not UTF-8.
    """
    try:
        path = path.resolve()
        str(path).encode("utf-8")
    except (OSError, RuntimeError):  # Python 3.13 does not mind, and then finds no file
        raise ModelError(f"{path} leads nowhere: a link comes back to itself.") from None
    except UnicodeEncodeError:
        raise ModelError(f"{path} has a path that is not UTF-8; rename it.") from None
    return path


def write_json(path: Path, value: object) -> None:
    """UTF-8 with real characters, so that a vocabulary can be read by eye."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def whole_or_nothing(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; it takes the name `folder` only if nothing went wrong."""
    refuse_foreign(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        _swap(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def refuse_foreign(folder: Path) -> None:
    """Only an empty folder, or one with a manifest, is ours to replace."""
    if folder.exists() and not (folder / MANIFEST).is_file() and any(folder.iterdir()):
        raise ModelError(
            f"{folder} is there but was not made by this command; move it away, "
            "then run `python -m course model` again."
        )


def _swap(partial: Path, folder: Path) -> None:
    """Two renames and a removal: at no moment does half a folder carry the final name.

    If it stops between the renames there is no folder, and the next run makes it again.
    """
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def write_manifest(folder: Path, about: dict, hashes: dict[str, str]) -> None:
    """Written last. `hashes` maps each file name to its SHA-256; sizes are read from disk."""
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": digest}
        for name, digest in sorted(hashes.items())
    }
    write_json(folder / MANIFEST, {"format": FORMAT, **about, "files": files})


def read_manifest(folder: Path) -> dict:
    """The manifest of a folder. Raises ValueError when it is missing or damaged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = list(manifest["files"].values())
        facts = [manifest["source"], manifest["licence"], *(entry["sha256"] for entry in files)]
        sizes = [entry["bytes"] for entry in files]
    except FileNotFoundError:
        raise ValueError(f"{MANIFEST} is missing") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError(f"{MANIFEST} is damaged") from None
    if not all(isinstance(fact, str) for fact in facts) or not all(type(s) is int for s in sizes):
        raise ValueError(f"{MANIFEST} is damaged")
    if not files or manifest.get("format") != FORMAT:
        raise ValueError("it was made by another version of this course")
    return manifest


def is_complete(folder: Path) -> str | None:
    """None when every file of the manifest is there at its size, else the reason in a few words.

    Cheap enough for every start: it looks at sizes, not at contents. `verify` reads everything.
    """
    if not folder.is_dir():
        return "it is not there yet"
    try:
        files = read_manifest(folder)["files"]
    except ValueError as problem:
        return str(problem)
    wrong = [name for name, entry in files.items() if _size(folder / name) != entry["bytes"]]
    return f"missing or wrong in size: {', '.join(wrong)}" if wrong else None


def _size(path: Path) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else -1  # a name too long is no file


def verify(folder: Path, progress: Callable[[int], object] | None = None) -> str | None:
    """Like `is_complete`, but compares the SHA-256 of every byte, and names what is not listed."""
    if reason := is_complete(folder):
        return reason
    try:
        lines = check_manifest(folder, read_manifest(folder)["files"], [MANIFEST], progress)
    except ValueError as problem:
        return str(problem)
    return f"not what its manifest says ({', '.join(lines)})" if lines else None


def require_room(folder: Path, needed: int) -> None:
    """ModelError if the disk that will hold `folder` has less than `needed` bytes free."""
    place = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        raise ModelError(
            f"{folder} needs {needed / 1e6:.0f} MB and the disk has {free / 1e6:.0f} MB free; "
            "free some, or set COURSE_MODELS to a folder on another disk."
        )
