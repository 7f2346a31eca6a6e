"""grade.json, the record of one submission, from which everything else is made."""

import hashlib
import json
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from course import manifest
from course.grading.entries import Entry
from course.paths import ROOT

GIVEN_UP = "grader error:"  # how a note begins that a submission was not graded to its end
SCHEMA = "ai-engineering-course/grade/v1"
FOLDER = "submissions"
JUDGED_BY = ("course", "solutions", "chapters/*/chapter.toml", "tests/grading", "tests/oracles")
JUDGED_BY += ("tests/misconceptions", "tests/reference", "tests/scenarios")


def place(out: Path, entry: Entry) -> Path:
    """The folder of a submission's results."""
    return out / FOLDER / entry.folder_name


def read(folder: Path) -> dict | None:
    """The record in a folder; None where there is none that can be used, so it is made again."""
    try:
        record = json.loads((folder / "grade.json").read_text(encoding="utf-8"))
        whole = all({"exercise", "status", "points"} <= set(e) for e in record["exercises"])
        return record if record["schema"] == SCHEMA and whole else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def given_up(record: dict) -> str:
    """Why a submission was not graded to its end: the grader's fault; empty when it was."""
    return next((note for note in record["notes"] if note.startswith(GIVEN_UP)), "")


def grader_failed(record: dict) -> bool:
    """Whether grading itself failed on this submission, so that its points are no grade."""
    statuses = {exercise["status"] for exercise in record["exercises"]}
    return "grader error" in statuses or bool(given_up(record))


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n", errors="replace")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def make(entry: Entry, exercises: list[dict], told: dict) -> dict:
    """The record of a submission from those of its exercises and what was said of its files."""
    ordered = sorted(exercises, key=lambda e: tuple(map(int, e["exercise"].split("."))))
    return {
        "schema": SCHEMA,
        "submission": entry.id,
        "files": told.get("files", []),
        "notes": told.get("notes", []),
        "fingerprints": told.get("fingerprints", {}),
        **totals(ordered),
        "exercises": ordered,
    }


def totals(exercises: list[dict]) -> dict:
    """Points of these exercises, public and hidden apart."""
    hidden = [e["hidden"] for e in exercises if "hidden" in e]
    found = {
        "points": sum(e["points"] for e in exercises),
        "max_points": sum(e["max_points"] for e in exercises),
    }
    if hidden:
        found["hidden_points"] = sum(h["points"] for h in hidden)
        found["hidden_max_points"] = sum(h["max_points"] for h in hidden)
    return found


def dump(record: dict) -> str:
    """The text of grade.json."""
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"


def grader_fingerprint() -> str:
    """Changes when anything changes that a grade may depend on: the cases, the judge, torch."""
    digest = hashlib.sha256()
    for name in ("torch", "numpy"):
        digest.update(f"{name} {version(name)} ".encode())
    for path in sorted(_judging_files()):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _judging_files() -> Iterable[Path]:
    for name in JUDGED_BY:
        if "*" in name:
            yield from ROOT.glob(name)
        else:
            found = (ROOT / name).rglob("*")
            yield from (p for p in found if p.suffix in {".py", ".json", ".safetensors"})


def all_exercises(records: list[dict], only: set[str]) -> list[manifest.Exercise]:
    """The exercises that a class is graded on: all of each chapter that anyone handed in."""
    seen = {e["exercise"].split(".")[0] for record in records for e in record["exercises"]}
    return [
        exercise
        for chapter in manifest.chapters()
        if str(chapter.number) in seen
        for exercise in chapter.exercises
        if not only or exercise.id in only
    ]
