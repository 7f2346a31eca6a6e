"""Draw the chapter's diagrams: python chapters/03_quantizer/figures/make_figures.py

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
EIGHT = (0.85, -0.27, 0.05, -1.4, 0.36, 1.0, -0.55, 0.0)  # the numbers of the README and notebook


def main() -> None:
    """Write all four diagrams."""
    save({"map": the_map(), "grid": grid(), "bytes": nibbles(), "weight": weight()}, HERE)


def the_map() -> str:
    """One tensor on its way from the file to a product, and what judges it."""
    parts = [
        box(20, 70, 130, 56, GREY, "checkpoint", "mapped, chapter 02"),
        box(205, 70, 130, 56, ORANGE, "one tensor", "at a time · 3.5"),
        box(395, 20, 120, 50, ORANGE, "rows", "int8 · 3.1"),
        box(395, 126, 120, 50, ORANGE, "groups", "8, 4, 3, 2 bits · 3.2"),
        box(565, 126, 100, 50, ORANGE, "pack", "3.3"),
        box(720, 70, 150, 56, ORANGE, "QuantizedTensor", "3.4"),
        box(395, 226, 120, 50, GREY, "left alone", "norms, embedding"),
        arrow((150, 98), (203, 98)),
        arrow((335, 90), (365, 90), (365, 45), (393, 45)),
        arrow((335, 98), (365, 98), (365, 151), (393, 151)),
        arrow((270, 126), (270, 251), (393, 251)),
        arrow((515, 45), (795, 45), (795, 68)),
        arrow((515, 151), (563, 151)),
        arrow((665, 151), (690, 151), (690, 98), (718, 98)),
        box(720, 226, 150, 50, ORANGE, "file", "saved, read back · 3.6"),
        arrow((780, 126), (780, 224)),
        arrow((810, 226), (810, 128)),
        arrow((515, 251), (718, 251)),
        box(925, 70, 120, 56, ORANGE, "linear", "3.4"),
        arrow((870, 98), (923, 98)),
        box(925, 226, 120, 50, BLUE, "model", "chapter 04"),
        arrow((985, 126), (985, 224)),
        box(720, 320, 150, 50, ORANGE, "what it costs", "3.7"),
        arrow((985, 276), (985, 345), (872, 345)),
        box(395, 320, 200, 50, ORANGE, "is the measurement honest?", "3.8"),
        arrow((720, 345), (597, 345)),
    ]
    return picture(
        1065, 390, "From a checkpoint to weights in few bits, and what judges them", parts
    )


def grid() -> str:
    """The same eight numbers on a symmetric and on an affine grid of 4 bits."""
    parts = [
        *_axis(90, "symmetric: scale × q", [0.2 * q for q in range(-7, 8)], ("−7", "7"), BLUE),
        label(
            470, 166, "15 values, a step of 0.20. Above 1.0 two of them are never used.", 12, GREY
        ),
        *_axis(245, "affine: scale × q + minimum", _affine(), ("0", "15"), GREEN),
        label(
            470, 321, "16 values, a step of 0.16. Zero (its dot is ringed) moves to 0.04.", 12, GREY
        ),
    ]
    return picture(940, 340, "Eight weights on a symmetric and on an affine grid of 4 bits", parts)


def _affine() -> list[float]:
    return [-1.4 + 0.16 * q for q in range(16)]


def _axis(y: float, title: str, levels: list[float], ends: tuple[str, str], ink: str) -> list[str]:
    """A number line with the grid as ticks, the weights above it, and where each one goes."""
    parts = [label(20, y - 52, title, 14, ink, anchor="start", weight="bold")]
    parts.append(line(_x(-1.5), y, _x(1.5), y))
    for n, level in enumerate(levels):
        parts.append(line(_x(level), y, _x(level), y + 16, ink))
        if n in (0, len(levels) - 1):
            parts.append(label(_x(level), y + 50, f"q = {ends[n > 0]}", 12, GREY))
            parts.append(label(_x(level), y + 33, f"{level:.1f}".replace("-", "−"), 12))
    for number in EIGHT:
        nearest = min(levels, key=lambda level: abs(level - number))
        parts.append(line(_x(number), y - 24, _x(nearest), y, ORANGE))
        edge = INK if number == 0 else "none"
        parts.append(
            f"<circle cx='{_x(number):g}' cy='{y - 24:g}' r='5' fill='{ORANGE}' stroke='{edge}' "
            "stroke-width='2'/>"
        )
    return parts


def _x(number: float) -> float:
    """Where a number stands on the line, in pixels."""
    return round(470 + 290 * number, 1)


def nibbles() -> str:
    """Eight numbers of 4 bits in four bytes, and the other widths."""
    q = (14, 7, 9, 0, 11, 15, 5, 9)
    parts = [label(20, 55, "q", 14, anchor="start", weight="bold")]
    for n, number in enumerate(q):
        ink = (BLUE, ORANGE)[n % 2]
        parts.append(cell(120 + 90 * n + 10 * (n % 2 == 0), 30, 44, ink, str(number)))
    parts.append(label(20, 150, "bytes", 14, anchor="start", weight="bold"))
    for n in range(4):
        left = 112 + 180 * n
        low, high = q[2 * n], q[2 * n + 1]
        parts += [_half(left, 125, ORANGE, high), _half(left + 72, 125, BLUE, low)]
        words = f"{low} + 16 × {high} = {low + 16 * high} = 0x{low + 16 * high:02x}"
        parts.append(label(left + 72, 190, words, 12, GREY))
        parts.append(arrow((152 + 180 * n, 74), (left + 108, 123), ink=BLUE))
        parts.append(arrow((232 + 180 * n, 74), (left + 36, 123), ink=ORANGE))
    parts += [
        label(472, 222, "The first number of each pair lies in the low half of its byte.", 13),
        label(472, 245, "8 bits: one number a byte · 4 and 3 bits: two · 2 bits: four", 12, GREY),
    ]
    return picture(860, 262, "Two numbers of 4 bits in each byte", parts)


def _half(x: float, y: float, ink: str, number: int) -> str:
    """Half a byte: its four bits."""
    pale = {BLUE: "#dcecf6", ORANGE: "#fbe6d9"}[ink]
    shape = (
        f"<rect x='{x:g}' y='{y:g}' width='72' height='42' fill='{pale}' stroke='{ink}' "
        "stroke-width='1.4'/>"
    )
    return shape + label(x + 36, y + 27, f"{number:04b}", 15)


def weight() -> str:
    """One row of a quantized weight: groups, with a scale and a minimum each."""
    parts = [label(20, 40, "one row, 576 numbers in float32: 2,304 bytes", 13, anchor="start")]
    names = ("group 0", "group 1", "group 2", "…", "group 17")
    for n, name in enumerate(names):
        ink = GREY if name == "…" else BLUE
        parts.append(box(20 + 172 * n, 55, 160, 40, ink, name))
        if name == "…":
            continue
        parts.append(label(100 + 172 * n, 117, "32 numbers, 128 bytes", 12, GREY))
        parts.append(arrow((100 + 172 * n, 124), (100 + 172 * n, 158)))
        parts.append(box(20 + 172 * n, 160, 76, 44, ORANGE, "data", "16 bytes"))
        parts.append(box(100 + 172 * n, 160, 38, 44, GREEN, "s", "2"))
        parts.append(box(142 + 172 * n, 160, 38, 44, PINK, "m", "2"))
    parts += [
        label(450, 235, "data: 4 bits a number, packed · s: scale · m: minimum, float16", 13),
        label(450, 258, "18 groups of 20 bytes are 360 bytes: 5 bits a number", 13, weight="bold"),
        line(20, 275, 880, 275, LINE, "4 4"),
        label(
            450,
            300,
            "data [out, bytes], scale [out, G] and minimum [out, G] are three separate tensors",
            12,
            GREY,
        ),
    ]
    return picture(900, 318, "One row of a weight in 4 bits, groups of 32", parts)


if __name__ == "__main__":
    main()
