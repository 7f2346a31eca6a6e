"""Loads a built module cell by cell and answers the judge's requests on it.

The same Runner works in a worker process (course/worker.py) for a learner's code and in the judge's
own process for code of ours. What goes in and comes out is plain data (course/wire.py).
"""

import contextlib
import importlib
import io
import linecache
import sys
import traceback
import types
from pathlib import Path

from torch import Tensor, equal

from course.wire import Raised

PRINT_LIMIT = 4000  # characters of a learner's own prints that are kept


class Runner:
    """One module under test."""

    def __init__(self):
        self.module = types.ModuleType("submission")
        self.path = ""
        self.scenarios = None

    def load(self, path: str, parts: list, scenarios: str) -> dict:
        """Run the cells of a built module one after the other in one namespace.

        Args:
            path: the built file.
            parts: [exercise or "", first line, last line] of each cell.
            scenarios: the module with the scenario functions.

        Returns:
            {"errors": {exercise or "": Raised}, "names": what the module now defines}. Cells
            without an error have run.
        """
        self.path = path
        self.module.__file__ = path
        sys.modules[self.module.__name__] = self.module  # dataclasses look their module up
        linecache.checkcache(path)
        lines = Path(path).read_text(encoding="utf-8").split("\n")
        errors = {}
        for exercise, start, end in parts:
            source = "\n" * (start - 1) + "\n".join(lines[start - 1 : end])
            try:
                exec(compile(source, path, "exec", dont_inherit=True), vars(self.module))
            except BaseException as error:
                errors[exercise] = self._raised(error)
        self.scenarios = importlib.import_module(scenarios)
        return {"errors": errors, "names": list(vars(self.module))}

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
        not_attempted = isinstance(error, NotImplementedError)
        return Raised(kinds[0], kinds, str(error)[:2000], line, not_attempted)


class _Capped(io.StringIO):
    """A text buffer that keeps the beginning and forgets the rest."""

    def write(self, text: str) -> int:
        room = PRINT_LIMIT - self.tell()
        if room > 0:
            super().write(text[:room])
        return len(text)


def _copy(value):
    return value.clone() if isinstance(value, Tensor) else value


def _differ(old, new) -> bool:
    return isinstance(old, Tensor) and not equal(old.nan_to_num(), new.nan_to_num())
