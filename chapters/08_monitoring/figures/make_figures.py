"""Draw the chapter's diagrams: python chapters/08_monitoring/figures/make_figures.py

Plots of measured numbers come from measure.py; what is drawn here is true on every machine.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from figure_kit import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LINE,
    ORANGE,
    PALE,
    PINK,
    arrow,
    box,
    label,
    line,
    picture,
    save,
)

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Write all five diagrams."""
    drawings = {
        "map": the_map(),
        "times": times(),
        "histogram": histogram(),
        "places": places(),
        "noise": noise(),
    }
    save(drawings, HERE)


def the_map() -> str:
    """From events to numbers, logs, a cause and a verdict."""
    parts = [
        box(15, 130, 125, 60, BLUE, "service", "chapter 07: events"),
        box(195, 130, 120, 60, ORANGE, "times", "of a request · 8.1"),
        box(375, 40, 130, 60, ORANGE, "metrics", "8.2, 8.3"),
        box(375, 130, 130, 60, ORANGE, "logs", "no user text · 8.4"),
        box(375, 220, 130, 60, ORANGE, "plain line", "8.5"),
        box(195, 40, 120, 60, ORANGE, "collector", "pauses · 8.6"),
        box(570, 40, 130, 60, GREY, "/metrics", "Prometheus, pages"),
        box(570, 130, 130, 60, GREY, "files", "a day each, seven"),
        box(570, 220, 130, 60, GREY, "report", "the same plots"),
        box(760, 40, 140, 60, ORANGE, "diagnose", "a cause · 8.7"),
        box(195, 310, 120, 60, GREY, "load", "a benchmark"),
        box(375, 310, 130, 60, GREY, "two files", "before and after"),
        box(570, 310, 130, 60, ORANGE, "gate", "noise in mind · 8.8"),
        box(760, 310, 140, 60, GREY, "exit code", "pass, fail, unclear"),
        arrow((140, 160), (193, 160)),
        arrow((315, 160), (345, 160), (345, 70), (373, 70)),
        arrow((315, 160), (373, 160)),
        arrow((315, 160), (345, 160), (345, 250), (373, 250)),
        arrow((315, 70), (373, 70)),
        *[arrow((505, y), (568, y)) for y in (70, 160, 250, 340)],
        arrow((700, 70), (758, 70)),
        arrow((315, 340), (373, 340)),
        arrow((700, 340), (758, 340)),
        label(729, 58, "two", 12, GREY),
        label(78, 214, "arrived, rejected,", 12, GREY),
        label(78, 231, "admitted, token,", 12, GREY),
        label(78, 248, "finished, sent, stepped", 12, GREY),
    ]
    return picture(915, 390, "From events to numbers, logs, a cause and a verdict", parts)


SECOND = 340  # units of the drawing
LEFT = 90


def _at(seconds: float) -> float:
    return LEFT + SECOND * seconds


def times() -> str:
    """Three requests by hand: waiting, the prompt, tokens, the end."""
    parts = [
        *_lane(60, "a", 0.0, 0.1, (0.5, 0.6, 0.8)),
        *_lane(150, "b", 0.2, 0.6, (1.2,)),
        label(LEFT - 40, 247, "c", 15, weight="bold"),
        _bar(_at(0.3), 225, 1.7 * SECOND, GREY, "waits, and leaves"),
        label(_at(2.0) + 8, 247, "cancelled", 12, GREY, anchor="start"),
        line(_at(0), 290, _at(2.1), 290),
        *[label(_at(n / 2), 310, f"{n / 2:g} s", 12, GREY) for n in range(5)],
        *[line(_at(n / 2), 286, _at(n / 2), 294) for n in range(5)],
        _span(0.0, 0.5, 36, "time to first token 0.5 s"),
        _span(0.6, 0.8, 36, "0.2 s between tokens", anchor="start"),
        _span(0.2, 1.2, 130, "time to first token 1.0 s, of which 0.4 s in the queue"),
    ]
    return picture(900, 330, "Three requests, their events and their times", parts)


def _lane(y: float, name: str, arrived: float, admitted: float, tokens: tuple) -> list[str]:
    """One request: it waits, its prompt is computed, its tokens come."""
    wait, prompt = admitted - arrived, tokens[0] - admitted
    return [
        label(LEFT - 40, y + 22, name, 15, weight="bold"),
        _bar(_at(arrived), y, SECOND * wait, GREY, "waits" if wait > 0.2 else ""),
        _bar(_at(admitted), y, SECOND * prompt, ORANGE, "prompt"),
        _bar(_at(tokens[0]), y, max(SECOND * (tokens[-1] - tokens[0]), 3), BLUE, ""),
        *[
            f"<circle cx='{_at(t):g}' cy='{y + 17:g}' r='6' fill='{BLUE}' stroke='{INK}'/>"
            for t in tokens
        ],
        label(_at(tokens[-1]) + 12, y + 22, "the end", 12, GREY, anchor="start"),
    ]


def _bar(x: float, y: float, width: float, ink: str, words: str) -> str:
    """A stretch of time."""
    return (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='34' rx='3' fill='{PALE[ink]}' "
        f"stroke='{ink}'/>" + label(x + width / 2, y + 22, words, 12)
    )


def _span(begin: float, end: float, y: float, words: str, anchor: str = "middle") -> str:
    """A dimension line with its name above."""
    x = _at(begin) if anchor == "start" else (_at(begin) + _at(end)) / 2
    ends = [line(_at(t), y - 4, _at(t), y + 10, PINK) for t in (begin, end)]
    return "".join(
        [
            line(_at(begin), y + 3, _at(end), y + 3, PINK),
            *ends,
            label(x, y - 8, words, 12, anchor=anchor),
        ]
    )


def histogram() -> str:
    """Five values, four buckets, the cumulative counts, and the median read from them."""
    places, base, unit = (90, 250, 410, 570, 730), 250, 38
    bounds = ("0", "0.05", "0.1", "0.5", "∞")
    counts, total = (2, 1, 1, 1), 0
    parts = [
        line(90, base, 760, base),
        label(770, base + 5, "seconds,", 12, GREY, anchor="start"),
        label(770, base + 21, "not to scale", 12, GREY, anchor="start"),
        *[label(x, base + 22, words) for x, words in zip(places, bounds, strict=True)],
        *[line(x, base - 4, x, base + 4) for x in places],
    ]
    for n, count in enumerate(counts):
        parts.append(_column(places[n], base, 160, unit * total, unit * count))
        total += count
        parts.append(
            label(places[n] + 80, base - unit * total + (-8 if n else 24), f"at most: {total}")
        )
    rank = base - 2.5 * unit
    parts += [
        line(90, rank, 330, rank, PINK, "5 4"),
        line(330, rank, 330, base, PINK, "5 4"),
        label(96, rank - 7, "rank 0.5 × 5 = 2.5", 12, anchor="start"),
        label(330, base + 40, "0.075 s is read; the true one is 0.07 s", 12, INK),
        label(650, base + 40, "where in here? nobody knows: 0.5 s is read", 12, INK),
    ]
    return picture(860, 310, "A histogram by hand, and its median", parts)


def _column(x: float, base: float, width: float, below: float, height: float) -> str:
    """What a bucket has, standing on what those before it have."""
    old = (
        f"<rect x='{x}' y='{base - below}' width='{width}' height='{below}' fill='{PALE[GREY]}' "
        f"stroke='{LINE}'/>"
    )
    new = (
        f"<rect x='{x}' y='{base - below - height}' width='{width}' height='{height}' "
        f"fill='{PALE[BLUE]}' stroke='{BLUE}'/>"
    )
    return old + new


def places() -> str:
    """What an exception brings along, and what of it may be written down."""
    rows = (
        ("class", "KeyError", True, "says what kind of trouble"),
        ("places in our code", "batcher.py:212 step", True, "says where to look"),
        ("message", "'my password is …'", False, "quotes what it complains about"),
        ("arguments, notes", "('my password is …',)", False, "the same, once more"),
        ("values of variables", "prompt = 'my pass…'", False, "that is the prompt itself"),
        ("what led to it", "another exception", True, "again: class and places only"),
    )
    parts = [
        label(30, 36, "an exception has", 13, GREY, anchor="start"),
        label(240, 36, "for example", 13, GREY, anchor="start"),
        label(450, 36, "in the log", 13, GREY, anchor="start"),
        label(560, 36, "because it", 13, GREY, anchor="start"),
    ]
    for n, (what, example, may, why) in enumerate(rows):
        y = 70 + 34 * n
        ink = GREEN if may else PINK
        parts += [
            f"<rect x='15' y='{y - 22}' width='790' height='30' rx='4' fill='{PALE[ink]}'/>",
            label(30, y - 2, what, 13, anchor="start", weight="bold"),
            label(240, y - 2, example, 13, anchor="start"),
            label(450, y - 2, "yes" if may else "never", 13, anchor="start", weight="bold"),
            label(560, y - 2, why, 13, GREY, anchor="start"),
        ]
    return picture(820, 265, "What of an exception may be logged", parts)


BEFORE = (10.0, 10.3, 9.8, 10.1, 10.4)
RUNS = (  # name, runs after, verdict
    ("5 % worse", (10.6, 10.2, 10.9, 10.4, 10.7), "unclear"),
    ("30 % worse", (13.1, 12.7, 13.4, 13.0, 13.3), "worse"),
    ("30 % worse, noisy", (10.5, 16.5, 11.0, 18.0, 11.2), "unclear"),
    ("as before", (10.2, 9.9, 10.3, 10.0, 10.2), "fine"),
)


def noise() -> str:
    """Five runs before an upgrade and five after it, four times."""

    def place(seconds: float) -> float:
        return 170 + 60 * (seconds - 9)

    limit = place(1.05 * sum(BEFORE) / len(BEFORE))
    parts = [
        line(limit, 40, limit, 330, PINK, "5 4"),
        label(limit + 6, 36, "5 % more than before: tolerated up to here", 12, anchor="start"),
    ]
    for n, (name, after, verdict) in enumerate(RUNS):
        y = 75 + 70 * n
        parts += [
            label(20, y + 12, name, 13, anchor="start", weight="bold"),
            *[_dot(place(value), y, GREY) for value in BEFORE],
            *[_dot(place(value), y + 22, BLUE) for value in after],
            label(800, y + 14, verdict, 14, anchor="end", weight="bold"),
        ]
    parts += [
        line(place(9), 345, place(18.3), 345),
        *[label(place(n), 365, f"{n} s", 12, GREY) for n in range(9, 19, 3)],
        _dot(230, 388, GREY),
        label(242, 392, "a run before", 12, GREY, anchor="start"),
        _dot(360, 388, BLUE),
        label(372, 392, "a run after", 12, GREY, anchor="start"),
    ]
    return picture(820, 410, "What five runs before and five after can tell", parts)


def _dot(x: float, y: float, ink: str) -> str:
    """One run; a square before, a circle after."""
    if ink == GREY:
        return f"<rect x='{x - 5:g}' y='{y - 5:g}' width='10' height='10' fill='{GREY}'/>"
    return f"<circle cx='{x:g}' cy='{y:g}' r='6' fill='{ink}'/>"


if __name__ == "__main__":
    main()
