"""Where in the learner's own files something was raised, or stands: for `serve --mine`.

A layer runs as a module built of its file's marked cells, so a traceback names a file that nobody
wrote. What is said here names the learner's file, the line in it and the exercise. No value of a
variable is ever told.
"""

import sys
import threading
from collections.abc import Iterable, Iterator
from types import CodeType

from course.loading import place
from course.submission import Built, Submission

NOW_IN = "now in "  # how a line of `tell` begins
_MODULES: dict[str, tuple[Submission, Built]] = {}  # by the path of the module that was built


def remember(submission: Submission, built: Built) -> None:
    """From now on lines of this module are found in the learner's file."""
    _MODULES[str(built.path)] = submission, built


def in_file(submission: Submission, built: Built, line: int | None) -> str:
    """A line of a built module as a person finds it: file, line, exercise and source."""
    where, found = place(submission, built, line), built.locate(line)
    if found and submission.path.suffix == ".py":  # there the exercise is not said yet
        file_and_line, _, source = where.partition(": ")
        where = f"{file_and_line}, in {found[0].title}: {source}"
    return where


def raised(*errors: BaseException | None) -> str:
    """Where the first of these errors came from, or one that led to it: a line to be put after
    what is said of it. Empty when no frame of it is in a learner's file.
    """
    chains = (error for first in errors for error in _chain(first))
    found = next(filter(None, (_innermost(_frames_of(error)) for error in chains)), "")
    return f"\n  raised in {found}" if found else ""


def tell(*_) -> None:
    """Write on stderr where each thread stands in a learner's file: of a server that hangs."""
    for ident, frame in list(sys._current_frames().items()):
        if ident != threading.get_ident():
            found = _innermost(_outermost_first(frame))
            if found:
                print(NOW_IN + found, file=sys.stderr, flush=True)


def _innermost(frames: Iterable[tuple[CodeType, int | None]]) -> str:
    """The place of the last of these (code, line) that is in a learner's file."""
    own = [(_MODULES[c.co_filename], at) for c, at in frames if c.co_filename in _MODULES]
    return in_file(*own[-1][0], own[-1][1]) if own else ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, then what led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _frames_of(error: BaseException) -> Iterator[tuple[CodeType, int | None]]:
    at = error.__traceback__
    while at is not None:
        yield at.tb_frame.f_code, at.tb_lineno
        at = at.tb_next


def _outermost_first(frame) -> list[tuple[CodeType, int | None]]:
    found = []
    while frame is not None:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found[::-1]
