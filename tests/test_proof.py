"""The grader graded: right code passes in any style, wrong code fails and is told why.

Everything here holds for every chapter that has a chapter.toml.
"""

import os
import re

import pytest

from course import misconceptions, notebooks
from course.cases import cases_of
from course.likely import likely_cause, reference_runner
from course.manifest import Chapter, Exercise, chapters
from course.paths import ROOT
from course.runner import Runner
from course.submission import build, read_submission
from course.trial import Local, run_cases
from tests import parts
from tests.conftest import replace_cell

SEEDS = (0, 1, 2)  # for code that must pass
# For code that must fail one is enough in every run; PROOF_SEEDS="0 1 2" is for who adds a case.
WRONG_SEEDS = tuple(map(int, os.environ.get("PROOF_SEEDS", "0").split()))
EXERCISES = [(c, e) for c in chapters() for e in c.exercises]
STYLES = [
    (c, p) for c in chapters() for p in sorted((ROOT / "tests/styles").glob(f"{c.slug}_*.py"))
]
WRONG = [(c, w) for c in chapters() for w in misconceptions.load(c.slug)]
RIGHT = [(c, p) for c in chapters() for p in parts.load("styles_parts", c.slug)]
PASSED = [(c, p) for c in chapters() for p in parts.load("wrong", c.slug)]

each_exercise = pytest.mark.parametrize(
    ("chapter", "exercise"), EXERCISES, ids=[e.id for _, e in EXERCISES]
)


def outcomes(chapter: Chapter, exercise_id: str, runner: Runner, seed: int) -> list:
    cases = [case for case in cases_of(chapter.slug) if case.exercise == exercise_id]
    return list(run_cases(Local(runner), cases, seed))


def failures(*args) -> list:
    return [outcome for outcome in outcomes(*args) if outcome.error]


@each_exercise
@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_passes(chapter: Chapter, exercise: Exercise, seed: int):
    failed = failures(chapter, exercise.id, reference_runner(chapter), seed)
    assert not failed, f"{failed[0].case.name}: {failed[0].error}"


@pytest.mark.parametrize(("chapter", "path"), STYLES, ids=[p.stem for _, p in STYLES])
@pytest.mark.parametrize("seed", SEEDS)
def test_correct_code_in_another_style_passes(chapter: Chapter, path, seed: int):
    runner = Runner()
    runner.load_source(path.read_text(encoding="utf-8"), chapter.scenarios)
    for exercise in chapter.exercises:
        failed = failures(chapter, exercise.id, runner, seed)
        assert not failed, f"{exercise.id} {failed[0].case.name}: {failed[0].error}"


@pytest.mark.parametrize(("chapter", "wrong"), WRONG, ids=[w.__name__ for _, w in WRONG])
def test_a_misconception_fails_its_exercise_and_is_named(chapter: Chapter, wrong):
    for seed in WRONG_SEEDS:
        found = outcomes(chapter, wrong.exercise, reference_runner(chapter, wrong), seed)
        assert any(outcome.error for outcome in found), f"nothing fails with seed {seed}"
        cause = likely_cause(chapter, found, seed)
        assert cause.misconception is wrong
        assert cause.is_all
        assert cause.shown.error


@pytest.mark.parametrize(("chapter", "change"), RIGHT, ids=[c.__name__ for _, c in RIGHT])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_part_in_another_style_passes(chapter: Chapter, change, seed: int):
    failed = failures(chapter, change.part_of, parts.runner_with(chapter, change), seed)
    assert not failed, f"{failed[0].case.name}: {failed[0].error}"


@pytest.mark.parametrize(("chapter", "change"), PASSED, ids=[c.__name__ for _, c in PASSED])
def test_a_wrong_answer_that_once_passed_fails(chapter: Chapter, change):
    for seed in WRONG_SEEDS:
        backend = Local(parts.runner_with(chapter, change))
        cases = [case for case in cases_of(chapter.slug) if case.exercise == change.part_of]
        assert any(outcome.error for outcome in run_cases(backend, cases, seed)), f"seed {seed}"


@each_exercise
def test_an_exercise_passes_with_no_others_written_than_it_needs(
    chapter: Chapter, exercise: Exercise, tmp_path
):
    notebook = notebooks.build_notebook(chapter)
    for needed in (exercise.id, *chapter.all_needs(exercise)):
        replace_cell(notebook, needed, notebooks.solved_cell(chapter, chapter.exercise(needed)))
    path = tmp_path / f"{chapter.name}.ipynb"
    notebooks.write(notebook, path)
    module = build(read_submission(chapter, path), tmp_path).path
    runner = Runner()
    runner.load_source(module.read_text(encoding="utf-8"), chapter.scenarios)
    failed = failures(chapter, exercise.id, runner, 0)
    assert not failed, f"{failed[0].case.name}: {failed[0].error}"


@each_exercise
def test_every_exercise_has_what_a_learner_needs(chapter: Chapter, exercise: Exercise):
    assert len(exercise.hints) == 3
    assert all(chapter.exercise(needed) for needed in exercise.needs)
    wrong = [w for w in misconceptions.load(chapter.slug) if w.exercise == exercise.id]
    assert len(wrong) >= 2
    assert all(len(w.__doc__.split()) > 10 for w in wrong)
    cases = [case for case in cases_of(chapter.slug) if case.exercise == exercise.id]
    assert len(cases) >= 3
    assert all(case.run.__doc__ for case in cases)
    readme = (chapter.folder / "README.md").read_text(encoding="utf-8")
    assert exercise.section in anchors(readme)
    functions = ", ".join(f"`{name}`" for name in exercise.functions)
    row = f"| {exercise.id} {exercise.title} | {functions} | `work/{chapter.name}.ipynb` "
    row += f"| {exercise.points} | {exercise.minutes} | `make check EX={exercise.id}` |"
    assert row in re.sub(r" \(after [^)]+\) \|", " |", readme)


@pytest.mark.parametrize("chapter", chapters(), ids=lambda c: c.name)
def test_there_are_two_other_styles(chapter: Chapter):
    assert sum(c == chapter for c, _ in STYLES) >= 2


@pytest.mark.parametrize("chapter", chapters(), ids=lambda c: c.name)
def test_points_of_a_chapter_add_up_to_a_hundred(chapter: Chapter):
    assert chapter.points == 100


def anchors(markdown: str) -> set[str]:
    """The anchors that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", markdown, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
