"""Which of a learner's files were judged as they are, and which exercises passed.

The record in work/.progress.json will not do here: a check in a notebook judges the cells as they
were run, which may never have been saved.
"""

import ast
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from course.manifest import Chapter, Exercise
from course.paths import ROOT
from course.progress import Progress
from course.submission import Submission

FOLLOWS = "~"
RECORD = "passed.json"  # in work/.build/: the exercises that passed, by the SHA-256 of their file


def judge(submission: Submission, folder: Path) -> list[str]:
    """The exercises that pass; and, with FOLLOWS before them, those that are written, but fail with
    another on which they stand: that one may be all that is wrong.

    In a process of its own: judging imports our own layers.
    """
    command = [sys.executable, "-m", "course", "check", str(submission.chapter.number)]
    environment = {**os.environ, "COURSE_WORK": str(folder), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, capture_output=True, env=environment, check=False)
    progress = Progress(folder)
    found = {exercise.id: progress.get(exercise.id) for exercise in submission.chapter.exercises}
    status = {
        id: entry.get("status")
        for id, entry in found.items()
        if entry.get("sha256") == submission.sha256
    }
    return sound(submission.chapter, status)


def sound(chapter: Chapter, status: Mapping[str, str | None]) -> list[str]:
    """What `judge` returns, of the status of each exercise."""
    right = [exercise.id for exercise in chapter.exercises if status.get(exercise.id) == "passed"]
    follows = [
        FOLLOWS + exercise.id
        for exercise in chapter.exercises
        if status.get(exercise.id) == "failed" and set(chapter.all_needs(exercise)) - set(right)
    ]
    return right + follows


def read(folder: Path) -> dict[str, list[str]]:
    """The record; empty when there is none, or none that can be used."""
    try:
        found = json.loads((folder / ".build" / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # it can be had again
    return {k: v for k, v in found.items() if isinstance(v, list)} if type(found) is dict else {}


def write(record: dict[str, list[str]], folder: Path) -> None:
    """Write the record, whole or not at all."""
    path = folder / ".build" / RECORD
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


# ---- Which exercises are in which modules ----


@functools.cache
def public_names(module: str) -> tuple[str, ...]:
    """What a solution module defines for others."""
    text = (ROOT / "solutions" / f"{module}.py").read_text(encoding="utf-8")
    names = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.append(node.targets[0].id)
    return tuple(name for name in names if not name.startswith("_"))


def exercises_in(chapter: Chapter, modules: set[str]) -> Iterator[Exercise]:
    """The exercises of which a function is in one of the modules."""
    names = {name for module in modules for name in public_names(module)}
    return (exercise for exercise in chapter.exercises if names & set(exercise.functions))
