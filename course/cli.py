"""The verbs. Each imports what it needs when it is called, so that `doctor` and `help` answer where
no package is there, or one is broken.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable

from course import manifest
from course.paths import ROOT, in_words

VERBS = """\
  start [N]         open your copy of chapter N in JupyterLab
  check [N | N.M]   judge a chapter or an exercise; without a number, all you have begun
  hint N.M          the next hint of an exercise
  solution N.M      our answer to an exercise (asks once)
  progress          every chapter and exercise, points, last verdicts
  generate "TEXT"   let the model continue a text
  batch FILE        run a file of prompts, many at once, results as they finish
  serve             the model as a service, for clients of the OpenAI API (--mine: your layers)
  capstone          your own engine, chapters 02 to 08, tested end to end
  drill [NAME]      a service with a fault in it: find the cause from what can be seen
  compare           the same questions at several sampling settings, to be rated blind
  load              requests at a rate against a running server, and how long each waits
  report LOG        the periodic lines of a service as plots, and what is missing in them
  gate A B          two files of load --out: may the upgrade go out?
  diagnose A B      two readings of /metrics: what is wrong, and what to do next
  quantize          put the model into fewer bits, or measure what that costs
  grade DIR OUT     grade a class: a folder of submissions in, a gradebook out
  model             fetch and check the model
  doctor            what this machine has, and how to mend what is missing
  test              all tests of the project
  notebooks         build notebooks/ (authors: --check, --execute)

  dev  lint  reference  bench  integration  mutants  clean    for authors; see CONTRIBUTING.md
"""


def main(argv: list[str]) -> int:
    """Run one verb; the exit code. 141, as from the signal, when nobody reads what it prints."""
    _open_streams()
    verb, rest = (argv[0], argv[1:]) if argv else ("help", [])
    try:
        try:
            return _run(verb, rest)
        finally:
            sys.stdout.flush()
    except manifest.Unknown as problem:
        print(f"{verb}: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as problem:
        _drop_output()
        print(f"{verb}: {in_words(problem)}", file=sys.stderr)
        return 1


def _run(verb: str, rest: list[str]) -> int:
    if verb in {"help", "-h", "--help"}:
        print(f"AI Engineering from Scratch\n\npython -m course VERB\n\n{VERBS}")
        return 0
    if verb not in _VERBS:
        print(f"there is no verb {verb[:40]!r}. There are:\n\n{VERBS}", file=sys.stderr)
        return 2
    return _VERBS[verb](rest)


def _open_streams() -> None:
    """A closed stream (`>&-`) becomes one that nobody reads; none stumbles over an emoji."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="replace")


def _drop_output() -> None:
    """What is left in the buffer cannot be written; Python would say so once more at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def _start(argv: list[str]) -> int:
    from course import start

    return start.main(argv)


def _check(argv: list[str]) -> int:
    """0 when everything that was judged passed."""
    parser = _parser("check", "Judge your work.")
    parser.add_argument("what", nargs="?", metavar="N or N.M", help="default: all you have begun")
    parser.add_argument("--seed", type=int, help="replay the random inputs of an earlier verdict")
    args = parser.parse_args(argv)
    from course import desk

    if args.what and "." in args.what:
        verdicts = [desk.check(args.what, seed=args.seed)]
    else:
        chapters = [manifest.find_chapter(args.what)] if args.what else desk.begun()
        if not chapters:
            print("nothing begun yet: type `python -m course start`")
        verdicts = [v for c in chapters for v in desk.check_chapter(c, args.seed) or [None]]
    return 0 if verdicts and all(v and v.status == "passed" for v in verdicts) else 1


def _hint(argv: list[str]) -> int:
    from course import desk

    parser = _parser("hint", "The next hint of an exercise.")
    parser.add_argument("exercise", metavar="N.M")
    desk.hint(parser.parse_args(argv).exercise)
    return 0


def _solution(argv: list[str]) -> int:
    from course import desk

    parser = _parser("solution", "Our answer to an exercise.")
    parser.add_argument("exercise", metavar="N.M")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    args = parser.parse_args(argv)
    try:
        return 0 if desk.solution(args.exercise, None if args.yes else input) else 1
    except EOFError:
        print("\nsolution: nobody to ask here; add --yes", file=sys.stderr)
        return 1


def _progress(argv: list[str]) -> int:
    from course import desk

    _parser("progress", "Every chapter and exercise.").parse_args(argv)
    desk.show_progress()
    return 0


def _notebooks(argv: list[str]) -> int:
    from course import build

    return build.main(argv)


def _model(argv: list[str]) -> int:
    from course import model

    return model.main(argv)


def _generate(argv: list[str]) -> int:
    from course import generate

    return generate.main(argv)


def _batch(argv: list[str]) -> int:
    from course import batch

    return batch.main(argv)


def _compare(argv: list[str]) -> int:
    from course import compare

    return compare.main(argv)


def _serve(argv: list[str]) -> int:
    from course import mine  # not serve, which imports the layers: --mine puts others in place

    return mine.serve(argv)


def _capstone(argv: list[str]) -> int:
    from course import capstone

    return capstone.main(argv)


def _drill(argv: list[str]) -> int:
    from course import drill

    return drill.main(argv)


def _load(argv: list[str]) -> int:
    from course import load

    return load.main(argv)


def _report(argv: list[str]) -> int:
    from course import report

    return report.main(argv)


def _gate(argv: list[str]) -> int:
    from course import gate

    return gate.main(argv)


def _diagnose(argv: list[str]) -> int:
    from course import diagnose

    return diagnose.main(argv)


def _quantize(argv: list[str]) -> int:
    from course import quantize

    return quantize.main(argv)


def _grade(argv: list[str]) -> int:
    from course import grade

    return grade.main(argv)


def _doctor(argv: list[str]) -> int:
    from course import doctor

    return doctor.main(argv)


def _test(argv: list[str]) -> int:
    """Fetch the model if need be, then pytest with these arguments; without any, on all cores."""
    from course.model import ModelError, ensure_model

    try:
        ensure_model()
    except ModelError as problem:
        print(f"test: {problem}", file=sys.stderr)
        return 1
    argv = argv or ["--numprocesses=auto", "--maxprocesses=8"]  # each loads torch and the model
    return subprocess.run([sys.executable, "-m", "pytest", *argv], cwd=ROOT, check=False).returncode


def _parser(verb: str, description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"python -m course {verb}", description=description)


_VERBS: dict[str, Callable[[list[str]], int]] = {
    "start": _start,
    "check": _check,
    "hint": _hint,
    "solution": _solution,
    "progress": _progress,
    "notebooks": _notebooks,
    "model": _model,
    "generate": _generate,
    "batch": _batch,
    "compare": _compare,
    "serve": _serve,
    "capstone": _capstone,
    "drill": _drill,
    "load": _load,
    "report": _report,
    "gate": _gate,
    "diagnose": _diagnose,
    "quantize": _quantize,
    "grade": _grade,
    "doctor": _doctor,
    "test": _test,
}
