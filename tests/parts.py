"""Definitions that take the place of the reference's: wrong ones must fail, right ones pass.

A part is a function that changes the module under test, and its docstring says how. It may wrap
what it replaces: the rest of the module finds the new definition under the old name.
"""

import importlib
from collections.abc import Callable

from course import notebooks
from course.manifest import Chapter
from course.paths import ROOT
from course.runner import Runner


def part(exercise: str) -> Callable[[Callable], Callable]:
    """Mark a function as a part that belongs to an exercise."""

    def mark(function: Callable) -> Callable:
        function.part_of = exercise
        return function

    return mark


def load(folder: str, slug: str) -> list[Callable]:
    """All parts in tests/<folder>/<slug>, a module or a package of modules; none if not there."""
    files = sorted((ROOT / "tests" / folder).glob(f"{slug}.py"))
    files += sorted((ROOT / "tests" / folder / slug).glob("[!_]*.py"))
    names = (file.relative_to(ROOT).with_suffix("").parts for file in files)
    modules = (importlib.import_module(".".join(name)) for name in names)
    return [f for module in modules for f in vars(module).values() if hasattr(f, "part_of")]


def runner_with(chapter: Chapter, change: Callable) -> Runner:
    """The reference solution, changed by a part."""
    runner = Runner()
    runner.load_source(notebooks.reference_source(chapter), chapter.scenarios)
    change(runner.module)
    return runner
