"""`python -m course capstone`: your own engine, chapters 02 to 08, tested from end to end."""

import argparse
import signal
import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

from tqdm import tqdm

from course import background, capstone_run, mine
from course.capstone_checks import CHECKS, Check
from course.mine import Plan, Refused
from course.model import ModelError, ensure_model


def main(argv: list[str]) -> int:
    """The verb: 0 when every check passed, 1 when one failed or nothing could be checked."""
    args = _parser().parse_args(argv)
    checks = [check for check in CHECKS if not args.check or check.name in args.check]
    found: list[tuple[Check, str | None]] = []
    _end_as_by_ctrl_c()
    try:
        plans = mine.choose(args.reference)
        ensure_model()

        def tell(check: Check, problem: str | None) -> None:
            found.append((check, problem))
            tqdm.write(told(check, problem, plans), file=sys.stdout)  # above the bar
            sys.stdout.flush()

        capstone_run.run(partial(capstone_run.server, args.reference), checks, tell)
    except (Refused, background.NotReady, ModelError) as problem:
        print(f"capstone: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        said = f"stopped after {len(found)} of {len(checks)} checks, of which {_passed(found)}"
        print(f"\ncapstone: {said} passed", file=sys.stderr)
        return 130
    print(summary(found, plans, args.name))
    return 0 if _passed(found) == len(found) else 1


def _end_as_by_ctrl_c() -> None:
    """Whoever closes the terminal, or stops the process, ends the server too."""

    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        if number := getattr(signal, name, None):
            signal.signal(number, interrupt)


def _passed(found: Sequence[tuple[Check, str | None]]) -> int:
    return sum(problem is None for _, problem in found)


# ---- What is said ----


def told(check: Check, problem: str | None, plans: Sequence[Plan]) -> str:
    """The line of a check; if it failed, what was seen and which layer to look at."""
    lines = [f"{'passed' if problem is None else 'FAILED':8}{check.name:15}{check.promise}"]
    if problem is not None:
        files = {module: file for plan in plans for module, file in _files(plan)}
        where = list(dict.fromkeys(files[layer] for layer in check.layers))
        places = [(file, [one for one in check.layers if files[one] == file]) for file in where]
        look = "; ".join(f"{', '.join(layers)} in {file}" for file, layers in places)
        lines += _indented(f"seen: {problem}") + _indented(f"look at: {look}")
    return "\n".join(lines)


def _files(plan: Plan) -> Iterator[tuple[str, str]]:
    for module in plan.chapter.modules:
        is_mine = module in plan.mine
        yield module, plan.submission.shown_path if is_mine else f"solutions/{module}.py"


def _indented(text: str) -> list[str]:
    pad = " " * 23
    wrap = textwrap.TextWrapper(100, pad, pad, break_long_words=False, break_on_hyphens=False)
    return wrap.wrap(text)


def summary(found: Sequence[tuple[Check, str | None]], plans: Sequence[Plan], name: str) -> str:
    """What was built by whom, and what it passed: files with their whole SHA-256."""
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    whole = sum(plan.submission is not None and not plan.reference for plan in plans)
    who = f"built by {name}" if name else "built by you"
    lines = [
        "",
        f"An inference engine, {who}",
        f"{now}: {_passed(found)} of {len(found)} checks passed",
    ]
    if len(found) < len(CHECKS):
        lines.append(f"(not all: {len(CHECKS)} make the capstone)")
    lines.append(f"{whole} of {len(plans)} chapters are all your own")
    for plan in plans:
        for sha256, file, what in mine.sources(plan):
            lines += [f"  {file}: {what}", f"    SHA-256 {sha256}"]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course capstone",
        description="Start `serve --mine` and test it from end to end.",
    )
    mine.add_reference(parser)
    names = [check.name for check in CHECKS]
    parser.add_argument(
        "--check", action="append", choices=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument("--name", default="", help="yours, for the summary")
    return parser
