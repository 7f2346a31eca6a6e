"""The gradebook: long.csv has a row for each exercise, wide.csv one for each submission."""

import csv
import io
import itertools
import re

from course.grading.record import given_up
from course.manifest import Exercise

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
# What a spreadsheet would store as something else: 007, 1-2, 3.12., 1e5, 12/6/2026, 10:30, TRUE.
CHANGED = re.compile(r"(?i)(?:[\d.,:/'\s-]*\d[.,:/'\s-]*(?:e-?\d+|[ap]m|%)?|true|false)")
MONTHS = re.compile(
    r"(?i)(?=.*\d)[\d./\s-]*(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|"
    r"aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)[\d.,/\s-]*"
)
LONGEST = 8000  # characters of a cell; a spreadsheet loses what is beyond 32,767
NOT_HANDED_IN = "not handed in"
GRADER_ERROR = "grader error"  # in place of points: these are none
LONG = (
    *("submission", "chapter", "exercise", "status"),
    *("public_points", "public_max", "hidden_status", "hidden_points", "hidden_max"),
    *("misconception", "reason", "file", "sha256"),
)


def long_table(records: list[dict], exercises: list[Exercise]) -> str:
    """A row for each exercise of each submission."""
    rows = []
    for record in records:
        found = {e["exercise"]: e for e in record["exercises"]}
        for exercise in exercises:
            rows.append(_long_row(record, exercise, found.get(exercise.id)))
    return _table(LONG, rows)


def wide_table(records: list[dict], exercises: list[Exercise]) -> str:
    """A row for each submission: points in every exercise, public and hidden apart, and sums."""
    hidden = has_hidden(records)
    header = ["submission", "public_points", "public_max"]
    header += ["hidden_points", "hidden_max"] if hidden else []
    for exercise in exercises:
        header += [f"{exercise.id} ({exercise.points})"]
        header += [f"{exercise.id} hidden"] if hidden else []
    return _table([*header, "notes"], [_wide_row(r, exercises, hidden) for r in records])


def has_hidden(records: list[dict]) -> bool:
    """Whether anything was graded on hidden cases."""
    return any("hidden" in e for record in records for e in record["exercises"])


def _long_row(record: dict, exercise: Exercise, found: dict | None) -> list:
    found = found or {"status": absent(record), "points": 0}
    hidden = found.get("hidden", {})
    return [
        *(record["submission"], int(exercise.id.split(".")[0]), f"{exercise.id} {exercise.title}"),
        *(found["status"], _points(found), exercise.points),
        *(hidden.get("status", ""), hidden.get("points", ""), hidden.get("max_points", "")),
        *(found.get("misconception", ""), found.get("reason", "").split("\n")[0][:300]),
        *(found.get("file", ""), found.get("sha256", "")),
    ]


def _wide_row(record: dict, exercises: list[Exercise], hidden: bool) -> list:
    found = {e["exercise"]: e for e in record["exercises"]}
    entries = [found.get(e.id, {"status": absent(record), "points": 0}) for e in exercises]
    secret = [entry.get("hidden", {}) for entry in entries]
    failed = GRADER_ERROR in [entry["status"] for entry in entries]
    cells = [[_points(entry)] for entry in entries]
    sums = [sum(entry["points"] for entry in entries), sum(e.points for e in exercises)]
    if hidden:
        pairs = list(zip(secret, exercises, strict=True))
        sums.append(sum(h.get("points", 0) for h in secret))
        sums.append(sum(h.get("max_points", e.points) for h, e in pairs))
        cells = [[_points(e), _points(e, h)] for e, h in zip(entries, secret, strict=True)]
    if failed:  # then no sum is a grade
        sums[::2] = [GRADER_ERROR] * len(sums[::2])
    return [record["submission"], *sums, *itertools.chain(*cells), "; ".join(record["notes"])]


def absent(record: dict) -> str:
    """The status of an exercise that a record does not have."""
    return GRADER_ERROR if given_up(record) else NOT_HANDED_IN


def _points(entry: dict, part: dict | None = None) -> int | str:
    """Points of an exercise, or of its hidden part; none where grading itself failed."""
    if entry["status"] == GRADER_ERROR:
        return GRADER_ERROR
    return entry["points"] if part is None else part.get("points", 0)


def _table(header, rows) -> str:
    """CSV with every cell in quotes and a byte-order mark, without which Excel garbles names."""
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows([[_cell(value) for value in row] for row in rows])
    return "\ufeff" + stream.getvalue()


def _cell(value) -> str | int:
    """Text that a spreadsheet would run as a formula, or take for a number or a date, gets an
    apostrophe in front."""
    if not isinstance(value, str):
        return value
    text = "".join(c if c.isprintable() else " " for c in value[:LONGEST])
    runs = value.startswith(FORMULA) or text.lstrip().startswith(FORMULA)
    bare = text.strip()  # a `\s*` at either end would have to share the blanks with CHANGED's own
    changed = CHANGED.fullmatch(bare) or MONTHS.fullmatch(bare)
    return f"'{text}" if runs or changed else text
