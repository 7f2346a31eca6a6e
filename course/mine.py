"""`python -m course serve --mine`: the learner's own layers 02 to 08, put together and served.

Every chapter's file makes one module, of its marked cells, as `check` does it. That module takes
the place of the chapter's solution modules in this process, before anything imports them: so later
chapters, and the code that was provided, are built on the learner's earlier ones. Nothing may
import a layer before `install`; this file, and what it imports, does not.
"""

import argparse
import hashlib
import importlib
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from course import mine_places, passed
from course.cells import SubmissionError
from course.manifest import Chapter
from course.mine_names import Refused, has_exercise, layers, modules_named, told, why_missing
from course.passed import exercises_in, public_names
from course.paths import ROOT, WORK
from course.submission import Submission, build, find_submission, read_submission, shown

USAGE = """\
your own layers:
  --mine            serve what you have built: chapters 02 to 08 of work/
  --reference NAME  with --mine: take our layer for yours; NAME is a chapter (batcher, 6) or one
                    module of it (admission, batcher.py); may be repeated
"""


@dataclass(frozen=True)
class Plan:
    """What one chapter's modules are made of.

    Args:
        submission: the learner's file; None when every module is the reference's.
        mine: the modules that the learner's file stands for.
        reference: those that were switched back.
    """

    chapter: Chapter
    submission: Submission | None
    mine: tuple[str, ...]
    reference: tuple[str, ...]


# ---- The verb ----


def serve(argv: list[str], is_told: bool = True) -> int:
    """The verb `serve`, with or without --mine; the exit code.

    Args:
        is_told: with --mine, print what the server is made of.
    """
    mine, names, rest = take(argv)
    if mine:
        try:
            plans = choose(names)
            if is_told:
                print(table(plans), file=sys.stderr, flush=True)
            install(plans)
        except Refused as problem:
            print(f"serve: {problem}", file=sys.stderr)
            return 1
    elif names:
        print("serve: --reference goes with --mine; without it all is ours", file=sys.stderr)
        return 2
    from course import serve as verb  # not earlier: it imports the layers

    try:
        return verb.main(rest)
    except Exception as problem:
        where = mine_places.raised(problem)
        if not where:
            raise
        said = f"{type(problem).__name__}: {problem}"
        print(f"serve: it could not start: {said}{where}", file=sys.stderr)
        return 1


def take(argv: list[str]) -> tuple[bool, list[str], list[str]]:
    """Whether --mine is there, the names behind --reference, and the other arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m course serve", add_help=False, allow_abbrev=False
    )
    add_reference(parser)
    parser.add_argument("--mine", action="store_true")
    found, rest = parser.parse_known_args(argv)
    return found.mine, found.reference, rest


def add_reference(parser: argparse.ArgumentParser) -> None:
    """--reference, which may be repeated."""
    parser.add_argument(
        "--reference",
        action="append",
        default=[],
        metavar="NAME",
        help="take our layer for yours: a chapter (batcher, 6) or a module of it (admission)",
    )


# ---- Which layer is whose ----


def choose(names: Sequence[str], folder: Path = WORK) -> list[Plan]:
    """The plan of every chapter. Chapters whose file was not judged as it is now are judged.

    Args:
        names: what is switched back to the reference.
        folder: the learner's.

    Errors: Refused, naming every chapter that is not begun, cannot be read or does not pass its
    own checks, and what to do about each.
    """
    switched = modules_named(names)
    plans, problems = [], {}
    for chapter in layers():
        try:
            plans.append(_plan(chapter, switched, folder))
        except (Refused, SubmissionError) as problem:
            problems[chapter.name] = problem
    record = _judged(plans, folder)
    for plan in plans:
        try:
            require_passed(plan, record)
        except Refused as problem:
            problems[plan.chapter.name] = problem
    if problems:
        raise Refused("\n  ".join(["these chapters cannot be put together yet:", *told(problems)]))
    return plans


def _plan(chapter: Chapter, switched: set[str], folder: Path) -> Plan:
    reference = tuple(module for module in chapter.modules if module in switched)
    if set(chapter.modules) == set(reference):
        return Plan(chapter, None, (), reference)
    submission = read_submission(chapter, find_submission(chapter, folder))
    defined = {name for cell in submission.cells for name in cell.names}
    left = [module for module in chapter.modules if module not in switched]
    missing = {m: [name for name in public_names(m) if name not in defined] for m in left}
    wrong = [m for m in left if missing[m] and has_exercise(chapter, m)]
    if wrong:
        names = [name for module in wrong for name in missing[module]]
        raise Refused(why_missing(submission, names), wrong)
    # A module without an exercise that no cell holds joins the others: it stays ours.
    mine = tuple(module for module in left if not missing[module])
    return Plan(chapter, submission, mine, reference)


# ---- Whether a chapter passes its own checks ----


def require_passed(plan: Plan, record: Mapping[str, Collection[str]]) -> None:
    """Refused, naming the exercises that do not pass, unless nothing of them is used."""
    chapter, wrong = plan.chapter, _wrong(plan, record)
    if not wrong:
        return
    modules = [m for m in plan.mine if {e.id for e in exercises_in(chapter, {m})} & set(wrong)]
    each = "does not pass its own checks" if len(wrong) == 1 else "do not pass their own checks"
    raise Refused(
        f"{', '.join(wrong)} of {plan.submission.shown_path} {each}: "
        f"`python -m course check {chapter.number}` says why",
        modules,
    )


def _wrong(plan: Plan, record: Mapping[str, Collection[str]]) -> list[str]:
    """What is used of a plan and does not pass, as the file was judged, by itself."""
    if plan.submission is None:
        return []
    fine = {one.removeprefix(passed.FOLLOWS) for one in record.get(plan.submission.sha256, [])}
    used = exercises_in(plan.chapter, set(plan.mine))
    return [exercise.id for exercise in used if exercise.id not in fine]


def _judged(plans: Sequence[Plan], folder: Path) -> dict[str, list[str]]:
    """The record, after every file was judged that was not, or in which something used is wrong."""
    record = passed.read(folder)
    left = [plan.submission for plan in plans if plan.submission and _is_new(plan, record)]
    for n, submission in enumerate(left, 1):
        once = "" if n > 1 else "; once for each version of a file"
        said = f"judging {submission.shown_path} ({n} of {len(left)}{once}) ..."
        print(said, file=sys.stderr, flush=True)
        record[submission.sha256] = passed.judge(submission, folder)
        passed.write(record, folder)
    return record


def _is_new(plan: Plan, record: Mapping[str, Collection[str]]) -> bool:
    return plan.submission.sha256 not in record or bool(_wrong(plan, record))


# ---- Putting them together ----


def install(plans: Sequence[Plan], folder: Path = WORK) -> None:
    """Let the learner's modules stand for `solutions.X` in this process, chapter by chapter.

    Errors: Refused when a cell does not run; RuntimeError when a layer was imported before.
    """
    early = [m for plan in plans for m in plan.chapter.modules if f"solutions.{m}" in sys.modules]
    if early:
        raise RuntimeError(f"solutions.{early[0]} was imported before the learner's was in place")
    package = importlib.import_module("solutions")
    for plan in plans:
        if plan.submission is None:
            continue
        module = _run(plan, folder)
        for name in plan.mine:
            sys.modules[f"solutions.{name}"] = module
            setattr(package, name, module)
        for name in plan.reference:  # after the others: it imports them
            ours = importlib.import_module(f"solutions.{name}")
            vars(module).update({public: getattr(ours, public) for public in public_names(name)})


def _run(plan: Plan, folder: Path) -> ModuleType:
    """The module of a chapter: its marked cells, run in order, as `check` runs them."""
    built = build(plan.submission, folder)
    lines = built.path.read_text(encoding="utf-8").split("\n")
    needed = {None, *(exercise.id for exercise in exercises_in(plan.chapter, set(plan.mine)))}
    module = ModuleType(f"mine_{plan.chapter.name}")
    module.__file__ = str(built.path)
    sys.modules[module.__name__] = module
    mine_places.remember(plan.submission, built)
    for part in built.parts:
        source = "\n" * (part.start - 1) + "\n".join(lines[part.start - 1 : part.end])
        try:
            exec(compile(source, str(built.path), "exec", dont_inherit=True), vars(module))
        except (Exception, SystemExit) as problem:
            if part.cell.exercise in needed:
                where = f"{plan.submission.shown_path}, {part.cell.title}"
                said = f"{type(problem).__name__}: {problem}{mine_places.raised(problem)}"
                raise Refused(f"{where} does not run: {said}") from problem
    return module


# ---- What it is made of ----


def table(plans: Sequence[Plan]) -> str:
    """For every chapter the files, their SHA-256 and what comes from each."""
    lines = ["this server is made of"]
    for plan in plans:
        lines.append(f"  {plan.chapter.name}")
        lines += [f"    {sha[:16]}…  {file:28}  {what}" for sha, file, what in sources(plan)]
    return "\n".join(lines) + "\n"


def sources(plan: Plan) -> list[tuple[str, str, str]]:
    """(SHA-256, file, what comes from it) of one chapter; ours one by one, and named as such."""
    rows = []
    if plan.submission:
        rows.append((plan.submission.sha256, plan.submission.shown_path, ", ".join(plan.mine)))
    for module in plan.chapter.modules:
        if module not in plan.mine:
            path = ROOT / "solutions" / f"{module}.py"
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            kind = "reference" if module in plan.reference else "ours for all: joins your parts"
            rows.append((sha256, shown(path), f"{module} ({kind})"))
    return rows
