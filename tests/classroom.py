"""A class for the tests of grading: submissions made of chapter 04, and a run over them."""

import csv
import io
import json
from pathlib import Path

from course import cli, notebooks
from course.manifest import find_chapter

RMS_NORM = """#| exercise 4.1
def rms_norm(x, weight, eps):
    wide = x.double()
    return (wide / (wide.pow(2).mean(-1, keepdim=True) + eps).sqrt()).to(x.dtype) * weight
"""
FEED_FORWARD = """#| exercise 4.4
def feed_forward(x, gate, up, down, linear=torch.nn.functional.linear):
    wide = linear(x, gate)
    return linear(wide * torch.sigmoid(wide) * linear(x, up), down)
"""
IMPORTS = "#| provided\nimport torch\n"


def sheet(*cells: str) -> str:
    """A notebook of these code cells, as the text of its file."""
    return json.dumps(
        {
            "cells": [{"cell_type": "code", "source": cell, "outputs": []} for cell in cells],
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {},
        }
    )


def script(*cells: str) -> str:
    """The same as a .py file."""
    return "\n".join(f"# %%\n{cell}\n" for cell in cells)


def solved(number: int) -> dict:
    """The solved notebook of a chapter."""
    return notebooks.build_notebook(find_chapter(number), solved=True)


def grade(folder: Path, out: Path, *arguments: str) -> int:
    """`python -m course grade`; the exit code."""
    return cli.main(["grade", str(folder), str(out), *arguments])


def exercises(out: Path, name: str) -> dict[str, dict]:
    """By exercise, what grade.json of a submission says."""
    (path,) = [p for p in (out / "submissions").glob("*/grade.json") if _id(p) == name]
    return {e["exercise"]: e for e in json.loads(path.read_text(encoding="utf-8"))["exercises"]}


def record(out: Path, name: str) -> dict:
    """grade.json of a submission."""
    (path,) = [p for p in (out / "submissions").glob("*/grade.json") if _id(p) == name]
    return json.loads(path.read_text(encoding="utf-8"))


def rows(path: Path) -> list[dict]:
    """A table of the gradebook."""
    text = path.read_text(encoding="utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def _id(path: Path) -> str:
    return json.loads(path.read_text(encoding="utf-8"))["submission"]
