"""Draw the chapter's diagrams: python chapters/01_environment/figures/make_figures.py

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
    ORANGE,
    PALE,
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
        "driver": driver(),
        "runs": runs(),
        "groups": groups(),
        "plan": plan(),
        "manifest": manifest(),
    }
    save(drawings, HERE)


def the_map() -> str:
    """The way of the bytes along the top, what each step must know below."""
    parts = [
        label(20, 30, "the way of the model's bytes", 14, anchor="start", weight="bold"),
        box(20, 50, 130, 56, GREY, "source", "somebody's file"),
        box(250, 50, 130, 56, BLUE, "disk", "538 MB"),
        box(480, 50, 150, 56, BLUE, "memory", "weights, KV cache"),
        box(730, 50, 120, 56, GREEN, "processor", "caches, cores"),
        box(905, 50, 100, 56, PINK, "tokens", "how many a s?"),
        arrow((150, 78), (248, 78)),
        arrow((380, 78), (478, 78)),
        arrow((630, 78), (728, 78)),
        arrow((850, 78), (903, 78)),
        label(198, 70, "once", 12, GREY),
        label(428, 70, "once a start", 12, GREY),
        label(679, 70, "once a token", 12, GREY),
        box(120, 160, 150, 56, ORANGE, "is it the one?", "SHA-256, licence · 1.8"),
        box(350, 160, 150, 56, ORANGE, "disk speed", "1.3"),
        box(560, 160, 150, 56, ORANGE, "bandwidth", "timed properly · 1.2, 1.3"),
        box(760, 160, 190, 56, ORANGE, "roofline", "predicted speed · 1.6"),
        box(390, 262, 330, 56, ORANGE, "does it fit?", "weights 1.4 · KV cache 1.5 · plan 1.7"),
        box(760, 262, 190, 56, ORANGE, "which device?", "driver, CUDA runtime · 1.1"),
        line(195, 160, 195, 84, dash="4 4"),
        line(428, 160, 428, 84, dash="4 4"),
        line(655, 160, 679, 84, dash="4 4"),
        line(855, 160, 945, 108, dash="4 4"),
        line(530, 262, 530, 108, dash="4 4"),
        f"<polyline points='950,290 980,290 980,140 815,140 815,108' fill='none' stroke='{GREY}' "
        "stroke-width='1.5' stroke-dasharray='4 4'/>",
    ]
    return picture(
        1025, 340, "From the source to tokens, and what this chapter asks on the way", parts
    )


def driver() -> str:
    """Versions on a line: at or below the driver's ceiling, or above it."""
    versions = ("11.8", "12.1", "12.4", "12.6", "13.0")
    parts = [label(20, 32, "the driver says: CUDA Version 12.5", 14, anchor="start", weight="bold")]
    for n, name in enumerate(versions):
        ink, words = (BLUE, "runs") if n < 3 else (GREY, "too new")
        if n == 2:
            ink, words = GREEN, "choose"
        parts.append(box(30 + 130 * n, 60, 105, 56, ink, name, words))
    parts += [
        line(411, 48, 411, 130, ORANGE),
        label(411, 150, "what the driver supports at most", 12, ORANGE),
        label(20, 190, "as numbers: (12, 4) < (12, 10)", 13, anchor="start"),
        label(20, 214, "as text: '12.10' < '12.4', and 9 is newer than 13", 13, anchor="start"),
        label(400, 214, "the trap", 12, ORANGE, anchor="start", weight="bold"),
    ]
    return picture(
        690, 235, "Choosing a CUDA runtime at or just below what the driver supports", parts
    )


def runs() -> str:
    """One warm-up and five timed runs; below, the same five sorted."""
    lengths = (100, 112, 190, 104, 108)
    parts = [
        label(20, 62, "in order", 13, anchor="start", weight="bold"),
        _bar(120, 40, 170, GREY, "warm-up"),
    ]
    x = 300
    for n, width in enumerate(lengths):
        parts.append(_bar(x, 40, 0.62 * width, BLUE if n != 2 else ORANGE, f"{width}"))
        parts += [line(x, 34, x, 78, INK), line(x + 0.62 * width, 34, x + 0.62 * width, 78, INK)]
        x += 0.62 * width + 16
    parts.append(
        label(
            300,
            98,
            "the clock is read at each black line: right around the call",
            12,
            GREY,
            anchor="start",
        )
    )
    parts.append(label(20, 152, "sorted", 13, anchor="start", weight="bold"))
    x = 300
    for n, width in enumerate(sorted(lengths)):
        ink = GREEN if n == 2 else ORANGE if n == 4 else BLUE
        parts.append(_bar(x, 130, 0.62 * width, ink, f"{width}"))
        x += 0.62 * width + 16
    parts += [
        label(
            300,
            190,
            "100 best · 108 median · 190 worst · mean 123: one bad run moved it by 17",
            13,
            anchor="start",
        ),
    ]
    return picture(790, 212, "Warm up, time each run, take the median", parts)


def _bar(x: float, y: float, width: float, ink: str, words: str) -> str:
    shape = (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='34' rx='3' fill='{PALE[ink]}' "
        f"stroke='{ink}'/>"
    )
    return shape + label(x + width / 2, y + 22, words, 13)


def groups() -> str:
    """A row of ten numbers in groups of four, with what each group stores beside."""
    parts = [label(20, 50, "one row", 13, anchor="start", weight="bold")]
    inks = (BLUE, GREEN, PINK)
    for n in range(12):
        ink, real = inks[n // 4], n < 10
        x = 130 + 44 * n + 24 * (n // 4)
        parts.append(cell(x, 26, 40, ink if real else GREY, str(n) if real else "–"))
    for g, ink in enumerate(inks):
        x = 130 + (44 * 4 + 24) * g
        parts.append(arrow((x + 86, 70), (x + 86, 96), ink=ink))
        parts.append(box(x, 98, 84, 46, ink, "4 × 4 bits", "2 bytes"))
        parts.append(box(x + 88, 98, 84, 46, ink, "2 × fp16", "scale, min"))
    parts += [
        label(732, 50, "the last group is whole:", 12, GREY, anchor="start"),
        label(732, 67, "its gap is filled up", 12, GREY, anchor="start"),
        label(20, 126, "stored", 13, anchor="start", weight="bold"),
        label(
            130,
            180,
            "3 groups × (2 + 4) bytes = 18 bytes for 10 numbers: 14.4 bits a number,",
            13,
            anchor="start",
        ),
        label(
            130,
            202,
            "far from 4. Groups of 32 that divide the row: 4 + 32 / 32 = 5 bits.",
            13,
            anchor="start",
        ),
    ]
    return picture(890, 222, "What a group costs beside its bits", parts)


def plan() -> str:
    """Two bars: the memory of the machine, and that of a device."""
    parts = [
        label(20, 62, "RAM", 13, anchor="start", weight="bold"),
        _span(110, 36, 180, GREY, "other programs"),
        _span(290, 36, 250, BLUE, "the file, read"),
        _span(540, 36, 250, BLUE, "once more: conversion"),
        _span(790, 36, 80, GREY, "air", empty=True),
        label(290, 98, "free: at least twice the file", 12, GREY, anchor="start"),
        label(20, 152, "device", 13, anchor="start", weight="bold"),
        _span(110, 126, 300, GREEN, "weights"),
        _span(410, 126, 308, PINK, "KV cache"),
        _span(718, 126, 152, ORANGE, "20 % headroom"),
        label(
            110, 188, "weights + KV cache: at most 80 % of what is free", 12, GREY, anchor="start"
        ),
    ]
    return picture(900, 210, "The memory plan: RAM while loading, the device while serving", parts)


def _span(x: float, y: float, width: float, ink: str, words: str, empty: bool = False) -> str:
    fill = "#ffffff" if empty else PALE[ink]
    shape = (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='44' fill='{fill}' stroke='{ink}'/>"
    )
    return shape + label(x + width / 2, y + 27, words, 12)


def manifest() -> str:
    """What the list says beside what the folder holds, and the verdict of each line."""
    rows = (
        ("config.json", "config.json", "same size, same hash", GREEN),
        ("model.safetensors", "model.safetensors", "changed", ORANGE),
        ("tokenizer.json", "", "missing", ORANGE),
        ("", "extra.py", "unlisted", ORANGE),
    )
    parts = [
        label(140, 32, "the manifest lists", 13, weight="bold"),
        label(400, 32, "the folder holds", 13, weight="bold"),
        label(560, 32, "the report says", 13, anchor="start", weight="bold"),
    ]
    for n, (listed, found, verdict, ink) in enumerate(rows):
        y = 48 + 50 * n
        parts.append(_name(40, y, listed))
        parts.append(_name(300, y, found))
        parts.append(line(240, y + 18, 300, y + 18, dash="" if listed and found else "4 4"))
        parts.append(label(560, y + 23, verdict, 13, ink, anchor="start", weight="bold"))
    parts.append(
        label(
            40,
            272,
            "all three kinds in one report; a file of another size is never hashed",
            13,
            anchor="start",
        )
    )
    return picture(740, 292, "A manifest against a folder", parts)


def _name(x: float, y: float, words: str) -> str:
    ink = BLUE if words else GREY
    dash = "" if words else "stroke-dasharray='4 4'"
    fill = PALE[ink] if words else "#ffffff"
    shape = (
        f"<rect x='{x:g}' y='{y:g}' width='200' height='36' rx='4' fill='{fill}' stroke='{ink}' "
        f"{dash}/>"
    )
    return shape + label(x + 100, y + 23, words or "—", 13)


if __name__ == "__main__":
    main()
