"""What is known of mutants: those named by hand, and what became of the others in earlier runs."""

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from course.manifest import SLUGS, Chapter
from course.mutant_trial import Result
from course.mutate import Mutant, mutated_source
from course.paths import ROOT

NAMED = ROOT / "tests" / "mutants" / "equivalent.toml"
TABLE = ROOT / "tests" / "mutants" / "README.md"
RESULTS = ROOT / "benchmarks" / "results" / "mutants"
JUDGES = ("cases", "trial", "runner", "wire")  # a change to them asks again
WHY = {"equivalent": "does the same", "not promised": "differs where no docstring says how"}


class Unnamed(ValueError):
    """The list of named mutants cannot be used; the message says where and why."""


@dataclass(frozen=True)
class Named:
    """A person's word on mutants: those of one function that change one text to another."""

    kind: str  # of WHY
    exercise: str
    function: str
    was: str
    becomes: str
    why: str

    def fits(self, mutant: Mutant) -> bool:
        """Whether it speaks of this mutant."""
        mine = (self.exercise, self.function, self.was, self.becomes)
        return mine == (mutant.exercise, mutant.function, mutant.was, mutant.becomes)


def read_named(path: Path = NAMED) -> list[Named]:
    """The mutants named by hand. Errors: Unnamed."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    except tomllib.TOMLDecodeError as problem:
        raise Unnamed(f"{path.name} is not TOML: {problem}") from problem
    found = []
    for number, entry in enumerate(entries, 1):
        texts = [value for value in entry.values() if isinstance(value, str) and value.strip()]
        if set(entry) != set(Named.__annotations__) or len(texts) < len(entry):
            wanted = ", ".join(Named.__annotations__)
            raise Unnamed(f"{path.name}: mutant {number} needs {wanted}, all of them texts")
        if entry["kind"] not in WHY:
            raise Unnamed(f"{path.name}: mutant {number}: kind must be one of {', '.join(WHY)}")
        found.append(Named(**entry))
    return found


def names_of(mutants: Iterable[Mutant], named: list[Named]) -> dict[str, Named]:
    """By id, what is said of a mutant."""
    return {m.id: n for m in mutants for n in named if n.fits(m)}


class Record:
    """Results of a chapter's mutants, a JSON line each: a run goes on where it stopped."""

    def __init__(self, chapter: Chapter, folder: Path = RESULTS):
        self.chapter, self.path = chapter, folder / f"{chapter.name}.jsonl"
        self.judges = _digest(_judging(chapter))
        self.lines = {line["id"]: line for line in _lines(self.path)}

    def key(self, mutant: Mutant) -> str:
        """Of the mutant's whole code and of all that judges it."""
        source = mutated_source(self.chapter, mutant)
        also = "".join(mutant.also)
        return hashlib.sha256(f"{self.judges}{also}\0{source}".encode()).hexdigest()[:16]

    def killer(self, mutant: Mutant) -> str | None:
        """What killed it, "" when it survived; None when that is not known of this very code."""
        line = self.lines.get(mutant.id)
        return line["killer"] if line and line["key"] == self.key(mutant) else None

    def first(self) -> dict[str, str]:
        """By id, the case that killed a mutant of that name before: worth asking first."""
        return {key: line["killer"] for key, line in self.lines.items()}

    def add(self, mutant: Mutant, result: Result) -> None:
        """Write down one result, at once."""
        line = {
            "id": mutant.id,
            "key": self.key(mutant),
            "killer": result.killer,
            "reason": result.reason,
            "seconds": round(result.seconds, 2),
            "mutant": f"{mutant.path}:{mutant.line} {mutant.was} -> {mutant.becomes}",
        }
        self.lines[mutant.id] = line
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _lines(path: Path) -> Iterable[dict]:
    """The whole lines; the last may be half of one."""
    if path.exists():
        for text in path.read_text(encoding="utf-8").split("\n"):
            try:
                yield json.loads(text)
            except ValueError:
                continue


def _judging(chapter: Chapter) -> list[Path]:
    """The files that decide about a chapter's mutants."""
    tests = ROOT / "tests"
    found = [*(tests / "grading" / chapter.slug).glob("**/*.py")]
    found += tests.glob(f"grading/{chapter.slug}.py")
    others = tuple(slug for slug in SLUGS.values() if slug != chapter.slug)
    found += [p for p in tests.glob("scenarios/*.py") if not p.name.startswith(others)]
    found += [ROOT / "course" / f"{name}.py" for name in JUDGES]
    return sorted(found)


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class Score:
    """How many mutants there are, and what became of them."""

    mutants: int = 0
    killed: int = 0
    equivalent: int = 0
    not_promised: int = 0

    @property
    def surviving(self) -> int:
        """Those that no case kills and that are not equivalent; those not promised count too."""
        return self.mutants - self.killed - self.equivalent

    @property
    def share(self) -> float:
        """The mutation score, 0 to 1: killed of those that could be."""
        base = self.mutants - self.equivalent
        return self.killed / base if base else 1.0


def score_of(killers: dict[str, str], names: dict[str, Named]) -> Score:
    """killers: by id, what killed a mutant, "" where it survived."""
    said = Counter(
        names[key].kind for key, killer in killers.items() if not killer and key in names
    )
    killed = sum(map(bool, killers.values()))
    return Score(len(killers), killed, said["equivalent"], said["not promised"])
