"""`python -m course capstone`: your own engine, chapters 02 to 08, tested from end to end."""

import argparse
import signal
import sys
from collections.abc import Sequence
from functools import partial

from tqdm import tqdm

from course import background, capstone_run, capstone_words, mine
from course.capstone_checks import CHECKS, Check
from course.mine import Refused
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
            tqdm.write(capstone_words.told(check, problem, plans), file=sys.stdout)  # above the bar
            sys.stdout.flush()

        capstone_run.run(partial(capstone_run.server, args.reference), checks, tell)
    except background.NotReady as problem:
        print(f"capstone: {capstone_words.not_started(problem, plans)}", file=sys.stderr)
        if found:  # it was a new server, in the middle
            print(capstone_words.summary(found, plans, args.name))
        return 1
    except (Refused, ModelError) as problem:
        print(f"capstone: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        said = f"stopped after {len(found)} of {len(checks)} checks, of which {_passed(found)}"
        print(f"\ncapstone: {said} passed", file=sys.stderr)
        return 130
    print(capstone_words.summary(found, plans, args.name))
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
