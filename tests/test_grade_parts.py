"""The parts of grading, each alone: secrets, names, files, marks, the summary."""

import os
import re
import zipfile
from pathlib import Path

import pytest

from course import manifest
from course.grading.entries import Entry, find_entries, same_names
from course.grading.files import Source, read_files
from course.grading.hidden import Hidden, SecretError, check_folder, read_secret
from course.grading.recognise import recognise
from course.grading.summary import summary
from tests import classroom
from tests.classroom import IMPORTS, RMS_NORM


def test_a_secret_gives_each_submission_its_own_inputs():
    hidden = Hidden(b"0123456789abcdef")
    # Computed with OpenSSL: printf '4.1\0a.ipynb' | openssl dgst -sha256 -hmac 0123456789abcdef
    assert hidden.seed("4.1", "a.ipynb") == 0x1483B60F2288
    seeds = {hidden.seed(e, s) for e in ("4.1", "4.2") for s in ("a", "b")}
    assert len(seeds) == 4
    assert Hidden(b"another secret..").seed("4.1", "a") not in seeds


def test_a_secret_is_read_without_its_newline_and_must_be_long(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"0123456789abcdef\r\n")
    assert read_secret(path) == b"0123456789abcdef"
    path.write_bytes(b"0123456789abcde\n\n")
    with pytest.raises(SecretError, match="15 bytes"):
        read_secret(path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("nothing.py", "x = 1", "named after no chapter"),
        ("forward_pass.py", "x = 1", "holds no function marked"),
        ("forward_pass.py", "import no_such_module", "does not run: ModuleNotFoundError"),
    ],
)
def test_a_fault_in_hidden_cases_is_found_before_grading(tmp_path, name, text, words):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(SecretError, match=words):
        check_folder(tmp_path, [manifest.find_chapter(4)])


def test_names_that_no_system_can_have_get_others(tmp_path):
    names = [
        "a.ipynb",
        "a/b"[:1] + ":b.py",
        "CON.py",
        "x" * 150 + ".py",
        "名前.py",
        "a?.py",
        "a*.py",
    ]
    found = [Entry(tmp_path / name).folder_name for name in names]
    assert found[0] == "a.ipynb"
    assert found[4] == "名前.py"
    assert len(set(found)) == len(names)
    for name in found:
        assert re.fullmatch(r"[\w.\-]{1,100}", name)
        assert not re.match(r"(?i)(con|nul)(\.|$)", name)


@pytest.mark.parametrize(
    "name", ["a\x1b[2J.py", "a\u202eyp.b.py", "a\nb.py", "bad\udcff.py", "_a.py"]
)
def test_a_name_that_misleads_is_shown_without_it_and_told_by_a_hash(name):
    other = "bad\udcfe.py" if "\udcff" in name else name.replace("a", "b")
    first, second = Entry(Path(name)), Entry(Path(other))
    assert first.id.isprintable()
    assert first.id.encode()  # it can be written
    assert first.id != second.id
    assert re.fullmatch(r"_[\w.\-]+-[0-9a-f]{12}", first.folder_name)
    assert first.folder_name != second.folder_name


def test_no_two_submissions_have_one_name_or_one_folder(tmp_path):
    """One accent in two spellings; names that differ in case, for a gradebook on such a disk."""
    names = ["Zo\u00eb.py", "Zoe\u0308.py", "Ann.py", "ann.py", "ANN.py", "\u00dcber.py"]
    for name in names:
        (tmp_path / name).write_text("x", encoding="utf-8")
    entries, _ = find_entries(tmp_path)
    there = {path.name for path in tmp_path.iterdir()}  # some systems keep fewer
    assert len({entry.id for entry in entries}) == len(there)
    assert len({entry.folder_name.casefold() for entry in entries}) == len(there)
    plain = next(e for e in entries if e.path.name == "Zo\u00eb.py")
    assert plain.id == "Zo\u00eb.py"  # whoever is alone with a name, or has it as it is, keeps it


def test_nobody_can_take_the_folder_of_another(tmp_path):
    """A name that is the folder name of another submission gets a folder of its own."""
    victim = Entry(tmp_path / "a?.py")
    thief = Entry(tmp_path / victim.folder_name)
    assert thief.folder_name.casefold() != victim.folder_name.casefold()


def test_a_gradebook_inside_a_submission_is_refused(tmp_path):
    (tmp_path / "anna").mkdir()
    with pytest.raises(ValueError, match="inside the submission anna"):
        find_entries(tmp_path, tmp_path / "anna" / "grades")


def test_entries_that_may_be_one_persons_are_grouped(tmp_path):
    entries = [Entry(tmp_path / name) for name in ("Ann.py", "ann.zip", "ann", "bob.py", "v1.2")]
    (tmp_path / "ann").mkdir()
    assert same_names(entries) == [["Ann.py", "ann.zip", "ann"]]


def test_hidden_files_and_the_gradebook_itself_are_no_submissions(tmp_path):
    for name in (".DS_Store", "a.py", "grades", "x.docx"):
        (tmp_path / name).mkdir() if name == "grades" else (tmp_path / name).write_text("x")
    entries, ignored = find_entries(tmp_path, tmp_path / "grades")
    assert [entry.id for entry in entries] == ["a.py"]
    assert ignored == ["x.docx: neither a notebook nor a .py file, a folder or a zip"]


def test_files_come_with_their_place_and_caches_do_not(tmp_path):
    for name in ("b/x.py", "a.ipynb", "__pycache__/y.py", ".ipynb_checkpoints/a.ipynb", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1", encoding="utf-8")
    sources, notes = read_files(tmp_path)
    assert [source.name for source in sources] == ["a.ipynb", "b/x.py"]
    assert notes == []


CLONE = ("course/__main__.py", "course/x.py", "chapters/04/notebook.py", "tests/test_x.py")
CLONE += ("solutions/x.py", "notebooks/04.ipynb", "work/04.ipynb", "tests_of_mine/y.py", "z.py")


@pytest.mark.parametrize("top", ["", "course-main/"])
@pytest.mark.parametrize("zipped", [False, True])
def test_of_a_whole_clone_only_what_is_the_learners_is_read(tmp_path, top, zipped):
    path = tmp_path / ("a.zip" if zipped else "a")
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            for name in (top, top + "course/") if top else ():
                archive.mkdir(name)
            for name in CLONE:
                archive.writestr(top + name, "x")
    else:
        for name in CLONE:
            (path / top / name).parent.mkdir(parents=True, exist_ok=True)
            (path / top / name).write_text("x", encoding="utf-8")
    sources, notes = read_files(path)
    own = {"notebooks/04.ipynb", "work/04.ipynb", "tests_of_mine/y.py", "z.py"}
    assert {source.name for source in sources} == {top + name for name in own}
    assert notes == []


def test_files_without_a_mark_are_told_in_one_note():
    (note,) = handed(*["x = 1"] * 9).notes
    assert note.startswith("9 files have no cell that begins with `#| exercise N.M`: not judged")
    assert note.endswith("0.py, 1.py, 2.py, 3.py, 4.py, …")


def test_a_folder_that_nobody_may_read_is_named(tmp_path, monkeypatch):
    def walk(folder, onerror):
        onerror(PermissionError(13, "Permission denied", str(folder / "closed")))
        return iter(())

    monkeypatch.setattr(os, "walk", walk)
    assert read_files(tmp_path)[1] == ["the folder closed cannot be read (Permission denied)"]


@pytest.mark.parametrize("kind", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_damage_in_any_compression_costs_one_file(tmp_path, kind):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("a.py", "x" * 5000)
        archive.writestr("b.py", "good")
    data = bytearray(path.read_bytes())
    data[38:50] = b"\xff" * 12
    path.write_bytes(bytes(data))
    sources, notes = read_files(path)
    assert [source.name for source in sources] == ["b.py"]
    assert notes[0].startswith("a.py cannot be read")


def test_two_files_of_one_name_in_a_zip_are_two(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.py", classroom.script(IMPORTS, RMS_NORM))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.py", classroom.script(IMPORTS, RMS_NORM, "#| exercise 4.2\nx = 1"))
    found = recognise(read_files(path)[0])
    assert "a.py and a.py both answer chapter 4" in next(iter(found.problems.values()))


def test_very_much_code_is_refused_before_it_takes_the_judges_time():
    found = handed(classroom.script(*["#| provided\nx = 1"] * 501, RMS_NORM))
    assert "500 are the most" in found.notes[0]
    long = "#| provided\n" + "x = 1\n" * 30_000
    assert "400000 in 500 are the most" in handed(classroom.script(*[long] * 3, RMS_NORM)).notes[0]


def test_a_cell_too_long_to_be_parsed_is_begun():
    """18 MB of sums would take a parser gigabytes; whether that is the stub need not be asked."""
    found = handed(classroom.script(IMPORTS, "#| exercise 4.4\nx = 1" + "+1" * 9_000_000))
    assert [chapter.number for chapter in found.answers] == [4]


def handed(*texts: str, suffix: str = ".py"):
    return recognise([Source(f"{n}{suffix}", t.encode()) for n, t in enumerate(texts)])


def test_one_file_may_answer_two_chapters():
    found = handed(classroom.script(IMPORTS, RMS_NORM, "#| exercise 1.4\nx = 1"))
    assert [chapter.number for chapter in found.answers] == [1, 4]
    for chapter, submission in found.answers.items():
        ids = {cell.exercise for cell in submission.cells} - {None}
        assert {i.split(".")[0] for i in ids} == {str(chapter.number)}


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("#| exercise 4.77\nx = 1", "there is no exercise 4.77"),
        ("#| exercise 99.1\nx = 1", "there is no chapter 99"),
        ("x = 1", "has no cell that begins with `#| exercise N.M`"),
        ("# exercise 4.1\nx = 1", "make that `#| exercise 4.1`"),
        ("", "is empty"),
    ],
)
def test_what_cannot_be_recognised_is_noted(text, note):
    assert any(note in said for said in handed(text).notes)


def test_of_many_files_for_one_chapter_the_first_are_named():
    texts = [classroom.script(IMPORTS, f"{RMS_NORM}\nx = {number}") for number in range(9)]
    (problem,) = handed(*texts).problems.values()
    named = "0.py and 1.py and 2.py and 3.py and 4.py and …"
    assert problem == f"{named} all answer chapter 4: hand in the one that counts"


def test_copies_of_one_file_are_one():
    text = classroom.script(IMPORTS, RMS_NORM)
    found = handed(text, text + "\n\n")
    assert [s.path.name for s in found.answers.values()] == ["0.py"]
    assert not found.problems


def test_the_summary_of_a_class_counts_tenths_and_twins():
    exercises = list(manifest.find_chapter(4).exercises[:2])
    records = [
        {
            **{"submission": name, "notes": [], "fingerprints": {"4": print_}},
            "exercises": [
                {"exercise": "4.1", "status": s, "points": p, "max_points": 8, "reason": ""}
            ],
        }
        for name, print_, s, p in (
            ("a", "x", "passed", 8),
            ("b", "x", "passed", 8),
            ("c", "y", "failed", 0),
        )
    ]
    text = summary(records, exercises, [], ["z.doc: no"], "plain: nothing")
    assert "| 4.1 RMSNorm | 2 | 1 | 0 |" in text
    assert "| 4.2 Rotary positions | 0 | 0 | 3 |" in text
    assert "identical answers in chapter 4: a, b" in text
    assert re.search(r"^ 30 to < 40 % +2 #+$", text, re.MULTILINE)  # 8 of 22
    assert re.search(r"^  0 to < 10 % +1 #+$", text, re.MULTILINE)
    assert "not graded: z.doc: no" in text


def test_the_summary_is_no_place_for_markup_and_control_characters():
    odd = "</table><img src=x> [a](http://b) ```\x1b[2J\u202e"
    records = [{"submission": odd, "notes": [odd], "exercises": [], "fingerprints": {}}]
    text = summary(records, [], [], [odd], "plain: nothing")
    before, _, after = text.partition("## For a person's eye\n\n")
    assert "<img" not in before
    fence = re.match(r"(`{4,})text\n", after)[1]
    assert after.endswith(f"\n{fence}\n")
    assert after.count(f"\n{fence}\n") == 1
    assert not set("\x1b\u202e") & set(text)
