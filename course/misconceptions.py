"""Wrong versions that people really write, each with the words for those who wrote it.

They live in tests/misconceptions/<slug>.py. A misconception is a complete definition of one
function or method; it is run in the reference's place, and a learner whose code returns the same
reads its docstring.
"""

import importlib
from collections.abc import Callable


def misconception(exercise: str, target: str) -> Callable[[Callable], Callable]:
    """Mark a function as a wrong version of target: "apply_rope", or "KVCache.write"."""

    def mark(function: Callable) -> Callable:
        function.exercise, function.target = exercise, target
        return function

    return mark


def load(slug: str) -> list[Callable]:
    """All misconceptions of a chapter, in the order of the file."""
    module = importlib.import_module(f"tests.misconceptions.{slug}")
    return [f for f in vars(module).values() if hasattr(f, "target") and hasattr(f, "exercise")]
