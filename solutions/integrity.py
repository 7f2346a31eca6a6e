"""Chapter 01: is this the file it claims to be, and may it be used?"""

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

Progress = Callable[[int], object]  # told of each piece's bytes, such as the update of a tqdm bar


def sha256_file(path: str | Path, chunk: int = 2**20, progress: Progress | None = None) -> str:
    """The SHA-256 of a file, read in pieces: a model file need not fit in memory for it.

    Args:
        path: the file.
        chunk: bytes read at a time, 1 or more; the memory that this takes.
        progress: called after each piece with its number of bytes; they add up to the size.

    Returns:
        64 hexadecimal digits, lower case.

    Errors: ValueError for a chunk under 1. What the system raises goes through.

    Source: FIPS 180-4.
    """
    # exercise 1.8
    if chunk < 1:
        raise ValueError(f"a chunk has at least one byte, not {chunk}")
    digest, buffer = hashlib.sha256(), memoryview(bytearray(chunk))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            if progress:
                progress(count)
    return digest.hexdigest()


def check_manifest(
    folder: str | Path,
    files: Mapping[str, Mapping[str, Any]],
    ignore: Collection[str] = ("manifest.json",),
    progress: Progress | None = None,
) -> list[str]:
    """Everything in which a folder differs from its manifest, all at once.

    Args:
        folder: what to look at, with all folders inside.
        files: for each file's name, relative to folder and with "/" between its parts: "sha256",
            upper or lower case, and possibly "bytes", its size. A file of another size is not
            opened: its hash cannot be right, and reading it may take minutes.
        ignore: whole names, as in files, that are not looked at, whether files has them or not.
        progress: as in sha256_file, for all files that are read.

    Returns:
        One line a difference, sorted: "missing: NAME", "changed: NAME" (other contents, or no
        file but a folder), "unlisted: NAME" (a file that `files` does not have, be it a hidden
        one). [] when all is well.

    Errors: ValueError, before anything is read, for a name that could lead out of the folder on
    some system, naming it: empty, beginning with "/", with a "..", a ":" or a backslash in it
    ("a/../b", "C:/x"; but "a..b" is a name). FileNotFoundError when folder is no folder.
    """
    # exercise 1.8
    folder, ignored = Path(folder), set(ignore)
    listed = {name: facts for name, facts in files.items() if name not in ignored}
    for name in listed:
        _check_name(name)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not there, or is no folder")
    inside = (path for path in folder.rglob("*") if not path.is_dir())
    unlisted = {path.relative_to(folder).as_posix() for path in inside} - ignored - listed.keys()
    lines = [_difference(folder, name, facts, progress) for name, facts in listed.items()]
    return sorted([*filter(None, lines), *(f"unlisted: {name}" for name in unlisted)])


def _check_name(name: str) -> None:
    """Refuse a name that is not inside the folder on every system."""
    if not name or name[0] == "/" or ".." in name.split("/") or ":" in name or "\\" in name:
        raise ValueError(f"the manifest names {name!r}, which could lead out of the folder")


def _difference(
    folder: Path, name: str, facts: Mapping[str, Any], progress: Progress | None
) -> str | None:
    """What is wrong with one listed file, if anything."""
    path = folder / name
    if not os.path.exists(path):  # Path.exists may raise, where a name is too long for the disk
        return f"missing: {name}"
    if not path.is_file() or facts.get("bytes", path.stat().st_size) != path.stat().st_size:
        return f"changed: {name}"
    same = sha256_file(path, progress=progress) == facts["sha256"].lower()
    return None if same else f"changed: {name}"


def check_licence(licence: str, allowed: Sequence[str]) -> str:
    """The allowed licence that this is, in whatever spelling.

    "Apache-2.0", "apache 2.0", "Apache License 2.0" and "Apache License, Version 2.0" are one
    licence; "LGPL-2.1" and "GPL-2.1", "Apache-2.0 OR GPL-3.0" and "Apache-2.0" are not. Two
    spellings are one when they have the same words in the same order: upper and lower case
    are alike, every character but letters, digits, "." and "+" counts as a space, and the words
    "the", "license", "licence" and "version" do not count.

    Args:
        licence: what the file says.
        allowed: the list, such as ("Apache-2.0", "MIT").

    Returns:
        The first entry of `allowed` that is meant, as it is written there.

    Errors: ValueError when none is meant, naming the licence and every allowed one. A licence
    without any word, such as "" or " - ", is called "no licence", and is never allowed.
    """
    # exercise 1.8
    for choice in allowed:
        if _words(licence) and _words(licence) == _words(choice):
            return choice
    named = repr(licence) if _words(licence) else "no licence"
    raise ValueError(f"{named} is not on the list of allowed licences: {', '.join(allowed)}")


def _words(licence: str) -> list[str]:
    """The words that tell one licence from another."""
    plain = "".join(c if c.isalnum() or c in ".+" else " " for c in licence.lower())
    return [w for w in plain.split() if w not in ("the", "license", "licence", "version")]
