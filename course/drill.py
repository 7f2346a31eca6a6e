"""`python -m course drill NAME`: a service with a fault in it, to be found from what it shows.

The server is a process of its own; the clients are threads here. For a while all is well, then the
incident begins. The learner has the dashboard, the logs and the metrics, and answers with a cause.
"""

import argparse
import difflib
import queue
import random
import re
import string
import sys
import textwrap
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from course.drills import DRILLS, typed
from course.drills.causes import CAUSES, NUDGES
from course.model import ModelError, ensure_model
from course.paths import ROOT, WORK

if TYPE_CHECKING:
    from course.drills.incident import Incident  # later: it imports what talks over HTTP

README = ROOT / "chapters" / "08_monitoring" / "README.md"
LOOK = 0.5  # seconds between two looks whether the server still runs
STOP = 20  # seconds that a server takes to end, about, when one of its steps hangs
HELP = "a cause; `list` shows the causes, `quit` ends the drill"
LISTS = ("", "list", "?", "help")  # what shows the causes instead of being an answer
QUITS = ("q", "quit", "exit")
ENDS = string.punctuation + string.whitespace + "“”„‘’«»…"  # of a name or a cause, of no meaning


def main(argv: list[str]) -> int:
    """The verb: 0 when the cause was found, 1 when not, 130 after Ctrl-C."""
    args = _arguments(argv)
    name = random.choice(sorted(DRILLS)) if args.random else args.name
    if name is None:
        print(catalogue())
        return 0
    name = _plain(name)
    if name not in DRILLS:
        print(f"drill: there is no drill {args.name[:40]!r}{_meant(name, DRILLS)}", file=sys.stderr)
        print(f"There are:\n\n{catalogue()}", file=sys.stderr)
        return 2
    if args.answer is not None and args.answer.strip().lower() in LISTS:
        print(causes())
        return 0 if args.answer.strip() else 1
    if args.answer is not None:
        right, text = judge(name, args.answer)
        print(text)
        return 0 if right else 1
    from course import background

    try:
        return play(name, args.calm, 60 * args.minutes)
    except (background.NotReady, ModelError) as problem:
        print(f"drill: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ndrill: stopped. Your answer later: {_later(name)}", file=sys.stderr)
        return 130


def catalogue() -> str:
    """The drills with their tickets, and how to begin."""
    lines = [f"{name:10} {_folded(drill.ticket, 11)}" for name, drill in DRILLS.items()]
    return "\n".join([*lines, "", "python -m course drill NAME, or --random"])


# ---- The answer ----


def judge(name: str, answer: str) -> tuple[bool, str]:
    """Whether a cause is that of a drill, and what to say: the debrief, or what to look at."""
    typed_, answer = answer.strip(), _plain(answer)
    if answer not in CAUSES:
        said = f"{typed_[:40]!r} is none of the causes"
        return False, said + (_meant(answer, CAUSES) or f":\n{causes()}")
    if answer == DRILLS[name].cause:
        return True, f"Right: {CAUSES[answer]}.\n\n{debrief(name)}"
    return False, "Not that. " + _folded(NUDGES[answer], 0)


def _plain(text: str) -> str:
    """A name or a cause as it is in the tables, however it was written."""
    return "_".join(re.findall(r"[^\s_-]+", text.strip(ENDS).lower()))


def _meant(text: str, names: Iterable[str]) -> str:
    """A question where something like it is among these names."""
    near = difflib.get_close_matches(text, names, n=1, cutoff=0.75)
    return f": did you mean {near[0]}?" if near else ""


def causes() -> str:
    """All causes that an answer may name."""
    return "\n".join(f"  {cause:18} {words}" for cause, words in CAUSES.items())


def debrief(name: str) -> str:
    """What the chapter says about a drill, for whoever has found its cause."""
    text = README.read_text(encoding="utf-8")
    found = re.search(rf"<!-- drill {name} -->\n(.*?)\n<!-- /drill -->", text, re.DOTALL)
    return re.sub(r"</?(details|summary)[^>]*>\n?", "", found[1]).strip()


# ---- The drill ----


def play(name: str, calm: float, seconds: float) -> int:
    """Run a drill until the cause is found, the time is over or the learner gives up."""
    from course.drills.incident import incident

    lines = typed.lines()
    if typed.nobody(lines):
        print(_nobody(name))
        return 1
    ensure_model()
    print("loading the model ...", flush=True)
    logs = WORK / "drills" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    with incident(name, logs.resolve()) as running:
        print(_opening(running, calm, seconds), flush=True)
        try:
            return _ask(running, lines, calm, time.monotonic() + seconds)
        finally:
            print(f"stopping the server; it may take {STOP} s ...", flush=True)


def _opening(running: "Incident", calm: float, seconds: float) -> str:
    from course.drills.clients import THOUGHT, USUAL

    return f"""
A load runs by itself: {len(USUAL)} people ask, each again {THOUGHT:g} s after the answer.
For {calm:g} s all is well: that is what you compare with. Keep a reading of the metrics now.
The dashboard does not show everything: /metrics has more.

  dashboard   {running.url}/dashboard
  metrics     {running.url}/metrics
  logs        {running.logs}

Your answer: {HELP}. In {_minutes(seconds)} the server stops by itself.
"""


def _minutes(seconds: float) -> str:
    minutes = f"{seconds / 60:g}"
    return f"{minutes} minute{'s' * (minutes != '1')}"


def _ask(running: "Incident", lines: queue.Queue, calm: float, end: float) -> int:
    """Answers until one is right."""
    begin = time.monotonic() + calm
    while time.monotonic() < end:
        until = min(begin or end, end, time.monotonic() + LOOK)
        try:
            line = lines.get(timeout=max(until - time.monotonic(), 0))
        except queue.Empty:
            if running.process.poll() is not None:
                print(f"\n{_ended(running)}")
                return 1
            if begin is not None and time.monotonic() >= begin:
                begin = None
                running.begin()
                print(f"\n{_folded(DRILLS[running.name].ticket, 0)}\n\ncause> ", end="", flush=True)
            continue
        if line is None:
            print(f"\n{_nobody(running.name)}")
            return 1
        word = line.strip().lower()
        if word in QUITS:
            return 1
        right, text = (False, causes()) if word in LISTS else judge(running.name, line)
        print(text if right else f"{text}\n\ncause> ", end="\n" if right else "", flush=True)
        if right:
            return 0
    print(f"\nThe time is over. Your answer later: {_later(running.name)}")
    return 1


def _nobody(name: str) -> str:
    return f"nobody to ask here: answer with {_later(name)}"


def _later(name: str) -> str:
    """What to type for an answer when the server has ended."""
    return f"python -m course drill {name} --answer CAUSE"


def _ended(running: "Incident") -> str:
    return (
        f"The server has ended by itself (exit code {running.process.returncode}), which is no "
        f"part of the drill: its last words are in {running.logs / 'server.log'}"
    )


def _folded(text: str, indent: int) -> str:
    return textwrap.fill(text, 92, subsequent_indent=" " * indent)


def _arguments(argv: list[str]) -> argparse.Namespace:
    """The arguments, when they go together."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.answer is not None and args.name is None:
        parser.error("--answer needs the NAME of the drill that it answers")
    if args.calm >= 60 * args.minutes:
        parser.error(
            f"--calm {args.calm:g} s is as long as the whole drill (--minutes {args.minutes:g}): "
            "the incident would never begin"
        )
    return args


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course drill",
        description="A service with a fault in it. Find the cause from what it shows.",
        epilog="The server takes a free port, whatever LLM_PORT says, and prints its address: a "
        "service of your own may run beside it.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("name", nargs="?", help="without one, all are listed")
    which.add_argument("--random", action="store_true", help="any of them")
    parser.add_argument(
        "--answer", metavar="CAUSE", help="only check this answer; `list` shows the causes"
    )
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
        raise argparse.ArgumentTypeError(f"must be above 0 and below a million, not {text[:20]!r}")
    return value
