"""The gradebook: long.csv has a row for each exercise, wide.csv one for each submission."""

import csv
import io

from course.manifest import Exercise

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
NOT_HANDED_IN = "not handed in"
LONG = (
    *("submission", "chapter", "exercise", "title", "status"),
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
    found = found or {"status": NOT_HANDED_IN, "points": 0}
    hidden = found.get("hidden", {})
    return [
        *(record["submission"], exercise.id.split(".")[0], exercise.id, exercise.title),
        *(found["status"], found["points"], exercise.points),
        *(hidden.get("status", ""), hidden.get("points", ""), hidden.get("max_points", "")),
        *(found.get("misconception", ""), found.get("reason", "").split("\n")[0][:300]),
        *(found.get("file", ""), found.get("sha256", "")),
    ]


def _wide_row(record: dict, exercises: list[Exercise], hidden: bool) -> list:
    found = {e["exercise"]: e for e in record["exercises"]}
    cells = []
    for exercise in exercises:
        entry = found.get(exercise.id, {})
        cells.append(entry.get("points", 0))
        if hidden:
            cells.append(entry.get("hidden", {}).get("points", 0))
    public = [found[e.id]["points"] for e in exercises if e.id in found]
    row = [record["submission"], sum(public), sum(e.points for e in exercises)]
    if hidden:
        secret = [found.get(e.id, {}).get("hidden", {}) for e in exercises]
        row.append(sum(h.get("points", 0) for h in secret))
        pairs = zip(secret, exercises, strict=True)
        row.append(sum(h.get("max_points", e.points) for h, e in pairs))
    return [*row, *cells, "; ".join(record["notes"])]


def _table(header, rows) -> str:
    """CSV with every cell in quotes and a byte-order mark, without which Excel garbles names."""
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows([[_cell(value) for value in row] for row in rows])
    return "\ufeff" + stream.getvalue()


def _cell(value) -> str | int:
    """Text that a spreadsheet would run as a formula gets an apostrophe in front."""
    if not isinstance(value, str):
        return value
    text = "".join(c if c.isprintable() else " " for c in value)
    return f"'{text}" if value.startswith(FORMULA) or text.lstrip().startswith(FORMULA) else text
