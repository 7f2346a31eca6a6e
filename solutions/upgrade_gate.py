"""Chapter 08: two benchmark files, one before and one after an upgrade, and a verdict."""

import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path

SCHEMA = "course.bench/1"
SAME = ("machine", "model", "settings")  # what must not differ between two files
POINT = 0.01  # how much worse a share may get: a percentage point


@dataclass(frozen=True)
class Figure:
    """One figure of a benchmark: its unit, "lower" or "higher", and a value per repetition."""

    unit: str
    better: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark file says. figures by name, in the order of the file."""

    machine: dict
    model: str
    settings: dict
    figures: dict[str, Figure]


def read_benchmark(path: str | Path) -> Benchmark:
    """Read a benchmark file, all of it or nothing.

    The file is JSON in UTF-8: {"schema": "course.bench/1", "machine": object, "model": str,
    "settings": object, "figures": {name: {"unit": str, "better": "lower" or "higher", "values":
    [numbers, finite, at least one]}}, ...}, with at least one figure. What else is in it is left
    alone.

    Errors: ValueError naming the file and what is wrong: the field, or the figure. What the system
    raises (FileNotFoundError) goes through.
    """
    # exercise 8.8
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:  # no UTF-8, no JSON, a number of 5000 digits
        raise ValueError(f"{path} is damaged, or no JSON: {problem}") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise ValueError(f"{path} is no benchmark file: its schema is not {SCHEMA}")
    for field, kind in (("machine", dict), ("model", str), ("settings", dict), ("figures", dict)):
        if not isinstance(found.get(field), kind):
            raise ValueError(f"{path} has no {field}, or it is no {kind.__name__}")
    if not found["figures"]:
        raise ValueError(f"{path} has no figures")
    figures = {name: _figure(path, name, it) for name, it in found["figures"].items()}
    return Benchmark(found["machine"], found["model"], found["settings"], figures)


def _figure(path: str | Path, name: str, found: object) -> Figure:
    """One figure of a file; ValueError naming the file and the figure."""
    if not isinstance(found, dict) or not isinstance(found.get("unit"), str):
        raise ValueError(f"{path}: figure {name} has no unit")
    if found.get("better") not in ("lower", "higher"):
        raise ValueError(f'{path}: figure {name} is neither better "lower" nor "higher"')
    values = found.get("values")
    if not isinstance(values, list) or not values or not all(map(_is_number, values)):
        raise ValueError(f"{path}: figure {name} has no values, or one that is no finite number")
    return Figure(found["unit"], found["better"], tuple(map(float, values)))


def _is_number(value: object) -> bool:
    """A finite number, and no larger than a float can be."""
    if type(value) not in (int, float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def student_tail(t: float, freedom: int) -> float:
    """The chance that Student's t, with so many degrees of freedom, is above t.

    Args:
        t: any number, infinities included.
        freedom: 1 or more.

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    odd = freedom % 2
    term = total = math.cos(angle) if odd else 1.0
    for k in range(2 + odd, freedom, 2):
        term *= math.cos(angle) ** 2 * (k - 1) / k
        total += term
    if odd:
        inside = 2 / math.pi * (angle + math.sin(angle) * (total if freedom > 1 else 0.0))
    else:
        inside = math.sin(angle) * total
    return (1 - inside) / 2


@dataclass(frozen=True)
class Comparison:
    """What became of one figure.

    Args:
        change: how much worse it got: 0.3 is 30 % worse (or 0.3 of a share); negative is better.
            None where that cannot be said.
        verdict: "worse", "fine" or "unclear".
        reason: a sentence with the numbers.
    """

    change: float | None
    verdict: str
    reason: str


def compare_figure(
    before: Figure, after: Figure, tolerance: float = 0.05, level: float = 0.05, count: int = 1
) -> Comparison:
    """Whether a figure got worse by more than is tolerated, with the noise of both runs in mind.

    Each value becomes a score, so that more is worse and scores are subtracted: its natural
    logarithm, because times and speeds change by factors; of the unit "ratio" the value itself. Of
    what is better "higher" the score has the other sign.

    d is the mean score after minus the mean score before; the margin is log(1 + tolerance), of a
    ratio POINT. s^2 is the sum of all squared distances from the mean of the own run, over the
    degrees of freedom, n before + n after - 2. Then

        t = (d - margin) / (s * sqrt(1 / n before + 1 / n after))

    says how many times the noise d is beyond the margin (without any noise: infinitely many times,
    on that side on which d is; at the margin itself it is fine).

    Args:
        before, after: of the same unit, and better the same way.
        tolerance: 0.05 lets times grow by 5 %, or speeds fall to 1 / 1.05.
        level: the chance to be wrong that is taken, below 0.5.
        count: how many figures are compared. With many of them one is out of line by chance, so
            that a verdict "worse" takes a share of the level only.

    Returns:
        Comparison(change, verdict, reason). change is exp(d) - 1, of a ratio d. The verdict is
        "worse" when student_tail(t) is at most level / count, "fine" when student_tail(-t) is at
        most level, else "unclear". With fewer than two values in a run there is no noise to be
        known: "unclear". With a value that has no logarithm: "unclear", and change None.

    Source: Student's two-sample t test with pooled variance; Bonferroni's correction.
    """
    # exercise 8.8
    try:
        scores = [_scores(figure) for figure in (before, after)]
    except ValueError:
        return Comparison(None, "unclear", "a value is not above 0, and has no logarithm")
    share = before.unit == "ratio"
    margin = POINT if share else math.log1p(tolerance)
    d = statistics.fmean(scores[1]) - statistics.fmean(scores[0])
    change = d if share else _ratio(d)
    if min(map(len, scores)) < 2:
        return Comparison(change, "unclear", "one repetition says nothing about the noise")
    freedom, t = _student(scores, d - margin)
    told = f"{abs(change):.1%} {'worse' if change > 0 else 'better'}, {abs(t):.1f} times the noise"
    told += f" {'above' if t > 0 else 'below'} what is tolerated ({freedom} degrees of freedom)"
    if student_tail(t, freedom) <= level / count:
        return Comparison(change, "worse", told)
    return Comparison(change, "fine" if student_tail(-t, freedom) <= level else "unclear", told)


def _ratio(d: float) -> float:
    """exp(d) - 1, infinite where no float is as large."""
    try:
        return math.expm1(d)
    except OverflowError:
        return math.inf


def _scores(figure: Figure) -> list[float]:
    """One number per value, the larger the worse."""
    sign = 1 if figure.better == "lower" else -1
    return [sign * (v if figure.unit == "ratio" else math.log(v)) for v in figure.values]


def _student(scores: list[list[float]], beyond: float) -> tuple[int, float]:
    """Degrees of freedom, and t."""
    freedom = sum(map(len, scores)) - 2
    squares = sum(statistics.variance(run) * (len(run) - 1) for run in scores)
    noise = math.sqrt(squares / freedom * sum(1 / len(run) for run in scores))
    if noise:
        return freedom, beyond / noise
    return freedom, math.inf if beyond > 0 else -math.inf


@dataclass(frozen=True)
class Verdict:
    """What the gate says.

    Args:
        outcome: "pass", "fail", "unclear" or "incomparable".
        reasons: sentences; each begins with the field or the figure that it is about.
        comparisons: by the name of the figure; none when incomparable.
    """

    outcome: str
    reasons: list[str]
    comparisons: dict[str, Comparison]


def judge_upgrade(
    before: Benchmark, after: Benchmark, tolerance: float = 0.05, level: float = 0.05
) -> Verdict:
    """May the upgrade go out?

    Two versions that are equal fail by chance with a probability of at most `level`, if the runs
    are independent of each other and the scores are normally distributed.

    Returns:
        Verdict(outcome, reasons, comparisons):
        - "incomparable" when one of SAME differs, when the names of the figures do, or the unit or
          the better of a figure: a reason for each of these fields and figures;
        - "fail" when a figure is worse: a reason for each of those;
        - "unclear" when none is worse, and one is unclear: a reason for each of those;
        - "pass" otherwise: all figures are fine. No reasons.
        A reason begins with the name of its field or figure and ": ". The order is that of SAME,
        then of the figures before the upgrade, then of those that are new.
    """
    # exercise 8.8
    if differences := _differences(before, after):
        return Verdict("incomparable", differences, {})
    found = {
        name: compare_figure(
            figure, after.figures[name], tolerance, level, count=len(before.figures)
        )
        for name, figure in before.figures.items()
    }
    for verdict, outcome in (("worse", "fail"), ("unclear", "unclear")):
        reasons = [f"{name}: {one.reason}" for name, one in found.items() if one.verdict == verdict]
        if reasons:
            return Verdict(outcome, reasons, found)
    return Verdict("pass", [], found)


def _differences(before: Benchmark, after: Benchmark) -> list[str]:
    """Why two files cannot be compared."""
    told = [
        f"{field}: {getattr(before, field)} before, {getattr(after, field)} after"
        for field in SAME
        if getattr(before, field) != getattr(after, field)
    ]
    for name in {**before.figures, **after.figures}:
        one, other = before.figures.get(name), after.figures.get(name)
        if one is None or other is None:
            told.append(f"{name}: only {'after' if one is None else 'before'} the upgrade")
        elif (one.unit, one.better) != (other.unit, other.better):
            told.append(f"{name}: its unit, or what is better, is not the same")
    return told
