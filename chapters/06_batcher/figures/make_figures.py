"""Draw the chapter's diagrams: python chapters/06_batcher/figures/make_figures.py

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
    cell,
    label,
    line,
    picture,
    save,
)

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Write all six diagrams."""
    drawings = {
        "map": the_map(),
        "by_hand": by_hand(),
        "life": life(),
        "door": door(),
        "step": step(),
        "chunks": chunks(),
    }
    save(drawings, HERE)


def the_map() -> str:
    """A request's way through the batcher, and the exercises on it."""
    parts = [
        box(20, 90, 110, 50, GREY, "request", "submitted"),
        box(180, 90, 140, 50, ORANGE, "waiting queue", "6.3"),
        box(370, 90, 120, 50, ORANGE, "admission", "rows, tokens · 6.4"),
        f"<rect x='540' y='40' width='390' height='150' rx='8' fill='none' stroke='{GREEN}' "
        "stroke-width='1.5'/>",
        label(735, 62, "computed in every step · 6.8", 13, GREEN, weight="bold"),
        box(560, 90, 100, 50, ORANGE, "plan", "chunks · 6.5"),
        box(690, 90, 100, 50, BLUE, "model", "chapter 04"),
        box(820, 90, 95, 50, BLUE, "sampler", "chapter 05"),
        box(690, 240, 225, 50, ORANGE, "emit, and how it ends", "6.6"),
        box(370, 240, 120, 50, PINK, "KV cache", "chapter 04"),
        box(180, 240, 140, 50, ORANGE, "the books", "6.7"),
        arrow((130, 115), (178, 115)),
        arrow((320, 115), (368, 115)),
        arrow((490, 115), (558, 115)),
        arrow((660, 115), (688, 115)),
        arrow((790, 115), (818, 115)),
        arrow((868, 140), (868, 238)),
        arrow((430, 140), (430, 238)),
        label(438, 200, "reserves", 12, GREY, anchor="start"),
        arrow((690, 265), (492, 265)),
        label(590, 257, "over: gives its room back", 12, GREY),
        arrow((740, 240), (740, 218), (610, 218), (610, 142)),
        label(675, 210, "goes on", 12, GREY),
        arrow((370, 265), (322, 265)),
        label(802, 312, "each token to on_token, the end to on_finish", 12, GREY),
        label(75, 160, "its life · 6.2", 12, GREY),
        label(250, 312, "used + free = total", 12, GREY),
    ]
    return picture(950, 332, "From waiting to finished, and what happens in a step", parts)


def by_hand() -> str:
    """Three answers of 2, 5 and 3 tokens on two rows, static and continuous."""
    names = {"A": BLUE, "B": ORANGE, "C": GREEN, "·": GREY, "": GREY}
    tables = {
        "static: the third waits for both": ("AA···CCC", "BBBBB   "),
        "continuous: it takes the row that is free": ("AACCC", "BBBBB"),
    }
    parts = []
    for n, (title, rows) in enumerate(tables.items()):
        top = 45 + 150 * n
        parts.append(label(130, top - 14, title, 14, anchor="start", weight="bold"))
        for r, letters in enumerate(rows):
            parts.append(label(118, top + 27 + 42 * r, f"row {r}", 12, GREY, anchor="end"))
            for column, letter in enumerate(letters.replace(" ", "·")):
                parts.append(
                    cell(130 + 42 * column, top + 42 * r, 42, names[letter], letter, letter != "·")
                )
        steps = len(rows[0])
        words = f"{steps} steps, {2 * steps} places, {2 * steps - 10} of them wasted"
        parts.append(label(490, top + 48, words, 13, anchor="start"))
    for column in range(8):
        parts.append(label(151 + 42 * column, 300, str(column + 1), 12, GREY))
    parts.append(label(118, 300, "step", 12, GREY, anchor="end"))
    return picture(780, 318, "Three answers on two rows, static and continuous", parts)


def life() -> str:
    """The four states and what leads from one to the next."""
    parts = [
        box(30, 70, 130, 54, ORANGE, "WAITING", "for room"),
        box(260, 70, 130, 54, BLUE, "PREFILL", "its prompt"),
        box(490, 70, 130, 54, GREEN, "DECODE", "a token a step"),
        box(720, 70, 130, 54, GREY, "FINISHED", "for ever"),
        arrow((160, 97), (258, 97)),
        label(209, 88, "admitted", 12, GREY),
        arrow((390, 97), (488, 97)),
        label(439, 88, "first token", 12, GREY),
        arrow((620, 97), (718, 97)),
        label(669, 88, "stop, length", 12, GREY),
        arrow((95, 124), (95, 185), (800, 185), (800, 126)),
        line(325, 124, 325, 185, GREY),
        line(555, 124, 555, 185, GREY),
        label(440, 207, "cancelled, timeout: from every state; error: from prefill and decode", 13),
        label(95, 50, "holds nothing", 12, GREY),
        label(440, 50, "holds a row, and room for all it may grow to", 12, GREY),
        label(785, 50, "holds nothing", 12, GREY),
    ]
    return picture(880, 228, "The life of a request", parts)


def door() -> str:
    """The queue in its order, and the room that the first of it needs."""
    parts = [label(160, 34, "waiting, in the order of their turn", 14, weight="bold")]
    line_up = (
        ("promoted", "6 tokens, waited over 5 s", PINK),
        ("priority −1", "9 tokens", ORANGE),
        ("short", "3 tokens", ORANGE),
        ("longer", "12 tokens", ORANGE),
    )
    for n, (name, words, ink) in enumerate(line_up):
        parts.append(box(60, 52 + 62 * n, 200, 48, ink, name, words))
    parts += [
        label(160, 318, "one too many: QueueFull", 12, GREY),
        arrow((260, 76), (392, 76)),
        label(326, 66, "room for 6?", 12, GREY),
        label(630, 34, "the cache: 3 rows, a budget of 20 tokens", 14, weight="bold"),
    ]
    for r, (words, size, written) in enumerate((("runs", 8, 5), ("runs", 9, 3), ("free", 0, 0))):
        for slot in range(10):
            parts.append(_slot(400 + 46 * slot, 54 + 56 * r, slot < size, slot < written))
        parts.append(label(870, 80 + 56 * r, words, 12, GREY, anchor="start"))
    said = (
        "8 + 9 = 17 of 20 are reserved, so 6 do not fit. The first waits,",
        "and everybody behind it. Nobody overtakes the first in line.",
    )
    for n, words in enumerate(said):
        parts.append(label(400, 245 + 20 * n, words, 13, anchor="start"))
    for n, (words, full) in enumerate((("written", True), ("reserved, not yet written", False))):
        parts.append(_slot(400 + 150 * n, 290, True, full))
        parts.append(label(450 + 150 * n, 314, words, 12, GREY, anchor="start"))
    return picture(980, 345, "Who waits, and who is let in", parts)


def _slot(x: float, y: float, reserved: bool, written: bool) -> str:
    """A token of room: free, reserved or written."""
    fill = BLUE if written else PALE[BLUE] if reserved else PAPER
    edge = BLUE if reserved else LINE
    return (
        f"<rect x='{x:g}' y='{y:g}' width='42' height='38' rx='3' fill='{fill}' stroke='{edge}'/>"
    )


def step() -> str:
    """What happens in one step, in order."""
    stages = (
        ("retire", "cancelled, expired", ORANGE),
        ("admit", "while there is room", ORANGE),
        ("forward", "decodes [B, 1]", BLUE),
        ("forward", "chunks [P, C]", BLUE),
        ("sample", "all rows in one call", GREEN),
        ("emit", "one token at a time", ORANGE),
    )
    parts = []
    for n, (name, words, ink) in enumerate(stages):
        x = 20 + 158 * n
        parts.append(box(x, 60, 138, 54, ink, name, words))
        if n:
            parts.append(arrow((x - 20, 87), (x - 2, 87)))
    parts += [
        label(20, 36, "the clock is read once", 12, GREY, anchor="start"),
        line(336, 134, 632, 134, BLUE),
        label(484, 154, "together at most step_tokens places", 12, GREY),
        line(652, 134, 790, 134, GREEN),
        label(721, 154, "decodes, and prompts complete now", 12, GREY),
        label(484, 194, "Whoever ends gives its room back first, and then hears of it.", 13),
        label(484, 216, "A fault ends those whom it concerns. The loop goes on.", 13),
    ]
    return picture(968, 236, "One step, in order", parts)


def chunks() -> str:
    """A step of ten places, as two forwards and as one padded."""
    parts = [
        label(20, 34, "two forwards: 3 + 7 places", 14, anchor="start", weight="bold"),
        label(430, 34, "one padded forward: 4 × 7 = 28 places", 14, anchor="start", weight="bold"),
    ]
    for row in range(3):
        parts.append(cell(20, 50 + 40 * row, 38, BLUE, "d"))
        for column in range(7):
            parts.append(
                cell(430 + 40 * column, 50 + 40 * row, 38, BLUE, "d" * (column == 0), not column)
            )
    for column in range(7):
        parts.append(cell(90 + 40 * column, 50, 38, ORANGE, "p"))
        parts.append(cell(430 + 40 * column, 170, 38, ORANGE, "p"))
    parts += [
        label(39, 190, "[3, 1]", 12, GREY),
        label(230, 110, "[1, 7]", 12, GREY),
        label(
            20,
            240,
            "d: a decode · p: a token of a prompt · empty: padding, computed all the same",
            13,
            INK,
            anchor="start",
        ),
        label(
            20,
            262,
            "The weights are read twice on the left, once on the right.",
            12,
            GREY,
            anchor="start",
        ),
    ]
    return picture(740, 282, "Decodes and a chunk, as two forwards or as one", parts)


if __name__ == "__main__":
    main()
