"""Loads a built module cell by cell and answers the judge's requests on it.

The same Runner works in a worker process (course/worker.py) for a learner's code and in the judge's
own process for code of ours. What goes in and comes out is plain data (course/wire.py).
"""

import contextlib
import copy
import importlib
import io
import linecache
import sys
import traceback
import types
from pathlib import Path

from torch import Tensor

from course.wire import Raised, Record

PRINT_LIMIT = 4000  # characters of a learner's own prints that are kept


class Runner:
    """One module under test."""

    def __init__(self):
        self.module = types.ModuleType("submission")
        self.path = ""
        self.scenarios = None

    def open(self, path: str, scenarios: str) -> None:
        """Begin with an empty module, whose cells are lines of the built file at path."""
        self.path = path
        self.module.__file__ = path
        sys.modules[self.module.__name__] = self.module  # dataclasses look their module up
        linecache.checkcache(path)
        self.scenarios = importlib.import_module(scenarios)

    def run_cell(self, start: int, end: int) -> Raised | None:
        """Run the lines start to end of the built file; what they raised, or None."""
        lines = Path(self.path).read_text(encoding="utf-8").split("\n")
        source = "\n" * (start - 1) + "\n".join(lines[start - 1 : end])
        try:
            with contextlib.redirect_stdout(_Capped()):
                exec(compile(source, self.path, "exec", dont_inherit=True), vars(self.module))
        except BaseException as error:
            return self._raised(error)
        return None

    def names(self) -> list[str]:
        """What the module defines so far."""
        return [name for name in vars(self.module) if type(name) is str]

    def load_source(self, source: str, scenarios: str) -> None:
        """Run code of ours; what it raises is raised."""
        sys.modules[self.module.__name__] = self.module
        exec(compile(source, "<reference>", "exec", dont_inherit=True), vars(self.module))
        self.scenarios = importlib.import_module(scenarios)

    def answer(self, request: dict) -> dict:
        """Do what a request asks: {"value", "changed", "printed"} or {"raised", "printed"}.

        A request is {"do": "call" or "scenario", "name", "args", "kwargs"}.
        """
        printed = _Capped()
        args, kwargs = request["args"], request["kwargs"]
        before = [_copy(arg) for arg in args]
        try:
            with contextlib.redirect_stdout(printed):
                value = self._function(request)(*args, **kwargs)
            changed = [
                i
                for i, (old, new) in enumerate(zip(before, args, strict=True))
                if _differ(old, new)
            ]
            return {"value": value, "changed": changed, "printed": printed.getvalue()}
        except BaseException as error:
            return {"raised": self._raised(error), "printed": printed.getvalue()}

    def _function(self, request: dict):
        if request["do"] == "scenario":
            function = getattr(self.scenarios, request["name"])
            return lambda *args, **kwargs: function(self.module, *args, **kwargs)
        return getattr(self.module, request["name"])

    def _raised(self, error: BaseException) -> Raised:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame.lineno for frame in frames if frame.filename == self.path]
        line = own[-1] if own else getattr(error, "lineno", None)
        kinds = [kind.__name__ for kind in type(error).__mro__]
        message = _text_of(error)
        bare = not message or message.startswith("exercise ")  # as we hand it out, or shorter
        unwritten = isinstance(error, NotImplementedError) and bare
        return Raised(kinds[0], kinds, message, line, unwritten, own)


def _text_of(error: BaseException) -> str:
    """The message of an exception, even of one that cannot say it."""
    try:
        return str(error)[:2000]
    except BaseException:
        return "(its message cannot be shown)"


class _Capped(io.StringIO):
    """A text buffer that keeps the beginning and forgets the rest."""

    def close(self) -> None:
        """Code under test may close its stdout; what it printed is still wanted."""

    def write(self, text: str) -> int:
        room = PRINT_LIMIT - self.tell()
        if room > 0:
            super().write(text[:room])
        return len(text)


def _copy(value):
    """As it is before the call, to be compared with what it is afterwards."""
    return value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def _same(old: Tensor, new: Tensor) -> bool:
    """Whether all numbers are; NaN is not a change."""
    return bool(((old == new) | ((old != old) & (new != new))).all())


def _differ(old, new) -> bool:
    """Whether the call changed an argument, or what is in it."""
    if type(old) is not type(new):
        return True
    if isinstance(old, Tensor):
        return old.shape != new.shape or not _same(old, new)
    if isinstance(old, Record):
        return _differ(old.fields, new.fields)
    if isinstance(old, dict):
        return old.keys() != new.keys() or any(_differ(old[key], new[key]) for key in old)
    if isinstance(old, list | tuple):
        return len(old) != len(new) or any(map(_differ, old, new))
    return old == old and old != new  # NaN is not a change
