"""`python -m course report LOGS`: the periodic lines of a service as plots.

For those without Prometheus. A log is what the server printed, or a performance log
(performance-2026-11-30.jsonl), or a folder with such files. What is cut off or damaged is left out
and named; where lines are missing, the curves have a gap.
"""

import argparse
import io
import json
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path

from course import place
from course.empty_arguments import refuse_empty
from course.paths import folder_argument
from course.words import counted
from solutions.json_log import utc
from solutions.periodic_log import FIELDS, Series, format_line, read_series

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"  # Okabe and Ito's
LOG = "performance-*.jsonl"  # what is read of a folder
MOST = 1000  # files below a folder that are looked at for a hint
SHOWN = 3  # folders that are named there
PANELS = (  # title, unit, and for each curve: field, name, colour, line
    (
        "Time to first token",
        "s",
        (
            ("first_token_p50_s", "half are below", BLUE, "-"),
            ("first_token_p95_s", "95 % are below", ORANGE, "--"),
        ),
    ),
    (
        "Inter-token latency",
        "s",
        (
            ("inter_token_p50_s", "half are below", BLUE, "-"),
            ("inter_token_p95_s", "95 % are below", ORANGE, "--"),
        ),
    ),
    ("Throughput", "tokens/s", (("tokens_per_s", "new tokens", BLUE, "-"),)),
    ("Memory held", "GB", (("memory", "process and device", BLUE, "-"),)),
    ("KV cache", "share", (("kv", "reserved", BLUE, "-"),)),
    (
        "Requests",
        "requests",
        (
            ("running", "running", BLUE, "-"),
            ("waiting", "waiting", ORANGE, "--"),
            ("rejected", "rejected since the last line", GREEN, ":"),
        ),
    ),
)


def main(argv: list[str]) -> int:
    """The verb; 0 when there was something to draw, and nothing was missing; 1 otherwise."""
    args = _arguments(argv)
    if args.out.is_dir() or args.out.suffix.lower() != ".png":
        print(f"report: --out {args.out} must be a file whose name ends in .png", file=sys.stderr)
        return 1
    try:
        place.check(args.out)
        found = read_logs(args.logs)
    except ValueError as problem:
        print(f"report: {problem}", file=sys.stderr)
        return 1
    except OSError as problem:
        print(f"report: {problem.filename} cannot be read ({problem.strerror})", file=sys.stderr)
        return 1
    complaints = missing(found)
    complaints += [told for path in args.logs if path.is_dir() and (told := _elsewhere(path))]
    print("\n".join([summary(found), *complaints]))
    records = [record for series in found.values() for record in series.records]
    if not records:
        print("report: no periodic line is in there: nothing to draw", file=sys.stderr)
        return 1
    try:
        data = picture(found)
    except (ValueError, OverflowError) as problem:  # of matplotlib, about years and sizes
        print(f"report: these numbers cannot be drawn ({problem})", file=sys.stderr)
        return 1
    try:
        place.put(args.out, data)
    except ValueError as problem:
        print(f"report: {problem}", file=sys.stderr)
        return 1
    print(f"plots: {args.out}")
    return 1 if complaints else 0


def read_logs(logs: Sequence[Path]) -> dict[str, Series]:
    """What is in each file, by its name; of a folder, in its performance logs. Each file once.

    Errors: OSError for what cannot be read.
    """
    files = []
    for path in logs:
        files += sorted(path.glob(LOG)) if path.is_dir() else [path]
    once = {path.resolve(): path for path in reversed(files)}  # of two names, the first
    return {str(path): _read(path) for path in files if once[path.resolve()] is path}


def _elsewhere(folder: Path) -> str | None:
    """Where below a folder the logs are that it has none of itself; None where it has some."""
    if any(folder.glob(LOG)):
        return None
    said = f"{folder} has no file {LOG} (the performance log of serve --log-dir)"
    found = chain(folder.glob(f"*/{LOG}"), folder.glob(f"*/*/{LOG}"))  # no deeper: it may be /
    below = sorted({str(path.parent) for path in islice(found, MOST)})
    if not below:
        return f"{said}, nor have the folders in it"
    more = f" and {len(below) - SHOWN} more" if len(below) > SHOWN else ""
    return f"{said}, but there are some in {', '.join(below[:SHOWN])}{more}: name one"


def _read(path: Path) -> Series:
    data = path.read_bytes()
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # what > of an older PowerShell writes
    text = data.decode("utf-16" if wide else "utf-8-sig", errors="replace")
    if path.suffix == ".jsonl":
        text = "".join(map(_as_plain, text.splitlines(keepends=True)))
    return read_series(text)


def _as_plain(line: str) -> str:
    """A line of JSON as a plain one; what is no record becomes a line that counts as damaged."""
    end = "\n" if line.endswith("\n") else ""
    try:
        found = json.loads(line)
        moment = datetime.fromisoformat(found["at"]).timestamp()
        return format_line(moment, {name: found[name] for name in FIELDS}) + end
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError, OSError):
        return f" llm {end}"


def summary(found: dict[str, Series]) -> str:
    """A line for each field: smallest, median and largest of all that is there."""
    records = [record for series in found.values() for record in series.records]
    if not records:
        return f"{counted(len(found), 'file')}, no lines"
    times = [record["time"] for record in records]
    lines = [f"{counted(len(records), 'line')} from {utc(min(times))} to {utc(max(times))}", ""]
    lines.append(f"{'':20}{'smallest':>12}{'median':>12}{'largest':>12}")
    for name in FIELDS[1:]:
        values = sorted(record[name] for record in records if record[name] is not None)
        shown = (values[0], values[len(values) // 2], values[-1]) if values else ("-",) * 3
        lines.append(f"{name:20}" + "".join(f"{_short(value):>12}" for value in shown))
    return "\n".join([*lines, ""])


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def missing(found: dict[str, Series]) -> list[str]:
    """A sentence for all that is damaged, and for each gap."""
    told = []
    for name, series in found.items():
        if series.damaged:
            places = ", ".join(map(str, series.damaged[:20]))
            more = f" and {len(series.damaged) - 20} more" if len(series.damaged) > 20 else ""
            told.append(f"{name}: damaged or cut off, left out: line {places}{more}")
        for before, after, lines in series.gaps:
            are = "is" if lines == 1 else "are"
            said = f"{counted(lines, 'line')} {are} missing from {utc(before)} to {utc(after)}"
            told.append(f"{name}: {said}")
    return told


def picture(found: dict[str, Series]) -> bytes:
    """All fields as a PNG file. Errors: ValueError and OverflowError of what cannot be drawn."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 2, figsize=(11, 9), layout="constrained", sharex=True)
    for axis, (title, unit, curves) in zip(axes.flat, PANELS, strict=True):
        for field, name, colour, line in curves:
            times, values = curve(found, field, 1e-9 if unit == "GB" else 1)
            marker = "." if len(times) < 100 else ""
            axis.plot(times, values, line, color=colour, label=name, marker=marker)
        axis.set(title=title, ylabel=unit)
        axis.set_ylim(0, 1.4 * float(axis.get_ylim()[1]))  # room for the legend
        axis.grid(alpha=0.3)
        axis.legend(loc="upper left", fontsize="small", ncols=3)
    for axis in axes[-1]:
        axis.set_xlabel("time (UTC)")
        axis.tick_params(axis="x", rotation=30)
    data = io.BytesIO()
    try:
        figure.savefig(data, format="png", dpi=120)
    finally:
        plt.close(figure)
    return data.getvalue()


def curve(
    found: dict[str, Series], field: str, scale: float = 1
) -> tuple[list[datetime], list[float]]:
    """Times and scaled values of a field; NaN breaks the line, in gaps and for None."""
    points = []
    for series in found.values():
        points += [(record["time"], record[field]) for record in series.records]
        points += [((before + after) / 2, None) for before, after, _ in series.gaps]
    points.sort(key=lambda point: point[0])
    times = [datetime.fromtimestamp(moment, UTC) for moment, _ in points]
    return times, [math.nan if value is None else value * scale for _, value in points]


def _log(text: str) -> Path | None:
    return folder_argument(text) if text.strip() else None


def _arguments(argv: list[str]) -> argparse.Namespace:
    """The arguments. An empty log is what make gives for a variable that was not set."""
    parser = _parser()
    args = parser.parse_args(argv)
    refuse_empty(parser, {"LOG": None if None in args.logs else args.logs}, ["LOG"])
    return args


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course report",
        description="Draw the periodic lines of a service, and say what is missing in them.",
        epilog="Exit code: 0 when all is there, 1 when something is missing or damaged.",
    )
    parser.add_argument("logs", nargs="+", type=_log, metavar="LOG", help="or a folder")
    parser.add_argument("--out", type=folder_argument, default=Path("report.png"), metavar="PNG")
    return parser
