"""The submissions in a folder: one entry each, a notebook, a .py file, a folder or a zip."""

import hashlib
import re
import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

KINDS = (".ipynb", ".py", ".zip")
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)")  # Windows makes no such file
LONGEST = 80  # characters of a file name made from an entry's


@dataclass(frozen=True)
class Entry:
    """One submission: what lies in the folder under one name."""

    path: Path

    @property
    def id(self) -> str:
        """Its whole name: it does not change when another submission comes or goes."""
        return unicodedata.normalize("NFC", self.path.name).encode("utf-8", "replace").decode()

    @property
    def folder_name(self) -> str:
        """Its name as that of a folder on any system; a hash where a character had to go."""
        safe = re.sub(r"[^\w.\-]", "_", self.id)[:LONGEST].rstrip(".")
        if safe == self.id and not safe.startswith(".") and not RESERVED.match(safe):
            return safe
        return f"_{safe.lstrip('.')}-{hashlib.sha256(self.id.encode()).hexdigest()[:8]}"


def find_entries(folder: Path, out: Path | None = None) -> tuple[list[Entry], list[str]]:
    """All submissions in a folder, by name; and the names of what is none, with the reason.

    Hidden files are passed over, and so is `out` where it lies inside.
    """
    found, ignored = [], []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.name.startswith((".", "__MACOSX")) or (out and path.resolve() == out.resolve()):
            continue
        if reason := _not_a_submission(path):
            ignored.append(f"{path.name}: {reason}")
        else:
            found.append(Entry(path))
    return found, ignored


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
