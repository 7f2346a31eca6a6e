"""results.json, result.json and junit.xml against what their readers document."""

import json
import re
from datetime import datetime
from xml.dom import minidom
from xml.etree import ElementTree

import jsonschema
import pytest

from course.grading import formats, record

WORDS = {"type": "string", "enum": ["text", "html", "simple_format", "md", "ansi"]}
SHOWN = {"type": "string", "enum": ["hidden", "after_due_date", "after_published", "visible"]}
NUMBER, TEXT = {"type": "number"}, {"type": "string"}
# https://gradescope-autograders.readthedocs.io/en/latest/specs/#output-format
GRADESCOPE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **{"score": NUMBER, "max_score": NUMBER, "execution_time": NUMBER, "output": TEXT},
        **{"output_format": WORDS, "test_output_format": WORDS, "test_name_format": WORDS},
        **{"visibility": SHOWN, "stdout_visibility": SHOWN, "extra_data": {"type": "object"}},
        "tests": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    **{"score": NUMBER, "max_score": NUMBER, "name": TEXT, "name_format": WORDS},
                    **{"status": {"enum": ["passed", "failed"]}, "number": TEXT, "output": TEXT},
                    **{"output_format": WORDS, "visibility": SHOWN},
                    **{"tags": {"type": "array", "items": TEXT}, "extra_data": {"type": "object"}},
                },
            },
        },
        "leaderboard": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "value"],
                "additionalProperties": False,
                "properties": {"name": TEXT, "value": {}, "order": {"enum": ["asc", "desc"]}},
            },
        },
    },
    "anyOf": [
        {"required": ["score"]},
        {"required": ["tests"], "properties": {"tests": {"minItems": 1}}},
    ],
}
WHOLE = {"type": "integer", "minimum": 0}
CLASSROOM_50 = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **{"schema": {"const": "classroom50/result/v1"}, "classroom": TEXT, "assignment": TEXT},
        **{"assignment_type": {"enum": ["individual", "group"]}, "owner": TEXT, "submission": TEXT},
        **{"commit": TEXT, "release": TEXT, "review": TEXT, "datetime": TEXT},
        **{"score": WHOLE, "max-score": WHOLE},
        "tests": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    **{"test-name": TEXT, "passed": {"type": "boolean"}},
                    **{"score": WHOLE, "max-score": WHOLE},
                },
                "required": ["test-name", "passed", "score", "max-score"],
            },
        },
    },
}
CLASSROOM_50["required"] = list(CLASSROOM_50["properties"])
FAILED_TEXT = "4.2: not right yet\n  \x1b[2J ]]> & < \ud800 \x00 \u202e"


def entry(exercise: str, status: str, points: int, hidden: str = "", **more) -> dict:
    found = {"exercise": exercise, "title": f"Title <{exercise}>", "status": status}
    found |= {"points": points, "max_points": 8, "reason": "a reason", **more}
    if hidden:
        most = 0 if hidden == "none" else 8
        got = most if hidden == "passed" else 0
        found["hidden"] = {"status": hidden, "points": got, "max_points": most}
        found["hidden"]["failed"] = ["It holds for <every> input."] if hidden == "failed" else []
    return found


def made(*exercises: dict, notes: tuple = ()) -> dict:
    told = {"schema": record.SCHEMA, "submission": "Zoë & co \ud800\x00.ipynb"}
    return {**told, "notes": list(notes), "exercises": list(exercises)}


EVERYTHING = made(
    entry("4.1", "passed", 8, "passed"),
    entry("4.2", "failed", 0, "not run", feedback=FAILED_TEXT),
    entry("4.3", "passed", 8, "failed"),
    entry("4.4", "passed", 8, "none"),
    entry("4.5", "not attempted", 0, "not run"),
    entry("4.6", "error", 0),
    entry("4.7", "missing", 0),
    notes=("x.py is empty",),
)
NOTHING = made(notes=("x.py is empty",))
BROKEN = made(entry("4.1", "grader error", 0), entry("4.2", "passed", 8))
GIVEN_UP = made(entry("4.2", "passed", 8), notes=(f"{record.GIVEN_UP} it died",))


def read(name: str, record_: dict) -> dict:
    """The file as its reader has it: written, as UTF-8."""
    text = formats.write(name, record_)[1]
    return json.loads(text.encode(errors="replace").decode())


@pytest.mark.parametrize("of", [EVERYTHING, NOTHING], ids=["everything", "nothing"])
def test_gradescope_finds_its_documented_fields_and_no_other(of):
    found = read("gradescope", of)
    jsonschema.validate(found, GRADESCOPE)
    for test in found["tests"]:
        assert 0 <= test["score"] <= test["max_score"]
        assert (test["status"] == "passed") == (test["score"] == test["max_score"])
        assert re.fullmatch(r"\d+(\.\d+)+", test["number"])
    assert len({test["number"] for test in found["tests"]}) == len(found["tests"])


def test_gradescope_adds_up_the_scores_itself_and_gets_each_hidden_check_later():
    found = read("gradescope", EVERYTHING)
    assert "score" not in found
    assert sum(test["score"] for test in found["tests"]) == 8 + 8 + 8 + 8
    hidden = [test for test in found["tests"] if "hidden" in test["tags"]]
    assert [test["number"] for test in hidden] == ["4.1.1", "4.2.1", "4.3.1", "4.5.1"]
    assert {test["visibility"] for test in hidden} == {"after_published"}
    shown = [test for test in found["tests"] if "hidden" not in test["tags"]]
    assert {test["visibility"] for test in shown} == {"visible"}
    assert "It holds for <every> input." in hidden[2]["output"]


@pytest.mark.parametrize(
    "value",
    [
        {"tests": [], "visibility": "visible"},
        {"score": "8"},
        {"score": 8, "visability": "visible"},
        {"tests": [{"score": 8, "status": "pass"}]},
        {"tests": [{"score": 8, "visibility": "public"}]},
        {"tests": [{"score": 8, "point": 8}]},
    ],
)
def test_what_gradescope_would_not_take_is_found(value):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, GRADESCOPE)


@pytest.mark.parametrize("of", [EVERYTHING, NOTHING], ids=["everything", "nothing"])
def test_classroom_50_finds_its_keys_and_no_other(of, monkeypatch):
    for name in ("CLASSROOM", "ASSIGNMENT", "SUBMISSION_TAG", "COMMIT_URL", "RELEASE_URL"):
        monkeypatch.setenv(name, name.lower())
    monkeypatch.delenv("REVIEW_URL", raising=False)
    found = read("classroom50", of)
    jsonschema.validate(found, CLASSROOM_50)
    assert (found["classroom"], found["review"]) == ("classroom", "commit_url")
    datetime.strptime(found["datetime"], "%Y-%m-%dT%H:%M:%SZ")
    assert found["score"] == sum(test["score"] for test in found["tests"])
    assert found["max-score"] == sum(test["max-score"] for test in found["tests"])
    assert len({test["test-name"] for test in found["tests"]}) == len(found["tests"])


# ---- JUnit: the schema that Jenkins' xUnit plugin publishes, as far as it is used here ----

KINDS = {"failure": "failures", "error": "errors", "skipped": "skipped"}


@pytest.mark.parametrize("of", [EVERYTHING, NOTHING, BROKEN, GIVEN_UP])
def test_junit_is_as_its_readers_want_it(of):
    text = formats.write("junit", of)[1].encode(errors="replace")
    root = minidom.parseString(text).documentElement  # one parser
    assert root.tagName == "testsuites"
    (suite,) = ElementTree.fromstring(text)  # and another
    assert suite.tag == "testsuite"
    assert set(suite.attrib) == {"name", "tests", *KINDS.values()}
    assert int(suite.get("tests")) == len(suite)
    for kind, plural in KINDS.items():
        assert int(suite.get(plural)) == len(suite.findall(f"testcase/{kind}"))
    for case in suite:
        assert case.tag == "testcase"
        assert set(case.attrib) == {"classname", "name"}
        assert len(case) <= 1
        for outcome in case:
            assert outcome.tag in KINDS
            assert set(outcome.attrib) == {"message"}
    names = [(case.get("classname"), case.get("name")) for case in suite]
    assert len(set(names)) == len(names)


def test_junit_tells_a_wrong_answer_from_what_was_not_run_and_from_our_own_fault():
    (suite,) = ElementTree.fromstring(formats.junit(EVERYTHING).encode(errors="replace"))
    assert [suite.get(plural) for plural in KINDS.values()] == ["5", "0", "2"]
    assert "]]> & <" in suite.find("testcase/failure").text
    (suite,) = ElementTree.fromstring(formats.junit(BROKEN).encode(errors="replace"))
    assert [suite.get(plural) for plural in KINDS.values()] == ["0", "1", "0"]
    (suite,) = ElementTree.fromstring(formats.junit(GIVEN_UP).encode(errors="replace"))
    assert [suite.get(plural) for plural in KINDS.values()] == ["0", "1", "0"]


@pytest.mark.parametrize("name", ["gradescope", "classroom50"])
@pytest.mark.parametrize("of", [BROKEN, GIVEN_UP], ids=["broken", "given up"])
def test_where_grading_failed_there_is_no_file_that_looks_like_a_low_grade(name, of):
    assert formats.write(name, of)[1] is None
