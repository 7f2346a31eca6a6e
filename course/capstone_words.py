"""What the capstone says: of a check, of a server that does not start, and at the end."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from course import mine, mine_places
from course.background import WARMING, NotReady
from course.capstone_checks import CHECKS, Check
from course.mine import Plan
from course.submission import build

# What a request goes through, in the order in which it does.
LOADED = ("config", "safetensors_file", "checkpoint", "loader")
STEP = (
    *("request", "waiting", "admission", "chunking", "static_batching", "kv_cache", "forward_pass"),
    *("quantized", "sampling", "sampler", "ending", "bookkeeping", "batcher", "engine_thread"),
)
WATCHED = ("request_timing", "histogram", "metrics", "json_log", "periodic_log", "collector")
SERVED = (
    *("lifecycle", "bodies", "backpressure", "channel", "detokenizer", "stopping", "streaming"),
    *("responses", "results"),
)
MADE = ("waiting", "admission", "batcher", "engine_thread", "backpressure", "results", "lifecycle")
LOADING = (*LOADED, "forward_pass", "kv_cache", *MADE, *WATCHED)
FIRST = (*STEP, "lifecycle", "responses", *WATCHED)
WAYS = {
    "loading": (*LOADED, *FIRST),
    "one request": ("chat", *LOADED, *STEP, *SERVED, *WATCHED),
    "streaming": ("chat", *LOADED, *STEP, *SERVED, *WATCHED),
    "refusals": ("lifecycle", "bodies", "responses", "streaming", "engine_thread"),
}
WAY = (*LOADED, *STEP, *SERVED, *WATCHED)  # of the other checks: they ask for plain text
FRAME = re.compile(r"(\w+_[0-9a-f]{8}\.py):(\d+) \w+")  # of a built module, as the logs have it
MOST = 12  # lines of a server that are repeated


# ---- A check ----


def told(check: Check, problem: str | None, plans: Sequence[Plan]) -> str:
    """The line of a check; if it failed, what was seen and which layers to look at."""
    lines = [f"{'passed' if problem is None else 'FAILED':8}{check.name:15}{check.promise}"]
    if problem is not None:
        seen = FRAME.sub(lambda found: _in_file(found, plans), problem)
        lines += _indented(f"seen: {printable(seen)}")
        lines += _indented(look_at(plans, check.layers, WAYS.get(check.name, WAY)))
    return "\n".join(lines)


def look_at(plans: Sequence[Plan], likely: Sequence[str], way: Sequence[str]) -> str:
    """Which of the learner's layers to look at: the likely ones, else all on the way.

    Args:
        likely: modules, the likeliest first.
        way: all modules that were gone through.
    """
    files = {module: plan.submission.shown_path for plan in plans for module in plan.mine}
    gone = dict.fromkeys([*likely, *way])
    own = [module for module in gone if module in files]
    if not own:
        return "look at: none of your layers is on its way, and ours are known to pass: tell us"
    first = [module for module in likely if module in files] or own
    said = f"look at: {_by_file(first, files)}"
    others = dict.fromkeys(files[module] for module in own if module not in first)
    others = [file for file in others if file not in {files[module] for module in first}]
    if others:
        said += f"; also on its way: {', '.join(others)}"
    return said + ("; what is ours is known to pass" if len(own) < len(gone) else "")


def _by_file(modules: Sequence[str], files: dict[str, str]) -> str:
    where = dict.fromkeys(files[module] for module in modules)
    places = [(file, [one for one in modules if files[one] == file]) for file in where]
    return "; ".join(f"{', '.join(found)} in {file}" for file, found in places)


def _in_file(found: re.Match, plans: Sequence[Plan]) -> str:
    """A frame of a log, as a place in the learner's file."""
    for plan in plans:
        if plan.submission and found[1].startswith(f"{plan.chapter.name}_"):
            built = build(plan.submission, mine.WORK)
            if built.path.name == found[1]:
                return mine_places.in_file(plan.submission, built, int(found[2])) or found[0]
    return found[0]


def _indented(text: str) -> list[str]:
    pad = " " * 23
    wrap = textwrap.TextWrapper(100, pad, pad, break_long_words=False, break_on_hyphens=False)
    return wrap.wrap(text)


def printable(text: str) -> str:
    """On one line, without what would do something to a terminal."""
    return _shown(" ".join(text.split()))


def _shown(line: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in line)


# ---- A server that does not start ----


def doing(said: str) -> str:
    """How far a server that said this has come."""
    if WARMING in said:
        return "computing its first request"
    return "putting your layers together and loading the model"


def places(said: str) -> list[str]:
    """Where it stood in the learner's files, each time that it was asked."""
    return [
        line.removeprefix(mine_places.NOW_IN)
        for line in said.split("\n")
        if line.startswith(mine_places.NOW_IN)
    ]


def not_started(problem: NotReady, plans: Sequence[Plan]) -> str:
    """Why the server did not come up: what it said, where it stands, or what it went through."""
    lines = [problem.why + ("" if problem.code is None else f", while {doing(problem.said)}")]
    if problem.code is None:
        lines[0] += f": it is still {doing(problem.said)}"
    standing = places(problem.said) if problem.code is None else []
    words = [
        line
        for line in problem.said.rstrip().split("\n")
        if line.strip() and WARMING not in line and not line.startswith(mine_places.NOW_IN)
    ]
    lines += [f"  {_shown(line)}" for line in words[-MOST:]]
    if standing:
        lines.append(f"  it stands in {standing[-1]}")
    elif "raised in" not in problem.said:
        if not words:
            what = "did not come back" if problem.code is None else "ended the process by itself"
            lines.append(f"  it gave no reason: something in it {what}")
        way = FIRST if WARMING in problem.said else LOADING
        lines.append(f"  {look_at(plans, (), way)}")
    return "\n".join(lines)


# ---- The end ----


def summary(found: Sequence[tuple[Check, str | None]], plans: Sequence[Plan], name: str) -> str:
    """What was built by whom, and what it passed: files with their whole SHA-256. What failed is
    named last, where it is seen.
    """
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    whole = sum(plan.submission is not None and not plan.reference for plan in plans)
    failed = [check.name for check, problem in found if problem is not None]
    lines = [
        "",
        f"An inference engine, built by {printable(name) or 'you'}",
        f"{now}: {len(found) - len(failed)} of {len(found)} checks passed",
    ]
    if len(found) < len(CHECKS):
        lines.append(f"(not all: {len(CHECKS)} make the capstone)")
    lines.append(f"{whole} of {len(plans)} chapters are all your own")
    lines += _hashes(plans)
    if failed:
        lines += ["", f"FAILED: {', '.join(failed)} (what was seen stands above the hashes)"]
    return "\n".join(lines)


def _hashes(plans: Sequence[Plan]) -> Iterator[str]:
    for plan in plans:
        for sha256, file, what in mine.sources(plan):
            yield f"  {file}: {what}"
            yield f"    SHA-256 {sha256}"
