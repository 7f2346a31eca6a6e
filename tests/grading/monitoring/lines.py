"""8.5 Window, format_line, read_line."""

import itertools

from course.cases import Wrong, case, describe, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.grading.monitoring.making import (
    admitted,
    arrived,
    expect_near,
    finished,
    rejected,
    rising,
    stepped,
    token,
)
from tests.oracles import monitoring as oracle

NAMES = ["seconds", "running", "waiting", "kv", "memory", "tokens_per_s"]
NAMES += ["first_token_p50_s", "first_token_p95_s", "inter_token_p50_s", "inter_token_p95_s"]
NAMES += ["finished", "rejected", "errors"]
NOON = 1_796_040_000.0  # 2026-11-30T12:00:00Z


def sums(learner, now: float, steps: list, limit: int | None = None) -> list[dict]:
    """What each take gives: see window_session."""
    found = drive(learner, "window_session", now, limit, steps)
    taken = [one for one in found if one is not None]
    for one in taken:
        if not isinstance(one, dict) or list(one) != NAMES:
            raise Wrong(f"take should give a dict of FIELDS in their order, not {list(one)}")
    return taken


def total(*values, memory: float | None = 120) -> dict:
    """A sum, by FIELDS; the first time that it is asked for, the memory is 120 bytes."""
    return dict(zip(NAMES, [*values[:4], memory, *values[4:]], strict=True))


@case("8.5")
def window_by_hand(learner, rng):
    """Ten seconds in which one request ran and two others waited."""
    steps = [arrived("a", 101.0), admitted("a", 102.0), stepped(102.5, used=30)]
    steps += [token("a", 103.0), token("a", 103.5), token("a", 105.0), arrived("b", 106.0)]
    steps += [
        arrived("c", 107.0),
        rejected(108.0),
        stepped(108.0, used=25, running=9, errors=["KeyError"]),
    ]
    found = sums(learner, 100.0, [*steps, ["take", 110.0]])
    expected = total(10.0, 1, 2, 0.25, 0.3, 2.0, 2.0, 0.5, 1.5, 0, 1, 1)
    expect_near(found[0], expected, "the sum")


@case("8.5")
def window_of_nothing(learner, rng):
    """Where nothing was measured there is None, not 0: no percentile, no speed over no time."""
    start = rng.uniform(0, 99)
    found = sums(learner, start, [["take", start + at] for at in (4.0, 4.0, 4.25)])
    expected = total(4.0, 0, 0, None, 0.0, None, None, None, None, 0, 0, 0)
    expect_near(found[0], expected, "the sum of four quiet seconds")
    later = {"seconds": 0.0, "tokens_per_s": None, "memory": 130}
    expect_near(found[1], expected | later, "the sum of no time")
    later = {"seconds": 0.25, "memory": 140}
    expect_near(found[2], expected | later, "the sum of a quiet quarter of a second")


@case("8.5")
def window_begins_anew(learner, rng):
    """The second sum knows nothing of the first but who is there, and how full the cache is."""
    steps = [arrived("a", 0.0), arrived("b", 0.0), admitted("a", 1.0), token("a", 2.0)]
    steps += [token("a", 2.5), finished("b", 3.0, "timeout"), rejected(3.0)]
    steps += [
        stepped(3.0, used=40, errors=["A", "A"]),
        arrived("c", 4.0),
        ["take", 5.0],
        token("c", 5.5),
        token("a", 6.5),
        ["take", 7.0],
    ]
    first, second = sums(learner, 0.0, [*steps, ["take", 9.0]])[:2]
    expect_near(first, total(5.0, 1, 1, 0.4, 0.4, 2.0, 2.0, 0.5, 0.5, 1, 1, 2), "the first sum")
    expected = total(2.0, 1, 1, 0.4, 1.0, 1.5, 1.5, 4.0, 4.0, 0, 0, 0, memory=130)
    expect_near(second, expected, "the second sum")


@case("8.5")
def window_of_many(learner, rng):
    """Percentiles over all requests of the time: first tokens, and every later gap."""
    steps, firsts, gaps = [], [], []
    for number in range(100):  # so that every percentile is a value of its own
        start = rng.uniform(0, 5)
        moments = rising(rng, rng.randrange(2, 5), start + 0.5)
        steps += [arrived(f"r{number}", start), admitted(f"r{number}", start + 0.1)]
        steps += [token(f"r{number}", at) for at in moments]
        steps.append(finished(f"r{number}", moments[-1], tokens=len(moments)))
        firsts.append(moments[0] - start)
        gaps += [b - a for a, b in itertools.pairwise(moments)]
    found = sums(learner, 0.0, [*steps, ["take", 20.0]])[0]
    for name, values in (("first_token", firsts), ("inter_token", gaps)):
        for percent in (50, 95):
            expected = oracle.nearest_rank(values, percent)
            expect_near(found[f"{name}_p{percent}_s"], expected, f"{name}_p{percent}_s")
    expect_near(found["finished"], 100, "finished")
    expect_near(found["tokens_per_s"], (len(firsts) + len(gaps)) / 20.0, "tokens_per_s")


@case("8.5")
def window_of_unknown_tokens(learner, rng):
    """A Token and a Finished of a request that nobody knows count, and give no time."""
    events = [token("x", 1.0), token("x", 2.0), finished("x", 3.0), finished("y", 3.0)]
    found = sums(learner, 0.0, [*events, ["take", 4.0]])[0]
    expected = total(4.0, 0, 0, None, 0.5, None, None, None, None, 2, 0, 0)
    expect_near(found, expected, "the sum")


@case("8.5")
def window_is_bounded(learner, rng):
    """Of each kind of time the newest are kept, as many as limit says; all tokens are counted."""
    limit = rng.randrange(3, 6)
    steps = [arrived("a", 0.0), admitted("a", 0.0), token("a", 1.0)]
    at = 1.0
    for gap in [9.0] * 20 + [0.25] * limit:
        at += gap
        steps.append(token("a", at))
    found = sums(learner, 0.0, [*steps, ["take", 100.0]], limit)[0]
    expect_near(found["inter_token_p95_s"], 0.25, "inter_token_p95_s of the newest gaps")
    expect_near(found["first_token_p50_s"], 1.0, "first_token_p50_s")
    expect_near(found["tokens_per_s"], (21 + limit) / 100.0, "tokens_per_s")
    waits = [9.0] * 20 + [0.25] * limit
    steps = []
    for number, wait in enumerate(waits):
        steps += [arrived(f"r{number}", 0.0), token(f"r{number}", wait)]
    found = sums(learner, 0.0, [*steps, ["take", 100.0]], limit)[0]
    expect_near(found["first_token_p95_s"], 0.25, "first_token_p95_s of the newest first tokens")


RECORD = total(10.0, 3, 0, 0.125, 45.25, 0.21, 0.4, 0.061, None, 12, 0, 1, memory=1_048_576)
SHOWN = RECORD | {"memory": 1_048_580}  # six digits of it
LINE = (
    "2026-11-30T12:00:10.500Z llm seconds=10 running=3 waiting=0 kv=0.125 memory=1.04858e+06 "
    "tokens_per_s=45.25 first_token_p50_s=0.21 first_token_p95_s=0.4 inter_token_p50_s=0.061 "
    "inter_token_p95_s=- finished=12 rejected=0 errors=1"
)


def expect_line(found, expected: str) -> None:
    """The line; where it is another, its first part that differs."""
    if not isinstance(found, str):
        raise Wrong(f"format_line should return a str, not {describe(found)}")
    for mine, right in itertools.zip_longest(found.split(" "), expected.split(" ")):
        if mine != right:
            said = "ends too early" if mine is None else f"has {mine!r}"
            raise Wrong(f"the line {said}, expected {right or 'its end'!r} there")


@case("8.5")
def line_by_hand(learner, rng):
    """One record as a line, and the line as a record."""
    expect_line(learner.format_line(NOON + 10.5, RECORD), LINE)
    expect_near(learner.read_line(LINE), {"time": NOON + 10.5} | SHOWN, "the record")
    found = drive(learner, "line_read_far_away", LINE)
    expect_near(found, {"time": NOON + 10.5} | SHOWN, "the record, read in another time zone,")


@case("8.5")
def line_of_any_numbers(learner, rng):
    """Very small, very large, many digits: six digits stay, and what was written is read."""
    for _ in range(20):
        values = [
            rng.choice(
                [None, 0, rng.randrange(10**9), rng.uniform(0, 1) * 10 ** rng.randrange(-9, 9)]
            )
            for _ in NAMES
        ]
        now = round(rng.uniform(1e9, 2e9), 3)
        line = learner.format_line(now, dict(zip(NAMES, values, strict=True)))
        written = ["-" if value is None else f"{value:g}" for value in values]
        pairs = [f"{name}={value}" for name, value in zip(NAMES, written, strict=True)]
        expect_line(line, f"{oracle.utc(now)} llm {' '.join(pairs)}")
        shown = [None if value is None else float(f"{value:g}") for value in values]
        expected = {"time": now, **dict(zip(NAMES, shown, strict=True))}
        expect_near(learner.read_line(line), expected, f"the record of {line}")


@case("8.5")
def line_that_is_not_whole(learner, rng):
    """A part missing, doubled, or no decimal number (nan, inf, 3,5): None, and no error."""
    broken = [
        "",
        LINE[: rng.randrange(1, 40)],
        LINE[: rng.randrange(60, 200)],
        LINE[rng.randrange(1, 30) :],
        LINE.replace("waiting=0 ", ""),
        LINE.replace("running=3 ", "running=3 running=3 "),
        LINE.replace("running=3 waiting=0", "waiting=0 running=3"),
        LINE.replace("kv=0.125", "kv=full"),
        LINE.replace("kv=0.125", "kv="),
        LINE.replace("kv=0.125", "kv=0.1.25"),
        *(LINE.replace("0.125", odd) for odd in ("nan", "inf", "-inf", "NaN", "0,125", "0x1")),
        LINE.replace(" ", "  "),
        LINE.replace(" llm ", " web "),
        LINE.replace("-11-30T", "-11-31T"),
        LINE.replace("T12:", "T25:"),
        LINE.replace(".500Z", ".500"),
        f" {LINE}",
        f"{LINE} ",
        f"{LINE} more=1",
        LINE + LINE,
        f"INFO: {LINE}",
        'INFO: 127.0.0.1 - "GET /health HTTP/1.1" 200 OK',
    ]
    for line in broken:
        expect_equal(learner.read_line(line), None, f"read_line of {line!r}")
