"""Wrong versions of 8.8."""

import json
import math
import statistics
from pathlib import Path

from course.misconceptions import misconception
from solutions.upgrade_gate import (
    POINT,
    Benchmark,
    Comparison,
    Figure,
    Verdict,
    _differences,
    _scores,
    _student,
    compare_figure,
    student_tail,
)


@misconception("8.8", "read_benchmark")
def skips_bad_figures(path):
    """You leave out figures that are damaged, and compare the rest. The upgrade then passes because
    its worst figure could not be read: refuse the whole file.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        assert found["schema"] == "course.bench/1"
        figures = {
            name: Figure(one["unit"], one["better"], tuple(map(float, one["values"])))
            for name, one in found["figures"].items()
            if isinstance(one, dict) and one.get("better") in ("lower", "higher")
        }
        return Benchmark(found["machine"], found["model"], found["settings"], figures)
    except (ValueError, TypeError, KeyError, AssertionError, RecursionError) as problem:
        raise ValueError(f"{path}: {problem!r}") from None


@misconception("8.8", "compare_figure")
def without_noise(before, after, tolerance=0.05, level=0.05, count=1):
    """You compare the two means and nothing else. Half of all upgrades that change nothing look
    slower, and of noisy figures some by 5 %: ask how far the repetitions are from each other.
    """
    try:
        d = statistics.fmean(_scores(after)) - statistics.fmean(_scores(before))
    except ValueError:
        return Comparison(None, "unclear", "no logarithm of such a value")
    share = before.unit == "ratio"
    change, margin = (d, POINT) if share else (math.expm1(d), tolerance)
    return Comparison(change, "worse" if change > margin else "fine", f"changed by {change:.1%}")


@misconception("8.8", "compare_figure")
def unproven_is_fine(before, after, tolerance=0.05, level=0.05, count=1):
    """You call fine whatever cannot be shown to be worse. With enough noise nothing can be shown,
    and everything passes: fine needs evidence of its own.
    """
    try:
        scores = [_scores(before), _scores(after)]
    except ValueError:
        return Comparison(None, "unclear", "no logarithm of such a value")
    share = before.unit == "ratio"
    d = statistics.fmean(scores[1]) - statistics.fmean(scores[0])
    change = d if share else math.expm1(d)
    if min(map(len, scores)) < 2:
        return Comparison(change, "unclear", "one repetition is not enough")
    freedom, t = _student(scores, d - (POINT if share else math.log1p(tolerance)))
    worse = student_tail(t, freedom) <= level / count
    return Comparison(change, "worse" if worse else "fine", f"t is {t:.2f}, with noise")


@misconception("8.8", "compare_figure")
def one_of_many(before, after, tolerance=0.05, level=0.05, count=1):
    """You take the whole level for each figure. With eleven figures one in two good upgrades could
    have a bad one by chance: share the level among them.
    """
    try:
        scores = [_scores(before), _scores(after)]
    except ValueError:
        return Comparison(None, "unclear", "no logarithm of such a value")
    share = before.unit == "ratio"
    d = statistics.fmean(scores[1]) - statistics.fmean(scores[0])
    change = d if share else math.expm1(d)
    if min(map(len, scores)) < 2:
        return Comparison(change, "unclear", "one repetition is not enough")
    freedom, t = _student(scores, d - (POINT if share else math.log1p(tolerance)))
    if student_tail(t, freedom) <= level:
        return Comparison(change, "worse", f"t is {t:.2f}, and that is too much")
    fine = student_tail(-t, freedom) <= level
    return Comparison(change, "fine" if fine else "unclear", f"t is {t:.2f}, with noise")


@misconception("8.8", "_scores")
def higher_forgotten(figure):
    """You take every figure for one that is better lower. A speed that falls then counts as a gain,
    and every loss of throughput passes: of what is better "higher" the score has the other sign.
    """
    return [v if figure.unit == "ratio" else math.log(v) for v in figure.values]


@misconception("8.8", "judge_upgrade")
def common_figures_only(before, after, tolerance=0.05, level=0.05):
    """You compare the figures that both files have. A figure that has gone may be the one that got
    worse: files with other figures cannot be compared.
    """
    names = [name for name in before.figures if name in after.figures]
    wrong = [text for text in _differences(before, after) if ": only" not in text]
    if wrong:
        return Verdict("incomparable", wrong, {})
    found = {
        name: compare_figure(
            before.figures[name], after.figures[name], tolerance, level, len(names)
        )
        for name in names
    }
    for verdict, outcome in (("worse", "fail"), ("unclear", "unclear")):
        reasons = [f"{name}: {one.reason}" for name, one in found.items() if one.verdict == verdict]
        if reasons:
            return Verdict(outcome, reasons, found)
    return Verdict("pass", [], found)


@misconception("8.8", "judge_upgrade")
def unclear_passes(before, after, tolerance=0.05, level=0.05):
    """You let an upgrade pass that nobody can judge. The noise of the benchmark would decide what
    goes out: say that it is unclear, and measure longer.
    """
    if differences := _differences(before, after):
        return Verdict("incomparable", differences, {})
    found = {
        name: compare_figure(one, after.figures[name], tolerance, level, len(before.figures))
        for name, one in before.figures.items()
    }
    worse = [f"{name}: {one.reason}" for name, one in found.items() if one.verdict == "worse"]
    return Verdict("fail" if worse else "pass", worse, found)
