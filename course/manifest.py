"""The chapters and their exercises, read from chapters/*/chapter.toml: the only list of them."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from course.paths import ROOT

# The map of the whole course; a chapter is open to learners once it has a chapter.toml.
SLUGS = {
    1: "environment",
    2: "loader",
    3: "quantizer",
    4: "forward_pass",
    5: "sampler",
    6: "batcher",
    7: "server",
    8: "monitoring",
    9: "kernels",
    10: "paged_cache",
    11: "offload",
    12: "scale_out",
    13: "adaptive",
}


class Unknown(ValueError):
    """A chapter or exercise that does not exist; the message says which do."""


@dataclass(frozen=True)
class Exercise:
    """One graded exercise, as chapter.toml describes it."""

    id: str
    title: str
    functions: tuple[str, ...]
    needs: tuple[str, ...]
    section: str
    points: int
    minutes: int
    difficulty: int
    hints: tuple[str, ...]


@dataclass(frozen=True)
class Chapter:
    """One chapter and its exercises in order."""

    number: int
    slug: str
    title: str
    summary: str
    modules: tuple[str, ...]
    hours: int
    difficulty: int
    exercises: tuple[Exercise, ...]

    @property
    def name(self) -> str:
        """The name of its folder and its notebook: 04_forward_pass."""
        return f"{self.number:02d}_{self.slug}"

    @property
    def folder(self) -> Path:
        """Where its README, manifest and notebook source are."""
        return ROOT / "chapters" / self.name

    @property
    def scenarios(self) -> str:
        """The module with the functions that its cases run beside the learner's code."""
        return f"tests.scenarios.{self.slug}"

    @property
    def points(self) -> int:
        """Points of all its exercises."""
        return sum(exercise.points for exercise in self.exercises)

    def exercise(self, exercise_id: str) -> Exercise:
        """The exercise of that id; Unknown when there is none."""
        for exercise in self.exercises:
            if exercise.id == exercise_id:
                return exercise
        known = ", ".join(exercise.id for exercise in self.exercises)
        raise Unknown(f"chapter {self.number} has no exercise {exercise_id}: it has {known}")

    def all_needs(self, exercise: Exercise) -> list[str]:
        """The ids of the exercises that this one calls, and of those that they call."""
        needs: list[str] = []
        for exercise_id in exercise.needs:
            needs += [*self.all_needs(self.exercise(exercise_id)), exercise_id]
        return list(dict.fromkeys(needs))


@cache
def chapters() -> tuple[Chapter, ...]:
    """All chapters that exist so far, in order."""
    return tuple(_read(path) for path in sorted((ROOT / "chapters").glob("*/chapter.toml")))


def find_chapter(number: int | str) -> Chapter:
    """The chapter of a number, given as 4, "4", "04" or "04_forward_pass"; Unknown otherwise."""
    match = re.fullmatch(r"0*([0-9]{1,3})(_\w*)?", str(number))
    if not match:
        instead = f"{_its_number(str(number))} (or 4 for the whole chapter)"
        raise Unknown(f"{_short(number)} is no chapter: {instead}")
    for chapter in chapters():
        if str(chapter.number) == match[1]:
            return chapter
    known = ", ".join(str(chapter.number) for chapter in chapters())
    raise Unknown(f"there is no chapter {match[1]} yet: there is {known}")


def find_exercise(exercise_id: str) -> tuple[Chapter, Exercise]:
    """The chapter and exercise of an id such as "4.2"; Unknown otherwise."""
    match = re.fullmatch(r"0*([0-9]{1,3})\.0*([0-9]{1,3})", str(exercise_id))
    if not match:
        raise Unknown(f"{_short(exercise_id)} is not an exercise: {_its_number(str(exercise_id))}")
    chapter = find_chapter(match[1])
    return chapter, chapter.exercise(f"{match[1]}.{match[2]}")


def _short(text: object) -> str:
    """What was typed, quoted, and cut where it has no end."""
    return repr(text) if len(str(text)) <= 40 else f"{str(text)[:40]!r}…"


def _its_number(typed: str) -> str:
    """What to write instead of it; a function's name tells which exercise is meant."""
    for exercise in (e for chapter in chapters() for e in chapter.exercises):
        if typed in exercise.functions:
            return f"write the number of its exercise, {exercise.id}"
    return "write its number, such as 4.2"


def _read(path: Path) -> Chapter:
    with path.open("rb") as file:
        table = tomllib.load(file)
    exercises = tuple(_exercise(entry) for entry in table.pop("exercise"))
    table["modules"] = tuple(table["modules"])
    return Chapter(**table, exercises=exercises)


def _exercise(entry: dict) -> Exercise:
    lists = {key: tuple(entry.pop(key)) for key in ("functions", "needs", "hints")}
    return Exercise(**entry, **lists)
