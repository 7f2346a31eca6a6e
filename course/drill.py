"""`python -m course drill NAME`: a service with a fault in it, to be found from what it shows.

The server is a process of its own; the clients are threads here. For a while all is well, then the
incident begins. The learner has the dashboard, the logs and the metrics, and answers with a cause.
"""

import argparse
import contextlib
import os
import queue
import random
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from course import background
from course.drills.causes import CAUSES, NUDGES
from course.model import ModelError, ensure_model
from course.paths import MODELS, ROOT, WORK

README = ROOT / "chapters" / "08_monitoring" / "README.md"
HELP = "a cause; `list` shows the causes, `quit` ends the drill"


def main(argv: list[str]) -> int:
    """The verb: 0 when the cause was found, 1 when not, 130 after Ctrl-C."""
    from course.drills import DRILLS

    args = _parser().parse_args(argv)
    name = random.choice(sorted(DRILLS)) if args.random else args.name
    if name is None:
        print(catalogue())
        return 0
    if name not in DRILLS:
        print(f"drill: there is no drill {name[:40]!r}. There are:\n", file=sys.stderr)
        print(catalogue(), file=sys.stderr)
        return 2
    if args.answer is not None:
        right, text = judge(name, args.answer)
        print(text)
        return 0 if right else 1
    try:
        ensure_model()
        return play(name, args.calm, 60 * args.minutes)
    except (background.NotReady, ModelError) as problem:
        print(f"drill: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ndrill: stopped. Your answer later: drill {name} --answer CAUSE", file=sys.stderr)
        return 130


def catalogue() -> str:
    """The drills with their tickets, and how to begin."""
    from course.drills import DRILLS

    lines = [f"{name:10} {_folded(drill.ticket, 11)}" for name, drill in DRILLS.items()]
    return "\n".join([*lines, "", "python -m course drill NAME, or --random"])


# ---- The answer ----


def judge(name: str, answer: str) -> tuple[bool, str]:
    """Whether a cause is that of a drill, and what to say: the debrief, or what to look at."""
    from course.drills import DRILLS

    answer = answer.strip().lower().replace("-", "_").replace(" ", "_")
    if answer not in CAUSES:
        return False, f"{answer[:40]!r} is none of the causes:\n{causes()}"
    if answer == DRILLS[name].cause:
        return True, f"Right: {CAUSES[answer]}.\n\n{debrief(name)}"
    return False, "Not that. " + _folded(NUDGES[answer], 0)


def causes() -> str:
    """All causes that an answer may name."""
    return "\n".join(f"  {cause:18} {words}" for cause, words in CAUSES.items())


def debrief(name: str) -> str:
    """What the chapter says about a drill, for whoever has found its cause."""
    text = README.read_text(encoding="utf-8")
    found = re.search(rf"<!-- drill {name} -->\n(.*?)\n<!-- /drill -->", text, re.DOTALL)
    return re.sub(r"</?(details|summary)[^>]*>\n?", "", found[1]).strip()


# ---- The drill ----


@dataclass(frozen=True)
class Incident:
    """A drill that runs: where, and the folder of its logs."""

    name: str
    url: str
    logs: Path
    process: subprocess.Popen
    stop: threading.Event  # of the clients

    def begin(self) -> None:
        """From here on the fault is there."""
        from course.drills import DRILLS, clients

        with contextlib.suppress(OSError):  # it has ended: the clients will notice
            self.process.stdin.write(b"begin\n")
            self.process.stdin.flush()
        clients.start(self.url, DRILLS[self.name].load, self.stop)


@contextmanager
def incident(name: str, logs: Path) -> Iterator[Incident]:
    """The server of a drill, ready, with its usual clients; ended with the block.

    Errors: NotReady.
    """
    from course.drills import clients

    logs.mkdir(parents=True, exist_ok=True)
    said, stop = logs / "server.log", threading.Event()
    with said.open("wb") as stderr:
        process = _start(name, logs, stderr)
    try:
        url = background.address_when_ready(process, said)
        clients.start(url, clients.USUAL, stop)
        yield Incident(name, url, logs, process, stop)
    finally:
        stop.set()
        background.end(process, process.stdin.close)


def _start(name: str, logs: Path, stderr) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "course.drills.server", name, str(logs)],
        cwd=ROOT,
        env=os.environ | {"COURSE_MODELS": str(MODELS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=sys.platform != "win32",  # Ctrl-C is for us: we end it
        creationflags=subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0,
    )


def play(name: str, calm: float, seconds: float) -> int:
    """Run a drill until the cause is found, the time is over or the learner gives up."""
    print("loading the model ...", flush=True)
    logs = WORK / "drills" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    with incident(name, logs.resolve()) as running:
        print(_opening(running, calm, seconds), flush=True)
        try:
            return _ask(running, calm, time.monotonic() + seconds)
        finally:
            print("stopping the server ...", flush=True)


def _opening(running: Incident, calm: float, seconds: float) -> str:
    return f"""
A load runs by itself: people ask short questions, about one a second.
For {calm:g} s all is well: that is what you compare with. Keep a reading of the metrics now.

  dashboard   {running.url}/dashboard
  metrics     {running.url}/metrics
  logs        {running.logs}

Your answer: {HELP}. In {seconds / 60:g} minutes the server stops by itself.
"""


def _ask(running: Incident, calm: float, end: float) -> int:
    """Answers until one is right."""
    from course.drills import DRILLS

    lines = _lines()
    begin = time.monotonic() + calm
    while time.monotonic() < end:
        until = end if begin is None else min(begin, end)
        try:
            line = lines.get(timeout=max(until - time.monotonic(), 0))
        except queue.Empty:
            if begin is not None and time.monotonic() >= begin:
                begin = None
                running.begin()
                print(f"\n{_folded(DRILLS[running.name].ticket, 0)}\n\ncause> ", end="", flush=True)
            continue
        if line is None:
            print(f"\nnobody to ask here: answer with drill {running.name} --answer CAUSE")
            return 1
        if line.strip() in ("q", "quit", "exit"):
            return 1
        right, text = (
            (False, causes()) if line.strip() in ("", "list", "?") else judge(running.name, line)
        )
        print(text if right else f"{text}\n\ncause> ", end="\n" if right else "", flush=True)
        if right:
            return 0
    print(f"\nThe time is over. Your answer later: drill {running.name} --answer CAUSE")
    return 1


def _lines() -> queue.Queue:
    """What is typed, line by line, and None at the end. Whoever waits for it can stop waiting."""
    typed: queue.Queue = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            typed.put(line)
        typed.put(None)

    threading.Thread(target=read, daemon=True).start()
    return typed


def _folded(text: str, indent: int) -> str:
    return textwrap.fill(text, 92, subsequent_indent=" " * indent)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course drill",
        description="A service with a fault in it. Find the cause from what it shows.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("name", nargs="?", help="without one, all are listed")
    which.add_argument("--random", action="store_true", help="any of them")
    parser.add_argument("--answer", metavar="CAUSE", help="only check this answer")
    parser.add_argument(
        "--calm", type=_positive, default=30.0, metavar="SECONDS", help="until the incident begins"
    )
    parser.add_argument(
        "--minutes", type=_positive, default=10.0, metavar="N", help="until all is stopped"
    )
    return parser


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text[:20]!r}")
    return value
