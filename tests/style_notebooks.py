"""The other styles of tests/styles, as somebody might hand them in."""

import ast
from collections import defaultdict
from pathlib import Path

from course import notebooks
from course.manifest import Chapter


def in_style(chapter: Chapter, path: Path) -> str:
    """A module of tests/styles as a .py file with marks: what an exercise asks for in its cell, all
    else in a cell before, and first of all what a notebook provides of what it imports of ours."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = {f"solutions.{module}" for module in chapter.modules}
    asked = {name: e.id for e in chapter.exercises for name in e.functions}
    used: dict[str, str] = {}  # names of ours, by the names that they have here
    cells: dict[str, list[str]] = defaultdict(list)
    for node in tree.body:
        name = getattr(node, "name", "") or _assigned(node)
        if isinstance(node, ast.ImportFrom) and node.module in own:
            used |= {alias.asname or alias.name: alias.name for alias in node.names}
        else:
            cells[asked.get(name, "")].append(ast.unparse(node))
    ours = provided(chapter, set(used.values()), tree)
    renamed = [f"{here} = {name}" for here, name in used.items() if here != name]
    parts = ["#| provided\n" + "\n".join([ours, *renamed])]
    for exercise in sorted(cells):  # what belongs to none comes first
        mark = f"#| exercise {exercise}" if exercise else "#| provided"
        parts.append(mark + "\n" + "\n\n".join(cells[exercise]))
    return "\n".join(f"# %%\n{part}\n" for part in parts)


def provided(chapter: Chapter, names: set[str], tree: ast.Module) -> str:
    """Our definitions of these names and of what they use, which no exercise asks for."""
    known = notebooks.definitions(chapter)
    asked = {name for exercise in chapter.exercises for name in exercise.functions}
    own = {getattr(node, "name", "") or _assigned(node) for node in tree.body}
    waiting, wanted = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in known and name not in wanted and name not in asked:
            wanted.add(name)
            waiting += known[name].uses - own
    sources = [d.source for name, d in known.items() if name in wanted]
    return set_apart("\n\n".join([notebooks._imports(chapter), *sources]), tree)


def set_apart(source: str, tree: ast.Module) -> str:
    """Our code, in which what it imports has another name where a style imports something else by
    that name (`datetime`), and in which an annotation may name what a later cell defines."""
    ours, theirs = ast.parse(source), _imported(tree)
    clashes = {n for n, place in _imported(ours).items() if theirs.get(n, place) != place}
    for node in ast.walk(ours):
        if isinstance(node, ast.Name) and node.id in clashes:
            node.id = f"our_{node.id}"
        elif isinstance(node, ast.alias) and (node.asname or node.name) in clashes:
            node.asname = f"our_{node.asname or node.name}"
    return f"from __future__ import annotations\n{ast.unparse(ours)}"


def _imported(tree: ast.Module) -> dict[str, tuple]:
    """What the top level imports: by name, (module, name there)."""
    nodes = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return {
        alias.asname or alias.name: (getattr(node, "module", None), alias.name)
        for node in nodes
        for alias in node.names
    }


def _assigned(node: ast.stmt) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""
