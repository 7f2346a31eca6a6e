"""Draw the chapter's diagrams: python chapters/02_loader/figures/make_figures.py

Plots of measured numbers come from measure.py; what is drawn here is true on every machine.
"""

import json
import struct
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
MONO = "font-family='Menlo, Consolas, monospace'"


def main() -> None:
    """Write all five diagrams."""
    drawings = {
        "map": the_map(),
        "two_tensors": two_tensors(),
        "views": views(),
        "bits": bits(),
        "block": block(),
    }
    save(drawings, HERE)


def the_map() -> str:
    """Files on the left, weights on the right, what is checked between them."""
    parts = [
        label(95, 24, "on disk", 14, weight="bold"),
        label(405, 24, "believed after a check", 14, weight="bold"),
        label(845, 24, "in memory", 14, weight="bold"),
        box(20, 50, 150, 50, GREY, "config.json", "+ generation_config"),
        box(20, 215, 150, 50, GREY, "…index.json", "which shard has what"),
        box(20, 300, 150, 60, GREY, "model.safetensors", "or its shards"),
        box(235, 50, 120, 50, ORANGE, "config", "2.3"),
        box(445, 50, 150, 50, ORANGE, "expected tensors", "names, shapes · 2.4"),
        box(235, 215, 120, 50, ORANGE, "shards", "2.5"),
        box(235, 305, 120, 50, ORANGE, "header", "2.1"),
        box(445, 305, 150, 50, ORANGE, "views of the map", "nothing read yet · 2.2"),
        box(445, 180, 150, 50, ORANGE, "one report", "all that is wrong · 2.6"),
        box(680, 180, 110, 50, ORANGE, "load", "2.7"),
        box(855, 165, 125, 80, GREEN, "weights", "one dtype,", "one device"),
        box(855, 50, 125, 50, GREEN, "Config"),
        arrow((170, 75), (233, 75)),
        arrow((355, 75), (443, 75)),
        arrow((170, 240), (233, 240)),
        arrow((170, 330), (233, 330)),
        arrow((295, 265), (295, 303)),
        arrow((355, 330), (443, 330)),
        arrow((520, 100), (520, 178)),
        arrow((520, 305), (520, 232)),
        arrow((595, 205), (678, 205)),
        arrow((790, 205), (853, 205)),
        arrow((295, 50), (295, 38), (917, 38), (917, 48)),
        label(637, 196, "272 tensors", 11, GREY),
        *_stages(400),
    ]
    return picture(1000, 450, "From a folder of files to weights in memory", parts)


def _stages(y: float) -> list[str]:
    """A legend of the four stages, and the number of a stage at the corner of each of its boxes."""
    parts = [label(95, y + 5, "the four timed stages:", 13, GREY)]
    for number, (x, name) in enumerate(
        ((235, "config"), (365, "instantiate"), (530, "read"), (630, "move")), 1
    ):
        parts += _number(x, y, number)
        parts.append(label(x + 18, y + 5, name, 13, BLUE, anchor="start", weight="bold"))
    second = ((445, 50), (235, 215), (235, 305), (445, 305), (445, 180))
    for number, x, y in ((1, 235, 50), *((2, *at) for at in second), (3, 680, 180), (4, 702, 180)):
        parts += _number(x, y, number)
    return parts


def _number(x: float, y: float, number: int) -> list[str]:
    """A number in a circle."""
    circle = f"<circle cx='{x}' cy='{y}' r='9' fill='{PALE[BLUE]}' stroke='{BLUE}'/>"
    return [circle, label(x, y + 4, str(number), 11, INK)]


def two_tensors() -> str:
    """Every byte of the notebook's file of two tensors, coloured by what it is."""
    header = {
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [8, 12]},
    }
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    comma, brace = text.index(b',"b"'), text.rindex(b"}")
    pieces = [
        (GREY, struct.pack("<Q", len(text)) + text[:1]),
        (BLUE, text[1:comma]),
        (GREY, text[comma : comma + 1]),
        (ORANGE, text[comma + 1 : brace]),
        (GREY, text[brace:]),
        (BLUE, struct.pack("<2f", 1.0, -2.0)),
        (ORANGE, struct.pack("<2H", 0x3F00, 0xC040)),
    ]
    bytes_ = [(ink, byte) for ink, piece in pieces for byte in piece]
    data = 8 + len(text)
    parts = [_byte(n, ink, byte, n >= data) for n, (ink, byte) in enumerate(bytes_)]
    parts += [label(52, 75 + 28 * row, str(16 * row), 12, GREY, anchor="end") for row in range(9)]
    legend = (
        (40, GREY, "the length (112), braces, a space"),
        (320, BLUE, "a: float32 [2]"),
        (465, ORANGE, "b: bfloat16 [1, 2]"),
    )
    for x, ink, words in legend:
        parts.append(f"<rect x='{x}' y='18' width='18' height='18' fill='{PALE[ink]}' ")
        parts.append(f"stroke='{ink}'/>" + label(x + 26, 32, words, 13, anchor="start"))
    base = f"thick border: the data. They begin at byte 8 + {len(text)} = {data}"
    parts.append(label(635, 32, base, 13, anchor="start"))
    notes = (
        (7, "a: 00 00 80 3f is 1.0, 00 00 00 c0 is −2.0"),
        (8, "b: 00 3f is 0.5, 40 c0 is −3.0"),
    )
    for row, words in notes:
        x = 64 + 44 * (16 if row == 7 else 4) + 12
        parts.append(label(x, 75 + 28 * row, words, 12, GREY, anchor="start"))
    return picture(1060, 330, "The 132 bytes of a file with two tensors", parts)


def _byte(n: int, ink: str, value: int, data: bool) -> str:
    """One byte in its place in rows of 16: as a character in the header, else in hexadecimal."""
    x, y = 64 + 44 * (n % 16), 56 + 28 * (n // 16)
    header = n >= 8 and not data
    words = chr(value).replace(" ", "␣") if header else f"{value:02x}"
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    width = 2.4 if data else 0.8
    return (
        f"<rect x='{x}' y='{y}' width='42' height='26' fill='{PALE[ink]}' stroke='{ink}' "
        f"stroke-width='{width}'/><text x='{x + 21}' y='{y + 18}' font-size='14' fill='{INK}' "
        f"text-anchor='middle' {MONO}>{words}</text>"
    )


def views() -> str:
    """Tensors, the map that they hold, the page cache, and the file."""
    parts = [
        label(20, 50, "tensors", 14, anchor="start", weight="bold"),
        label(20, 150, "the map", 14, anchor="start", weight="bold"),
        label(20, 168, "addresses, one a byte", 12, GREY, anchor="start"),
        label(20, 245, "pages in memory", 14, anchor="start", weight="bold"),
        label(20, 263, "4,096 bytes each", 12, GREY, anchor="start"),
        label(20, 340, "the file on disk", 14, anchor="start", weight="bold"),
        box(215, 25, 250, 44, BLUE, "embedding [49,152, 576]"),
        box(490, 25, 150, 44, ORANGE, "up_proj, layer 0"),
        box(665, 25, 150, 44, GREEN, "down_proj, layer 0"),
    ]
    inks = [GREY] + [BLUE] * 7 + [ORANGE] * 4 + [GREEN] * 4
    present, written = {0, 3, 4, 8, 9}, {9}
    for n, ink in enumerate(inks):
        x = 190 + 42 * n
        parts.append(_page(x, 130, ink))
        parts.append(_page(x, 320, ink, "header" if n == 0 else ""))
        if n in present:
            parts.append(_page(x, 225, PINK if n in written else ink))
            parts.append(line(x + 20, 160, x + 20, 224, ink if ink != GREY else LINE))
            dashed = "3 3" if n in written else ""
            parts.append(line(x + 20, 256, x + 20, 319, LINE, dashed))
    for x, ink in ((340, BLUE), (565, ORANGE), (740, GREEN)):
        parts.append(arrow((x, 69), (x, 127), ink=ink))
    parts += [
        label(346, 104, "row 4,649 was read:", 12, GREY, anchor="start"),
        label(346, 120, "its two pages are there", 12, GREY, anchor="start"),
        label(626, 246, "written to: a private copy,", 12, GREY, anchor="start"),
        label(626, 262, "the file stays as it is", 12, GREY, anchor="start"),
        label(520, 385, "A tensor holds the map, the map holds the pages.", 13),
        label(520, 405, "A page comes from the disk when it is first looked at.", 13),
    ]
    return picture(900, 425, "Tensors are views of a mapped file", parts)


def _page(x: float, y: float, ink: str, words: str = "") -> str:
    edge = ink if ink != GREY else LINE
    shape = f"<rect x='{x}' y='{y}' width='40' height='30' fill='{PALE[ink]}' stroke='{edge}'/>"
    return shape + (label(x + 20, y + 19, words, 10, GREY) if words else "")


def bits() -> str:
    """The first number of the row in three formats, bit by bit."""
    value = -0.12937545776367188  # of the row of " France"
    wide = struct.unpack(">I", struct.pack(">f", value))[0]
    half = struct.unpack(">H", struct.pack(">e", value))[0]
    top = (wide + 0x7FFF + (wide >> 16 & 1)) >> 16  # rounded to the nearest, ties to even
    parts = [
        *_bits(50, "float32", f"{wide:032b}", 8, value),
        *_bits(
            120, "bfloat16", f"{top:016b}", 8, struct.unpack(">f", struct.pack(">I", top << 16))[0]
        ),
        *_bits(190, "float16", f"{half:016b}", 5, struct.unpack(">e", struct.pack(">H", half))[0]),
        line(130 + 22 * 16, 40, 130 + 22 * 16, 160, INK, "5 4"),
        label(
            490,
            140,
            "the top half of float32: append 16 zeros and it is one",
            12,
            GREY,
            anchor="start",
        ),
        label(490, 210, "its exponent has 5 bits: nothing above 65,504", 12, GREY, anchor="start"),
    ]
    names = ((141, "sign", PINK), (240, "exponent", ORANGE), (600, "fraction", BLUE))
    parts += [label(x, 34, name, 13, ink, weight="bold") for x, name, ink in names]
    return picture(960, 240, "One number in float32, bfloat16 and float16", parts)


def _bits(y: float, name: str, digits: str, exponent: int, value: float) -> list[str]:
    parts = [
        label(120, y + 18, name, 13, anchor="end", weight="bold"),
        label(120, y + 34, f"{value:.6f}", 12, GREY, anchor="end"),
    ]
    for n, digit in enumerate(digits):
        ink = PINK if n == 0 else ORANGE if n <= exponent else BLUE
        x = 130 + 22 * n
        parts.append(
            f"<rect x='{x}' y='{y}' width='21' height='26' fill='{PALE[ink]}' stroke='{ink}'/>"
            f"<text x='{x + 10.5}' y='{y + 18}' font-size='13' text-anchor='middle' {MONO}>"
            f"{digit}</text>"
        )
    return parts


def block() -> str:
    """The 20 bytes of a Q4_1 block, and the weights that come from them."""
    raw = bytes.fromhex("222a40b5d77b8a4257d16465c789538c04e1fab2")
    d, m = struct.unpack("<2e", raw[:4])
    parts = []
    for n, value in enumerate(raw):
        ink = PINK if n < 2 else GREEN if n < 4 else BLUE
        x = 40 + 46 * n
        parts.append(
            f"<rect x='{x}' y='60' width='44' height='34' fill='{PALE[ink]}' stroke='{ink}'/>"
            f"<text x='{x + 22}' y='82' font-size='15' text-anchor='middle' {MONO}>"
            f"{value:02x}</text>"
        )
    parts += [
        label(85, 48, "scale d", 13, PINK, weight="bold"),
        label(177, 48, "minimum m", 13, GREEN, weight="bold"),
        label(592, 48, "16 bytes: two numbers q of 4 bits in each", 13, BLUE, weight="bold"),
        label(85, 112, f"{d:.5f}", 12, GREY),
        label(177, 112, f"{m:.6f}", 12, GREY),
    ]
    examples = ((0, 4, raw[4] & 15, 250), (1, 5, raw[5] & 15, 250), (16, 4, raw[4] >> 4, 620))
    for row, (weight, at, q, x) in enumerate(examples):
        y = 150 + 28 * (row % 2)
        half = "low" if weight < 16 else "high"
        words = f"weight {weight}: the {half} half of {raw[at]:02x} is {q}; "
        words += f"{d:.7f} × {q} − {-m:.7f} = {d * q + m:.7f}"
        parts.append(label(x - 200, y, words, 13, anchor="start") if x == 250 else "")
        parts.append(label(510, 150, words, 13, anchor="start") if x == 620 else "")
    size = "20 bytes for 32 weights: 8 × 20 / 32 = 5 bits a weight"
    parts.append(label(510, 178, size, 13, anchor="start", weight="bold"))
    return picture(1000, 200, "One Q4_1 block: scale, minimum, 32 numbers of 4 bits", parts)


if __name__ == "__main__":
    main()
