"""`python -m course capstone`: your own engine, chapters 02 to 08, tested from end to end."""

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
from tqdm import tqdm

from course import background, mine
from course.capstone_checks import CHECKS, ROWS, WAITING, Check
from course.capstone_target import Failed, Target, stop
from course.mine import Plan, Refused
from course.model import ModelError, ensure_model
from course.paths import MODELS, ROOT, WORK


def main(argv: list[str]) -> int:
    """The verb: 0 when every check passed, 1 when one failed or nothing could be checked."""
    args = _parser().parse_args(argv)
    checks = [check for check in CHECKS if not args.check or check.name in args.check]
    try:
        plans = mine.choose(args.reference)
        ensure_model()
        with server(args.reference) as target:
            found = run(target, checks)
    except (Refused, background.NotReady, ModelError) as problem:
        print(f"capstone: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncapstone: stopped", file=sys.stderr)
        return 130
    print(table(found, plans))
    print(summary(found, plans, args.name))
    return 0 if all(problem is None for _, problem in found) else 1


def run(target: Target, checks: Sequence[Check]) -> list[tuple[Check, str | None]]:
    """Every check with what is wrong; None when it passed. One that fails stops no other."""
    found = []
    for check in tqdm(checks, unit="check", disable=None, leave=False):
        try:
            settle(target)
            check.run(target)
            found.append((check, None))
        except Failed as problem:
            found.append((check, str(problem)))
        except (httpx.HTTPError, OSError) as problem:
            gone = "the server has ended" if target.process.poll() is not None else "no answer"
            found.append((check, f"{gone} ({type(problem).__name__}: {problem})"))
        except (ValueError, KeyError, IndexError, TypeError) as problem:
            shape = f"the answer has not the shape that clients read ({problem!r})"
            found.append((check, shape))
    return found


def settle(target: Target) -> None:
    """What a failed check left under way must not spoil the next: wait for it, but not for ever."""
    with suppress(Failed):
        target.empty()


@contextmanager
def server(references: Sequence[str], *more: str) -> Iterator[Target]:
    """`serve --mine` on a free port, ready; ended with the block, whatever happens in it.

    Errors: NotReady with the last it said when it does not become ready.
    """
    with tempfile.TemporaryDirectory() as folder:
        logs, said = Path(folder) / "logs", Path(folder) / "stderr"
        with said.open("wb") as stderr:
            process = _start(references, more, Path(folder), logs, stderr)
        try:
            yield Target(background.address_when_ready(process, said), process, logs)
        finally:
            background.end(process, lambda: stop(process))


def _start(references, more, folder: Path, logs: Path, stderr) -> subprocess.Popen:
    settings = {"port": 0, "max-running": ROWS, "max-waiting": WAITING, "max-context": 512}
    settings |= {"log-dir": logs, "log-seconds": 3600, "queue-timeout": 120}
    command = [sys.executable, "-m", "course", "serve", "--mine"]
    command += [word for name in references for word in ("--reference", name)]
    command += [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    (folder / "llm.toml").touch()  # the settings are the ones here, not those of the learner
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LLM_")}
    environment |= {"COURSE_WORK": str(WORK), "COURSE_MODELS": str(MODELS)}
    environment |= {"LLM_CONFIG": str(folder / "llm.toml"), "PYTHONUNBUFFERED": "1"}
    group = subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0
    return subprocess.Popen(
        [*command, *more],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        creationflags=group,
        start_new_session=sys.platform != "win32",  # Ctrl-C is for us: we end it
    )


# ---- What is said ----


def table(found: Sequence[tuple[Check, str | None]], plans: Sequence[Plan]) -> str:
    """A line for each check; for one that failed, what was seen and which layer to look at."""
    files = {module: file for plan in plans for module, file in _files(plan)}
    lines = []
    for check, problem in found:
        lines.append(f"{'passed' if problem is None else 'FAILED':8}{check.name:15}{check.promise}")
        if problem is not None:
            where = list(dict.fromkeys(files[layer] for layer in check.layers))
            places = [(file, [one for one in check.layers if files[one] == file]) for file in where]
            told = "; ".join(f"{', '.join(layers)} in {file}" for file, layers in places)
            lines += _indented(f"seen: {problem}") + _indented(f"look at: {told}")
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
    passed = sum(problem is None for _, problem in found)
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    whole = sum(plan.submission is not None and not plan.reference for plan in plans)
    who = f"built by {name}" if name else "built by you"
    lines = ["", f"An inference engine, {who}", f"{now}: {passed} of {len(found)} checks passed"]
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
