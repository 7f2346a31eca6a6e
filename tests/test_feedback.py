"""The feedback file: what a learner wrote is text in it, and the page fits a small screen."""

import re

import pytest

from course.grading import feedback


def record(note: str = "", title: str = "RMSNorm") -> dict:
    exercise = {"exercise": "4.1", "title": title, "status": "failed", "reason": "x"}
    points = {"points": 0, "max_points": 2}
    return {"submission": "a.ipynb", "notes": [note], "exercises": [exercise | points]}


@pytest.mark.parametrize("sign", "\\`*_{}[]<>#|!&~$@")
def test_no_sign_of_a_learner_is_markup(sign):
    """~~ strikes out, $ begins a formula, @ calls somebody, on the sites that show Markdown."""
    text = feedback.markdown(record(f"a{sign}{sign}b"))
    assert f"- a\\{sign}\\{sign}b\n" in text


def test_the_page_says_what_its_columns_are():
    page = feedback.page(record())
    heads = re.findall(r"<th([^>]*)>(\w+)</th>", page)
    assert heads == [(' scope="col"', name) for name in ("exercise", "outcome", "points")]
