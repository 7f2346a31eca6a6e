"""Draw the chapter's diagrams: python chapters/04_forward_pass/figures/make_figures.py

Plots of measured numbers come from measure.py; what is drawn here is true on every machine.
"""

import sys
from math import cos, pi, sin
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from figure_kit import (
    BLUE,
    GREEN,
    GREY,
    LINE,
    ORANGE,
    PALE,
    PINK,
    arrow,
    box,
    cell,
    label,
    line,
    picture,
    plus,
    save,
)

HERE = Path(__file__).resolve().parent
THETA, HEAD_DIM = 100_000, 64  # of the bundled model


def main() -> None:
    """Write all five diagrams."""
    drawings = {
        "map": the_map(),
        "rope": rope(),
        "visible_keys": visible_keys(),
        "shared_heads": shared_heads(),
        "cache_row": cache_row(),
    }
    save(drawings, HERE)


def the_map() -> str:
    """Ids to logits along the top, one layer opened up below."""
    parts = [
        box(20, 40, 100, 50, GREY, "ids", "[B, T]"),
        box(165, 40, 130, 50, BLUE, "embedding", "49,152 × 576"),
        box(375, 40, 120, 50, GREEN, "30 layers", "one shown below"),
        box(575, 40, 80, 50, ORANGE, "norm", "4.1"),
        box(695, 40, 110, 50, BLUE, "head", "576 × 49,152"),
        box(850, 40, 110, 50, GREY, "logits", "[B, 49,152]"),
        arrow((120, 65), (163, 65)),
        arrow((295, 65), (373, 65)),
        arrow((495, 65), (573, 65)),
        arrow((655, 65), (693, 65)),
        arrow((805, 65), (848, 65)),
        label(334, 56, "[B, T, 576]", 11, GREY),
        label(534, 56, "[B, T, 576]", 11, GREY),
        line(375, 90, 30, 140, dash="4 4"),
        line(495, 90, 950, 140, dash="4 4"),
        f"<rect x='20' y='140' width='940' height='270' rx='8' fill='none' stroke='{GREEN}'/>",
        label(40, 163, "one layer", 14, GREEN, anchor="start", weight="bold"),
        label(40, 200, "x", 15, weight="bold"),
        arrow((52, 195), (617, 195)),
        arrow((639, 195), (889, 195)),
        arrow((911, 195), (952, 195)),
        plus(628, 195),
        plus(900, 195),
        label(330, 186, "the residual stream: each layer adds to x, twice", 12, GREY),
        *_attention_branch(),
        *_feed_forward_branch(),
    ]
    return picture(980, 430, "From token ids to logits, and the inside of one layer", parts)


def _attention_branch() -> list[str]:
    return [
        arrow((75, 195), (75, 237)),
        box(40, 240, 70, 50, ORANGE, "norm", "4.1"),
        box(140, 240, 105, 50, BLUE, "q, k, v", "9 + 3 + 3 heads"),
        box(275, 240, 85, 50, ORANGE, "rotate", "q and k · 4.2"),
        box(415, 240, 95, 50, ORANGE, "attend", "4.3"),
        box(538, 240, 68, 50, BLUE, "o", "576 × 576"),
        arrow((110, 265), (138, 265)),
        arrow((245, 265), (273, 265)),
        arrow((360, 265), (413, 265)),
        arrow((510, 265), (536, 265)),
        arrow((606, 265), (628, 265), (628, 208)),
        label(387, 258, "q", 12, GREY),
        box(330, 340, 210, 50, PINK, "KV cache", "one row a sequence · 4.5"),
        arrow((345, 290), (345, 338)),
        arrow((465, 340), (465, 293)),
        label(336, 320, "write new k, v", 12, GREY, anchor="end"),
        label(475, 320, "read all k, v", 12, GREY, anchor="start"),
    ]


def _feed_forward_branch() -> list[str]:
    return [
        arrow((690, 195), (690, 237)),
        box(655, 240, 70, 50, ORANGE, "norm", "4.1"),
        box(760, 240, 110, 50, ORANGE, "feed-forward", "1,536 wide · 4.4"),
        arrow((725, 265), (758, 265)),
        arrow((870, 265), (900, 265), (900, 208)),
    ]


def rope() -> str:
    """Left: pairs turn at their own speeds. Right: which numbers make a pair."""
    parts = [label(215, 30, "every pair turns by position × its own speed", 14, weight="bold")]
    for column, (pair, ink) in enumerate(((0, BLUE), (8, ORANGE), (31, GREEN))):
        parts += _dial(80 + 140 * column, 120, pair, THETA ** (-2 * pair / HEAD_DIM), ink)
    parts += [label(690, 30, "pair i is (x[i], x[i + 32]) of the 64 numbers", 14, weight="bold")]
    names = ("0", "1", "2", "…", "31", "32", "33", "34", "…", "63")
    inks = (BLUE, ORANGE, GREEN, GREY, PINK) * 2
    for n, (name, ink) in enumerate(zip(names, inks, strict=True)):
        parts.append(cell(490 + 40 * n, 120, 40, ink, name))
    for n, ink in ((0, BLUE), (1, ORANGE), (2, GREEN), (4, PINK)):
        left, right = 510 + 40 * n, 710 + 40 * n
        top = 105 - 8 * (4 - n)
        parts.append(
            f"<path d='M{left} 118 V{top} H{right} V118' fill='none' stroke='{ink}' "
            "stroke-width='2'/>"
        )
    parts += [
        label(590, 180, "first half: a", 12, GREY),
        label(790, 180, "second half: b", 12, GREY),
        label(690, 205, "(a, b) becomes (a cos − b sin, b cos + a sin)", 13),
        label(
            690, 226, "the trap: other file formats pair neighbours, x[2i] with x[2i + 1]", 12, GREY
        ),
    ]
    return picture(930, 250, "Rotary embedding: pairs, angles and the half-split layout", parts)


def _dial(x: float, y: float, pair: int, speed: float, ink: str) -> list[str]:
    """A circle with the pair (1, 0) turned to positions 0, 1 and 2."""
    parts = [f"<circle cx='{x}' cy='{y}' r='52' fill='{PALE[ink]}' stroke='{ink}'/>"]
    for position, width in ((2, 1.5), (1, 2.2), (0, 3)):
        angle = -position * speed
        tip = f"x2='{x + 50 * cos(angle):.1f}' y2='{y + 50 * sin(angle):.1f}'"
        parts.append(f"<line x1='{x}' y1='{y}' {tip} stroke='{ink}' stroke-width='{width}'/>")
        if speed == 1.0:
            parts.append(
                label(x + 62 * cos(angle), y + 5 + 62 * sin(angle), str(position), 12, ink)
            )
    turn = 2 * pi / speed
    return [
        *parts,
        label(x, 195, f"pair {pair}", 13, weight="bold"),
        label(x, 213, f"{speed:.3g} rad a token", 12, GREY),
        label(x, 230, f"a turn in {turn:,.{int(turn < 10)}f} tokens", 12, GREY),
    ]


def visible_keys() -> str:
    """Two grids: a padded prefill, and two new tokens over a cache."""
    parts = [
        *_grid(110, 90, [-1, -1, 0, 1, 2], [-1, -1, 0, 1, 2], "prefill, padded on the left"),
        *_grid(510, 90, [3, 4], [0, 1, 2, 3, 4, -1], "a chunk of two over a cache"),
        label(630, 255, "A query sees a key when", 14),
        label(630, 280, "0 ≤ key position ≤ its own position.", 14, weight="bold"),
        label(630, 305, "Columns decide nothing.", 14),
    ]
    return picture(860, 335, "Which key a query sees, by positions", parts)


def _grid(x: float, y: float, queries: list[int], keys: list[int], title: str) -> list[str]:
    size = 40
    parts = [
        label(x + size * len(keys) / 2, y - 55, title, 14, weight="bold"),
        label(x + size * len(keys) / 2, y - 32, "key position", 12, GREY),
        label(x - 24, y - 10, "query", 12, GREY, anchor="end"),
    ]
    for column, key in enumerate(keys):
        parts.append(label(x + size * (column + 0.5), y - 10, str(key), 12, GREY))
    for row, query in enumerate(queries):
        parts.append(label(x - 24, y + size * (row + 0.6), str(query), 12, GREY, anchor="end"))
        for column, key in enumerate(keys):
            seen = 0 <= key <= query
            parts.append(
                cell(x + size * column, y + size * row, size, BLUE, "sees" if seen else "", seen)
            )
    note = {5: "rows of −1 see nothing: zeros", 2: "the last slot was never written: −1"}
    below = y + size * len(queries) + 25
    return [*parts, label(x + size * len(keys) / 2, below, note[len(queries)], 12, GREY)]


def shared_heads() -> str:
    """Nine query heads over three key/value heads."""
    parts = [
        label(20, 62, "query heads", 13, anchor="start", weight="bold"),
        label(20, 172, "key/value heads", 13, anchor="start", weight="bold"),
    ]
    for head in range(9):
        ink = (BLUE, ORANGE, GREEN)[head // 3]
        x = 160 + 72 * head + 14 * (head // 3)
        parts.append(box(x, 35, 60, 44, ink, f"q {head}"))
        target = 160 + 72 * (3 * (head // 3) + 1) + 14 * (head // 3) + 30
        parts.append(arrow((x + 30, 79), (target + 16 * (head % 3 - 1), 143), ink=ink))
    for head, ink in enumerate((BLUE, ORANGE, GREEN)):
        x = 160 + 72 * (3 * head + 1) + 14 * head
        parts.append(box(x - 26, 145, 112, 44, ink, f"k {head}, v {head}"))
    parts += [
        label(440, 222, "query head h reads key/value head h // 3: neighbours share", 13),
        label(440, 243, "the trap: h % 3 has the same shapes, runs, and is wrong", 12, GREY),
    ]
    return picture(860, 262, "Grouped-query attention: nine query heads share three", parts)


def cache_row() -> str:
    """The stages of one row, from reserve to free."""
    stages = (
        ("empty", 0, 0, "reserved 0, length 0"),
        ("reserve(0, 8)", 8, 0, "reserved 8, length 0"),
        ("prefill writes 0 to 4", 8, 5, "reserved 8, length 5"),
        ("decode writes 5", 8, 6, "reserved 8, length 6"),
        ("free(0)", 0, 0, "reserved 0, length 0"),
    )
    words = ("The", "capital", "of", "France", "is", "Paris")
    parts = []
    for n, (verb, reserved, length, state) in enumerate(stages):
        y = 30 + 62 * n
        parts.append(label(170, y + 27, verb, 13, anchor="end", weight="bold"))
        for slot in range(10):
            ink = BLUE if slot < length else ORANGE if slot < reserved else GREY
            parts.append(_slot(190 + 56 * slot, y, ink, words[slot] if slot < length else ""))
        parts.append(label(765, y + 27, state, 12, GREY, anchor="start"))
        if n + 1 < len(stages):
            parts.append(arrow((120, y + 38), (120, y + 74)))
    keys = ((BLUE, "written: key and value"), (ORANGE, "reserved, not yet written"), (GREY, "free"))
    for n, (ink, words_) in enumerate(keys):
        parts.append(cell(190 + 200 * n, 350, 18, ink))
        parts.append(label(216 + 200 * n, 364, words_, 12, GREY, anchor="start"))
    warning = "max_length is 10 here. Writing slot 8 raises CacheFull: nobody reserved it."
    parts.append(label(190, 395, warning, 13, anchor="start"))
    return picture(910, 415, "The life of one row of the KV cache", parts)


def _slot(x: float, y: float, ink: str, words: str) -> str:
    shape = (
        f"<rect x='{x:g}' y='{y:g}' width='52' height='42' rx='3' fill='{PALE[ink]}' "
        f"stroke='{ink if ink != GREY else LINE}'/>"
    )
    return shape + label(x + 26, y + 26, words, 11)


if __name__ == "__main__":
    main()
