"""What a learner has done so far, in work/.progress.json: verdicts, hints read, answers shown."""

import json
import os
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path

from course import manifest
from course.lock import exclusive
from course.paths import WORK

FILE = ".progress.json"
KINDS = {
    "status": str,
    "points": int,
    "at": str,
    "sha256": str,
    "seed": int,
    "hints": int,
    "revealed": bool,
}


class Progress:
    """The record of one work folder. Every change is written at once, whole or not at all."""

    def __init__(self, folder: Path = WORK):
        self.path = folder / FILE
        self._told: set[str] = set()
        try:
            self.entries: dict[str, dict] = self._read()
        except ValueError:
            with self._lock():
                self.entries = self._read_or_set_aside()

    def get(self, exercise_id: str) -> dict:
        """What is known of an exercise; empty when nothing is."""
        return self.entries.get(exercise_id, {})

    def update(self, exercise_id: str, **facts) -> None:
        """Add facts to an exercise's entry and save. What another process added meanwhile stays."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock():
            self.entries = self._read_or_set_aside()
            self.entries[exercise_id] = {**self.get(exercise_id), **facts}
            self._write()

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
        return len(exercise.hints) - self.get(exercise.id).get("hints", 0)

    def _lock(self) -> AbstractContextManager[None]:
        return exclusive(
            self.path.with_suffix(".lock"), "Another check is writing your progress; waiting."
        )

    def _write(self) -> None:
        partial = self.path.with_suffix(f".{os.getpid()}.partial")
        try:
            partial.write_text(json.dumps(self.entries, indent=1) + "\n", encoding="utf-8")
            partial.replace(self.path)
        finally:
            partial.unlink(missing_ok=True)

    def _read(self) -> dict[str, dict]:
        """The entries that can be used. Raises ValueError when the file as a whole cannot."""
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except RecursionError as error:
            raise ValueError("nested without end") from error
        if not isinstance(entries, dict):
            raise ValueError("not an object")
        damaged = [key for key, entry in entries.items() if not _is_valid(entry)]
        for key in damaged:
            self._tell(f"{self.path.name}: the entry of {key[:20]} was damaged and is left out")
        return {k: _clamped(k, entry) for k, entry in entries.items() if k not in damaged}

    def _read_or_set_aside(self) -> dict[str, dict]:
        """Like _read; a file that cannot be used is kept under another name. Hold the lock."""
        try:
            return self._read()
        except ValueError:
            kept = self.path.with_suffix(".broken.json")
            number = 2
            while kept.exists():
                kept, number = self.path.with_suffix(f".broken-{number}.json"), number + 1
            self.path.replace(kept)  # the verdicts can be had again; nothing is thrown away
            self._tell(f"{self.path.name} was damaged; kept as {kept.name}, starting a new one")
            return {}

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            print(sentence)
        self._told.add(sentence)


def table(progress: Progress) -> str:
    """Every chapter and exercise: points, last verdict, when, hints read."""
    lines = []
    earned = total = 0
    for chapter in manifest.chapters():
        points = sum(progress.get(e.id).get("points", 0) for e in chapter.exercises)
        lines.append(
            f"{chapter.number:02d}  {chapter.title:48} {points:3} of {chapter.points} points"
        )
        lines += [_line(exercise, progress.get(exercise.id)) for exercise in chapter.exercises]
        lines.append("")
        earned, total = earned + points, total + chapter.points
    return "\n".join([*lines, f"{'Together':52} {earned:3} of {total} points"])


def _line(exercise: manifest.Exercise, entry: dict) -> str:
    status = entry.get("status", "not checked yet")
    when = entry.get("at", "").replace("T", " ")
    extras = []
    if entry.get("hints"):
        extras.append(f"{entry['hints']} of {len(exercise.hints)} hints read")
    if entry.get("revealed"):
        extras.append("solution shown")
    points = f"{entry.get('points', 0):3} of {exercise.points:2}"
    line = f"    {exercise.id:5} {exercise.title:42} {points}   {status:15} {when}"
    return f"{line}  {', '.join(extras)}".rstrip()


def _is_valid(entry: object) -> bool:
    """Whether every fact is of its kind; facts of a newer course may be of any."""
    return isinstance(entry, dict) and all(
        type(fact) is KINDS.get(name, type(fact)) for name, fact in entry.items()
    )


def _clamped(exercise_id: str, entry: dict) -> dict:
    """An entry whose counts are possible, though an exercise may have changed since."""
    try:
        _, exercise = manifest.find_exercise(exercise_id)
    except manifest.Unknown:
        return entry
    most = {"points": exercise.points, "hints": len(exercise.hints)}
    return entry | {k: min(max(entry[k], 0), most[k]) for k in entry.keys() & most.keys()}
