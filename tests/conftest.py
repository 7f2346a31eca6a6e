"""What several tests share: a work folder of their own, and chapter 04's notebooks as data."""

import copy
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from course import notebooks
from course.manifest import Chapter, find_chapter
from course.model import ensure_model
from course.submission import Submission, read_submission
from solutions.forward_pass import Llama
from solutions.loader import load_weights, read_config

# Started in the background, as `make test &` is, this process ignores Ctrl-C, and so would all that
# it starts; tests send it to some of them.
signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)  # tensors here are small, and beside another test two are far slower


@pytest.fixture(scope="module")
def llama() -> Llama:
    """The bundled model in float32."""
    folder = ensure_model()
    config = read_config(folder)
    return Llama(config, load_weights(folder, config))


@pytest.fixture(scope="session")
def chapter() -> Chapter:
    """The exemplar, which stands for any chapter in the tests of the tool."""
    return find_chapter(4)


@pytest.fixture(scope="session")
def solved(chapter: Chapter) -> dict:
    """The solved notebook; copy before changing."""
    return notebooks.build_notebook(chapter, solved=True)


@pytest.fixture(scope="session")
def untouched(chapter: Chapter) -> dict:
    """The notebook as handed out; copy before changing."""
    return notebooks.build_notebook(chapter)


@pytest.fixture
def submit(chapter: Chapter, tmp_path: Path) -> Callable[..., Submission]:
    """Save a notebook, with some exercise cells replaced, and read it as a submission."""

    def save(notebook: dict, **cells: str | None) -> Submission:
        notebook = copy.deepcopy(notebook)
        for name, source in cells.items():
            replace_cell(notebook, name.removeprefix("ex").replace("_", "."), source)
        path = tmp_path / f"{chapter.name}.ipynb"
        notebooks.write(notebook, path)
        return read_submission(chapter, path)

    return save


def replace_cell(notebook: dict, exercise: str, source: str | None) -> None:
    """Give an exercise's cell another source; None removes the cell."""
    for cell in notebook["cells"]:
        if "".join(cell["source"]).startswith(f"#| exercise {exercise}"):
            if source is None:
                notebook["cells"].remove(cell)
            else:
                cell["source"] = source.splitlines(keepends=True)
            return
    raise KeyError(exercise)
