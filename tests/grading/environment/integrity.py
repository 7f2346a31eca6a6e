"""1.8 sha256_file, check_manifest, check_licence. Hashes are published ones, or hashlib's."""

import hashlib
import shutil
from contextlib import contextmanager
from pathlib import Path

from course.cases import Wrong, case, expect_equal, expect_raises
from tests.grading.loader.files import new_folder

# NIST's examples for SHA-256: the empty message, and "abc".
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
ALLOWED = ["Apache-2.0", "MIT", "BSD-3-Clause", "LGPL-2.1"]


@contextmanager
def folder_of(rng, files: dict[str, bytes]):
    """A folder with these files in it, and what a manifest says of them, without sizes."""
    folder = new_folder(rng)
    try:
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        yield str(folder), {name: {"sha256": digest} for name, digest in digests.items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@case("1.8")
def hash_of_published_messages(learner, rng):
    """The empty file and "abc" have the hashes that NIST publishes."""
    with folder_of(rng, {"empty": b"", "abc": b"abc"}) as (folder, _):
        expect_equal(learner.sha256_file(f"{folder}/empty"), EMPTY)
        expect_equal(learner.sha256_file(f"{folder}/abc"), ABC)


@case("1.8")
def hash_in_chunks(learner, rng):
    """The hash does not depend on the chunk, whether or not it divides the file."""
    data = rng.randbytes(rng.randrange(5000, 9000))
    with folder_of(rng, {"data": data}) as (folder, hashes):
        for chunk in (1, 7, 64, 4096, len(data), 10**6):
            got = learner.sha256_file(f"{folder}/data", chunk)
            expect_equal(got, hashes["data"]["sha256"], f"the hash in chunks of {chunk}")


@case("1.8")
def hash_refuses(learner, rng):
    """A chunk under 1 is a ValueError; what the system says of no file, or a folder, stays."""
    with folder_of(rng, {"data": b"12345"}) as (folder, _):
        for chunk in (0, -1):
            with expect_raises("ValueError"):
                learner.sha256_file(f"{folder}/data", chunk)
        with expect_raises("FileNotFoundError"):
            learner.sha256_file(f"{folder}/other")
        with expect_raises("IsADirectoryError", "PermissionError"):  # the latter on Windows
            learner.sha256_file(folder)


@case("1.8")
def hash_in_little_memory(learner, rng):
    """The memory needed is about one chunk, whatever the size of the file."""
    found = learner.scenario("sha256_file_with", 8_000_000, 100_000)
    expect_equal(found["digest"], hashlib.sha256(bytes(8_000_000)).hexdigest(), "the hash")
    if found["chunks"] > 4:  # some ways of reading hold two pieces and a buffer of their own
        raise Wrong(f"hashing a file of 80 chunks took the memory of {found['chunks']}")


@case("1.8")
def manifest_that_holds(learner, rng):
    """Nothing to report: also with upper-case digits, folders, and the manifest itself there."""
    files = {"a.json": b"1", "deep/er/b.bin": rng.randbytes(50), "c": b""}
    with folder_of(rng, {**files, "manifest.json": b"{}"}) as (folder, hashes):
        del hashes["manifest.json"]
        expect_equal(learner.check_manifest(folder, hashes), [])
        expect_equal(learner.check_manifest(f"{folder}/", hashes), [], "with a / at the end")
        upper = {k: {"sha256": v["sha256"].upper()} for k, v in hashes.items()}
        expect_equal(learner.check_manifest(folder, upper), [])
        sized = {k: {**v, "bytes": len(files[k])} for k, v in hashes.items()}
        expect_equal(learner.check_manifest(folder, sized), [], "with sizes")


@case("1.8")
def manifest_reports_everything(learner, rng):
    """Missing, changed and unlisted files are all in one sorted report."""
    files = {"a": b"1", "b": b"2", "deep/c": b"3", "d": b"4", "extra": b"5", "deep/extra": b"6"}
    with folder_of(rng, files) as (folder, hashes):
        listed = {k: v for k, v in hashes.items() if "extra" not in k}
        listed |= {"gone": {"sha256": EMPTY}, "deep/gone": {"sha256": ABC}}
        Path(folder, "b").write_bytes(b"3")
        Path(folder, "deep/c").write_bytes(b"33")
        expected = ["changed: b", "changed: deep/c", "missing: deep/gone", "missing: gone"]
        expected += ["unlisted: deep/extra", "unlisted: extra"]
        expect_equal(learner.check_manifest(folder, listed), expected)


@case("1.8")
def manifest_sees_hidden_files(learner, rng):
    """Files and folders whose names begin with a dot are files and folders."""
    files = {"a": b"1", ".b": b"2", ".deep/c": b"3", "deep/.d": b"4", ".listed": b"5"}
    with folder_of(rng, files) as (folder, hashes):
        listed = {name: hashes[name] for name in ("a", ".listed")}
        expected = ["unlisted: .b", "unlisted: .deep/c", "unlisted: deep/.d"]
        expect_equal(learner.check_manifest(folder, listed), expected)


@case("1.8")
def manifest_ignores_names(learner, rng):
    """What is to be ignored is not looked at: neither missing nor changed nor unlisted."""
    files = {"a": b"1", "manifest.json": b"{}", "deep/manifest.json": b"{}"}
    with folder_of(rng, files) as (folder, hashes):
        found = learner.check_manifest(folder, {"a": hashes["a"]})
        expect_equal(found, ["unlisted: deep/manifest.json"], "the report, ignoring manifest.json")
    with folder_of(rng, {"a": b"1", "notes": b"2", "manifest.json": b"3"}) as (folder, hashes):
        listed = {"a": hashes["a"], "notes": {"sha256": ABC}, "gone": {"sha256": ABC}}
        expected = ["unlisted: manifest.json"]
        expect_equal(learner.check_manifest(folder, listed, ["notes", "gone"]), expected)


@case("1.8")
def manifest_with_a_folder_for_a_file(learner, rng):
    """A folder where a file should be has changed; empty folders alone are no difference."""
    with folder_of(rng, {"a": b"1"}) as (folder, hashes):
        Path(folder, "b").mkdir()
        expect_equal(learner.check_manifest(folder, hashes), [])
        listed = {**hashes, "b": {"sha256": ABC}, "a/c": {"sha256": ABC}}
        expect_equal(learner.check_manifest(folder, listed), ["changed: b", "missing: a/c"])


@case("1.8")
def manifest_that_leads_out(learner, rng):
    """Names that leave the folder are refused, on every system: before anything is read."""
    with folder_of(rng, {"a": b"1"}) as (folder, hashes):
        for name in ("../a", "x/../../a", "/etc/passwd", "..\\a", "C:/a", "x/..", "..", "", "x\\a",
                     "ab:c"):  # fmt: skip
            with expect_raises("ValueError", naming=[] if "\\" in name else [name]):
                learner.check_manifest(folder, {**hashes, name: {"sha256": ABC}})
        found = learner.scenario("check_manifest_with", folder, {**hashes, "../b": {"sha256": ABC}})
        expect_equal(found["opened"], [], "the files opened before ../b was refused")
        for place in (f"{folder}/none", f"{folder}/a"):
            with expect_raises("FileNotFoundError"):
                learner.check_manifest(place, hashes)
        dotted = {**hashes, "x..y": {"sha256": ABC}}
        expect_equal(learner.check_manifest(folder, dotted), ["missing: x..y"])


@case("1.8")
def manifest_with_sizes(learner, rng):
    """A file of another size has changed, and is not opened; the others are."""
    files = {name: rng.randbytes(rng.randrange(20, 90)) for name in ("a", "deep/b", "c", "d")}
    with folder_of(rng, files) as (folder, hashes):
        listed = {k: {**v, "bytes": len(files[k])} for k, v in hashes.items()}
        listed["d"]["bytes"] = 0  # as if it should be empty
        Path(folder, "deep/b").write_bytes(files["deep/b"] + b"1")
        Path(folder, "c").write_bytes(bytes(255 - byte for byte in files["c"]))
        found = learner.scenario("check_manifest_with", folder, listed)
        expected = ["changed: c", "changed: d", "changed: deep/b"]
        expect_equal(found["lines"], expected, "the report")
        expect_equal(found["opened"], ["a", "c"], "the files that were opened")


@case("1.8")
def progress_adds_up(learner, rng):
    """progress is told of every piece: together the size of the file, or of all files read."""
    size = rng.randrange(5000, 9000)
    told = learner.scenario("sha256_file_tells", size, 1000)
    expect_equal(sum(told), size, "all that sha256_file told progress")
    pieces = [1000] * (size // 1000) + [size % 1000] * (size % 1000 > 0)
    expect_equal(told, pieces, "what sha256_file told progress of, piece by piece")
    files = {"a": rng.randbytes(size), "deep/b": b"1" * 500, "extra": b"2" * 77}
    with folder_of(rng, files) as (folder, hashes):
        del hashes["extra"]
        found = learner.scenario("check_manifest_with", folder, hashes)
        expect_equal(found["told"], size + 500, "all that check_manifest told progress")


@case("1.8")
def licence_in_any_spelling(learner, rng):
    """Spellings of one licence are that licence, and the list's own spelling comes back."""
    spellings = ["Apache-2.0", "apache 2.0", "Apache License 2.0", "Apache License, Version 2.0"]
    for spelling in (*spellings, "The Apache Licence, version 2.0", "«Apache»: (2.0) ©"):
        expect_equal(learner.check_licence(spelling, ALLOWED), "Apache-2.0", spelling)
    expect_equal(learner.check_licence("The MIT License", ALLOWED), "MIT")
    expect_equal(learner.check_licence("bsd_3_clause", ALLOWED), "BSD-3-Clause")


@case("1.8")
def licence_of_a_list_in_any_spelling(learner, rng):
    """The list may be spelt otherwise, too; of two entries that mean the same, the first."""
    allowed = ["Zlib", "The Apache License, Version 2.0", "apache 2.0", "GPL-2.0+", "GPL-2.0"]
    for spelling in ("Apache-2.0", "apache 2.0"):
        expect_equal(learner.check_licence(spelling, allowed), allowed[1], spelling)
    expect_equal(learner.check_licence("gpl 2.0", allowed), "GPL-2.0")


@case("1.8")
def licence_that_is_another(learner, rng):
    """A licence that only looks alike is refused, naming it and the list."""
    others = [
        "GPL-2.1",
        "LGPL-2.10",
        "Apache-2.0 OR GPL-3.0",
        "Apache",
        "MIT-0",
        "MIT+",
        "MITLicense",
        "MIT 许可证",
        "Apache2.0",
        "Apache-2-0",
        "2.0 Apache",
    ]
    for other in others:
        with expect_raises("ValueError", naming=[other, *ALLOWED]):
            learner.check_licence(other, ALLOWED)
    for empty in ("", "  ", "The License", " - "):
        for allowed in (ALLOWED, ["", "the License", *ALLOWED]):
            with expect_raises("ValueError", naming=["no licence", *ALLOWED]):
                learner.check_licence(empty, allowed)
