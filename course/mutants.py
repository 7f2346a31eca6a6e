"""`python -m course mutants`: how many small faults in our own answers do the grading cases find?

The exit code is 0 when the score of every chapter is TARGET or more (with --sample: when every
mutant of the sample is killed or named), 1 when it is not, 2 when it was asked wrongly, 130 when
it was interrupted, after which the same command goes on from there.
"""

import argparse
import hashlib
import signal
import sys
from pathlib import Path

from tqdm import tqdm

from course import manifest
from course.arguments import at_least_one
from course.mutant_record import (
    TABLE,
    Named,
    Record,
    Score,
    Unnamed,
    names_of,
    read_named,
    score_of,
)
from course.mutant_trial import Broken, Result, Trials, default_jobs, prepare
from course.mutate import Mutant, mutants_of

TARGET = 0.95
SEED = 0  # of the cases
HEAD = """\
# The mutation score

Every answer in `solutions/` is changed in one small way at a time: an operator, a constant, an off
by one, a statement left out, arguments swapped. The cases in `tests/grading/` should refuse each of
these mutants. `make mutants` runs them; `make mutants ARGS=--write` writes this file.

- **Equivalent**: does the same as the answer. Each is named in `equivalent.toml` with the reason,
  and does not count.
- **Not promised**: differs only where no docstring says what is right. Named there too, and counted
  as surviving.
- **Score**: killed / (mutants - equivalent).

| Chapter | Mutants | Killed | Equivalent | Surviving | of them not promised | Score |
|---|--:|--:|--:|--:|--:|--:|
"""


def main(argv: list[str]) -> int:
    """The verb; the exit code."""
    args = _parser().parse_args(argv)
    tqdm.monitor_interval = 0  # its thread would be in the way of a fork
    try:
        chosen, named = _chosen(args), read_named()
        return _sample(chosen, named, args) if args.sample else _scores(chosen, named, args)
    except (manifest.Unknown, Unnamed) as problem:
        print(f"mutants: {problem}", file=sys.stderr)
        return 2
    except Broken as problem:
        print(f"mutants: {problem}: mend that first", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nmutants: stopped; the same command goes on from here", file=sys.stderr)
        return 130


def _chosen(args: argparse.Namespace) -> dict[manifest.Chapter, list[Mutant]]:
    if args.exercise:
        chapter, exercise = manifest.find_exercise(args.exercise)
        return {chapter: mutants_of(chapter, exercise.id)}
    chapters = [manifest.find_chapter(n) for n in args.chapter or ()] or manifest.chapters()
    return {chapter: mutants_of(chapter) for chapter in chapters}


def _sample(chosen: dict, named: list[Named], args: argparse.Namespace) -> int:
    """Judge a fixed few anew; 1 when one of them survives that nobody named."""
    of = {m.id: chapter for chapter, mutants in chosen.items() for m in mutants}
    mutants = [mutant for each in chosen.values() for mutant in each]
    names = names_of(mutants, named)
    mutants = sampled([m for m in mutants if m.id not in names], args.sample, args.seed)
    trials = Trials(args.jobs, SEED)
    results = {m.id: r for m, r in _run(trials, {of[m.id] for m in mutants}, mutants, {})}
    alive = [m for m in mutants if not results[m.id].killer]
    for mutant in alive:
        print(shown(mutant), end="\n\n")
    print(f"{len(mutants)} mutants, {len(mutants) - len(alive)} killed, {len(alive)} survive")
    return 1 if alive else 0


def sampled(mutants: list[Mutant], size: int, seed: int) -> list[Mutant]:
    """A few of them; which ones, only their ids and the seed say, so edits elsewhere change few."""

    def rank(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed} {mutant.id}".encode()).hexdigest()

    few = {mutant.id for mutant in sorted(mutants, key=rank)[:size]}
    return [mutant for mutant in mutants if mutant.id in few]


def _scores(chosen: dict, named: list[Named], args: argparse.Namespace) -> int:
    scores = {}
    for chapter, mutants in chosen.items():
        killers = _killers(chapter, mutants, args)
        names = names_of(mutants, named)
        for mutant in mutants:
            if not killers[mutant.id] and mutant.id not in names:
                print(shown(mutant), end="\n\n")
        for exercise in chapter.exercises:
            if part := {m.id: killers[m.id] for m in mutants if m.exercise == exercise.id}:
                print(_line(exercise.id, score_of(part, names)))
        scores[chapter] = score_of(killers, names)
        print(_line(f"chapter {chapter.number}", scores[chapter]), flush=True)
    if args.write and not args.exercise:
        write_table(scores)
    return 1 if min(score.share for score in scores.values()) < TARGET else 0


def _killers(
    chapter: manifest.Chapter, mutants: list[Mutant], args: argparse.Namespace
) -> dict[str, str]:
    """By id, what kills each mutant; what is on record is not asked again, except with --fresh."""
    record = Record(chapter)
    killers = {} if args.fresh else {m.id: record.killer(m) for m in mutants}
    todo = [m for m in mutants if killers.get(m.id) is None]
    for mutant, result in _run(Trials(args.jobs, SEED), {chapter}, todo, record.first()):
        record.add(mutant, result)
        killers[mutant.id] = result.killer
    return killers


def _run(trials: Trials, chapters: set, mutants: list[Mutant], first: dict[str, str]):
    """The mutants and their results, behind a bar."""
    if not mutants:
        return
    prepare(sorted(chapters, key=lambda chapter: chapter.number))
    trials.measure(list(dict.fromkeys(e for m in mutants for e in (m.exercise, *m.also))))
    with tqdm(total=len(mutants), desc="mutants", unit="mutant", disable=None) as bar:
        found: tuple[Mutant, Result]
        for found in trials.run(mutants, first):
            yield found
            bar.update()


def shown(mutant: Mutant) -> str:
    """A mutant as a person reads it, ready for equivalent.toml."""
    old = "\n".join(f"- {line}" for line in mutant.was.split("\n"))
    new = "\n".join(f"+ {line}" for line in mutant.becomes.split("\n"))
    place = f"{mutant.path}:{mutant.line}: {mutant.function} ({mutant.exercise}), {mutant.kind}"
    return f"{place}\n{old}\n{new}"


def _line(name: str, score: Score) -> str:
    return (
        f"{name}: {score.killed} of {score.mutants - score.equivalent} killed ({score.share:.1%}), "
        f"{score.equivalent} equivalent, {score.surviving} survive, "
        f"{score.not_promised} of them not promised"
    )


def write_table(scores: dict[manifest.Chapter, Score], path: Path = TABLE) -> None:
    """Put these chapters' rows into the table; the rows of others stay."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    rows = {
        line[2:4]: line for line in text.split("\n") if line[:2] == "| " and line[2:4].isdigit()
    }
    for chapter, s in scores.items():
        name = chapter.name.replace("_", " ", 1)
        counts = (s.mutants, s.killed, s.equivalent, s.surviving, s.not_promised)
        cells = " | ".join(map(str, counts))
        rows[name[:2]] = f"| {name} | {cells} | {s.share:.1%} |"
    partial = path.with_suffix(".partial")
    partial.write_text(
        HEAD + "\n".join(rows[key] for key in sorted(rows)) + "\n", encoding="utf-8", newline="\n"
    )
    partial.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course mutants",
        description="Change our answers in small ways, and see whether the cases find out.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--chapter", nargs="+", metavar="N", help="only these chapters")
    what.add_argument("--exercise", metavar="N.M", help="only this exercise")
    parser.add_argument(
        "--sample", type=at_least_one, metavar="K", help="K of them, which must all be killed"
    )
    parser.add_argument("--seed", type=int, default=0, help="which sample (default 0)")
    parser.add_argument("--jobs", type=at_least_one, default=default_jobs(), help="at a time")
    parser.add_argument("--fresh", action="store_true", help="judge again what is on record")
    parser.add_argument("--write", action="store_true", help="put the scores in tests/mutants/")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no trial outlives this process
    sys.exit(main(sys.argv[1:]))
