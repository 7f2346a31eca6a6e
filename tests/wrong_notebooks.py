"""Misconceptions written into a notebook, as somebody might hand them in."""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable

from course import notebooks
from course.manifest import Chapter


def with_wrong(chapter: Chapter, chosen: list[Callable]) -> dict:
    """The solved notebook with these misconceptions written into it."""
    sheet = notebooks.build_notebook(chapter, solved=True)
    for wrong in chosen:
        for cell in sheet["cells"]:
            source = "".join(cell["source"])
            if source.startswith(f"#| exercise {wrong.exercise}\n"):
                cell["source"] = replaced(source, wrong, chapter)
    return sheet


class Unimported(ast.NodeTransformer):
    """Code without what no answer may import: our solutions, whose names are there already, and
    helpers of the misconceptions, which come along instead."""

    def __init__(self, modules: set[str]):
        self.modules = modules

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """In place of an import, what it would have brought."""
        if node.module.startswith("tests.misconceptions"):
            text = "\n".join(_inlined(node.module, alias) for alias in node.names)
            return ast.parse(text).body
        if node.module not in self.modules:
            return node
        renamed = (f"{a.asname} = {a.name}" for a in node.names if a.asname)
        return ast.parse("; ".join(renamed) or "pass").body


def _inlined(module: str, alias: ast.alias) -> str:
    """The source of a helper; of a whole module of them, in an object of its name."""
    found = getattr(importlib.import_module(module), alias.name, None)
    if found is None:
        found = importlib.import_module(f"{module}.{alias.name}")
    if not inspect.ismodule(found):
        return inspect.getsource(found)
    helpers = [f for f in vars(found).values() if getattr(f, "__module__", "") == found.__name__]
    helpers = [f for f in helpers if inspect.isfunction(f) and not hasattr(f, "target")]
    names = ", ".join(f"{helper.__name__}={helper.__name__}" for helper in helpers)
    end = f"import types\n{alias.asname or alias.name} = types.SimpleNamespace({names})"
    return "\n\n".join([*map(inspect.getsource, helpers), end])


def replaced(source: str, wrong: Callable, chapter: Chapter) -> str:
    """A cell with one function or method of it written as the misconception has it."""
    mark, _, code = source.partition("\n")
    tree, new = ast.parse(code), ast.parse(textwrap.dedent(inspect.getsource(wrong))).body[0]
    *owner, name = wrong.target.split(".")
    body = tree.body
    if owner:
        body = next(n for n in body if getattr(n, "name", "") == owner[0]).body
    at = next((i for i, n in enumerate(body) if getattr(n, "name", "") == name), None)
    old = body[at] if at is not None else None
    keep = [d for d in getattr(old, "decorator_list", []) if ast.unparse(d) == "property"]
    new.name, new.decorator_list = name, keep
    new = Unimported({f"solutions.{module}" for module in chapter.modules}).visit(new)
    if at is None:
        body.append(new)
    else:
        body[at] = new
    return f"{mark}\n{ast.unparse(tree)}\n"
