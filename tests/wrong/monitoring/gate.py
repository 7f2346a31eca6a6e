"""8.8 read_benchmark, compare_figure, judge_upgrade."""

import contextlib
import dataclasses
import json
from pathlib import Path

from tests.parts import part


def repaired(m, mend) -> None:
    """mend(content) makes good, before it is read, what should be refused."""
    right = m.read_benchmark

    def read(path):
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            content = mend(content) or content
        except (ValueError, RecursionError, OSError, AttributeError, TypeError, KeyError):
            return right(path)
        Path(path).write_text(json.dumps(content), encoding="utf-8")
        return right(path)

    m.read_benchmark = read


def figures_mended(m, mend) -> None:
    """mend(figure) for each figure that is an object."""

    def all_of(content):
        for one in content["figures"].values():
            if isinstance(one, dict):
                mend(one)

    repaired(m, all_of)


@part("8.8")
def any_schema(m):
    """Another schema passes."""
    repaired(m, lambda content: content.update(schema="course.bench/1"))


@part("8.8")
def no_machine(m):
    """A machine that is not there is none."""
    repaired(m, lambda content: content.setdefault("machine", {}) and None)


@part("8.8")
def model_as_text(m):
    """A model of any type."""
    repaired(m, lambda content: content.update(model=str(content["model"])))


@part("8.8")
def no_figures(m):
    """No figures pass."""
    right = m.read_benchmark

    def read(path):
        try:
            return right(path)
        except ValueError as problem:
            if str(problem).endswith("has no figures"):
                return m.Benchmark({}, "", {}, {})
            raise

    m.read_benchmark = read


@part("8.8")
def faster_is_higher(m):
    """A better that nobody knows is "higher"."""
    figures_mended(
        m, lambda f: f.update(better=f["better"] if f.get("better") == "lower" else "higher")
    )


@part("8.8")
def unit_unknown(m):
    """A unit that is missing is none."""
    figures_mended(m, lambda f: f.update(unit=str(f.get("unit"))))


@part("8.8")
def one_value(m):
    """A value that is no list is one."""
    figures_mended(
        m,
        lambda f: f.update(values=f["values"] if isinstance(f["values"], list) else [f["values"]]),
    )


@part("8.8")
def numbers_as_text(m):
    """A number in quotes is a number."""
    figures_mended(
        m, lambda f: f.update(values=[float(v) if isinstance(v, str) else v for v in f["values"]])
    )


@part("8.8")
def true_is_one(m):
    """True is a number."""
    figures_mended(
        m, lambda f: f.update(values=[float(v) if isinstance(v, bool) else v for v in f["values"]])
    )


@part("8.8")
def nothing_left_out(m):
    """null is left out."""
    figures_mended(m, lambda f: f.update(values=[v for v in f["values"] if v is not None]))


@part("8.8")
def nan_left_out(m):
    """NaN is left out."""
    figures_mended(m, lambda f: f.update(values=[v for v in f["values"] if v is None or v == v]))


@part("8.8")
def infinity_passes(m):
    """Infinity is a number."""
    m._is_number = lambda value: type(value) in (int, float) and value == value


@part("8.8")
def file_not_named(m):
    """The message does not name the file."""
    right = m.read_benchmark

    def read(path):
        try:
            return right(path)
        except ValueError as problem:
            raise ValueError(str(problem).replace(str(path), "it")) from None

    m.read_benchmark = read


@part("8.8")
def missing_file_is_a_value_error(m):
    """A file that is not there is a ValueError."""
    right = m.read_benchmark

    def read(path):
        try:
            return right(path)
        except OSError as problem:
            raise ValueError(f"{path}: {problem}") from None

    m.read_benchmark = read


@part("8.8")
def any_encoding(m):
    """A file that is not UTF-8 is read as well as it can be."""
    right = m.read_benchmark

    def read(path):
        if Path(path).is_file():
            text = Path(path).read_bytes().decode("utf-8", errors="replace")
            Path(path).write_text(text, encoding="utf-8")
        return right(path)

    m.read_benchmark = read


@part("8.8")
def deep_files_raise(m):
    """What is nested too deep raises RecursionError."""
    right = m.read_benchmark

    def read(path):
        if Path(path).is_file():
            with contextlib.suppress(json.JSONDecodeError, UnicodeDecodeError):
                json.loads(Path(path).read_bytes())
        return right(path)

    m.read_benchmark = read


# --- compare_figure ---


def compared(m, change) -> None:
    """change(right, before, after, given) takes the place of compare_figure."""
    right = m.compare_figure
    m.compare_figure = lambda before, after, *args, **given: change(
        right, before, after, dict(zip(("tolerance", "level", "count"), args, strict=False)) | given
    )


@part("8.8")
def higher_is_lower(m):
    """What is better is not looked at."""

    def change(right, before, after, given):
        return right(*(dataclasses.replace(f, better="lower") for f in (before, after)), **given)

    compared(m, change)


@part("8.8")
def shares_by_ratio(m):
    """Shares are divided too."""

    def change(right, before, after, given):
        return right(*(dataclasses.replace(f, unit="s") for f in (before, after)), **given)

    compared(m, change)


@part("8.8")
def everything_subtracted(m):
    """Times are subtracted like shares."""

    def change(right, before, after, given):
        return right(*(dataclasses.replace(f, unit="ratio") for f in (before, after)), **given)

    compared(m, change)


@part("8.8")
def no_tolerance(m):
    """The tolerance is not looked at."""
    compared(m, lambda right, a, b, given: right(a, b, **given | {"tolerance": 0.0}))


@part("8.8")
def always_five_percent(m):
    """The level is not looked at."""
    compared(m, lambda right, a, b, given: right(a, b, **given | {"level": 0.05}))


@part("8.8")
def fine_among_many(m):
    """To be fine is harder among many."""

    def change(right, before, after, given):
        found = right(before, after, **given)
        level = given.get("level", 0.05) / given.get("count", 1)
        strict = right(before, after, **given | {"level": level, "count": 1})
        return found if found.verdict == "worse" else strict

    compared(m, change)


@part("8.8")
def change_as_logarithm(m):
    """The change is the difference of the logarithms."""
    import math

    def change(right, before, after, given):
        found = right(before, after, **given)
        if before.unit == "ratio" or found.change is None:
            return found
        return dataclasses.replace(found, change=math.log1p(found.change))

    compared(m, change)


@part("8.8")
def change_is_positive(m):
    """The change has no sign."""

    def change(right, before, after, given):
        found = right(before, after, **given)
        return dataclasses.replace(found, change=found.change and abs(found.change))

    compared(m, change)


@part("8.8")
def once_is_enough(m):
    """One repetition is compared as if there were no noise."""

    def change(right, before, after, given):
        twice = (
            dataclasses.replace(f, values=f.values * (2 if len(f.values) == 1 else 1))
            for f in (before, after)
        )
        return right(*twice, **given)

    compared(m, change)


@part("8.8")
def zero_is_little(m):
    """A value of 0 is taken for a very small one."""

    def change(right, before, after, given):
        if before.unit != "ratio":
            before, after = (
                dataclasses.replace(f, values=tuple(max(v, 1e-9) for v in f.values))
                for f in (before, after)
            )
        return right(before, after, **given)

    compared(m, change)


@part("8.8")
def no_noise_is_unclear(m):
    """Without any noise nothing can be said."""

    def change(right, before, after, given):
        found = right(before, after, **given)
        alike = len(set(before.values)) == len(set(after.values)) == 1
        return dataclasses.replace(found, verdict="unclear") if alike else found

    compared(m, change)


@part("8.8")
def margin_is_worse(m):
    """Without noise, the margin itself is worse."""
    right = m._student

    def student(scores, beyond):
        freedom, t = right(scores, beyond)
        return freedom, -t if t == -float("inf") and beyond == 0 else t

    m._student = student


@part("8.8")
def noise_of_one_value(m):
    """The noise is that of a single value, not of the mean."""
    import math

    right = m._student

    def student(scores, beyond):
        freedom, t = right(scores, beyond)
        return freedom, t * math.sqrt(sum(1 / len(run) for run in scores))

    m._student = student


@part("8.8")
def spread_of_all_together(m):
    """The spread is that of all values, before and after together."""
    import math
    import statistics

    right = m._student

    def student(scores, beyond):
        freedom, t = right(scores, beyond)
        spread = statistics.pstdev([*scores[0], *scores[1]])
        noise = spread * math.sqrt(sum(1 / len(run) for run in scores))
        return freedom, beyond / noise if noise else t

    m._student = student


@part("8.8")
def squares_of_as_many_values(m):
    """The variance of each run, times its values instead of its degrees of freedom."""
    import math

    right = m._student

    def student(scores, beyond):
        freedom, t = right(scores, beyond)
        return freedom, t * math.sqrt(freedom / sum(map(len, scores)))

    m._student = student


@part("8.8")
def one_degree_more(m):
    """n - 1 degrees of freedom, as for one run."""
    right = m._student

    def student(scores, beyond):
        freedom, t = right(scores, beyond)
        return freedom + 1, t

    m._student = student


@part("8.8")
def without_a_reason(m):
    """The reason is empty."""
    compared(m, lambda right, *args: dataclasses.replace(right(*args[:2], **args[2]), reason=""))


# --- judge_upgrade ---


def judged(m, change) -> None:
    """change(verdict, before, after) takes the place of a verdict."""
    right = m.judge_upgrade
    m.judge_upgrade = lambda before, after, *args, **given: change(
        right(before, after, *args, **given), before, after
    )


def same(m, *names) -> None:
    """These fields are not compared."""
    right = m.judge_upgrade

    def judge(before, after, *args, **given):
        kept = {name: getattr(before, name) for name in names}
        return right(before, dataclasses.replace(after, **kept), *args, **given)

    m.judge_upgrade = judge


@part("8.8")
def any_machine(m):
    """Machines are not compared."""
    same(m, "machine")


@part("8.8")
def any_model(m):
    """Models are not compared."""
    same(m, "model")


@part("8.8")
def any_settings(m):
    """Settings are not compared."""
    same(m, "settings")


@part("8.8")
def figures_in_their_order(m):
    """Figures must come in the same order."""

    def change(found, before, after):
        if list(before.figures) != list(after.figures) and found.outcome != "incomparable":
            return m.Verdict("incomparable", ["figures: another order"], {})
        return found

    judged(m, change)


@part("8.8")
def new_figures_pass(m):
    """Figures that are new are not looked at."""
    right = m.judge_upgrade

    def judge(before, after, *args, **given):
        known = {name: one for name, one in after.figures.items() if name in before.figures}
        return right(before, dataclasses.replace(after, figures=known), *args, **given)

    m.judge_upgrade = judge


@part("8.8")
def first_reason_only(m):
    """One reason is enough."""
    judged(m, lambda found, *_: dataclasses.replace(found, reasons=found.reasons[:1]))


@part("8.8")
def all_reasons(m):
    """A failed upgrade names the unclear figures too."""

    def change(found, *_):
        if found.outcome != "fail":
            return found
        bad = [f"{n}: {c.reason}" for n, c in found.comparisons.items() if c.verdict != "fine"]
        return dataclasses.replace(found, reasons=bad)

    judged(m, change)


@part("8.8")
def unclear_before_worse(m):
    """One unclear figure makes all unclear."""

    def change(found, *_):
        unclear = [
            f"{n}: {c.reason}" for n, c in found.comparisons.items() if c.verdict == "unclear"
        ]
        return dataclasses.replace(found, outcome="unclear", reasons=unclear) if unclear else found

    judged(m, change)


@part("8.8")
def reasons_to_pass(m):
    """A pass has reasons."""

    def change(found, *_):
        fine = [f"{n}: {c.reason}" for n, c in found.comparisons.items()]
        return dataclasses.replace(found, reasons=fine) if found.outcome == "pass" else found

    judged(m, change)


@part("8.8")
def each_for_itself(m):
    """Every figure is judged as if it were alone."""
    compared(m, lambda right, a, b, given: right(a, b, **given | {"count": 1}))


@part("8.8")
def defaults_always(m):
    """Tolerance and level of the gate are not passed on."""
    right = m.judge_upgrade
    m.judge_upgrade = lambda before, after, *args, **given: right(before, after)


@part("8.8")
def compared_all_the_same(m):
    """What cannot be compared is compared."""

    def change(found, before, after):
        if found.outcome != "incomparable":
            return found
        common = [name for name in before.figures if name in after.figures]
        told = {n: m.compare_figure(before.figures[n], after.figures[n]) for n in common}
        return dataclasses.replace(found, comparisons=told)

    judged(m, change)
