"""The learner's record: what is damaged costs no more than itself, and nothing is overwritten."""

import subprocess
import sys

import pytest

from course.paths import ROOT
from course.progress import FILE, Progress, table


@pytest.fixture
def record(tmp_path):
    """Write the file as it may be found, and read it."""

    def write(text: str) -> Progress:
        (tmp_path / FILE).write_text(text, encoding="utf-8")
        return Progress(tmp_path)

    return write


@pytest.mark.parametrize(
    "entry",
    [
        '{"points": "x"}',
        '{"points": null}',
        '{"points": true}',
        '{"points": 8.0}',
        '{"at": 5}',
        '{"hints": "a"}',
        '{"status": ["a"]}',
        '{"status": null}',
        '{"revealed": 1}',
        "3",
        "null",
        "[]",
    ],
)
def test_a_damaged_entry_is_left_out_and_the_others_stay(record, chapter, capsys, entry):
    progress = record(f'{{"4.1": {entry}, "4.2": {{"status": "passed", "points": 14}}}}')
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1
    assert "the entry of 4.1 was damaged" in said[0]
    assert progress.get("4.1") == {}
    assert "14 of 100" in table(progress)
    assert progress.hints_left(chapter.exercise("4.1")) == 3
    progress.update("4.1", hints=1)
    assert capsys.readouterr().out == ""  # said once
    assert Progress(progress.path.parent).entries.keys() == {"4.1", "4.2"}


@pytest.mark.parametrize(
    ("found", "shown"), [(800, "  8 of  8"), (-3, "  0 of  8"), (10**30, "  8 of  8")]
)
def test_points_are_never_more_than_there_are(record, found, shown):
    text = table(record(f'{{"4.1": {{"points": {found}}}}}'))
    assert shown in text
    assert "800 of" not in text


@pytest.mark.parametrize("found", [-1, 0, 3, 99])
def test_hints_are_counted_within_their_number(record, chapter, found):
    progress = record(f'{{"4.1": {{"hints": {found}}}}}')
    assert progress.hints_left(chapter.exercise("4.1")) == (3 if found < 1 else 0)


def test_what_another_version_wrote_is_kept(record):
    progress = record('{"4.1": {"streak": [1]}, "14.9": {"points": 70}, "x": {"status": "y"}}')
    progress.update("4.1", hints=1)
    again = Progress(progress.path.parent)
    assert again.get("4.1") == {"streak": [1], "hints": 1}
    assert again.get("14.9") == {"points": 70}
    assert again.get("x") == {"status": "y"}


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, '{"4.1": {"points": 1e}}'])
def test_a_file_that_cannot_be_read_is_kept_aside(record, tmp_path, capsys, text):
    assert record(text).entries == {}
    assert "kept as .progress.broken.json" in capsys.readouterr().out
    assert (tmp_path / ".progress.broken.json").read_text(encoding="utf-8") == text


def test_a_file_that_is_not_utf_8_is_kept_aside(tmp_path):
    (tmp_path / FILE).write_bytes(b'{"4.1": "\xff"}')
    assert Progress(tmp_path).entries == {}
    assert (tmp_path / ".progress.broken.json").read_bytes() == b'{"4.1": "\xff"}'


def test_a_second_damage_does_not_overwrite_the_first(record, tmp_path, capsys):
    for text in ("first", "second", "third"):
        record(text)
    kept = ["", "-2", "-3"]
    texts = [(tmp_path / f".progress.broken{k}.json").read_text(encoding="utf-8") for k in kept]
    assert texts == ["first", "second", "third"]


def test_damage_while_the_record_is_open_is_kept_aside_too(record, tmp_path, capsys):
    progress = record('{"4.2": {"hints": 1}}')
    (tmp_path / FILE).write_text("half", encoding="utf-8")
    progress.update("4.1", hints=1)
    assert Progress(tmp_path).entries == {"4.1": {"hints": 1}}
    assert (tmp_path / ".progress.broken.json").read_text(encoding="utf-8") == "half"


def test_two_records_of_one_folder_do_not_lose_each_other_s_entries(tmp_path):
    one, two = Progress(tmp_path), Progress(tmp_path)
    one.update("4.1", status="passed")
    two.update("4.2", status="failed")
    one.update("4.1", hints=2)
    two.update("4.1", revealed=True)
    assert Progress(tmp_path).entries == {
        "4.1": {"status": "passed", "hints": 2, "revealed": True},
        "4.2": {"status": "failed"},
    }


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    code = (
        "import sys; from pathlib import Path; from course.progress import Progress\n"
        "progress = Progress(Path(sys.argv[1]))\n"
        "for n in range(30): progress.update(f'{sys.argv[2]}.{n}', hints=n)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    writers = [subprocess.Popen([*command, str(n)], cwd=ROOT) for n in (51, 52, 53)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    expected = {f"{n}.{m}": {"hints": m} for n in (51, 52, 53) for m in range(30)}
    assert Progress(tmp_path).entries == expected
    assert not list(tmp_path.glob("*.partial"))


def test_a_write_that_fails_leaves_the_record_and_no_litter(record, tmp_path, monkeypatch):
    progress = record('{"4.1": {"hints": 1}}')
    monkeypatch.setattr("json.dumps", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        progress.update("4.1", hints=2)
    assert (tmp_path / FILE).read_text(encoding="utf-8") == '{"4.1": {"hints": 1}}'
    assert not list(tmp_path.glob("*.partial"))
