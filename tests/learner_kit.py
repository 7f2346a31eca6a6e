"""A learner who has solved everything, with what a test puts into some of the cells."""

import hashlib
import inspect
import textwrap
from pathlib import Path

from course import mine, misconceptions, notebooks, passed
from course.paths import ROOT
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
    passed.write(record, folder)
    return folder


def make_styled_work(folder: Path, which: int) -> Path:
    """Another learner, who solved everything in another way: the files of tests/styles.

    Args:
        which: of a chapter's styles, in the order of their names.
    """
    record = {}
    for chapter in mine.layers():
        styles = sorted((ROOT / "tests" / "styles").glob(f"{chapter.slug}_*.py"))
        sources = [notebooks.reference_source(chapter), styles[which].read_text(encoding="utf-8")]
        path = folder / f"{chapter.name}.py"  # the provided definitions first, theirs over them
        path.write_text("".join(f"# %%\n#| provided\n{s}\n" for s in sources), encoding="utf-8")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        record[digest] = [exercise.id for exercise in chapter.exercises]
    passed.write(record, folder)
    return folder


def _as_cell(wrong) -> str:
    """The misconception as code that puts itself in the place of what it is about."""
    lines = textwrap.dedent(inspect.getsource(wrong)).split("\n")
    kept = "\n".join(line for line in lines if not line.startswith("@misconception"))
    return f"{kept}\n{wrong.target} = {wrong.__name__}"
