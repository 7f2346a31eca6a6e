"""The gradebook's tables, made from records by hand: sums, odd text, and what is no grade."""

import csv
import io
import re
import subprocess
import sys

import pytest

from course.grading import record, tables
from course.manifest import find_chapter
from course.paths import ROOT

EXERCISES = list(find_chapter(4).exercises[:2])


def one(name: str, *entries: dict, notes: tuple = ()) -> dict:
    return {"submission": name, "notes": list(notes), "exercises": list(entries)}


def entry(exercise: str, status: str, points: int, hidden: int | None = None, **more) -> dict:
    found = {"exercise": exercise, "status": status, "points": points, **more}
    if hidden is not None:
        found["hidden"] = {"status": "passed", "points": hidden, "max_points": 8}
    return found


def rows(text: str) -> list[dict]:
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))


def test_public_and_hidden_points_stand_apart_and_add_up():
    made = [one("a", entry("4.1", "passed", 8, 0), entry("4.2", "passed", 14, 5)), one("b")]
    first, second = rows(tables.wide_table(made, EXERCISES))
    assert first == {
        **{"submission": "a", "public_points": "22", "public_max": "22", "hidden_points": "5"},
        **{"hidden_max": "16", "4.1 (8)": "8", "4.1 hidden": "0"},
        **{"4.2 (14)": "14", "4.2 hidden": "5", "notes": ""},
    }
    assert (second["public_points"], second["4.2 (14)"]) == ("0", "0")


def test_without_hidden_cases_there_are_no_columns_for_them():
    (row,) = rows(tables.wide_table([one("a", entry("4.1", "passed", 8))], EXERCISES))
    assert list(row) == [
        "submission",
        "public_points",
        "public_max",
        "4.1 (8)",
        "4.2 (14)",
        "notes",
    ]


def test_a_fault_of_the_grader_is_no_zero():
    made = [one("a", entry("4.1", "grader error", 0, 0), entry("4.2", "passed", 14, 5))]
    (wide,) = rows(tables.wide_table(made, EXERCISES))
    for column in ("public_points", "hidden_points", "4.1 (8)", "4.1 hidden"):
        assert wide[column] == "grader error"
    assert (wide["4.2 (14)"], wide["public_max"]) == ("14", "22")
    assert rows(tables.long_table(made, EXERCISES))[0]["public_points"] == "grader error"


def test_a_submission_that_was_given_up_was_handed_in():
    made = [one("a", notes=[f"{record.GIVEN_UP} the judge's process ended"])]
    (wide,) = rows(tables.wide_table(made, EXERCISES))
    assert (wide["public_points"], wide["4.1 (8)"]) == ("grader error", "grader error")
    for row in rows(tables.long_table(made, EXERCISES)):
        assert (row["status"], row["public_points"]) == ("grader error", "grader error")


def test_an_exercise_has_its_title_so_that_no_spreadsheet_takes_it_for_a_date():
    first, second = rows(tables.long_table([one("a")], EXERCISES))
    assert (first["chapter"], first["exercise"]) == ("4", "4.1 RMSNorm")
    assert second["exercise"] == "4.2 Rotary positions"


def test_tables_are_utf_8_with_a_mark_and_every_cell_in_quotes():
    made = [one('Zoë "the first", 名前\n', entry("4.1", "failed", 0, reason='a "b", c\nd'))]
    for text in (tables.wide_table(made, EXERCISES), tables.long_table(made, EXERCISES)):
        assert text.startswith("\ufeff")
        for line in text.removeprefix("\ufeff").rstrip("\r\n").split("\r\n"):
            assert re.fullmatch(r'"(?:[^"]|"")*"(?:,"(?:[^"]|"")*")*', line), line
    assert rows(tables.long_table(made, EXERCISES))[0]["reason"] == 'a "b", c'


@pytest.mark.parametrize("value", ["=1", "+1", "-1", "@x", "\t=1", "\r=1", " =1", "＝1", "\n-1"])
def test_a_formula_becomes_text(value):
    assert tables._cell(value).startswith("'")


CHANGED = ["007", "0012345", "12345678901234567", "4.1", "1,5", "1-2", "3/4", "12.6.2026", "1e5"]
CHANGED += ["10:30", "10:30 pm", "50%", "TRUE", "false", "Mar 5", "5 June", "1-Dec-26", " 7 "]


@pytest.mark.parametrize("value", CHANGED)
def test_what_a_spreadsheet_would_store_as_a_number_or_a_date_becomes_text(value):
    assert tables._cell(value) == f"'{value}"


PLAIN = ["a=1", "4.1 RMSNorm", "", "x-y", 7, 0, "007.ipynb", "v1.2", "May", "Mayer 2", "Jan", "e5"]
PLAIN += ["12 of 13", "4f0e", "true.py", "Marie-7"]


@pytest.mark.parametrize("value", PLAIN)
def test_what_a_spreadsheet_leaves_alone_stays_as_it_is(value):
    assert tables._cell(value) == value


HARD = [" " * 8000 + "1" + " " * 8000 + "x.zip", "1 " * 8000 + "x", "-" * 8000 + "1" * 8000 + "x"]
HARD += [" " * 8000 + "May 5" + " " * 8000 + "x", "1" + "." * 8000 + "e" + "1" * 8000 + "x"]


def test_no_text_keeps_an_expression_at_work_for_hours():
    """With work by the cube of the blanks, the first of these takes weeks; ended, it is a failure
    and not a hang."""
    code = f"""from course.grading import tables
for text in {HARD}:
    assert not tables.CHANGED.fullmatch(text) and not tables.MONTHS.fullmatch(text)
    tables._cell(text)"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


def test_a_cell_holds_no_more_than_a_spreadsheet_takes():
    (row,) = rows(tables.wide_table([one("a", notes=["x" * 600] * 60)], EXERCISES))
    assert row["notes"] == "; ".join(["x" * 600] * 60)[:8000]


def test_what_cannot_be_seen_or_turns_the_direction_of_reading_is_gone():
    assert tables._cell("a\x1b[2J\u202egnp.py") == "a [2J gnp.py"
