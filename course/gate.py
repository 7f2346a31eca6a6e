"""`python -m course gate BEFORE AFTER`: may the upgrade go out?

Two files of `python -m course load --out`, made on one machine with the same settings. The exit
code is 0 when no figure got worse, 1 when one did, and 2 when that cannot be said: the files do not
fit each other, or there is too much noise.
"""

import argparse
import json
import re
import statistics
import sys
from pathlib import Path

from course.empty_arguments import refuse_empty
from solutions.upgrade_gate import (
    SAME,
    Benchmark,
    Figure,
    Verdict,
    judge_upgrade,
    read_benchmark,
)

EXIT = {"pass": 0, "fail": 1, "unclear": 2, "incomparable": 2}
SAID = {
    "pass": "PASS: no figure got worse by more than {tolerance} % (a share: a hundredth).",
    "fail": "FAIL: it got worse, and not by chance ({level} % false alarms, all together):",
    "unclear": "CANNOT TELL, for the reasons below. Against noise, repeat more (load --repeat 5), "
    "with nothing else running:",
    "incomparable": "CANNOT TELL: these two files cannot be compared:",
}


def main(argv: list[str]) -> int:
    """The verb; the exit code."""
    args = _arguments(argv)
    try:
        before, after = (read_benchmark(path) for path in (args.before, args.after))
    except ValueError as problem:
        print(f"gate: {problem}", file=sys.stderr)
        return 2
    except OSError as problem:
        print(f"gate: {problem.filename} cannot be read ({problem.strerror})", file=sys.stderr)
        return 2
    if _same(Path(args.before), Path(args.after)):
        twice = (
            f"{args.before} is named twice"
            if args.before == args.after
            else (f"{args.before} and {args.after} are one file, or one is a copy of the other")
        )
        print(f"gate: CANNOT TELL: {twice}: name that of before and that of after", file=sys.stderr)
        return 2
    verdict = judge_upgrade(before, after, args.tolerance, args.level)
    print(report(before, after, verdict, args.tolerance, args.level))
    return EXIT[verdict.outcome]


def _same(before: Path, after: Path) -> bool:
    """Whether both hold one run: no two runs have equal times, nor were made in one second."""
    if before.samefile(after):
        return True
    both = before.is_file() and after.is_file()  # a pipe cannot be read again
    return both and before.read_bytes() == after.read_bytes()


def report(
    before: Benchmark, after: Benchmark, verdict: Verdict, tolerance: float, level: float
) -> str:
    """Every figure before and after, then the verdict with its reasons."""
    lines = []
    if verdict.comparisons:
        lines += [*_table(before, after, verdict), ""]
    said = SAID[verdict.outcome]
    lines.append(said.format(tolerance=_percent(tolerance), level=_percent(level)))
    lines += [f"  {_reason(reason, before, after)}" for reason in verdict.reasons]
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)


def _percent(share: float) -> str:
    """A share in percent, without a power of ten."""
    return f"{100 * share:.6f}".rstrip("0").rstrip(".")


def _reason(reason: str, before: Benchmark, after: Benchmark) -> str:
    """A reason of the verdict, in fewer words where it holds two whole objects, or no change."""
    for field in SAME:
        one, other = getattr(before, field), getattr(after, field)
        if isinstance(one, dict) and reason == f"{field}: {one} before, {other} after":
            return f"{field}: {_differences(one, other)}"
    return re.sub(r": 0\.0% (better|worse),", ": no change,", reason, count=1)


def _differences(one: dict, other: dict) -> str:
    """What is not the same in two objects, key by key."""
    missing = object()
    return "; ".join(
        f"{key} {_value(one, key)} before, {_value(other, key)} after"
        for key in {**one, **other}
        if one.get(key, missing) != other.get(key, missing)
    )


def _value(found: dict, key: str) -> str:
    """A value as the file has it."""
    return json.dumps(found[key], ensure_ascii=False) if key in found else "not given"


def _table(before: Benchmark, after: Benchmark, verdict: Verdict) -> list[str]:
    """Means, in columns; geometric ones where the change is a ratio."""
    rows = [("figure", "before", "after", "unit", "worse by", "verdict")]
    for name, compared in verdict.comparisons.items():
        one, other = before.figures[name], after.figures[name]
        change = "?" if compared.change is None else _change(compared.change)
        means = (f"{_mean(figure):.4g}" for figure in (one, other))
        rows.append((name, *means, one.unit, change, compared.verdict))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _change(change: float) -> str:
    """Percent with a sign; nothing has none but a plus."""
    told = f"{100 * change:+.1f} %"
    return "+0.0 %" if told == "-0.0 %" else told


def _mean(figure: Figure) -> float:
    """The mean that the gate compares."""
    if figure.unit == "ratio" or min(figure.values) <= 0:
        return statistics.fmean(figure.values)
    return statistics.geometric_mean(figure.values)


def _share(text: str) -> float:
    """A share: 5%, or 0.05."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)\s*(%?)", text, re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(f"must be a share, such as 5%, not {text[:20]!r}")
    return float(match[1]) / (100 if match[2] else 1)


def _level(text: str) -> float:
    level = _share(text)
    if not 0 < level < 0.5:
        raise argparse.ArgumentTypeError(f"must be above 0 and below 50%, not {text[:20]!r}")
    return level


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = _parser()
    args = parser.parse_args(argv)
    refuse_empty(parser, {"BEFORE": args.before, "AFTER": args.after}, ("A", "B"))
    return args


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course gate",
        description="Compare two benchmark files of `python -m course load --out`.",
        epilog="Exit code: 0 nothing got worse, 1 something did, 2 that cannot be said.",
    )
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", metavar="AFTER")
    parser.add_argument(
        "--tolerance",
        type=_share,
        default=0.05,
        metavar="SHARE",
        help="how much worse a time or a speed may get",
    )
    parser.add_argument(
        "--level",
        type=_level,
        default=0.05,
        metavar="SHARE",
        help="how often a gate of two equal versions may fail by chance",
    )
    return parser
