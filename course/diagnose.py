"""`python -m course diagnose BEFORE AFTER --seconds S`: what two readings of /metrics point at.

A reading is what `curl -s http://127.0.0.1:8000/metrics -o FILE` keeps. Two more, of a time when
all was well, let it also find what is only wrong in comparison. The exit code is 0 when nothing was
found, 1 when something was, and 2 when that cannot be said: a reading cannot be used, a counter
fell, or the two of a good time hold too little to compare with.
"""

import argparse
import math
import sys
from pathlib import Path

from course.diagnose_readings import Pair, pair
from course.empty_arguments import refuse_empty
from solutions.diagnose import Figures, Finding, diagnose
from solutions.vitals import figures

COMPARED = "huge_request, slow_machine, and garbled_output without NaN"
AGAIN = "the server began anew between the two, or they are swapped"
NEEDED = {  # cause that is only found in comparison: what the usual readings must hold for it
    "huge_request": (("longest_prompt", "inter_token_p95"), "no second token of an answer"),
    "slow_machine": (("step_p50",), "no step"),
    "garbled_output without NaN": (("stop", "length"), "no answer that ended"),
}


def main(argv: list[str]) -> int:
    """The verb; the exit code."""
    args = _arguments(argv)
    try:
        readings = pair(args.before, args.after)
        healthy = pair(*args.usual) if args.usual else None
        if healthy and args.before.samefile(args.usual[0]) and args.after.samefile(args.usual[1]):
            raise ValueError("--usual names the same two readings: name two of a better time")
    except ValueError as problem:
        print(f"diagnose: {problem}", file=sys.stderr)
        return 2
    now, usual = figures(readings.before, readings.after, args.seconds), None
    if healthy and not healthy.fell:  # no rule asks how long it was
        usual = figures(healthy.before, healthy.after, math.nan) | {"seconds": None}
    found = diagnose(now, usual)
    if args.figures:
        print(table(now, usual) + "\n")
    unsaid = [*_trouble(readings), *_not_compared(healthy, usual)]
    print(
        "\n".join([*report(found, now, bool(unsaid)), *unsaid, *_remarks(readings, healthy, usual)])
    )
    if readings.fell:
        return 2
    return 1 if found else 2 if unsaid else 0


def report(found: list[Finding], now: Figures, unsaid: bool) -> list[str]:
    """Every cause with its evidence and the next step. unsaid: not all could be looked for."""
    lines = []
    for finding in found:
        lines += [f"{finding.cause}: {finding.evidence}", f"  {finding.step}"]
    if not found and unsaid:
        return ["CANNOT TELL: nothing found, but not all could be looked for."]
    if not found:
        quiet = not now["steps"] and not now["finished"]
        lines.append("nothing found" + ": no step, and no request ended" * quiet)
    return lines


def _trouble(readings: Pair) -> list[str]:
    """Why what is found in these two is not to be trusted."""
    if not readings.fell:
        return []
    return [f"A counter fell: {AGAIN} ({readings.fell}). Take two new ones, in their order."]


def _not_compared(healthy: Pair | None, usual: Figures | None) -> list[str]:
    """What was to be compared with a good time, and could not be."""
    if healthy is None:
        return []
    if usual is None:
        return [
            f"A counter fell in the usual readings: {AGAIN} ({healthy.fell}). "
            f"Not looked for: {COMPARED}."
        ]
    short = _too_little(usual)
    if not short:
        return []
    told = ", ".join(f"{cause} ({held})" for cause, held in short.items())
    none = "" if usual["finished"] else "In the usual readings no request ended. "
    return [
        f"{none}Not looked for, for what they do not hold: {told}. Take two of a time when all was "
        "well, and requests were answered."
    ]


def _too_little(usual: Figures) -> dict[str, str]:
    """Causes that cannot be found, and what the usual readings hold too little of."""
    return {cause: held for cause, (names, held) in NEEDED.items() if not _known(usual, names)}


def _known(usual: Figures, names: tuple[str, ...]) -> bool:
    """Whether there is something to compare with: of counts, that they are not all 0."""
    values = [usual[name] for name in names]
    return None not in values and any(values)


def _remarks(readings: Pair, healthy: Pair | None, usual: Figures | None) -> list[str]:
    """What the reader should know besides."""
    told = []
    if healthy is None:
        told.append(f"(not looked for without --usual: {COMPARED})")
    elif healthy.copied:
        told.append("(the usual readings are equal to the byte)")
    if usual and usual["length"] > usual["stop"]:
        told.append(
            "(garbled_output without NaN cannot be seen: usually, too, most answers end by length)"
        )
    if readings.copied:
        told.append(
            "(the two readings are equal to the byte: one is a copy, or nothing has moved at all)"
        )
    return told


def table(now: Figures, usual: Figures | None) -> str:
    """Every figure, now and usual; "-" for what is not known."""
    rows = [("figure", "now", "usual")[: 3 if usual else 2]]
    for name, value in now.items():
        rows.append((name, *(_short(v) for v in ([value, usual[name]] if usual else [value]))))
    return "\n".join(f"{row[0]:18}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _seconds(text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text[:20]!r}")
    return value


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _arguments(argv: list[str]) -> argparse.Namespace:
    """The arguments. An empty one is what make gives for a variable that was not set."""
    parser = _parser()
    args = parser.parse_args(argv)
    given = {"BEFORE": args.before, "AFTER": args.after, "--seconds": args.seconds}
    refuse_empty(parser, given, ("A", "B", "S"))
    if args.usual and None in args.usual:
        parser.error("--usual needs two readings, and one is empty: write both paths")
    return args


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course diagnose",
        description="Name the cause that two readings of /metrics point at. A reading is what "
        "`curl -s http://127.0.0.1:8000/metrics -o FILE` keeps.",
        epilog="Exit code: 0 nothing was found, 1 something was, 2 that cannot be said: a reading "
        "cannot be used, or there is too little to compare with.",
    )
    parser.add_argument("before", type=_path, metavar="BEFORE")
    parser.add_argument("after", type=_path, metavar="AFTER")
    parser.add_argument(
        "--seconds",
        type=_seconds,
        required=True,
        metavar="S",
        help="from the one reading to the other",
    )
    parser.add_argument(
        "--usual",
        nargs=2,
        type=_path,
        metavar=("BEFORE", "AFTER"),
        help="two readings of a time when all was well, to compare with",
    )
    parser.add_argument("--figures", action="store_true", help="show every figure too")
    return parser
