"""A notebook has one namespace: modules of one chapter must not define the same name twice."""

import ast
from collections import Counter

import pytest

from course.manifest import Chapter, chapters
from course.paths import ROOT


def defined(module: str) -> set[str]:
    """The names that a module of solutions/ defines at its top level, imports left out."""
    tree = ast.parse((ROOT / "solutions" / f"{module}.py").read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {one.id for target in targets for one in ast.walk(target) if _is_name(one)}
    return names


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


@pytest.mark.parametrize("chapter", chapters(), ids=lambda chapter: chapter.slug)
def test_no_two_modules_define_one_name(chapter: Chapter):
    count = Counter(name for module in chapter.modules for name in defined(module))
    assert [name for name, times in count.items() if times > 1] == []


def test_names_of_a_module_are_found():
    assert {"NEXT", "Finding", "diagnose", "_RULES"} <= defined("diagnose")
    assert "dataclass" not in defined("diagnose")
