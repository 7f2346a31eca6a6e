"""What it may cost to read a submission: names, bytes and notes, of zips and of folders."""

import os
import struct
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from course.grading import files
from course.grading.exercise import Rules, grade_exercise
from course.grading.files import read_files
from course.grading.hidden import Hidden
from course.judge import Court
from course.remote import Remote


def test_a_zip_with_a_long_list_of_names_is_left_out_before_it_is_read(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(90_000):
            archive.writestr(f"{number}", "")
    assert read_files(path) == ([], ["a.zip holds more than 10000 names: left out"])


def list_of_names(number: int, extra: bytes = b"") -> bytes:
    """A zip without files, and with a list of so many (APPNOTE.TXT, 4.3.12 and 4.3.16).

    Its last record says that the list begins at byte 0x06054b50: in bytes, that is how the record
    itself begins. Zips may have something before them, so readers take any such number.
    """
    place = int.from_bytes(b"PK\5\6", "little")
    sizes = (0, 0, 0, 1, len(extra), 0, 0, 0, 0, 0)  # of a name of one letter
    one = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, 0, 0, 0, 33, *sizes) + b"a" + extra
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, number * len(one), place, 0)
    return one * number + end


@pytest.mark.parametrize(("number", "extra"), [(100_000, b""), (100, bytes(65_532))])
def test_a_zip_that_hides_how_long_its_list_of_names_is_costs_nothing(
    tmp_path, monkeypatch, number, extra
):
    """Not one name of it becomes an object: a zip of 80 MiB would be a gigabyte of them."""
    (tmp_path / "a.zip").write_bytes(list_of_names(number, extra))
    made, info = [], zipfile.ZipInfo
    monkeypatch.setattr(zipfile, "ZipInfo", lambda *args: made.append(args) or info(*args))
    assert read_files(tmp_path / "a.zip")[1] == ["a.zip holds more than 10000 names: left out"]
    assert not made


def test_a_list_of_names_that_is_short_enough_in_bytes_can_be_too_long(tmp_path):
    (tmp_path / "a.zip").write_bytes(list_of_names(10_001))
    assert read_files(tmp_path / "a.zip")[1] == ["a.zip holds more than 10000 names: left out"]


def test_the_names_of_a_zip_within_a_zip_do_not_count(tmp_path):
    """It lies there as it is, with a list of its own; only what is to be read is counted."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("inner.zip", list_of_names(20_000))
        archive.writestr("a.py", "x = 1")
    sources, notes = read_files(tmp_path / "a.zip")
    assert [source.name for source in sources] == ["a.py"]
    assert notes == ["inner.zip is a zip within a zip: left out"]


def test_a_file_of_a_zip_counts_with_the_bytes_that_it_takes_to_read_it(tmp_path, monkeypatch):
    """Many names may lead to the same bytes, and these to next to nothing."""
    monkeypatch.setattr(files, "LARGEST", 1000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.py", "x = 1")
        archive.getinfo("a.py").compress_size = 2000
    assert read_files(tmp_path / "a.zip")[0] == []


def test_zips_are_read_up_to_a_number_of_bytes_together(tmp_path, monkeypatch):
    for name in ("a.zip", "b.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(f"{name}.py", "x" * 100)
    monkeypatch.setattr(files, "MOST_BYTES", (tmp_path / "a.zip").stat().st_size * 3 // 2)
    sources, notes = read_files(tmp_path)
    assert [source.name for source in sources] == ["a.zip.py"]
    assert notes == ["b.zip is left out: more than 0 MiB in zips"]


def test_a_folder_of_too_many_files_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_MEMBERS", 3)
    for name in ("a.py", "b.py", "c.ipynb", *(f"{n}.png" for n in range(9))):
        (tmp_path / name).write_bytes(b"x")
    assert len(read_files(tmp_path)[0]) == 3  # pictures do not count
    (tmp_path / "d.py").write_bytes(b"x")
    left_out = f"{tmp_path.name} is left out: more than 3 notebooks, .py files, zips"
    assert read_files(tmp_path) == ([], [left_out])


class Unread(set):
    """A set that is asked, and never gone through."""

    def __iter__(self):
        raise AssertionError("the work grows with every member")


def test_what_is_ours_is_told_without_going_through_all_clones():
    clones = Unread({PurePosixPath("."), PurePosixPath("a/b")})
    for name, ours in (("a/b/tests/x.py", True), ("tests/x.py", True), ("a/b/x.py", False)):
        assert files._ours(PurePosixPath(name), clones) is ours


@pytest.mark.parametrize("zipped", [False, True])
def test_a_name_of_very_many_parts_is_left_out(tmp_path, zipped):
    inner, deep = "a/" * 63 + "good.py", "a/" * 64 + "deep.py"
    if zipped:
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr(inner, "x")
            archive.writestr(deep, "x")
    else:
        (tmp_path / deep).parent.mkdir(parents=True)
        for name in (inner, deep):
            (tmp_path / name).write_text("x", encoding="utf-8")
    sources, notes = read_files(tmp_path / "a.zip" if zipped else tmp_path)
    assert [source.name for source in sources] == [inner]
    (note,) = notes
    assert note.startswith("a/a/a/")
    assert "left out" in note


def test_no_folder_is_entered_that_lies_deeper(tmp_path, monkeypatch):
    """A walk may call itself for every folder, and Python makes no thousand calls."""
    walk, entered = os.walk, []

    def followed(*args, **more):
        for step in walk(*args, **more):
            entered.append(len(Path(step[0]).relative_to(tmp_path).parts))
            yield step

    (tmp_path / ("a/" * 70)).mkdir(parents=True)
    monkeypatch.setattr(os, "walk", followed)
    read_files(tmp_path)
    assert entered == list(range(64))


def test_long_names_and_many_notes_are_shown_in_part(tmp_path):
    name = "b" * 20_000 + "/notebook.py"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, "x")
        for number in range(90):
            archive.writestr(f"{number:02}{'n' * 20_000}.zip", "")
    ((source,), notes) = read_files(tmp_path / "a.zip")
    assert source.name.startswith("b" * 100)
    assert source.name.endswith("b/notebook.py")
    assert len(source.name) == 255
    assert notes[49].startswith("49nnn")
    assert notes[50:] == ["and 40 more such notes"]
    assert max(map(len, notes)) <= 600


def test_what_a_damaged_zip_says_of_its_names_is_cut(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("n" * 20_000 + ".py", "x = 1")
    data = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(data.replace(b"x = 1", b"y = 1"))
    (note,) = read_files(tmp_path / "a.zip")[1]
    assert "cannot be read (Bad CRC-32 for file" in note
    assert len(note) == 600


class Counted:
    """Workers, of which each is written down."""

    def __init__(self):
        self.taken: list[Remote] = []

    def take(self) -> Remote:
        self.taken.append(Remote())
        return self.taken[-1]


def test_a_cell_that_ends_its_worker_costs_one_worker_whatever_is_judged_after_it(
    submit, solved, tmp_path
):
    """The hidden cases know of it, too, and leave it out."""
    submission = submit(solved, ex4_4="#| exercise 4.4\nimport os\nos._exit(3)")
    court = Court(Counted(), folder=tmp_path)
    for exercise in submission.chapter.exercises[:2]:
        rules = Rules(1, Hidden(b"0123456789abcdef"))
        record = grade_exercise(submission, exercise, "a.ipynb", rules, court)
        assert (record["status"], record["hidden"]["status"]) == ("passed", "passed")
    assert len(court.workers.taken) == 1 + 2 * 2  # and two for each exercise
