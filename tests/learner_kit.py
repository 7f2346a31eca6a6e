"""A learner who has solved everything, with what a test puts into some of the cells."""

import hashlib
import inspect
import json
import textwrap
from pathlib import Path

from course import mine, misconceptions, notebooks, passed
from tests.conftest import replace_cell


def make_work(folder: Path, *wrong: str) -> Path:
    """A work folder with the solved notebooks of chapters 02 to 08, noted as judged and right.

    Args:
        wrong: names of misconceptions, each put into the exercise that it is about. The note says
            that all is right nevertheless, so that the server is built of it.
    """
    record = {}
    for chapter in mine.layers():
        notebook = notebooks.build_notebook(chapter, solved=True)
        for one in misconceptions.load(chapter.slug):
            if one.__name__ in wrong:
                source = notebooks.solved_cell(chapter, chapter.exercise(one.exercise))
                replace_cell(notebook, one.exercise, f"{source}\n\n\n{_as_cell(one)}\n")
        path = folder / f"{chapter.name}.ipynb"
        notebooks.write(notebook, path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        record[digest] = [exercise.id for exercise in chapter.exercises]
    (folder / ".build").mkdir()
    (folder / ".build" / passed.RECORD).write_text(json.dumps(record), encoding="utf-8")
    return folder


def _as_cell(wrong) -> str:
    """The misconception as code that puts itself in the place of what it is about."""
    lines = textwrap.dedent(inspect.getsource(wrong)).split("\n")
    kept = "\n".join(line for line in lines if not line.startswith("@misconception"))
    return f"{kept}\n{wrong.target} = {wrong.__name__}"
