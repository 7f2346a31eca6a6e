"""What the chapters' make_figures.py draw with: pieces of a diagram, each a string of SVG."""

from collections.abc import Mapping, Sequence
from pathlib import Path

INK, GREY, LINE, PAPER = "#1a1a1a", "#595959", "#8c8c8c", "#ffffff"
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # Okabe and Ito's colours
PALE = {BLUE: "#dcecf6", ORANGE: "#fbe6d9", GREEN: "#d9f0e8", PINK: "#f7e8f1", GREY: "#f0f0f0"}
FONT = "font-family='Helvetica, Arial, sans-serif'"
HEAD = (
    "<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
    f"orient='auto'><path d='M0 0 L8 4 L0 8 z' fill='{GREY}'/></marker></defs>"
)


def picture(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """A whole file, on white, so that it reads on a dark page too."""
    paper = f"<rect width='{width}' height='{height}' rx='8' fill='{PAPER}'/>"
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
            f"width='{width}' height='{height}' role='img' {FONT}>",
            f"<title>{title}</title>",
            HEAD,
            paper,
            *parts,
            "</svg>\n",
        ]
    )


def label(x: float, y: float, words: str, size: int = 13, ink: str = INK, **style: str) -> str:
    """Centred text; `anchor` and `weight` change that."""
    anchor, weight = style.get("anchor", "middle"), style.get("weight", "normal")
    safe = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return (
        f"<text x='{x:g}' y='{y:g}' font-size='{size}' fill='{ink}' "
        f"text-anchor='{anchor}' font-weight='{weight}'>{safe}</text>"
    )


def box(x: float, y: float, width: float, height: float, ink: str, *lines: str) -> str:
    """A rounded box with its first line bold and the others small, centred."""
    top = y + height / 2 + 5 - 8 * (len(lines) - 1)
    shape = (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='5' "
        f"fill='{PALE[ink]}' stroke='{ink}' stroke-width='1.4'/>"
    )
    rows = [label(x + width / 2, top, line, weight="bold") for line in lines[:1]]
    rows += [
        label(x + width / 2, top + 17 * n, line, 12, GREY) for n, line in enumerate(lines[1:], 1)
    ]
    return "\n".join([shape, *rows])


def arrow(*points: tuple[float, float], ink: str = GREY) -> str:
    """A line through the points with a tip at the last one."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return (
        f"<polyline points='{path}' fill='none' stroke='{ink}' stroke-width='1.5' "
        "marker-end='url(#tip)'/>"
    )


def line(x1: float, y1: float, x2: float, y2: float, ink: str = LINE, dash: str = "") -> str:
    """A straight line, dashed when `dash` says how."""
    return (
        f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{ink}' "
        f"stroke-width='1.5' stroke-dasharray='{dash}'/>"
    )


def cell(x: float, y: float, size: float, ink: str, words: str = "", filled: bool = True) -> str:
    """One square of a grid."""
    fill = PALE[ink] if filled else PAPER
    edge = ink if filled else LINE
    return (
        f"<rect x='{x:g}' y='{y:g}' width='{size:g}' height='{size:g}' fill='{fill}' "
        f"stroke='{edge}'/>" + label(x + size / 2, y + size / 2 + 5, words)
    )


def plus(x: float, y: float) -> str:
    """The sign where a branch joins the stream."""
    ring = f"<circle cx='{x:g}' cy='{y:g}' r='11' fill='{PAPER}' stroke='{GREY}'/>"
    return ring + label(x, y + 5, "+", 16, weight="bold")


def save(drawings: Mapping[str, str], folder: Path) -> None:
    """Write each drawing to `folder/NAME.svg`, whole or not at all."""
    for name, drawing in drawings.items():
        replace(folder / f"{name}.svg", drawing)
        print(f"wrote {name}.svg")


def replace(path: Path, text: str) -> None:
    """Write a text file aside, then put it in place."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(path)
