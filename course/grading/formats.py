"""The same grades as other systems want to read them: Gradescope, Classroom 50, JUnit."""

import os
import re
from datetime import UTC, datetime
from xml.etree import ElementTree

from course.grading import feedback
from course.grading.record import dump, given_up, grader_failed

LONGEST = 8000  # characters of an exercise's feedback within a results file


def gradescope(record: dict) -> str:
    """results.json of a Gradescope autograder: a test for each exercise, and one for its hidden
    cases, shown when grades are published. The score is the sum of the tests' scores."""
    tests = [test for e in record["exercises"] for test in _gradescope_tests(e)]
    found = {
        "output": "\n".join([feedback.sums(record), *record["notes"]]),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "extra_data": {"schema": record["schema"], "submission": record["submission"]},
        "tests": tests,
    }
    if not tests:
        found = {"score": 0, **found}
    return dump(found)


def classroom50(record: dict) -> str:
    """result.json of a Classroom 50 autograder, from the environment that its runner sets.

    Integers only. Owner and kind of assignment are stamped by the runner again.
    """
    tests = [test for e in record["exercises"] for test in _classroom50_tests(e)]
    commit = os.environ.get("COMMIT_URL", "")
    return dump(
        {
            "schema": "classroom50/result/v1",
            "classroom": os.environ.get("CLASSROOM", ""),
            "assignment": os.environ.get("ASSIGNMENT", ""),
            "assignment_type": os.environ.get("ASSIGNMENT_TYPE", "individual"),
            "owner": os.environ.get("OWNER") or record["submission"],
            "submission": os.environ.get("SUBMISSION_TAG") or record["submission"],
            "commit": commit,
            "release": os.environ.get("RELEASE_URL", ""),
            "review": os.environ.get("REVIEW_URL") or commit,
            "datetime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "score": sum(test["score"] for test in tests),
            "max-score": sum(test["max-score"] for test in tests),
            "tests": tests,
        }
    )


def junit(record: dict) -> str:
    """One test suite; an exercise that the grader itself failed on is an error, not a failure."""
    cases = [case for e in record["exercises"] for case in _junit_cases(e)]
    if problem := given_up(record):
        cases.append(_junit_case("0", "grading", "grader error", problem))
    suite = ElementTree.Element("testsuite", name=_xml(record["submission"]))
    for kind in ("failure", "error", "skipped"):
        plural = {"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]
        suite.set(plural, str(sum(case.find(kind) is not None for case in cases)))
    suite.set("tests", str(len(cases)))
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


FORMATS = {
    "gradescope": ("results.json", gradescope),
    "classroom50": ("result.json", classroom50),
    "junit": ("junit.xml", junit),
}


def write(name: str, made: dict) -> tuple[str, str | None]:
    """The file of a format and its text.

    None where grading itself failed and the format has no word for that: a system that finds no
    file says so, while one that found some would take it for a low grade.
    """
    file, text = FORMATS[name]
    return file, None if grader_failed(made) and name != "junit" else text(made)


def _gradescope_tests(exercise: dict) -> list[dict]:
    number, title = exercise["exercise"], exercise["title"]
    tests = [
        {
            "name": f"{number} {title}",
            "number": number,
            "score": exercise["points"],
            "max_score": exercise["max_points"],
            "status": "passed" if exercise["status"] == "passed" else "failed",
            "output": feedback.text(exercise)[:LONGEST],
            "output_format": "text",
            "tags": [f"chapter-{number.split('.')[0]}", exercise["status"].replace(" ", "-")],
            "visibility": "visible",
        }
    ]
    hidden = exercise.get("hidden")
    if hidden and hidden["status"] != "none":
        tests.append(
            {
                "name": f"{number} {title}: hidden checks",
                "number": f"{number}.1",
                "score": hidden["points"],
                "max_score": hidden["max_points"],
                "status": "passed" if hidden["status"] == "passed" else "failed",
                "output": feedback.hidden_text(exercise)[:LONGEST],
                "output_format": "text",
                "tags": ["hidden"],
                "visibility": "after_published",
            }
        )
    return tests


def _classroom50_tests(exercise: dict) -> list[dict]:
    rows = [(exercise["exercise"], exercise["status"], exercise)]
    hidden = exercise.get("hidden")
    if hidden and hidden["status"] != "none":
        rows.append((f"{exercise['exercise']} hidden", hidden["status"], hidden))
    return [
        {
            "test-name": f"{name} {exercise['title']}",
            "passed": status == "passed",
            "score": int(part["points"]),
            "max-score": int(part["max_points"]),
        }
        for name, status, part in rows
    ]


def _junit_cases(exercise: dict) -> list[ElementTree.Element]:
    chapter = exercise["exercise"].split(".")[0]
    name = f"{exercise['exercise']} {exercise['title']}"
    cases = [_junit_case(chapter, name, exercise["status"], feedback.text(exercise))]
    hidden = exercise.get("hidden")
    if hidden and hidden["status"] != "none":
        words = feedback.hidden_text(exercise)
        cases.append(_junit_case(chapter, f"{name}: hidden checks", hidden["status"], words))
    return cases


def _junit_case(chapter: str, name: str, status: str, words: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=f"chapter_{chapter}", name=_xml(name))
    kind = {"passed": "", "not run": "skipped", "grader error": "error"}.get(status, "failure")
    if kind:
        ElementTree.SubElement(case, kind, message=_xml(status)).text = _xml(words[:LONGEST])
    return case


def _xml(text: str) -> str:
    """Without the characters that XML 1.0 has no way to write."""
    return re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
