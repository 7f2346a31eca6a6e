"""Two mistakes in one answer: one of them is named, with a perhaps, and never a third."""

import itertools
import random

import pytest

from course import likely, misconceptions, notebooks
from course.cases import cases_of
from course.likely import likely_cause
from course.manifest import chapters
from course.runner import Runner
from course.trial import Local, run_cases

FORWARD_PASS = next(chapter for chapter in chapters() if chapter.slug == "forward_pass")
PAIRS = [
    (one, other)
    for one, other in itertools.combinations(misconceptions.load("forward_pass"), 2)
    if one.exercise == other.exercise and one.target != other.target
]


def cause_of_both(one, other):
    """What is said of the reference with two definitions spoiled."""
    runner = Runner()
    runner.load_source(notebooks.reference_source(FORWARD_PASS), FORWARD_PASS.scenarios)
    for wrong in (one, other):
        likely._replace(runner.module, wrong)
    cases = [case for case in cases_of("forward_pass") if case.exercise == one.exercise]
    return likely_cause(FORWARD_PASS, list(run_cases(Local(runner), cases, 0)), 0)


@pytest.fixture(scope="module")
def causes():
    """(the two, the cause) of some pairs."""
    chosen = random.Random(0).sample(PAIRS, 8)
    return [(pair, cause_of_both(*pair)) for pair in chosen]


def test_what_is_named_is_one_of_the_two(causes):
    named = [(pair, cause.misconception) for pair, cause in causes if cause]
    assert all(wrong in pair for pair, wrong in named)
    assert len(named) >= 6


def test_where_both_show_it_is_a_perhaps(causes):
    assert any(cause and not cause.is_all for _, cause in causes)
    assert all(cause.shown.error for _, cause in causes if cause)
