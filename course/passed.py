"""Which of a learner's files were judged as they are, and which exercises passed.

The record in work/.progress.json will not do here: a check in a notebook judges the cells as they
were run, which may never have been saved.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from course.paths import ROOT
from course.progress import Progress
from course.submission import Submission

RECORD = "passed.json"  # in work/.build/: the exercises that passed, by the SHA-256 of their file


def judge(submission: Submission, folder: Path) -> list[str]:
    """The exercises that pass. In a process of its own: judging imports our own layers."""
    command = [sys.executable, "-m", "course", "check", str(submission.chapter.number)]
    environment = {**os.environ, "COURSE_WORK": str(folder), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, capture_output=True, env=environment, check=False)
    progress = Progress(folder)
    entries = {exercise.id: progress.get(exercise.id) for exercise in submission.chapter.exercises}
    return [
        id
        for id, entry in entries.items()
        if entry.get("status") == "passed" and entry.get("sha256") == submission.sha256
    ]


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
