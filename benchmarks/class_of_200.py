"""200 submissions whose every score is known in advance, graded on two cores.

`make bench ARGS=class_of_200` makes them, grades them with `python -m course grade --jobs 2`, says
how long that took, and compares each score with the known one; the exit code is 1 when one differs.

- right: the solved notebooks, and the other styles of tests/styles/, in every shape a file can have
- wrong: every misconception of tests/misconceptions/, several to a submission, one an exercise
- mixed: exercises that are right, wrong, not attempted, missing, and broken
- hostile: attacks of tests/adversaries.py, as many as there is room for, each in a notebook that is
  right otherwise; tests/test_grade_adversarial.py makes all of them

A score is known from what was put in: an exercise that nothing was done to has all its points, one
with a misconception in it none. Where a misconception lies below an exercise that uses it, whether
that one still passes is found by running the cases in this process, with no grader around.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks import kit
from course import cli, manifest, misconceptions, notebooks
from course.cases import cases_of
from course.grade import SEED
from course.likely import _replace
from course.manifest import Chapter
from course.paths import ROOT
from course.runner import Runner
from course.trial import Local, run_cases
from tests import adversaries
from tests.style_notebooks import in_style
from tests.wrong_notebooks import with_wrong

SIZE = 200
LIMIT = 15 * 60  # seconds on two cores


@dataclass
class Made:
    """One submission: its files, and the points that it must get."""

    name: str
    files: dict[str, str]
    points: dict[str, int] = field(default_factory=dict)
    shape: str = "file"  # or "folder", or "zip"


def main() -> int:
    """Make, grade, compare; the exit code."""
    args = _parser().parse_args()
    torch.set_num_threads(1)
    folder = args.keep or Path(tempfile.mkdtemp(prefix="course-class-"))
    try:
        began = time.perf_counter()
        made = write_class(folder / "submissions", args)
        print(f"made {len(made)} submissions in {time.perf_counter() - began:.0f} s", flush=True)
        began = time.perf_counter()
        command = ["grade", str(folder / "submissions"), str(folder / "grades")]
        code = cli.main([*command, "--jobs", args.jobs, "--seconds", args.seconds])
        return report(made, folder / "grades", code, time.perf_counter() - began)
    finally:
        if not args.keep:
            shutil.rmtree(folder)


def report(made: list[Made], out: Path, code: int, seconds: float) -> int:
    """Say how it went, and keep it in results/; the exit code."""
    wrong, scores = list(differences(made, out)), sum(len(one.points) for one in made)
    kit.say_machine()
    print(f"graded {len(made)} submissions, {scores} scores, in {seconds:.0f} s (limit {LIMIT} s)")
    print(f"{scores - len(wrong)} scores as known in advance, {len(wrong)} not", *wrong, sep="\n")
    figures = {"submissions": len(made), "scores": scores, "seconds": seconds, "wrong": wrong}
    kit.save("class_of_200", figures)
    return 1 if code or wrong or seconds > LIMIT else 0


def differences(made: list[Made], out: Path) -> Iterator[str]:
    """Every score that is not as known."""
    found = {}
    for path in (out / "submissions").glob("*/grade.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        found[record["submission"]] = {e["exercise"]: e for e in record["exercises"]}
    for one in made:
        for exercise, points in one.points.items():
            got = found.get(one.name, {}).get(exercise, {"points": None, "reason": "not graded"})
            if got["points"] != points:
                reason = got["reason"].split("\n")[-1][:200]
                yield f"{one.name} {exercise}: {got['points']} instead of {points} ({reason})"


def write_class(folder: Path, args: argparse.Namespace) -> list[Made]:
    """The submissions of a class, written into a folder that is not there yet."""
    folder.mkdir(parents=True)
    made = make_class(args)
    for one in made:
        write(folder, one)
    return made


def make_class(args: argparse.Namespace) -> list[Made]:
    """Everything that is wrong and right once, attacks, and mixtures until it is large enough."""
    wanted = args.chapters or [chapter.number for chapter in manifest.chapters()]
    chapters = [chapter for chapter in manifest.chapters() if chapter.number in wanted]
    made, dice = [*wrong_ones(chapters), *right_ones(chapters)], random.Random(200)
    if not args.peaceful and (room := args.size - len(made)) > 0:  # a quarter of it to be mixed
        attacks = list(hostile_ones())
        made += dice.sample(attacks, min(len(attacks), room * 3 // 4))
    while len(made) < args.size:
        made.append(mixed_one(dice, len(made), chapters))
    dice.shuffle(made)
    return made[: args.size]


def write(folder: Path, one: Made) -> None:
    """Its files, in its shape."""
    if one.shape == "zip":
        with zipfile.ZipFile(folder / one.name, "w") as archive:
            for name, text in one.files.items():
                archive.writestr(name, text)
        return
    place = folder
    if one.shape == "folder":
        place = folder / one.name
        place.mkdir()
    for name, text in one.files.items():
        (place / name).write_text(text, encoding="utf-8")


# ---- right ----


def right_ones(chapters: list[Chapter]) -> Iterator[Made]:
    """The solved notebooks in several shapes, and whole chapters in other styles."""
    for chapter in chapters:
        solved = notebooks.build_notebook(chapter, solved=True)
        text, points = notebooks.dump(solved), full(chapter)
        yield Made(f"right {chapter.slug}.ipynb", {f"right {chapter.slug}.ipynb": text}, points)
        name = f"right {chapter.slug} zipped.zip"
        yield Made(name, {f"a/b/{chapter.name} (1).ipynb": text}, points, "zip")
        script = notebooks.as_script(solved)
        yield Made(
            f"right {chapter.slug} as script.py",
            {f"right {chapter.slug} as script.py": script},
            points,
        )
        for path in sorted((ROOT / "tests" / "styles").glob(f"{chapter.slug}_*.py")):
            yield Made(
                f"style {path.name}", {f"style {path.name}": in_style(chapter, path)}, points
            )
    all_of_it = {
        f"{c.slug}.py": notebooks.as_script(notebooks.build_notebook(c, solved=True))
        for c in chapters
    }
    yield Made(
        "the whole course",
        all_of_it,
        {i: p for c in chapters for i, p in full(c).items()},
        "folder",
    )


def full(chapter: Chapter) -> dict[str, int]:
    """All points of a chapter."""
    return {exercise.id: exercise.points for exercise in chapter.exercises}


# ---- wrong ----


def wrong_ones(chapters: list[Chapter]) -> Iterator[Made]:
    """Every misconception once: the first of each exercise of a chapter together, and so on."""
    for chapter in chapters:
        piles = defaultdict(list)
        for wrong in misconceptions.load(chapter.slug):
            piles[wrong.exercise].append(wrong)
        for turn in range(max(map(len, piles.values()), default=0)):
            chosen = [pile[turn] for pile in piles.values() if turn < len(pile)]
            name = f"wrong {chapter.slug} {turn}.ipynb"
            yield Made(
                name, {name: notebooks.dump(with_wrong(chapter, chosen))}, known(chapter, chosen)
            )


def known(chapter: Chapter, chosen: list[Callable]) -> dict[str, int]:
    """The points: none where there is a misconception; with one below, as the cases say."""
    touched = {wrong.exercise for wrong in chosen}
    points = {}
    for exercise in chapter.exercises:
        right = exercise.id not in touched
        if right and touched & set(chapter.all_needs(exercise)):
            right = passes(chapter, exercise.id, chosen)
        points[exercise.id] = exercise.points if right else 0
    return points


def passes(chapter: Chapter, exercise_id: str, chosen: list[Callable]) -> bool:
    """Whether the reference with these misconceptions in it passes the public cases.

    Run in a forked child without anything of the grader: some misconceptions read behind the end
    of a mapped file, which ends a process.
    """
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        code = 1
        try:
            code = 1 if any(failures(chapter, exercise_id, chosen)) else 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def failures(chapter: Chapter, exercise_id: str, chosen: list[Callable]) -> Iterator[Exception]:
    """What fails, run in this process."""
    runner = Runner()
    runner.load_source(notebooks.reference_source(chapter), chapter.scenarios)
    for wrong in chosen:
        _replace(runner.module, wrong)
    cases = [case for case in cases_of(chapter.slug) if case.exercise == exercise_id]
    return (o.error for o in run_cases(Local(runner), cases, SEED) if o.error)


# ---- mixed and hostile ----


def mixed_one(dice: random.Random, number: int, chapters: list[Chapter]) -> Made:
    """Exercises that nothing else rests on, each in one of several states; the others right."""
    chapter = dice.choice(chapters)
    needed = {need for exercise in chapter.exercises for need in exercise.needs}
    sheet, points = notebooks.build_notebook(chapter, solved=True), full(chapter)
    for exercise in chapter.exercises:
        if exercise.id in needed:
            continue
        state = dice.choice(("right", "untouched", "missing", "broken", "renamed", "twice"))
        spoil(sheet, chapter, exercise, state)
        points[exercise.id] = exercise.points if state == "right" else 0
    name = f"mixed {number}.ipynb"
    return Made(name, {name: notebooks.dump(sheet)}, points)


def spoil(sheet: dict, chapter: Chapter, exercise, state: str) -> None:
    """Put the cell of an exercise into a state."""
    mark = f"#| exercise {exercise.id}\n"
    cell = next(c for c in sheet["cells"] if "".join(c["source"]).startswith(mark))
    source = "".join(cell["source"])
    if state == "untouched":
        stubs = (notebooks.definitions(chapter)[name].stub for name in exercise.functions)
        cell["source"] = mark + "\n\n\n".join(stubs)
    elif state == "missing":
        sheet["cells"].remove(cell)
    elif state == "broken":
        cell["source"] = source + "\nthis does not parse"
    elif state == "renamed":
        cell["source"] = source + f"\ndel {exercise.functions[0]}\n"
    elif state == "twice":
        sheet["cells"].append({**cell, "id": f"twice-{exercise.id.replace('.', '-')}"})


def hostile_ones() -> Iterator[Made]:
    """The attacks on 4.4; of the exercises that do not use it, all points."""
    chapter = manifest.find_chapter(4)
    attacks = {name: adversaries.cell(code) for name, (code, _) in adversaries.BODIES.items()}
    attacks |= {name: adversaries.top(code) for name, (code, _) in adversaries.TOPS.items()}
    users = {e.id for e in chapter.exercises if "4.4" in chapter.all_needs(e)}
    points = {i: 0 if i in users | {"4.4"} else p for i, p in full(chapter).items()}
    for name, source in attacks.items():
        sheet = notebooks.build_notebook(chapter, solved=True)
        for cell in sheet["cells"]:
            if "".join(cell["source"]).startswith("#| exercise 4.4\n"):
                cell["source"] = source
        yield Made(
            f"hostile {name}.ipynb", {f"hostile {name}.ipynb": notebooks.dump(sheet)}, points
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--chapters", type=int, nargs="+", help="of these alone")
    parser.add_argument("--seconds", default="15", help="for each exercise; more on a busy machine")
    parser.add_argument("--peaceful", action="store_true", help="without the attacks")
    parser.add_argument("--keep", type=Path, help="a folder in which all of it stays")
    return parser


if __name__ == "__main__":
    sys.exit(main())
