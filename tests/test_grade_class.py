"""A small piece of benchmarks/class_of_200.py: scores that are known in advance, and are got."""

import argparse
import random
import sys
import types
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import class_of_200 as kit
from course import misconceptions
from course.manifest import chapters, find_chapter
from course.paths import ROOT
from course.submission import problem_with, submission_of
from tests import classroom
from tests.style_notebooks import in_style


def test_every_score_of_a_small_class_is_as_known_in_advance(tmp_path):
    """Chapter 04 right in all shapes and styles, wrong, and mixed; with time for a busy machine."""
    chapter = find_chapter(4)
    right = [one for one in kit.right_ones([chapter]) if chapter.slug in one.name]
    made = [*right, *list(kit.wrong_ones([chapter]))[:2]]
    made += [kit.mixed_one(random.Random(n), n, [chapter]) for n in range(2)]
    (tmp_path / "class").mkdir()
    for one in made:
        kit.write(tmp_path / "class", one)
    assert len({one.name for one in made}) == len(made) >= 9
    arguments = ("--jobs", "2", "--seconds", "60")
    assert classroom.grade(tmp_path / "class", tmp_path / "grades", *arguments) == 0
    assert list(kit.differences(made, tmp_path / "grades")) == []
    assert any(0 in one.points.values() for one in made)


STYLES = [
    (c, p) for c in chapters() for p in sorted((ROOT / "tests/styles").glob(f"{c.slug}_*.py"))
]


@pytest.mark.parametrize(("chapter", "path"), STYLES, ids=lambda value: getattr(value, "stem", ""))
def test_a_style_of_any_chapter_can_be_handed_in(chapter, path):
    """Its cells run one after the other and define what the exercises ask for."""
    handed = submission_of(chapter, Path(path.name), in_style(chapter, path).encode())
    module = types.ModuleType("submission")
    sys.modules["submission"] = module  # dataclasses look there
    for cell in handed.cells:
        exec(compile(cell.source, path.name, "exec", dont_inherit=True), vars(module))
    for exercise in chapter.exercises:
        assert problem_with(handed, exercise.id) is None
        assert set(exercise.functions) <= set(vars(module))
    del sys.modules["submission"]


def test_a_class_of_200_holds_all_that_is_right_and_wrong_and_a_sample_of_attacks(monkeypatch):
    """Nothing of the other kinds is dropped for want of room."""
    monkeypatch.setattr(kit, "passes", lambda *_: True)  # what is known is tested elsewhere
    made = kit.make_class(argparse.Namespace(size=200, chapters=None, peaceful=False))
    assert len({one.name for one in made}) == len(made) == 200
    assert {str(chapter.number) for chapter in chapters()} == {
        exercise.split(".")[0] for one in made for exercise in one.points
    }
    kinds = Counter(one.name.split()[0] for one in made)
    wrong = sum(len(list(kit.wrong_ones([chapter]))) for chapter in chapters())
    assert kinds["wrong"] == wrong
    assert kinds["style"] == len(STYLES)
    assert kinds["hostile"] >= 15
    assert kinds["mixed"] >= 5


def test_a_score_that_is_not_as_known_is_told(tmp_path):
    made = [kit.Made("a.ipynb", {}, {"4.1": 8})]
    (told,) = kit.differences(made, tmp_path)
    assert told.startswith("a.ipynb 4.1: None instead of 8")


def test_the_class_holds_every_misconception_once():
    chapter = find_chapter(4)
    loaded = misconceptions.load(chapter.slug)
    turns = max(sum(w.exercise == e.id for w in loaded) for e in chapter.exercises)
    assert len(list(kit.wrong_ones([chapter]))) == turns


def test_a_class_is_as_large_as_asked_and_the_same_each_time(tmp_path):
    args = argparse.Namespace(size=20, chapters=[4], peaceful=True)
    first, second = (kit.write_class(tmp_path / name, args) for name in ("a", "b"))
    assert first == second
    assert len(first) == 20
