"""8.8 read_benchmark, compare_figure, judge_upgrade."""

import json
import math

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.grading.monitoring.making import expect_near
from tests.oracles import monitoring as oracle

# --- files ---


def figure(values: list, unit: str = "s", better: str = "lower") -> dict:
    """One figure of a benchmark file."""
    return {"unit": unit, "better": better, "values": values}


def benchmark(**changes) -> dict:
    """A benchmark file's content."""
    return {
        "schema": "course.bench/1",
        "made": "2026-11-30T12:00:00Z",
        "machine": {"cpu": "two cores", "memory": 24},
        "model": "smollm2",
        "server": "1.0",
        "settings": {"rate": 1.5, "seed": 7},
        "figures": {
            "first_token_p50": figure([0.25, 0.5, 1]),
            "throughput": figure([40.0], "tokens/s", "higher"),
            "rejected": figure([0, 0.0], "ratio"),
        },
    } | changes


def reading(learner, content, names: list | None = None):
    """read_benchmark of a file with this content: bytes, or what becomes JSON.

    names: what the message of a ValueError should name, beside the file; None for no error.
    """
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    found = drive(learner, "benchmark_read", data.decode("latin-1"), names)
    if names is not None:
        expect_failure(found, "ValueError", f"read_benchmark of {data[:60]!r}…")
    return found


@case("8.8")
def file_that_is_whole(learner, rng):
    """Everything in it, integers as floats; what else is in it does not matter."""
    seed = rng.randrange(1000)
    content = benchmark(settings={"seed": seed}, note=["more"])
    content["figures"]["throughput"]["more"] = 1
    figures = {
        name: [one["unit"], one["better"], [float(v) for v in one["values"]]]
        for name, one in content["figures"].items()
    }
    expected = {name: content[name] for name in ("machine", "model", "settings")}
    found = reading(learner, content)
    expect_equal(found, expected | {"figures": figures}, "the Benchmark")
    expect_equal(list(found["figures"]), list(figures), "the order of the figures")


@case("8.8")
def file_that_is_damaged(learner, rng):
    """Cut off, not JSON, not UTF-8, not an object, empty, endlessly nested: ValueError with the
    file's name.
    """
    whole = json.dumps(benchmark()).encode()
    for data in (
        whole[: rng.randrange(10, len(whole) - 1)],
        b"",
        b"made: 2026",
        whole.replace(b"smollm2", b"smollm\xff"),
        b"[1, 2]",
        b"null",
        b"[" * 100_000,
    ):
        reading(learner, data, [])


@case("8.8")
def file_of_another_kind(learner, rng):
    """Another schema or none; a field that is missing or of another type: ValueError naming it."""
    reading(learner, benchmark(schema="course.bench/2"), [])
    reading(learner, {k: v for k, v in benchmark().items() if k != "schema"}, [])
    for field, wrong in (("machine", "x"), ("model", 3), ("settings", []), ("figures", [1])):
        reading(learner, benchmark(**{field: wrong}), [field])
        reading(learner, {k: v for k, v in benchmark().items() if k != field}, [field])
    reading(learner, benchmark(figures={}), ["figures"])


@case("8.8")
def file_with_a_bad_figure(learner, rng):
    """A figure without unit, better or values, or with a value that is no finite number: ValueError
    naming the figure.
    """
    for wrong in (
        {"unit": None},
        {"unit": 1},
        {"better": "faster"},
        {"better": None},
        {"values": []},
        {"values": 0.5},
        {"values": [0.1, None]},
        {"values": [0.1, "0.2"]},
        {"values": [0.1, True]},
        {"values": [0.1, float("nan")]},
        {"values": [float("inf")]},
    ):
        content = benchmark()
        content["figures"]["e2e_p95"] = figure([1.0]) | wrong
        reading(learner, content, ["e2e_p95"])
    missing = [{k: v for k, v in figure([1.0]).items() if k != name} for name in figure([1.0])]
    for wrong in ([1.0], None, *missing):
        content = benchmark()
        content["figures"]["e2e_p95"] = wrong
        reading(learner, content, ["e2e_p95"])


@case("8.8")
def file_that_is_not_there(learner, rng):
    """FileNotFoundError, as the system raises it."""
    found = drive(learner, "benchmark_read", None, [])
    expect_failure(found, "FileNotFoundError", "read_benchmark of a file that is not there")


# --- figures ---


def compared(learner, before: dict, after: dict, **given) -> dict:
    """What compare_figure says; it has a reason."""
    found = drive(learner, "compared", before, after, given)
    if not found["reason"]:
        raise Wrong("the reason of a Comparison should be a sentence")
    return found


def expect_comparison(learner, before: dict, after: dict, what: str, **given) -> None:
    """The change and the verdict of the oracle."""
    found = compared(learner, before, after, **given)
    change, verdict = oracle.compare(before, after, **given)
    expect_near(found["change"], change, f"the change {what}")
    expect_equal(found["verdict"], verdict, f"the verdict {what}")


@case("8.8")
def figures_by_hand(learner, rng):
    """30 % slower with little noise is worse; the same is fine; noise as large as the change is
    unclear.
    """
    quiet, slower = [1.0, 1.01, 0.99], [1.3, 1.31, 1.29]
    noisy, about = [1.0, 1.4, 0.7], [1.1, 1.5, 0.8]
    for before, after, verdict in (
        (quiet, slower, "worse"),
        (quiet, quiet, "fine"),
        (slower, quiet, "fine"),
        (noisy, about, "unclear"),
    ):
        found = compared(learner, figure(before), figure(after))
        expect_equal(found["verdict"], verdict, f"the verdict on {before} and {after}")
    expect_near(
        compared(learner, figure([1.0, 1.0]), figure([1.3, 1.3]))["change"], 0.3, "the change"
    )


@case("8.8")
def figures_at_the_edge(learner, rng):
    """A table of Student's t says 2.920 for 2 degrees of freedom and a chance of 5 %, and 2.132 for
    4: the verdict turns there.
    """
    size, a = rng.uniform(0.1, 10), 0.1
    for scores, noise, edge in (
        ([-a, a], a * math.sqrt(2), 2.920),  # s^2 = 4 a^2 / 2, times 1/2 + 1/2
        ([-a, 0.0, a], a * math.sqrt(2 / 3), 2.132),  # s^2 = 4 a^2 / 4, times 1/3 + 1/3
    ):
        for t, verdict in ((1.07, "worse"), (0.93, "unclear"), (-0.93, "unclear"), (-1.07, "fine")):
            d = t * edge * noise
            before = figure([size * math.exp(x) for x in scores])
            after = figure([size * math.exp(x + d) for x in scores])
            found = compared(learner, before, after, tolerance=0.0)
            what = f"the verdict at {t} times the t of the table, {2 * len(scores)} values"
            expect_equal(found["verdict"], verdict, what)


@case("8.8")
def figures_of_speed(learner, rng):
    """Where more is better, less is worse: from 39 to 30 tokens a second is 30 % worse."""
    before, after = ([39.0, 39.1, 38.9], [30.0, 30.1, 29.9])
    found = compared(
        learner, figure(before, "tokens/s", "higher"), figure(after, "tokens/s", "higher")
    )
    expect_equal(found["verdict"], "worse", "the verdict on a speed that fell")
    if not isinstance(found["change"], float) or not 0.29 < found["change"] < 0.31:
        raise Wrong(f"the change from 39 to 30 is {found['change']}, expected 0.3")
    back = compared(
        learner, figure(after, "tokens/s", "higher"), figure(before, "tokens/s", "higher")
    )
    expect_equal(back["verdict"], "fine", "the verdict on a speed that rose")


@case("8.8")
def figures_of_all_kinds(learner, rng):
    """Random runs of 2 to 7 repetitions, random noise, against numpy."""
    for _ in range(40):
        noise, change = rng.choice([0.005, 0.03, 0.2]), rng.choice([0.7, 1.0, 1.05, 1.3])
        better = rng.choice(["lower", "higher"])
        size = rng.uniform(0.01, 100)
        runs = [
            [size * factor * rng.lognormvariate(0, noise) for _ in range(rng.randrange(2, 8))]
            for factor in (1.0, change)
        ]
        given = {"tolerance": rng.choice([0.0, 0.05, 0.2]), "level": rng.choice([0.01, 0.05, 0.2])}
        given["count"] = rng.choice([1, 3, 11])
        before, after = (figure(run, "s", better) for run in runs)
        expect_comparison(
            learner, before, after, f"of {runs}, {better} is better, {given}", **given
        )


@case("8.8")
def figures_that_are_shares(learner, rng):
    """Shares are subtracted: from 0 to 0.02 rejected has no ratio, and is worse."""
    for before, after, better, verdict in (
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], "lower", "fine"),
        ([0.0, 0.0, 0.0], [0.02, 0.021, 0.019], "lower", "worse"),
        ([0.0, 0.0, 0.0], [0.005, 0.005, 0.005], "lower", "fine"),
        ([0.0, 0.0], [0.01, 0.01], "lower", "fine"),
        ([0.0, 0.0, 0.0], [0.05, 0.0, 0.0], "lower", "unclear"),
        ([0.99, 0.99], [0.9, 0.9], "higher", "worse"),
        ([0.9, 0.9], [0.99, 0.99], "higher", "fine"),
    ):
        one, other = figure(before, "ratio", better), figure(after, "ratio", better)
        found = compared(learner, one, other)
        expect_equal(found["verdict"], verdict, f"the verdict on shares {before} and {after}")
        for given in ({}, {"tolerance": 0.0}, {"tolerance": 0.5}):  # which is not for shares
            expect_comparison(learner, one, other, f"of the shares {before} and {after}", **given)
    for _ in range(10):
        runs = [[rng.uniform(0, 0.05) for _ in range(4)] for _ in range(2)]
        before, after = (figure(run, "ratio") for run in runs)
        expect_comparison(learner, before, after, f"of the shares {runs}", count=2)


@case("8.8")
def figures_without_noise(learner, rng):
    """Equal repetitions: beyond the margin is worse, however little; the margin itself is fine."""
    for factor, verdict in ((1.051, "worse"), (1.049, "fine"), (0.5, "fine")):
        found = compared(learner, figure([2.0, 2.0]), figure([2.0 * factor] * 2), count=50)
        expect_equal(
            found["verdict"], verdict, f"the verdict on 2.0 and {2.0 * factor}, twice each"
        )


@case("8.8")
def figures_with_too_little(learner, rng):
    """One repetition, or a value without a logarithm: unclear."""
    for before, after in (([1.0], [9.0, 9.0]), ([1.0, 1.0], [9.0]), ([1.0], [9.0])):
        found = compared(learner, figure(before), figure(after))
        expect_equal(found["verdict"], "unclear", f"the verdict on {before} and {after}")
        expect_near(found["change"], 8.0, f"the change of {before} and {after}")
    for before, after in (([0.0, 1.0], [1.0, 1.0]), ([1.0, 1.0], [1.0, -1.0])):
        found = compared(learner, figure(before), figure(after))
        expect_equal([found["change"], found["verdict"]], [None, "unclear"], "[change, verdict]")


@case("8.8")
def figures_among_many(learner, rng):
    """Being one of many asks for more to be called worse, and for no more to be called fine."""
    before, after = figure([1.0, 1.02, 0.98]), figure([1.12, 1.15, 1.17])
    for count, verdict in ((1, "worse"), (20, "unclear")):
        found = compared(learner, before, after, count=count)
        expect_equal(found["verdict"], verdict, f"the verdict as one of {count}")
        expect_comparison(learner, before, after, f"as one of {count}", count=count)
    good = figure([0.97, 1.0, 0.98])
    for count in (1, 20):
        found = compared(learner, before, good, count=count)
        expect_equal(found["verdict"], "fine", f"the verdict on a good figure, as one of {count}")


# --- the gate ---

QUIET, SLOWER, NOISY = [1.0, 1.01, 0.99], [1.4, 1.41, 1.39], [0.6, 1.5, 1.0]


def judged(learner, before: dict, after: dict, **given) -> dict:
    """What judge_upgrade says of two benchmark files' contents; its reasons say something."""
    kept = ("machine", "model", "settings", "figures")
    sides = [{name: one[name] for name in kept} for one in (before, after)]
    found = drive(learner, "judged", *sides, given)
    if found["empty"]:
        raise Wrong(f'a reason is "NAME: why", not {found["empty"][0]!r}')
    return found


@case("8.8")
def gate_of_figures(learner, rng):
    """One worse figure fails the upgrade, one unclear leaves it unclear, else it passes."""
    for afters, outcome, about in (
        ([QUIET, QUIET, QUIET], "pass", []),
        ([QUIET, SLOWER, QUIET], "fail", ["b"]),
        ([SLOWER, NOISY, SLOWER], "fail", ["a", "c"]),
        ([NOISY, QUIET, NOISY], "unclear", ["a", "c"]),
    ):
        before = benchmark(figures={name: figure(QUIET) for name in "abc"})
        after = benchmark(figures=dict(zip("abc", map(figure, afters), strict=True)))
        found = judged(learner, before, after)
        expect_equal([found["outcome"], found["about"]], [outcome, about], "[outcome, reasons]")
        of = {"1.0": "fine", "1.4": "worse", "0.6": "unclear"}  # by the first value
        verdicts = {name: of[str(run[0])] for name, run in zip("abc", afters, strict=True)}
        expect_equal(found["verdicts"], verdicts, "the verdicts")


@case("8.8")
def gate_of_other_things(learner, rng):
    """Another machine, model or settings, other figures, units or directions: incomparable, with a
    reason for each; what else differs does not matter.
    """
    base = benchmark(figures={"a": figure(QUIET), "b": figure(QUIET)})
    a = figure(QUIET)
    for changes, about in (
        ({"machine": {"cpu": "four cores"}}, ["machine"]),
        ({"model": "other"}, ["model"]),
        ({"settings": {"rate": 2.0, "seed": 7}}, ["settings"]),
        ({"settings": {}, "machine": {}, "model": ""}, ["machine", "model", "settings"]),
        ({"figures": {"a": a}}, ["b"]),
        ({"figures": {"c": a, "b": a, "a": a, "d": a}}, ["c", "d"]),
        ({"figures": {"c": a, "b": a}, "model": "x"}, ["model", "a", "c"]),
        ({"figures": {"a": a, "b": figure(QUIET, "bytes")}}, ["b"]),
        ({"figures": {"a": figure(QUIET, "s", "higher"), "b": a}}, ["a"]),
    ):
        found = judged(learner, base, base | changes)
        expect_equal(
            [found["outcome"], found["about"], found["verdicts"]],
            ["incomparable", about, {}],
            f"[outcome, reasons, verdicts] with other {', '.join(changes)}",
        )
    swapped = base | {"figures": {"b": a, "a": a}, "server": "2.0"}
    expect_equal(judged(learner, base, swapped)["outcome"], "pass", "the outcome in another order")


@case("8.8")
def gate_counts_its_figures(learner, rng):
    """What would be worse alone is unclear as one of twenty; tolerance and level are passed on."""
    before = benchmark(figures={f"f{n}": figure([1.0, 1.02, 0.98]) for n in range(20)})
    after = json.loads(json.dumps(before))
    after["figures"]["f7"]["values"] = [1.12, 1.15, 1.17]
    found = judged(learner, before, after, level=0.2)
    expect_equal([found["outcome"], found["about"]], ["fail", ["f7"]], "[outcome, reasons]")
    found = judged(learner, before, after, level=0.049)
    expect_equal(found["verdicts"]["f7"], "unclear", "the verdict on the one of twenty")
    found = judged(learner, before, after, tolerance=0.3, level=0.2)
    expect_equal(found["outcome"], "pass", "the outcome when 30 % are tolerated")
    found = judged(
        learner,
        {**before, "figures": {"f7": before["figures"]["f7"]}},
        {**after, "figures": {"f7": after["figures"]["f7"]}},
    )
    expect_equal(found["outcome"], "fail", "the outcome of the figure alone")
