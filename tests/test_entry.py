"""The entry and the Makefile: an old Python is told what to type; each verb reaches the tool."""

import ast
import re
import sys

from course import __main__ as entry
from course.paths import ROOT


def test_the_entry_parses_on_old_pythons():
    newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.Nonlocal)
    for name in ("__init__", "__main__"):
        source = (ROOT / "course" / f"{name}.py").read_text(encoding="ascii")
        for node in ast.walk(ast.parse(source, feature_version=(3, 4))):
            assert not isinstance(node, newer), (name, node.lineno)
            if isinstance(node, ast.FunctionDef):
                args = node.args
                hints = [node.returns, *(argument.annotation for argument in args.args)]
                assert [*filter(None, hints), *args.kwonlyargs, *args.posonlyargs] == [], node.name


def test_an_old_python_is_told_which_one_to_type(monkeypatch):
    monkeypatch.setattr(entry, "is_new_enough", lambda name: name in ("python3.12", "python3.11"))
    said = entry.advice("3.8.18", ["generate", "Once upon"])
    assert "needs Python 3.11 or newer, and this is Python 3.8.18" in said
    assert 'Type: python3.12 -m course generate "Once upon" (also found: python3.11)' in said


def test_no_new_python_at_all_says_where_to_get_one(monkeypatch):
    monkeypatch.setattr(entry, "is_new_enough", lambda name: False)
    assert re.search(r"install|download", entry.advice("2.7.18", []))


def test_a_command_on_path_that_does_not_run_is_not_offered(tmp_path):
    broken = tmp_path / "python3.12"
    broken.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    broken.chmod(0o755)
    assert not entry.is_new_enough(str(broken))
    assert not entry.is_new_enough(str(tmp_path / "nothing"))
    assert entry.is_new_enough(sys.executable)


def test_every_verb_of_the_makefile_is_explained_and_calls_its_namesake():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    verbs = re.findall(r"(?m)^(\w+): +; \$\(COURSE\) (\w+)", text)
    assert len(verbs) >= 23
    for target, verb in verbs:
        assert target == verb
        assert re.search(rf"(?m)^\t@echo '  make {verb}\b", text), verb
