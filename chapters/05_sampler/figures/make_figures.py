"""Draw the chapter's diagrams: python chapters/05_sampler/figures/make_figures.py

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
    PAPER,
    PINK,
    arrow,
    box,
    label,
    line,
    picture,
    save,
)

HERE = Path(__file__).resolve().parent
FIVE = (0.5, 0.25, 0.12, 0.08, 0.05)  # the probabilities of the README and the notebook
THREE = (0.665, 0.245, 0.090)  # softmax of 2, 1, 0


def main() -> None:
    """Write all five diagrams."""
    drawings = {
        "map": the_map(),
        "filters": filters(),
        "stretches": stretches(),
        "parrot": parrot(),
        "held_back": held_back(),
    }
    save(drawings, HERE)


def the_map() -> str:
    """Logits to an id along the top, an id to text along the bottom."""
    parts = [
        box(20, 50, 110, 56, GREY, "logits", "[B, 49,152]"),
        box(165, 50, 110, 56, ORANGE, "penalties", "5.3"),
        box(310, 50, 110, 56, ORANGE, "temperature", "5.1"),
        box(455, 50, 220, 56, ORANGE, "top-k, top-p, min-p", "in this order · 5.2"),
        box(710, 50, 100, 56, ORANGE, "softmax", "5.1"),
        box(845, 50, 100, 56, ORANGE, "pick", "5.4"),
        *(arrow((x, 78), (x + 33, 78)) for x in (130, 275, 420, 675, 810)),
        box(820, 140, 150, 46, PINK, "random numbers", "of this request · 5.4"),
        arrow((895, 140), (895, 108)),
        box(20, 150, 165, 50, ORANGE, "log-probabilities", "of the model itself · 5.5"),
        arrow((75, 106), (75, 148)),
        arrow((945, 78), (1000, 78), (1000, 282), (958, 282)),
        box(846, 254, 110, 56, GREY, "token id", "[B]"),
        box(650, 254, 150, 56, ORANGE, "detokenizer", "whole characters · 5.7"),
        box(450, 254, 150, 56, ORANGE, "stop strings", "held back · 5.6"),
        box(290, 254, 110, 56, GREY, "text", "for the reader"),
        box(60, 254, 180, 56, ORANGE, "side by side", "settings compared · 5.8"),
        arrow((846, 282), (802, 282)),
        arrow((650, 282), (602, 282)),
        arrow((450, 282), (402, 282)),
        arrow((290, 282), (242, 282)),
        arrow((901, 254), (901, 220), (220, 220), (220, 108)),
        label(530, 213, "what was written counts for the next token's penalties", 12, GREY),
        label(725, 335, "an end token, a stop string or the limit ends it: 5.6, 5.7", 12, GREY),
    ]
    return picture(1020, 355, "From logits to a token, and from tokens to text", parts)


def filters() -> str:
    """The same five probabilities under the three filters."""
    panels = (
        ("top-k, k = 2", "the two most probable", 2),
        ("top-p, p = 0.8", "until the sum reaches 0.8", 3),
        ("min-p, p = 0.2", "at least 0.2 × the largest", 3),
    )
    parts = []
    for n, (title, rule, kept) in enumerate(panels):
        x = 40 + 310 * n
        parts += [
            label(x + 125, 30, title, 14, weight="bold"),
            label(x + 125, 50, rule, 12, GREY),
            *_bars(x, 230, kept),
        ]
    sums = ("0.50", "0.75", "0.87", "0.95", "1.00")
    for place, total in enumerate(sums):
        parts.append(label(350 + 50 * place + 22, 288, total, 12, GREY))
    parts += [
        label(475, 306, "sum so far: 0.75 is not enough", 12, GREY),
        line(660, 230 - 0.1 * 320, 915, 230 - 0.1 * 320, INK, dash="4 4"),
        label(918, 230 - 0.1 * 320 + 4, "0.1", 12, INK, anchor="start"),
        label(165, 288, "whatever their probability", 12, GREY),
        label(785, 288, "0.2 × 0.5 = 0.1", 12, GREY),
    ]
    return picture(960, 322, "What top-k, top-p and min-p keep of five tokens", parts)


def _bars(x: float, y: float, kept: int) -> list[str]:
    """Five bars from the line y up, those that are not kept in outline."""
    parts = [line(x, y, x + 250, y)]
    for place, share in enumerate(FIVE):
        height, fill = 320 * share, PALE[BLUE] if place < kept else PAPER
        edge, dash = (BLUE, "") if place < kept else (LINE, "3 3")
        left = x + 50 * place
        parts += [
            f"<rect x='{left:g}' y='{y - height:g}' width='44' height='{height:g}' fill='{fill}' "
            f"stroke='{edge}' stroke-dasharray='{dash}'/>",
            label(left + 22, y + 18, "abcde"[place], 13, weight="bold"),
            label(left + 22, y + 36, f"{share:.2f}", 12, INK if place < kept else GREY),
        ]
    return parts


def stretches() -> str:
    """Probabilities laid end to end, and a random number that points into them."""
    left, width, parts = 60, 780, []
    for start, share, ink, name in zip(
        (0.0, 0.665, 0.910),
        THREE,
        (BLUE, ORANGE, GREEN),
        ("token 0", "token 1", "token 2"),
        strict=True,
    ):
        x = left + width * start
        parts += [
            f"<rect x='{x:g}' y='80' width='{width * share:g}' height='50' fill='{PALE[ink]}' "
            f"stroke='{ink}'/>",
            label(x + width * share / 2, 102, name, 13, weight="bold"),
            label(x + width * share / 2, 120, f"{share:.3f}", 12, GREY),
            label(x, 150, f"{start:.3f}", 12, GREY),
        ]
    at = left + width * 0.7
    parts += [
        label(left + width, 150, "1", 12, GREY),
        arrow((at, 48), (at, 78), ink=INK),
        label(at, 40, "a random number: 0.7", 13, weight="bold"),
        label(450, 185, "0.665 ≤ 0.7 < 0.910, so it is token 1", 13),
        label(450, 206, "a long stretch is hit more often: that is all a sampler does", 12, GREY),
    ]
    return picture(900, 225, "A random number picks a token", parts)


def parrot() -> str:
    """One character of four bytes in three tokens."""
    rows = ("token", "its bytes", "decoded alone", "given out")
    parts = [
        label(150, 62 + 52 * n, name, 13, anchor="end", weight="bold")
        for n, name in enumerate(rows)
    ]
    columns = (
        ("15107", "20 F0 9F", "“ \ufffd”", "“ ”"),
        ("116", "A6", "“\ufffd”", "nothing yet"),
        ("246", "9C", "“\ufffd”", "the parrot"),
        ("17", "21", "“!”", "“!”"),
    )
    for n, (token, data, alone, given) in enumerate(columns):
        x = 170 + 170 * n
        parts += [
            box(x, 38, 150, 38, GREY, token),
            box(x, 90, 150, 38, BLUE, data),
            box(x, 142, 150, 38, PINK, alone),
            box(x, 194, 150, 38, GREEN, given),
        ]
    parts += [
        label(340, 258, "F0 9F A6 9C is one character, U+1F99C.", 13, anchor="start"),
        label(340, 278, "Its first three bytes wait for the fourth.", 13, anchor="start"),
        label(150, 258, "the trap", 12, PINK, anchor="end"),
        label(150, 278, "right", 12, GREEN, anchor="end"),
        f"<rect x='158' y='249' width='14' height='10' fill='{PALE[PINK]}' stroke='{PINK}'/>",
        f"<rect x='158' y='269' width='14' height='10' fill='{PALE[GREEN]}' stroke='{GREEN}'/>",
    ]
    return picture(870, 300, "A character that is spread over three tokens", parts)


def held_back() -> str:
    """A text arriving in pieces, and how much of it may be shown."""
    steps = (
        ("Paris.", "Paris.", "", "nothing of it begins the stop string"),
        ("\\n", "", "\\n", "could become it: wait"),
        ("\\n", "", "\\n\\n", "wait"),
        ("So", "\\n\\nSo", "", "it was not the stop string: give it all"),
        ("\\n\\n", "", "\\n\\n", "could become it: wait"),
        ("The end", "", "", "complete: cut, and the text is over"),
    )
    heads = ((95, "piece"), (270, "shown now"), (445, "held back"))
    parts = [label(x, 58, name, 13, weight="bold") for x, name in heads]
    parts.append(label(450, 28, "stop string: \\n\\nThe (\\n is a newline)", 14, weight="bold"))
    for n, (piece, shown, held, why) in enumerate(steps):
        y = 72 + 42 * n
        parts += [
            box(30, y, 130, 34, GREY, piece),
            arrow((160, y + 17), (193, y + 17)),
            box(195, y, 150, 34, GREEN if shown else GREY, shown or "—"),
            box(370, y, 150, 34, ORANGE if held else GREY, held or "—"),
            label(540, y + 22, why, 13, GREY, anchor="start"),
        ]
    note = "The text is “Paris.\\n\\nSo”. What follows the match, “ end”, is cut too."
    parts.append(label(450, 348, note, 12, GREY))
    return picture(900, 368, "A stop string, held back piece by piece", parts)


if __name__ == "__main__":
    main()
