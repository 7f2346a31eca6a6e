"""Mutants: what is changed, what becomes of it, what is written down."""

import ast
import os
import re
import time

import pytest

from course import manifest, mutants, mutations
from course.mutant_record import (
    Named,
    Record,
    Score,
    Unnamed,
    names_of,
    read_named,
    score_of,
)
from course.mutant_trial import FORKS, Broken, Trials
from course.mutate import Mutant, mutants_of, mutated_source
from course.paths import ROOT

CHAPTER, RMS_NORM = manifest.find_exercise("4.1")


def changed(line: str) -> set[tuple[str, str]]:
    """(kind, line) of every change to the one statement of a function."""
    tree = ast.parse(f"def f(x, y):\n    {line}")
    from course import mutate

    function, found = tree.body[0], set()
    for kind, _ in mutate._changed(function, function.body):
        found.add((kind, ast.unparse(function).split("\n    ", 1)[1]))
    assert ast.unparse(function).split("\n    ", 1)[1] == line  # all undone
    return found


@pytest.mark.parametrize(
    ("line", "kind", "becomes"),
    [
        ("return x + y", "operator", "return x - y"),
        ("return x // y", "operator", "return x * y"),
        ("x += y", "operator", "x -= y"),
        ("return x < y", "comparison", "return x <= y"),
        ("return x >= y", "comparison", "return x > y"),
        ("return x is y", "comparison", "return x is not y"),
        ("return x not in y", "comparison", "return x in y"),
        ("return x and y", "and/or", "return x or y"),
        ("return -x", "sign or not dropped", "return x"),
        ("return not x", "sign or not dropped", "return x"),
        ("return 3", "constant", "return 4"),
        ("return 3", "constant", "return 2"),
        ("return True", "constant", "return False"),
        ("return 'a'", "constant", "return ''"),
        ("return f(None)", "constant", "return f(0)"),
        ("return x.sum(-1)", "constant", "return x.sum(-0)"),
        ("return x[1:y]", "slice", "return x[1:]"),
        ("return x[:y]", "off by one", "return x[:y + 1]"),
        ("return range(y)", "off by one", "return range(y - 1)"),
        ("return f(x, y)", "arguments swapped", "return f(y, x)"),
        ("return f(x, key=y)", "keyword removed", "return f(x)"),
        ("return min(x, y)", "opposite", "return max(x, y)"),
        ("return x.any()", "opposite", "return x.all()"),
        ("return x.float()", "call removed", "return x"),
        ("return sorted(x)", "call removed", "return x"),
        ("return x", "return value", "return None"),
        ("raise ValueError(x)", "statement dropped", "pass"),
        ("x.append(y)", "statement dropped", "pass"),
        ("x = y", "statement dropped", "pass"),
        ("x.y = 5", "statement dropped", "pass"),
        ("while x:\n        break", "break", "while x:\n        continue"),
        ("while x:\n        continue", "continue", "while x:\n        break"),
        ("while x:\n        break", "condition negated", "while not x:\n        break"),
    ],
)
def test_what_a_mutation_makes(line, kind, becomes):
    assert (kind, becomes) in changed(line)


@pytest.mark.parametrize(
    "line",
    ["raise ValueError('why')", "z: int = x", "return f'{x} of'", "return f(x, device=y)"],
)
def test_what_no_case_could_see_is_left_alone(line):
    kinds = {kind for kind, _ in changed(line)}
    assert not kinds & {"constant", "keyword removed"}


def test_what_the_code_could_not_run_without_stays():
    assert not mutations.assigned_names(ast.parse("def f():\n    a = 1\n    return a").body[0])
    assert not [kind for kind, _ in changed("z = x") if kind == "statement dropped"]


@pytest.mark.parametrize("chapter", manifest.chapters(), ids=lambda c: c.name)
def test_every_exercise_has_mutants_and_each_is_one_change(chapter):
    found = mutants_of(chapter)
    assert {m.exercise for m in found} == {e.id for e in chapter.exercises}
    assert len({m.id for m in found}) == len(found)
    assert len({(m.definition, m.source) for m in found}) == len(found)
    for mutant in found:
        ast.parse(mutant.source)
        lines = (ROOT / mutant.path).read_text(encoding="utf-8").split("\n")
        assert 1 <= mutant.line <= len(lines)
        assert mutant.was != mutant.becomes


def test_the_source_of_a_mutant_is_the_chapters_with_one_definition_replaced():
    mutant = next(m for m in mutants_of(CHAPTER, "4.1") if "- eps" in m.becomes)
    whole, changed_one = mutated_source(CHAPTER, None), mutated_source(CHAPTER, mutant)
    names = [re.findall(r"^(?:def|class) (\w+)", text, re.M) for text in (whole, changed_one)]
    assert names[0] == names[1]
    assert "keepdim=True) + eps" in whole
    assert "keepdim=True) + eps" not in changed_one
    line = (ROOT / mutant.path).read_text(encoding="utf-8").split("\n")[mutant.line - 1]
    assert line.strip() == mutant.was


def test_a_helper_that_only_an_answer_has_is_mutated_too():
    assert "_last_real_column" in {m.function for m in mutants_of(CHAPTER, "4.6")}
    assert "check_inputs" not in {m.function for m in mutants_of(CHAPTER)}  # handed out


# ---- Trials ----


def made(source: str, exercise: str = "4.1", definition: str = "rms_norm") -> Mutant:
    """A mutant that could not come out of one change."""
    facts = ("made", "was", source[:80], 1, definition, source, "solutions/forward_pass.py", 1)
    return Mutant(exercise, definition, *facts)


def tried(*mutants_: Mutant, jobs: int = 2, limit: float = 60.0) -> list:
    trials = Trials(jobs, 0)
    trials.limits, trials.order = {"4.1": limit}, {"4.1": []}
    return [result for _, result in sorted(trials.run(list(mutants_), {}), key=lambda p: p[0].was)]


def test_a_wrong_answer_is_killed_by_a_case_and_the_right_one_survives():
    right = made(
        "def rms_norm(x, weight, eps):\n"
        "    wide = x.float()\n"
        "    scale = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()\n"
        "    return (wide * scale).to(x.dtype) * weight"
    )
    assert [result.killer for result in tried(right)] == [""]
    (result,) = tried(made("def rms_norm(x, weight, eps):\n    return x"))
    assert result.killer
    assert result.reason


@pytest.mark.parametrize(
    ("body", "killer"),
    [
        ("while True: pass", "time"),
        ("import os; os._exit(0)", "end"),
        ("import time; time.sleep(900)", "time"),
    ],
)
def test_what_loops_waits_or_ends_its_process_is_killed(body, killer):
    loops = made(f"def rms_norm(x, weight, eps):\n    {body}")
    began = time.monotonic()
    assert [r.killer for r in tried(loops, limit=20.0 if killer == "end" else 1.0)] == [killer]
    assert time.monotonic() - began < 600


def test_a_module_that_cannot_be_loaded_is_killed():
    assert tried(made("rms_norm = 1 / 0"))[0].killer == "loading"


@pytest.mark.skipif(not FORKS, reason="elsewhere there is no limit to a process's memory")
def test_what_takes_all_memory_is_killed():
    (result,) = tried(made("def rms_norm(x, weight, eps):\n    return bytearray(2**36)"))
    assert "MemoryError" in result.reason


def test_nothing_is_left_of_a_trial(tmp_path):
    note = tmp_path / "pid"
    body = f"import os, pathlib, time; pathlib.Path({str(note)!r}).write_text(str(os.getpid()))"
    tried(made(f"def rms_norm(x, weight, eps):\n    {body}; time.sleep(900)"), limit=15.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_an_answer_that_fails_its_own_cases_stops_everything(monkeypatch):
    wrong = made("def rms_norm(x, weight, eps):\n    return x")
    source = mutated_source(CHAPTER, wrong)
    monkeypatch.setattr("course.mutant_trial.mutated_source", lambda *_: source)
    monkeypatch.setattr("course.mutant_trial.FORKS", FORKS)
    with pytest.raises(Broken, match=r"the answer to 4\.1 fails"):
        Trials(1, 0).measure(["4.1"])


# ---- Names and scores ----


def test_every_named_mutant_exists_and_is_named_once():
    found = [m for chapter in manifest.chapters() for m in mutants_of(chapter)]
    for named in read_named():
        assert any(named.fits(m) for m in found), named
        assert len(named.why.split()) >= 4, named
    named = [(n.exercise, n.function, n.was, n.becomes) for n in read_named()]
    assert len(set(named)) == len(named)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[mutant", "is not TOML"),
        ('[[mutant]]\nkind = "equivalent"', "mutant 1 needs kind, exercise, function, was"),
        (
            '[[mutant]]\nkind="odd"\nexercise="4.1"\nfunction="f"\nwas="a"\nbecomes="b"\nwhy="c"',
            "kind must be one of equivalent, not promised",
        ),
    ],
)
def test_a_list_of_names_that_cannot_be_used_is_refused_in_words(text, words, tmp_path):
    path = tmp_path / "equivalent.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Unnamed, match=re.escape(words)):
        read_named(path)


def test_the_score_leaves_out_equivalents_and_counts_what_is_not_promised():
    several = mutants_of(CHAPTER, "4.1")[:4]
    kinds = ("equivalent", "not promised")
    named = [
        Named(kind, m.exercise, m.function, m.was, m.becomes, "why")
        for kind, m in zip(kinds, several, strict=False)
    ]
    killers = dict(zip([m.id for m in several], ["", "", "", "a_case"], strict=True))
    score = score_of(killers, names_of(several, named))
    assert score == Score(mutants=4, killed=1, equivalent=1, not_promised=1)
    assert (score.surviving, score.share) == (2, 1 / 3)


def test_a_run_goes_on_where_it_stopped_and_a_changed_case_asks_again(tmp_path, monkeypatch):
    from course.mutant_trial import Result

    first, second = mutants_of(CHAPTER, "4.1")[:2]
    record = Record(CHAPTER, tmp_path)
    record.add(first, Result("a_case", "why", {}, 1.0))
    record.add(second, Result("", "", {}, 1.0))
    with record.path.open("a", encoding="utf-8") as file:
        file.write('{"id": "half a li')
    again = Record(CHAPTER, tmp_path)
    assert [again.killer(first), again.killer(second)] == ["a_case", ""]
    assert again.first()[first.id] == "a_case"
    monkeypatch.setattr("course.mutant_record.JUDGES", ("cases",))
    assert Record(CHAPTER, tmp_path).killer(first) is None


def test_the_table_keeps_the_rows_of_other_chapters(tmp_path):
    path = tmp_path / "README.md"
    mutants.write_table({manifest.find_chapter(4): Score(10, 8, 1, 1)}, path)
    mutants.write_table({manifest.find_chapter(2): Score(5, 5, 0, 0)}, path)
    mutants.write_table({manifest.find_chapter(4): Score(10, 9, 1, 0)}, path)
    rows = [line for line in path.read_text(encoding="utf-8").split("\n") if "| 0" in line]
    assert rows == [
        "| 02 loader | 5 | 5 | 0 | 0 | 0 | 100.0% |",
        "| 04 forward_pass | 10 | 9 | 1 | 0 | 0 | 100.0% |",
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_the_committed_table_has_the_scores_of_no_other_chapter():
    names = {c.name.replace("_", " ", 1) for c in manifest.chapters()}
    text = (ROOT / "tests" / "mutants" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| (\d\d \w+)", text, re.M)) <= names
    assert text.startswith(mutants.HEAD)


# ---- The verb ----


def test_a_sample_depends_on_the_seed_and_on_the_mutants_alone():
    found = mutants_of(CHAPTER)
    few = mutants.sampled(found, 20, 1)
    assert len(few) == 20
    assert few == mutants.sampled(found, 20, 1) != mutants.sampled(found, 20, 2)
    rest = [m for m in found if m is not few[0]]
    assert set(mutants.sampled(rest, 20, 1)) > set(few[1:])


def test_a_sample_passes_when_all_are_killed_and_fails_when_one_is_not(monkeypatch, capsys):
    argv = ["--exercise", "4.1", "--sample", "3", "--jobs", "1"]
    assert mutants.main(argv) == 0
    assert "3 mutants, 3 killed, 0 survive" in capsys.readouterr().out
    right = made(next(d for n, d in _definitions() if n == "rms_norm") + "\n    # the same")
    monkeypatch.setattr(mutants, "mutants_of", lambda *_: [right])
    assert mutants.main(argv) == 1
    assert "solutions/forward_pass.py:1: rms_norm (4.1), made\n- was\n+ " in capsys.readouterr().out


def _definitions():
    from course import notebooks

    return [(name, d.source) for name, d in notebooks.definitions(CHAPTER).items()]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--chapter", "99"], "there is no chapter 99"),
        (["--exercise", "4.77"], "chapter 4 has no exercise 4.77"),
    ],
)
def test_a_wrong_word_is_answered_in_words(argv, words, capsys):
    assert mutants.main(argv) == 2
    assert words in capsys.readouterr().err


def test_scores_are_printed_and_a_second_run_asks_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Record.__init__, "__defaults__", (tmp_path,))
    assert mutants.main(["--exercise", "4.1", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^4\.1: \d+ of \d+ killed \(100\.0%\), 0 equivalent, 0 survive", said, re.M)
    monkeypatch.setattr(Trials, "run", None)
    assert mutants.main(["--exercise", "4.1", "--jobs", "1"]) == 0
    assert capsys.readouterr().out == said
