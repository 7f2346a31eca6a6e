"""8.5 read_series."""

import itertools

from course.cases import Wrong, case
from tests.grading.monitoring.lines import LINE, NOON
from tests.grading.monitoring.making import expect_near


def made(number: float, **changes) -> str:
    """A line ten seconds after the one before."""
    seconds = round(number * 10)
    clock = f"{12 + seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.500Z"
    line = LINE.replace("12:00:10.500Z", clock)
    for name, value in changes.items():
        line = line.replace(f"{name}=3", f"{name}={value}")
    return line


def series(learner, text: str) -> tuple:
    """(running of each record, damaged, gaps with times as multiples of ten seconds)."""
    found = learner.read_series(text)
    try:
        records, damaged, gaps = found.records, found.damaged, found.gaps
    except AttributeError:
        raise Wrong("read_series should return a Series") from None
    steps = [
        [round((before - NOON) / 10, 2), round((after - NOON) / 10, 2), missing]
        for before, after, missing in gaps
    ]
    return [record["running"] for record in records], list(damaged), steps


@case("8.5")
def series_that_is_whole(learner, rng):
    """Every line is a record, with what other programs wrote between them left out."""
    lines = []
    for number in range(8):
        lines += [made(number, running=number)]
        lines += rng.choice([[], ["INFO: started"], ["", "an llm is here"[:6]]])
    for end in ("\n", "\r\n"):
        found = series(learner, end.join(lines) + end)
        expect_near(list(found), [[float(n) for n in range(8)], [], []], "[running, damaged, gaps]")


@case("8.5")
def series_that_is_cut(learner, rng):
    """The last line has no end: it may be cut in a number, so it does not count."""
    lines = [made(n, running=n) for n in range(5)]
    whole = "\n".join(lines)
    for text in (whole, whole[: -rng.randrange(1, 5)], whole[: -rng.randrange(30, 90)]):
        found = series(learner, text)
        expect_near(list(found), [[0.0, 1.0, 2.0, 3.0], [5], []], "[running, damaged, gaps]")
    for text in (whole + "\n2026-11", whole + "\n"):
        found = series(learner, text)
        expect_near(list(found), [[0.0, 1.0, 2.0, 3.0, 4.0], [], []], "[running, damaged, gaps]")


@case("8.5")
def series_that_is_damaged(learner, rng):
    """What has " llm " in it and is not whole is named by its number; lines only end in \\n."""
    lines = ["10%\r20%\x0c30% of\u2028it\x85", *(made(n, running=n) for n in range(9))]
    lines[3] = lines[3][: rng.randrange(60, 120)]
    lines[5] += lines[5]
    lines[7] += " "
    lines[8] = "INFO: the llm is warm"
    found = series(learner, "\n".join(lines) + "\n")
    expect_near(list(found)[:2], [[0.0, 1.0, 3.0, 5.0, 8.0], [4, 6, 8, 9]], "[running, damaged]")


@case("8.5")
def series_with_gaps(learner, rng):
    """Where lines are missing: between which times, and how many."""
    numbers = [0, 1, 2, 3, 6, 7, 8, 9, 10, 20, 21, 22, 23.4]
    found = series(learner, "".join(f"{made(n)}\n" for n in numbers))
    expect_near(found[2], [[1.05 + 2, 6.05, 2], [10.05, 20.05, 9]], "the gaps")
    found = series(learner, "".join(f"{made(n / 10)}\n" for n in (0, 1, 2, 3, 7, 8)))
    expect_near(found[2], [[0.35, 0.75, 3]], "the gaps of a line a second")


@case("8.5")
def series_with_late_lines(learner, rng):
    """Usual is the median, whatever the other distances are: beyond 1.5 of it lines are missing, as
    many as round says.
    """
    distances = [10] * 9 + [8, 9, 12, 15, 23, 27, 64, 100]
    rng.shuffle(distances)
    seconds = list(itertools.accumulate([0, *distances]))
    pairs = zip(itertools.pairwise(seconds), distances, strict=True)
    expected = [
        [a / 10 + 0.05, b / 10 + 0.05, {23: 1, 27: 2, 64: 5, 100: 9}[d]]
        for (a, b), d in pairs
        if d > 15
    ]
    found = series(learner, "".join(f"{made(at / 10)}\n" for at in seconds))
    expect_near(found[2], expected, f"the gaps of lines with the distances {distances}")


@case("8.5")
def series_of_a_clock_set_back(learner, rng):
    """A clock that goes back is no gap; nor has one line any, or none, or lines that are usually of
    one moment.
    """
    for numbers in ([10, 11, 12, 2, 3, 4, 5], [5, 5, 5, 5, 9]):
        found = series(learner, "".join(f"{made(n)}\n" for n in numbers))
        expect_near([len(found[0]), found[2]], [len(numbers), []], "[records, gaps]")
    for text, count in (("", 0), (f"{made(1)}\n", 1), ("nothing of ours\n", 0)):
        found = series(learner, text)
        expect_near(
            [len(found[0]), found[1], found[2]], [count, [], []], "[records, damaged, gaps]"
        )
