"""`python -m course bench` and what the benchmarks share."""

import ast
import json
import os

import pytest

from benchmarks import kit
from course import chores
from course.paths import ROOT


def test_an_unknown_benchmark_is_answered_with_those_there_are(capsys):
    assert chores.bench(ROOT, ["laod"]) == 2
    said = capsys.readouterr().err
    assert "no laod" in said
    assert "load" in said


def test_those_named_are_run_and_a_failure_is_passed_on(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_NO_VENV", "1")
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    for name, code in (("good", 0), ("bad", 3), ("kit", 9), ("fake", 9), ("__init__", 9)):
        text = f"import pathlib, sys\npathlib.Path('ran.{name}').touch()\nsys.exit({code})\n"
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    assert chores.bench(tmp_path, ["good"]) == 0
    assert [path.name for path in tmp_path.glob("ran.*")] == ["ran.good"]
    assert chores.bench(tmp_path, []) == 3
    assert {path.name for path in tmp_path.glob("ran.*")} == {"ran.good", "ran.bad"}


def test_contenders_take_turns_and_the_first_round_is_not_counted():
    asked = []

    def measure(name: str) -> dict:
        asked.append(name)
        return {"seconds": float(len(asked))}

    found = kit.in_turns(("a", "b"), measure, 3)
    assert asked == ["b", "a", "a", "b", "b", "a", "a", "b"]
    assert [result["seconds"] for result in found["a"]] == [3, 6, 7]
    assert kit.median(found["a"], "seconds") == 6
    assert kit.spread(found["a"], "seconds") == pytest.approx(4 / 6)


def test_the_peak_is_that_of_the_child_and_counts_what_was_freed(tmp_path):
    """A parent that is large must not show in the child."""
    ballast = bytearray(os.urandom(1)) * 300_000_000
    script = tmp_path / "child.py"
    lines = [
        "import json, sys",
        "from benchmarks import kit",
        "before = kit.peak_bytes()",
        "x = b'x' * int(sys.argv[1]); del x",
        "print('some noise')",
        "print(json.dumps({'before': before, 'after': kit.peak_bytes()}))",
    ]
    script.write_text("\n".join(lines), encoding="utf-8")
    found = kit.child(str(script), "100000000")
    assert found["before"] < 100_000_000 < len(ballast)
    assert 95_000_000 < found["after"] - found["before"] < 110_000_000


def test_a_child_that_fails_says_why(tmp_path):
    script = tmp_path / "child.py"
    script.write_text("raise RuntimeError('no such model')", encoding="utf-8")
    with pytest.raises(SystemExit, match="no such model"):
        kit.child(str(script), "--child")


def test_results_name_their_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kit, "FOLDER", tmp_path / "benchmarks")
    monkeypatch.setattr(kit, "RESULTS", tmp_path / "benchmarks" / "results")
    monkeypatch.setattr(kit, "machine", lambda: {"cores": 2})
    (tmp_path / "benchmarks").mkdir()
    path = kit.save("load", {"ratio": 1.5})
    assert json.loads(path.read_text(encoding="utf-8")) == {"machine": {"cores": 2}, "ratio": 1.5}
    assert "benchmarks/results/load.json" in capsys.readouterr().out


def test_ours_as_a_contender_on_a_small_model(tmp_path):
    """The child of benchmarks/load.py, without the peers that learners do not have."""
    from tests.tiny_files import write_checkpoint

    folder = write_checkpoint(tmp_path / "tiny")
    script = ROOT / "benchmarks" / "load.py"
    for dtype in ("float32", "bfloat16"):
        found = kit.child(str(script), "--child", "ours", str(folder), dtype)
        assert found["seconds"] > 0
        assert found["peak"] > found["beyond"] >= 0


@pytest.mark.parametrize("name", ["ours", "plain numpy", "read first"])
def test_the_contenders_of_quantize_on_a_small_model(name, tmp_path):
    from tests.tiny_files import write_checkpoint

    folder = write_checkpoint(tmp_path / "tiny")
    found = kit.child(str(ROOT / "benchmarks/quantize.py"), "--child", name, str(folder))
    assert found["seconds"] > 0
    assert 0 < found["layer"] < found["read"]
    assert 0 < found["result"] < found["read"]


def test_every_benchmark_says_what_it_measures():
    for script in sorted((ROOT / "benchmarks").glob("[!_]*.py")):
        words = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        assert len(words.split()) > 8, script.name
        if script.stem not in ("kit", "fake"):
            readme = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
            assert f"| `{script.stem}` |" in readme
