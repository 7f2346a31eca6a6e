"""Wrong versions of 1.8 sha256_file, check_manifest, check_licence."""

import hashlib
from pathlib import Path

from course.misconceptions import misconception
from solutions.integrity import _check_name, _difference, _words, sha256_file


@misconception("1.8", "sha256_file")
def hashed_in_one_piece(path, chunk=2**20, progress=None):
    """You read the whole file before hashing it. A model may be larger than the memory: update the
    digest piece by piece.
    """
    if chunk < 1:
        raise ValueError(f"a chunk has at least one byte, not {chunk}")
    data = Path(path).read_bytes()
    if progress:
        progress(len(data))
    return hashlib.sha256(data).hexdigest()


@misconception("1.8", "sha256_file")
def whole_buffer_hashed(path, chunk=2**20, progress=None):
    """You hash the whole buffer each time. The last piece is shorter, and behind it stands what was
    read before: hash only as many bytes as came, buffer[:count].
    """
    if chunk < 1:
        raise ValueError(f"a chunk has at least one byte, not {chunk}")
    digest, buffer = hashlib.sha256(), bytearray(chunk)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer)
            if progress:
                progress(count)
    return digest.hexdigest()


@misconception("1.8", "sha256_file")
def first_piece_only(path, chunk=2**20, progress=None):
    """You hash the first piece and stop. Whatever is changed behind it goes unseen: read on until
    nothing comes.
    """
    if chunk < 1:
        raise ValueError(f"a chunk has at least one byte, not {chunk}")
    with open(path, "rb") as file:
        data = file.read(chunk)
    if progress:
        progress(len(data))
    return hashlib.sha256(data).hexdigest()


@misconception("1.8", "sha256_file")
def whole_chunks_told(path, chunk=2**20, progress=None):
    """You tell progress of `chunk` bytes each time. The last piece is shorter, and the bar ends
    above a hundred per cent: tell it how many bytes came.
    """
    if chunk < 1:
        raise ValueError(f"a chunk has at least one byte, not {chunk}")
    digest, buffer = hashlib.sha256(), memoryview(bytearray(chunk))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            if progress:
                progress(chunk)
    return digest.hexdigest()


@misconception("1.8", "check_manifest")
def stops_at_the_first(folder, files, ignore=("manifest.json",), progress=None):
    """You report one difference. Whoever mends it then meets the next: name all of them at once."""
    folder, ignored = Path(folder), set(ignore)
    listed = {name: facts for name, facts in files.items() if name not in ignored}
    for name in listed:
        _check_name(name)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not there, or is no folder")
    inside = (path for path in folder.rglob("*") if not path.is_dir())
    unlisted = {path.relative_to(folder).as_posix() for path in inside} - ignored - listed.keys()
    for name, facts in sorted(listed.items()):
        if line := _difference(folder, name, facts, progress):
            return [line]
    return [f"unlisted: {name}" for name in sorted(unlisted)][:1]


@misconception("1.8", "check_manifest")
def unlisted_not_seen(folder, files, ignore=("manifest.json",), progress=None):
    """You look only at what the manifest names. A file that was put in beside them is a difference
    too: compare with what is on the disk.
    """
    folder, ignored = Path(folder), set(ignore)
    listed = {name: facts for name, facts in files.items() if name not in ignored}
    for name in listed:
        _check_name(name)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not there, or is no folder")
    lines = [_difference(folder, name, facts, progress) for name, facts in listed.items()]
    return sorted(filter(None, lines))


@misconception("1.8", "check_manifest")
def only_the_top_folder(folder, files, ignore=("manifest.json",), progress=None):
    """You look only into the folder itself. Files in folders inside it count as well: rglob, and
    names with "/" between their parts.
    """
    folder, ignored = Path(folder), set(ignore)
    listed = {name: facts for name, facts in files.items() if name not in ignored}
    for name in listed:
        _check_name(name)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not there, or is no folder")
    inside = (path for path in folder.iterdir() if not path.is_dir())
    unlisted = {path.name for path in inside} - ignored - listed.keys()
    lines = [_difference(folder, name, facts, progress) for name, facts in listed.items()]
    return sorted([*filter(None, lines), *(f"unlisted: {name}" for name in unlisted)])


@misconception("1.8", "check_manifest")
def manifest_always_ignored(folder, files, ignore=("manifest.json",), progress=None):
    """You ignore manifest.json, whatever `ignore` says. It is only the default: a caller who keeps
    the manifest elsewhere wants to hear of one that lies in the folder.
    """
    folder, ignored = Path(folder), {"manifest.json", *ignore}
    listed = {name: facts for name, facts in files.items() if name not in ignored}
    for name in listed:
        _check_name(name)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not there, or is no folder")
    inside = (path for path in folder.rglob("*") if not path.is_dir())
    unlisted = {path.relative_to(folder).as_posix() for path in inside} - ignored - listed.keys()
    lines = [_difference(folder, name, facts, progress) for name, facts in listed.items()]
    return sorted([*filter(None, lines), *(f"unlisted: {name}" for name in unlisted)])


@misconception("1.8", "_check_name")
def names_lead_out(name):
    """You follow any name. A manifest that says "../../.ssh/id" makes you read a file that is none
    of its business: refuse such names before you read anything.
    """


@misconception("1.8", "_check_name")
def dots_anywhere(name):
    """You refuse a name with two dots anywhere in it. "a..b" is a plain name; only a part of the
    path that is ".." leads out.
    """
    if not name or name[0] == "/" or ".." in name or ":" in name or "\\" in name:
        raise ValueError(f"the manifest names {name!r}, which could lead out of the folder")


@misconception("1.8", "_difference")
def case_of_the_digits(folder, name, facts, progress):
    """You compare the digits as text. Some programs write them in upper case; the number is the
    same.
    """
    path = folder / name
    if not path.exists():
        return f"missing: {name}"
    if not path.is_file() or facts.get("bytes", path.stat().st_size) != path.stat().st_size:
        return f"changed: {name}"
    return None if sha256_file(path, progress=progress) == facts["sha256"] else f"changed: {name}"


@misconception("1.8", "_difference")
def size_not_looked_at(folder, name, facts, progress):
    """You hash a file whose size is already wrong. Its hash cannot be right, and reading 100 GB to
    learn that takes minutes: compare the sizes first, where the manifest has them.
    """
    path = folder / name
    if not path.exists():
        return f"missing: {name}"
    if not path.is_file():
        return f"changed: {name}"
    same = sha256_file(path, progress=progress) == facts["sha256"].lower()
    return None if same else f"changed: {name}"


@misconception("1.8", "_difference")
def size_is_enough(folder, name, facts, progress):
    """You trust the size where the manifest has one. A file of the right size can hold anything:
    the size only saves the reading when it is wrong.
    """
    path = folder / name
    if not path.exists():
        return f"missing: {name}"
    if "bytes" in facts and path.is_file() and facts["bytes"] == path.stat().st_size:
        return None
    if not path.is_file() or facts.get("bytes", path.stat().st_size) != path.stat().st_size:
        return f"changed: {name}"
    same = sha256_file(path, progress=progress) == facts["sha256"].lower()
    return None if same else f"changed: {name}"


@misconception("1.8", "check_licence")
def contained_in_it(licence, allowed):
    """You ask whether one text contains the other. "Apache-2.0 OR GPL-3.0" contains "Apache-2.0",
    and "LGPL-2.10" contains "LGPL-2.1": compare the whole list of words.
    """
    choices, text = list(allowed), " ".join(_words(licence))
    for choice in choices:
        if text and " ".join(_words(choice)) in text:
            return choice
    name = licence if text else "no licence"
    raise ValueError(f"{name} is not on the list of allowed licences: {', '.join(choices)}")


@misconception("1.8", "check_licence")
def exact_spelling_only(licence, allowed):
    """You compare the texts as they are. The same licence is written in many ways ("Apache 2.0",
    "Apache License, Version 2.0"): bring both to their words first.
    """
    choices = list(allowed)
    if licence in choices:
        return licence
    name = licence if _words(licence) else "no licence"
    raise ValueError(f"{name} is not on the list of allowed licences: {', '.join(choices)}")


@misconception("1.8", "check_licence")
def spelling_of_the_file(licence, allowed):
    """You give back the file's own spelling. The caller compares and stores it: give the entry of
    the list.
    """
    choices = list(allowed)
    for choice in choices:
        if _words(licence) and _words(licence) == _words(choice):
            return licence
    name = licence if _words(licence) else "no licence"
    raise ValueError(f"{name} is not on the list of allowed licences: {', '.join(choices)}")


@misconception("1.8", "check_licence")
def words_in_any_order(licence, allowed):
    """You compare sets of words. Their order says something: "2.0 Apache" is no licence that
    anybody knows, and a list is compared as easily as a set.
    """
    choices = list(allowed)
    for choice in choices:
        if _words(licence) and set(_words(licence)) == set(_words(choice)):
            return choice
    name = licence if _words(licence) else "no licence"
    raise ValueError(f"{name} is not on the list of allowed licences: {', '.join(choices)}")


@misconception("1.8", "check_licence")
def contained_as_text(licence, allowed):
    """You ask whether the text of an allowed licence occurs in it. "Apache-2.0 OR GPL-3.0" contains
    "Apache-2.0", and "apache 2.0" does not: compare all words of both.
    """
    for choice in allowed:
        if choice.lower() in licence.lower():
            return choice
    name = licence if _words(licence) else "no licence"
    raise ValueError(f"{name} is not on the list of allowed licences: {', '.join(allowed)}")
