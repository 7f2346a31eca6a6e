"""What a chapter's notebook imports: `from course.notebook import check, hint, solution, progress`.

In a running notebook the cells are judged as last executed; everywhere else, as saved.
"""

import atexit
import functools
import sys
from collections.abc import Callable

from course import desk
from course.live import live_submission
from course.manifest import Chapter, Unknown
from course.paths import in_words
from course.remote import SPARE
from course.submission import Submission


def _plainly(function: Callable) -> Callable:
    """A mistyped number, or a file that cannot be written, is a sentence and no traceback."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Unknown as problem:
            print(problem)
        except OSError as problem:
            print(in_words(problem))

    return call


@_plainly
def check(exercise_id: str, seed: int | None = None) -> None:
    """Judge one exercise, such as "4.2", and print the verdict.

    Args:
        exercise_id: as in the mark of its cell.
        seed: of the random inputs; the verdict prints the one it used, for a replay.
    """
    desk.check(exercise_id, _read, seed)
    SPARE.warm()


@_plainly
def hint(exercise_id: str) -> None:
    """Print the next hint of an exercise. There are three, each closer than the last."""
    desk.hint(exercise_id)


@_plainly
def solution(exercise_id: str, show: bool = False) -> None:
    """Print our answer to an exercise. Asks once, unless show=True."""
    desk.solution(exercise_id, None if show else input)


@_plainly
def progress() -> None:
    """Print every chapter and exercise with its points and last verdict."""
    desk.show_progress()


def _read(chapter: Chapter) -> Submission:
    executed = _executed_cells()
    return desk.saved(chapter) if executed is None else live_submission(chapter, executed)


def _executed_cells() -> list[str] | None:
    """The source of every cell run in this kernel, as typed; None outside of one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return None if shell is None else list(shell.history_manager.input_hist_raw)


if _executed_cells() is not None:
    SPARE.warm()  # torch takes a second or two to import: begin before the first check
    atexit.register(SPARE.close)
