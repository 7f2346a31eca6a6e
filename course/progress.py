"""What a learner has done so far, in work/.progress.json: verdicts, hints read, answers shown."""

import json
import os
from datetime import datetime
from pathlib import Path

from course import manifest
from course.paths import WORK

FILE = ".progress.json"


class Progress:
    """The record of one work folder. Every change is written at once, whole or not at all."""

    def __init__(self, folder: Path = WORK):
        self.path = folder / FILE
        self.entries: dict[str, dict] = self._read()

    def get(self, exercise_id: str) -> dict:
        """What is known of an exercise; empty when nothing is."""
        return self.entries.get(exercise_id, {})

    def update(self, exercise_id: str, **facts) -> None:
        """Add facts to an exercise's entry and save."""
        self.entries[exercise_id] = {**self.get(exercise_id), **facts}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(self.entries, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.path)

    def record(self, verdict, sha256: str) -> None:
        """Keep the last verdict of an exercise."""
        self.update(
            verdict.exercise.id,
            status=verdict.status,
            points=verdict.points,
            at=datetime.now().isoformat(timespec="seconds"),
            sha256=sha256,
            seed=verdict.seed,
        )

    def hints_left(self, exercise: manifest.Exercise) -> int:
        """How many hints of an exercise have not been read."""
        return max(len(exercise.hints) - self.get(exercise.id).get("hints", 0), 0)

    def _read(self) -> dict:
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
            return {key: dict(entry) for key, entry in entries.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError):
            kept = self.path.with_suffix(".broken.json")
            self.path.replace(kept)  # the verdicts can be had again; nothing is thrown away
            print(f"{self.path.name} was damaged; kept as {kept.name}, starting a new one")
            return {}


def table(progress: Progress) -> str:
    """Every chapter and exercise: points, last verdict, when, hints read."""
    lines = []
    earned = total = 0
    for chapter in manifest.chapters():
        points = sum(progress.get(e.id).get("points", 0) for e in chapter.exercises)
        lines.append(
            f"{chapter.number:02d}  {chapter.title:44} {points:3} of {chapter.points} points"
        )
        lines += [_line(exercise, progress.get(exercise.id)) for exercise in chapter.exercises]
        lines.append("")
        earned, total = earned + points, total + chapter.points
    return "\n".join([*lines, f"{'Together':48} {earned:3} of {total} points"])


def _line(exercise: manifest.Exercise, entry: dict) -> str:
    status = entry.get("status", "not checked yet")
    when = entry.get("at", "").replace("T", " ")
    extras = []
    if entry.get("hints"):
        extras.append(f"{entry['hints']} of {len(exercise.hints)} hints read")
    if entry.get("revealed"):
        extras.append("solution shown")
    points = f"{entry.get('points', 0):3} of {exercise.points:2}"
    line = f"    {exercise.id:5} {exercise.title:38} {points}   {status:15} {when}"
    return f"{line}  {', '.join(extras)}".rstrip()
