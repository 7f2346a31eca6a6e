"""`python -m course grade SUBMISSIONS OUT`: a folder of submissions in, a gradebook out.

The exit code is 0 when grading worked, whatever the grades are; 1 when the grading itself failed
for at least one exercise, which is then listed; 2 when there was nothing to grade or it was asked
wrongly; 130 when it was interrupted, after which the same command goes on where it stopped.
"""

import argparse
import hashlib
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from course import manifest
from course.arguments import at_least_one
from course.grading import feedback, formats, record, tables
from course.grading.entries import Entry, find_entries
from course.grading.hidden import Hidden, SecretError, check_folder, read_secret
from course.grading.pool import Graded, GraderError, Pool, Task
from course.grading.summary import grader_errors, summary
from course.lock import exclusive
from course.paths import folder_argument
from course.sandbox import LIMITS, PROMISES

SEED = 1729  # of the public cases; learners see it, so that they can replay them


def main(argv: list[str]) -> int:
    """The verb; the exit code."""
    args = _parser().parse_args(argv)
    try:
        hidden = _hidden(args)
        only = _exercises(args.only)
        entries, ignored = _entries(args)
        args.out.mkdir(parents=True, exist_ok=True)
        waiting = "Another `grade` is writing there; waiting."
        with _orderly_end(), exclusive(args.out / ".lock", waiting):
            return _grade(args, entries, ignored, only, hidden)
    except (SecretError, ValueError) as problem:
        print(f"grade: {problem}", file=sys.stderr)
        return 2
    except GraderError as problem:
        print(f"grade: grading itself failed: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ngrade: stopped; the same command goes on from here", file=sys.stderr)
        return 130


@contextmanager
def _orderly_end() -> Iterator[None]:
    """SIGTERM, as from a runner out of patience, or a closed terminal ends like an interrupt:
    nothing is left behind."""
    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    before = {n: signal.signal(n, signal.default_int_handler) for n in numbers if n is not None}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _grade(args, entries: list[Entry], ignored: list[str], only: set[str], hidden: Hidden) -> int:
    order = {
        "seed": args.seed,
        "seconds": args.seconds,
        "memory": args.memory * 2**20,
        "sandbox": args.sandbox,
        "secret": hidden.secret.hex(),
        "hidden": str(hidden.folder) if hidden.folder else "",
        "covered": [str(f.resolve()) for f in (args.submissions, args.out, hidden.folder) if f],
    }
    rules = [record.grader_fingerprint(), args.seed, args.seconds, args.memory]
    order["key"] = hashlib.sha256(repr([*rules, hidden.fingerprint()]).encode()).hexdigest()
    old = {entry: record.read(record.place(args.out, entry)) for entry in entries}
    tasks = [_task(entry, old[entry], only, args.again) for entry in entries]
    records: dict[Entry, dict] = {}
    pool = Pool(order, args.jobs)
    with tqdm(total=len(tasks), unit="submission", disable=None, smoothing=0) as bar:

        def done(graded: Graded) -> None:
            records[graded.entry] = _keep(args, graded)
            bar.update()

        pool.run(tasks, bar.refresh, done)
    return _close(args, [records[e] for e in entries], entries, ignored, only, pool.sandbox)


def _task(entry: Entry, old: dict | None, only: set[str], again: bool) -> Task:
    """What was graded before and is the same now is not graded again, unless that is wished."""
    known = {e["exercise"]: e for e in old["exercises"]} if old else {}
    if again:
        known = {i: e | {"key": ""} for i, e in known.items()}
    known = {i: e for i, e in known.items() if e["status"] != "grader error"}
    return Task(entry, sorted(only), known)


def _keep(args, graded: Graded) -> dict:
    """Write what came of one submission; grade.json last, since a later run goes by it."""
    made = record.make(graded.entry, graded.exercises, graded.told)
    folder = record.place(args.out, graded.entry)
    record.write(folder / "feedback.md", feedback.markdown(made))
    record.write(folder / "feedback.html", feedback.page(made))
    for name in args.format:
        file, text = formats.write(name, made)
        for place in (folder, *([args.out] if args.one else [])):
            if text is None:
                (place / file).unlink(missing_ok=True)  # an earlier one would be taken for this
            else:
                record.write(place / file, text)
    record.write(folder / "grade.json", record.dump(made))
    return made


def _close(args, records, entries, ignored, only: set[str], sandbox: str) -> int:
    """The tables and the summary of the class."""
    exercises = record.all_exercises(records, only)
    record.write(args.out / "long.csv", tables.long_table(records, exercises))
    record.write(args.out / "wide.csv", tables.wide_table(records, exercises))
    text = summary(records, exercises, entries, ignored, sandbox)
    record.write(args.out / "summary.md", text)
    print(text)
    print(
        f"The gradebook is in {args.out}: wide.csv, long.csv, and submissions/ with the feedback."
    )
    if failed := grader_errors(records):
        print(
            f"grade: GRADING ITSELF FAILED for {len(failed)} exercises, which have no grade:",
            *failed,
            "Mend what is wrong and run the same command: only these are graded again.",
            sep="\n  ",
            file=sys.stderr,
        )
        return 1
    return 0


def _entries(args) -> tuple[list[Entry], list[str]]:
    if not args.submissions.exists():
        raise ValueError(f"there is no {args.submissions}: name the folder of submissions")
    if args.one:
        return [Entry(args.submissions.resolve())], []
    if not args.submissions.is_dir():
        raise ValueError(f"{args.submissions} is no folder: add --one to grade one submission")
    if args.submissions.resolve() in (args.out.resolve(), (args.out / record.FOLDER).resolve()):
        raise ValueError("OUT would write into the folder of submissions: name another")
    entries, ignored = find_entries(args.submissions, args.out)
    if not entries:
        raise ValueError(
            f"{args.submissions} holds no submission: a notebook, .py file, folder or zip each"
        )
    return entries, ignored


def _hidden(args) -> Hidden:
    secret = read_secret(args.secret) if args.secret else b""
    if args.hidden:
        check_folder(args.hidden.resolve(), manifest.chapters())
    return Hidden(secret, args.hidden.resolve() if args.hidden else None)


def _exercises(only: list[str]) -> set[str]:
    """The exercises that --only names, by number or by chapter."""
    ids = set()
    for name in only:
        if "." in name:
            ids.add(manifest.find_exercise(name)[1].id)
        else:
            ids |= {exercise.id for exercise in manifest.find_chapter(name).exercises}
    return ids


def _seconds(text: str) -> float:
    """A limit of time: above zero, at most a day."""
    try:
        if 0 < (seconds := float(text)) <= 24 * 3600:
            return seconds
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"must be seconds above 0, at most a day, not {text[:20]!r}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course grade",
        description="Grade a folder of submissions: a notebook, .py file, folder or zip each.",
        epilog="See INSTRUCTORS.md. Interrupted, the same command goes on where it stopped.",
    )
    parser.add_argument("submissions", type=folder_argument, metavar="SUBMISSIONS")
    parser.add_argument("out", type=folder_argument, metavar="OUT", help="made if it is not there")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="N.M", help="exercises, or chapters, to grade"
    )
    parser.add_argument("--jobs", type=at_least_one, default=1, metavar="N", help="at once")
    parser.add_argument(
        "--format", nargs="+", default=[], choices=sorted(formats.FORMATS), help="also write these"
    )
    parser.add_argument("--one", action="store_true", help="SUBMISSIONS is a single submission")
    parser.add_argument("--again", action="store_true", help="grade what was graded before, too")
    parser.add_argument("--secret", type=folder_argument, metavar="FILE", help="seeds hidden cases")
    parser.add_argument("--hidden", type=folder_argument, metavar="DIR", help="more hidden cases")
    parser.add_argument("--sandbox", default="", choices=list(PROMISES), help="this or none")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help="of the public cases")
    parser.add_argument(
        "--seconds", type=_seconds, default=LIMITS.seconds, metavar="S", help="for each exercise"
    )
    parser.add_argument(
        "--memory", type=at_least_one, default=LIMITS.memory // 2**20, metavar="MIB"
    )
    return parser
