"""The submissions in a folder: one entry each, a notebook, a .py file, a folder or a zip."""

import hashlib
import os
import re
import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

KINDS = (".ipynb", ".py", ".zip")
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)")  # Windows makes no such file
LONGEST = 80  # characters of a file name made from an entry's
DIGITS = 12  # of a hash that tells two names apart, so many that nobody finds a second name


@dataclass(frozen=True)
class Entry:
    """One submission: what lies in the folder under one name."""

    path: Path
    same_id: bool = False  # as another's, whose name differs in how an accent is written
    same_folder: bool = False  # as another's, where case does not count

    @property
    def id(self) -> str:
        """Its whole name: it does not change when another submission comes or goes.

        What cannot be printed is gone, and a hash of the name as it was stands behind.
        """
        name = unicodedata.normalize("NFC", self.path.name)
        shown = "".join(c if c.isprintable() else "?" for c in name)
        return f"{shown} ({self._hash})" if self.same_id or shown != name else shown

    @property
    def folder_name(self) -> str:
        """Its name as that of a folder on any system; a hash where a character had to go."""
        safe = re.sub(r"[^\w.\-]", "_", self.id)[:LONGEST].rstrip(".")
        plain = safe == self.id and safe[:1] not in "._" and not RESERVED.match(safe)
        if plain and not self.same_folder:
            return safe
        return f"_{safe.lstrip('._')}-{self._hash}"

    @property
    def _hash(self) -> str:
        return hashlib.sha256(os.fsencode(self.path.name)).hexdigest()[:DIGITS]


def find_entries(folder: Path, out: Path | None = None) -> tuple[list[Entry], list[str]]:
    """All submissions in a folder, by name; and the names of what is none, with the reason.

    Hidden files are passed over, and so is `out` where it lies inside.

    Errors: ValueError when `out` lies inside one of them.
    """
    found, ignored = [], []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.name.startswith((".", "__MACOSX")) or (out and path.resolve() == out.resolve()):
            continue
        if out and out.resolve().is_relative_to(path.resolve()):
            raise ValueError(f"OUT lies inside the submission {path.name}: name another folder")
        if reason := _not_a_submission(path):
            ignored.append(f"{path.name}: {reason}")
        else:
            found.append(Entry(path))
    return _told_apart(found), ignored


def _told_apart(entries: list[Entry]) -> list[Entry]:
    """No two have one name in the gradebook, nor one folder where case does not count."""
    ids, folders, found = set(), set(), []
    for entry in sorted(entries, key=lambda e: e.id != e.path.name):  # those as they are first
        folder = entry.folder_name.casefold()
        found.append(Entry(entry.path, entry.id in ids, folder in folders))
        ids.add(entry.id)
        folders.add(folder)
    return sorted(found, key=lambda entry: entry.path.name)


def same_names(entries: list[Entry]) -> list[list[str]]:
    """Groups of submissions that seem to be one person's: one name but for case and ending."""
    groups = defaultdict(list)
    for entry in entries:
        name = entry.path.name
        stem = entry.path.stem if entry.path.suffix.lower() in KINDS else name
        groups[unicodedata.normalize("NFKC", stem).casefold().strip()].append(entry.id)
    return [ids for ids in groups.values() if len(ids) > 1]


def _not_a_submission(path: Path) -> str:
    if path.is_symlink():
        return "a link, which may lead anywhere: put the file itself here"
    if path.is_dir() or (path.is_file() and path.suffix.lower() in KINDS):
        return ""
    return "neither a notebook nor a .py file, a folder or a zip"
