"""1.8: hashes, manifests and licences."""

import hashlib
import re
from pathlib import Path

from tests.parts import part


@part("1.8")
def upper_case_digits(m):
    """Digits in upper case."""
    right = m.sha256_file
    m.sha256_file = lambda *args, **kwargs: right(*args, **kwargs).upper()


@part("1.8")
def file_read_to_tell_progress(m):
    """Told once, at the end, of everything."""

    def sha256_file(path, chunk=2**20, progress=None):
        if chunk < 1:
            raise ValueError(chunk)
        digest, total = hashlib.sha256(), 0
        with open(path, "rb") as file:
            while piece := file.read(chunk):
                digest.update(piece)
                total += len(piece)
        if progress:
            progress(total)
        return digest.hexdigest()

    m.sha256_file = sha256_file


@part("1.8")
def names_checked_on_the_way(m):
    """A name that leads out is refused when its turn comes, and others have been read by then."""
    right = m._difference

    def difference(folder, name, facts, progress):
        checks(name)
        return right(folder, name, facts, progress)

    checks, m._check_name, m._difference = m._check_name, lambda name: None, difference


@part("1.8")
def report_by_kind_of_name(m):
    """Sorted by name, and not by line."""
    right = m.check_manifest

    def check_manifest(*args, **kwargs):
        return sorted(right(*args, **kwargs), key=lambda line: line.split(": ")[1])

    m.check_manifest = check_manifest


@part("1.8")
def folders_are_unlisted(m):
    """A folder counts as a file that nobody listed."""
    right = m.check_manifest

    def check_manifest(folder, files, ignore=("manifest.json",), progress=None):
        lines = right(folder, files, ignore, progress)
        inside = (path for path in Path(folder).rglob("*") if path.is_dir())
        names = {path.relative_to(folder).as_posix() for path in inside} - files.keys()
        return sorted([*lines, *(f"unlisted: {name}" for name in names)])

    m.check_manifest = check_manifest


@part("1.8")
def only_the_licence_is_brought_to_words(m):
    """The list is taken as it is written, so that its own spelling decides."""

    def check_licence(licence, allowed):
        for choice in allowed:
            if m._words(licence) and m._words(licence) == choice.lower().replace("-", " ").split():
                return choice
        named = licence if m._words(licence) else "no licence"
        raise ValueError(f"{named} is not one of {', '.join(allowed)}")

    m.check_licence = check_licence


@part("1.8")
def last_of_equal_entries(m):
    """Of two entries that mean the same, the second."""
    right = m.check_licence

    def check_licence(licence, allowed):
        try:
            return right(licence, list(allowed)[::-1])
        except ValueError as problem:
            raise ValueError(f"{problem} {', '.join(allowed)}") from None

    m.check_licence = check_licence


@part("1.8")
def or_later_is_the_same(m):
    """A "+" counts as a space: GPL-2.0+ becomes GPL-2.0."""

    def words(licence):
        plain = "".join(c if c.isalnum() or c == "." else " " for c in licence.lower())
        return [w for w in plain.split() if w not in ("the", "license", "licence", "version")]

    m._words = words


@part("1.8")
def zero_bytes_are_no_size(m):
    """A listed size of 0 counts as none given."""
    right = m._difference

    def difference(folder, name, facts, progress):
        return right(folder, name, {k: v for k, v in facts.items() if v}, progress)

    m._difference = difference


@part("1.8")
def file_on_the_way(m):
    """Something listed below a file is a NotADirectoryError."""
    right = m._difference

    def difference(folder, name, facts, progress):
        try:
            Path(folder, name).stat()
        except FileNotFoundError:
            return f"missing: {name}"
        return right(folder, name, facts, progress)

    m._difference = difference


@part("1.8")
def backslash_is_a_letter(m):
    """x\\a is a name: on Windows it is a file in a folder x."""
    right = m._check_name
    m._check_name = lambda name: right(name.replace("\\", "/"))


@part("1.8")
def colon_behind_a_drive(m):
    """A colon is refused behind one letter only."""
    right = m._check_name
    m._check_name = lambda name: right(name if name[1:2] == ":" else name.replace(":", ""))


FILLERS = ("the", "license", "licence", "version")


@part("1.8")
def letters_of_english(m):
    """Other letters than a to z count as spaces: "MIT 许可证" becomes MIT."""

    def words(licence):
        return [w for w in re.findall("[a-z0-9.+]+", licence.lower()) if w not in FILLERS]

    m._words = words


@part("1.8")
def fillers_cut_out(m):
    """The words that do not count are cut out of others, too: MITLicense becomes MIT."""

    def words(licence):
        plain = licence.lower()
        for filler in FILLERS:
            plain = plain.replace(filler, "")
        return "".join(c if c.isalnum() or c in ".+" else " " for c in plain).split()

    m._words = words


@part("1.8")
def words_run_together(m):
    """Apache2.0 is Apache-2.0."""
    right = m._words
    m._words = lambda licence: "".join(right(licence))


@part("1.8")
def dots_are_spaces(m):
    """Apache-2-0 is Apache-2.0."""
    right = m._words
    m._words = lambda licence: right(licence.replace(".", " "))


@part("1.8")
def known_separators(m):
    """Only the separators that came to mind are spaces."""

    def words(licence):
        return [w for w in re.split(r"[\s,_/()-]+", licence.lower()) if w and w not in FILLERS]

    m._words = words


@part("1.8")
def nothing_is_allowed(m):
    """No licence is the empty entry of the list."""

    def check_licence(licence, allowed):
        for choice in allowed:
            if m._words(licence) == m._words(choice):
                return choice
        name = licence if m._words(licence) else "no licence"
        raise ValueError(f"{name} is none of {', '.join(allowed)}")

    m.check_licence = check_licence
