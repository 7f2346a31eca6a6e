"""`python -m course diagnose BEFORE AFTER --seconds S`: what two readings of /metrics point at.

A reading is what `curl -s http://127.0.0.1:8000/metrics -o FILE` keeps. Two more, of a time when
all was well, let it also find what is only wrong in comparison. The exit code is 0 when nothing was
found, 1 when something was, and 2 when a reading cannot be used.
"""

import argparse
import math
import sys
from pathlib import Path

from solutions.diagnose import Figures, Finding, diagnose
from solutions.vitals import Samples, figures, read_exposition

EVERY = "llm_step_seconds_count"  # a series that each exposition of this server has
COMPARED = "huge_request, slow_machine, and garbled_output without NaN"


def main(argv: list[str]) -> int:
    """The verb; the exit code."""
    args = _parser().parse_args(argv)
    try:
        before, after = (reading(path) for path in (args.before, args.after))
        now, usual = figures(before, after, args.seconds), None
        if args.usual:  # no rule asks how long it was
            usual = figures(*map(reading, args.usual), math.nan) | {"seconds": None}
    except ValueError as problem:
        print(f"diagnose: {problem}", file=sys.stderr)
        return 2
    found = diagnose(now, usual)
    if args.figures:
        print(table(now, usual) + "\n")
    print(report(found, now, usual))
    if began_anew(before, after):
        print("A counter fell: the server began anew between the two, or they are swapped.")
    return 1 if found else 0


def reading(path: Path) -> Samples:
    """A saved exposition.

    Errors: ValueError naming the file, for one that cannot be read, is not whole, or is not ours.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ValueError(f"{path} cannot be read ({problem.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not UTF-8: save it by curl's own -o, not by > in PowerShell"
        ) from None
    try:
        samples = read_exposition(text)
        figures(samples, samples, 1.0)  # bounds that are no numbers are seen here
    except Exception:  # the parser of prometheus_client raises whatever it meets
        raise ValueError(f"{path} is damaged, or not in Prometheus' text format") from None
    if EVERY not in samples:
        raise ValueError(f"{path} has no {EVERY}: is it what /metrics of this server says?")
    if not text.endswith("\n"):
        raise ValueError(f"{path} is cut off: its last line has no end")
    return samples


def report(found: list[Finding], now: Figures, usual: Figures | None) -> str:
    """Every cause with its evidence and the next step; what was not looked for."""
    lines = []
    for finding in found:
        lines += [f"{finding.cause}: {finding.evidence}", f"  {finding.step}"]
    if not found:
        quiet = not now["steps"] and not now["finished"]
        lines.append("nothing found" + ": no step, and no request ended" * quiet)
    if usual is None:
        lines.append(f"(not looked for without --usual: {COMPARED})")
    return "\n".join(lines)


def table(now: Figures, usual: Figures | None) -> str:
    """Every figure, now and usual; "-" for what is not known."""
    rows = [("figure", "now", "usual")[: 3 if usual else 2]]
    for name, value in now.items():
        rows.append((name, *(_short(v) for v in ([value, usual[name]] if usual else [value]))))
    return "\n".join(f"{row[0]:18}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def began_anew(before: Samples, after: Samples) -> bool:
    """Whether a counter is smaller than it was."""
    return any(
        value < before.get(name, {}).get(key, 0.0)
        for name, values in after.items()
        if name.endswith(("_total", "_count"))
        for key, value in values.items()
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text[:20]!r}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course diagnose",
        description="Name the cause that two readings of /metrics point at. A reading is what "
        "`curl -s http://127.0.0.1:8000/metrics -o FILE` keeps.",
        epilog="Exit code: 0 nothing was found, 1 something was, 2 a reading cannot be used.",
    )
    parser.add_argument("before", type=Path, metavar="BEFORE")
    parser.add_argument("after", type=Path, metavar="AFTER")
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
        type=Path,
        metavar=("BEFORE", "AFTER"),
        help="two readings of a time when all was well, to compare with",
    )
    parser.add_argument("--figures", action="store_true", help="show every figure too")
    return parser
