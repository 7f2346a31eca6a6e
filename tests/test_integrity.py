"""Manifests that a stranger wrote, on a disk that has limits of its own."""

import hashlib
import json
import os

import pytest

from course.model_files import is_complete, verify
from solutions.integrity import check_manifest

ENTRY = {"bytes": 1, "sha256": hashlib.sha256(b"1").hexdigest()}
NAMES = ("x" * 300, "a\0b", "a\ud800b", "here/below", "y" * 200 + "/" + "z" * 300)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "here").write_bytes(b"1")
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_disk_can_hold_is_missing(folder, name):
    assert check_manifest(folder, {"here": ENTRY, name: ENTRY}) == [f"missing: {name}"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("claimed", [1, -1])
def test_a_model_with_such_a_name_is_not_whole_and_no_crash(folder, name, claimed):
    entries = {"here": ENTRY, name: {**ENTRY, "bytes": claimed}}
    about = {"format": 1, "source": "here", "licence": "MIT", "files": entries}
    (folder / "manifest.json").write_text(json.dumps(about), encoding="utf-8")
    assert name in verify(folder)
    assert claimed == -1 or name in is_complete(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes among the files of this system")
def test_what_is_no_file_and_no_folder_is_not_opened(folder):
    """A pipe that nobody writes to would wait for ever."""
    os.mkfifo(folder / "pipe")
    found = check_manifest(folder, {"here": ENTRY, "pipe": {"sha256": ENTRY["sha256"]}})
    assert found == ["changed: pipe"]
