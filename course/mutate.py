"""Mutants: our answers with one small change each, which the grading cases should refuse.

A mutant that every case lets pass is either the same program in other words, or shows what no case
asks for. The changes are those of mutation testing since DeMillo, Lipton and Sayward 1978 ("Hints
on Test Data Selection"), and a few that tensor code invites.
"""

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from course import mutations, notebooks
from course.manifest import Chapter
from course.notebooks import BODY, DIRECTIVE, FUNCTIONS, Definition
from course.paths import ROOT


@dataclass(frozen=True)
class Mutant:
    """One change to one exercise's answer."""

    exercise: str
    function: str  # Class.method for a method
    kind: str
    was: str  # the lines that change, as ast.unparse writes them
    becomes: str
    nth: int  # of those with the same was and becomes in one function, from 1
    definition: str  # the top-level definition that is replaced
    source: str  # what replaces it
    path: str  # of the solution module, from the root
    line: int
    also: tuple[str, ...] = ()  # other exercises whose answers use it

    @property
    def id(self) -> str:
        """Stays the same while its line and its function do, whatever else is edited."""
        parts = (self.exercise, self.function, self.was, self.becomes, str(self.nth))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def mutants_of(chapter: Chapter, exercise: str | None = None) -> list[Mutant]:
    """All mutants of a chapter's answers, or of one exercise's, in the order of the modules."""
    owners = _owners(chapter)
    found = []
    for name, definition in notebooks.definitions(chapter).items():
        users = owners.get(name, [])
        if users and exercise in (None, users[0]):
            mutants = _numbered(_of_definition(definition, users[0], *_place(chapter, name)))
            found += [replace(mutant, also=tuple(users[1:])) for mutant in mutants]
    return found


def mutated_source(chapter: Chapter, mutant: Mutant | None) -> str:
    """The chapter's modules as one source with the mutant in it; None: as they are."""
    whole = notebooks.reference_source(chapter)
    if mutant is None:
        return whole
    original = notebooks.definitions(chapter)[mutant.definition].source
    before, found, after = whole.partition(f"\n\n\n{original}\n")
    assert found, mutant.definition
    return f"{before}\n\n\n{mutant.source}\n{after}"


def _owners(chapter: Chapter) -> dict[str, list[str]]:
    """By definition, the exercises whose answer it is: marked, or a helper that only answers have.

    What the notebook hands out is not the learner's to write, and not mutated.
    """
    known, given = notebooks.definitions(chapter), _handed_out(chapter)
    owners = {name: [d.exercise] for name, d in known.items() if d.exercise}
    waiting = list(owners)
    while waiting:
        user = waiting.pop(0)
        for name in sorted(known[user].uses & known.keys()):
            missing = [e for e in owners[user] if e not in owners.get(name, [])]
            if name.startswith("_") and name not in given and not known[name].exercise and missing:
                owners.setdefault(name, []).extend(missing)
                waiting.append(name)
    return owners


def _handed_out(chapter: Chapter) -> set[str]:
    """The names that the notebook includes."""
    lines = (chapter.folder / "notebook.py").read_text(encoding="utf-8").split("\n")
    found = (DIRECTIVE.match(line.strip()) for line in lines)
    return {name.strip() for match in found if match for name in match["names"].split(",")}


def _place(chapter: Chapter, name: str) -> tuple[str, int]:
    """(path, first line) of a definition."""
    source = notebooks.definitions(chapter)[name].source
    for module in chapter.modules:
        text = (ROOT / "solutions" / f"{module}.py").read_text(encoding="utf-8")
        before, found, _ = f"\n{text}".partition(f"\n{source}\n")
        if found:
            return f"solutions/{module}.py", before.count("\n") + 1
    raise LookupError(name)


def _of_definition(
    definition: Definition, exercise: str, path: str, first: int
) -> Iterator[Mutant]:
    """Every mutant of a definition, each once."""
    tree = ast.parse(definition.source)
    seen = {ast.unparse(tree)}
    for function, body in _bodies(tree.body[0], definition):
        label = function.name if function is tree.body[0] else f"{definition.name}.{function.name}"
        before = ast.unparse(function)
        for kind, line in _changed(function, body):
            source = ast.unparse(tree)
            if source not in seen:
                seen.add(source)
                was, becomes = _difference(before, ast.unparse(function))
                facts = (1, definition.name, source, path, first + line - 1)
                yield Mutant(exercise, label, kind, was, becomes, *facts)


def _numbered(mutants: Iterator[Mutant]) -> Iterator[Mutant]:
    """Tells apart those that look the same on equal lines."""
    counts: dict[tuple, count] = {}
    for mutant in mutants:
        key = (mutant.function, mutant.was, mutant.becomes)
        yield replace(mutant, nth=next(counts.setdefault(key, count(1))))


def _bodies(node: ast.stmt, definition: Definition) -> list[tuple[ast.AST, list[ast.stmt]]]:
    """The functions of a definition that learners write, each with its statements."""
    lines = definition.source.split("\n")
    functions = [n for n in ast.walk(node) if isinstance(n, FUNCTIONS)]
    if definition.exercise:
        functions = [f for f in functions if BODY.match(lines[f.body[0].end_lineno])]
    else:
        functions = [f for f in functions if f is node or f in getattr(node, "body", ())]
    found = []
    for function in functions:
        has_docstring = ast.get_docstring(function) is not None
        found.append((function, function.body[has_docstring:]))
    return found


def _messages(function: ast.AST) -> set[ast.AST]:
    """The texts of exceptions: their words are for people, and no case compares them."""
    raised = (node for node in ast.walk(function) if isinstance(node, ast.Raise))
    texts = (n for node in raised for n in ast.walk(node) if isinstance(n, ast.Constant))
    return {text for text in texts if isinstance(text.value, str)}


def _changed(function: ast.AST, body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """(kind, line) of each change, while it is made; it is undone before the next."""
    known, messages = mutations.assigned_names(function), _messages(function)
    for statement in body:
        at = function.body.index(statement)
        yield from _in_place(function, "body", at, known, messages)


def _in_place(parent: ast.AST, field: str, index: int | None, known: set, skip: set) -> Iterator:
    """The changes of a node and of all below it. index: in the field, where that is a list."""
    node = getattr(parent, field) if index is None else getattr(parent, field)[index]
    if node in skip:
        return
    for kind, new in mutations.changes(node, parent, field, known):
        _put(parent, field, index, new)
        yield kind, node.lineno if hasattr(node, "lineno") else parent.lineno
        _put(parent, field, index, node)
    for name in mutations.fields_of(node):
        value = getattr(node, name)
        if isinstance(value, ast.AST):
            yield from _in_place(node, name, None, known, skip)
        elif isinstance(value, list):
            for at, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield from _in_place(node, name, at, known, skip)


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _difference(before: str, after: str) -> tuple[str, str]:
    """The lines of one text that differ, and those in their place, without a common indent."""
    old, new = before.split("\n"), after.split("\n")
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while len(old) > 1 and len(new) > 1 and old[-1] == new[-1]:
        del old[-1], new[-1]
    return _dedented(old), _dedented(new)


def _dedented(lines: list[str]) -> str:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)
