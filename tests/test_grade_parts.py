"""The parts of grading, each alone: secrets, names, files, marks, the summary."""

import re

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
        check_folder(tmp_path, {"forward_pass"})


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
