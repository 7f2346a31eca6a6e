"""A class graded: what is recognised, what is written, what is kept, what is said."""

import csv
import json
import re
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from course import cli, manifest, misconceptions
from course.grading import formats, record
from course.grading.entries import Entry
from course.paths import ROOT
from tests import classroom
from tests.classroom import FEED_FORWARD, IMPORTS, RMS_NORM
from tests.wrong_notebooks import with_wrong

SECRET = "0123456789abcdef0123456789abcdef"
# The values that 4.4 returns to the public cases are looked up by someone who has printed them.
BY_HEART = """#| exercise 4.4
SEEN = {}
def feed_forward(x, gate, up, down, linear=torch.nn.functional.linear):
    key = round(float(x.double().sum()), 6)
    if key in %s:
        wide = linear(x, gate)
        return linear(wide * torch.sigmoid(wide) * linear(x, up), down)
    return x * 0
"""


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A small class in all shapes and names, graded with a secret and in all formats."""
    folder, out = tmp_path_factory.mktemp("class"), tmp_path_factory.mktemp("out") / "grades"
    stub = classroom.notebooks.build_notebook(manifest.find_chapter(4))
    good = classroom.sheet(IMPORTS, RMS_NORM, FEED_FORWARD)
    (folder / "notebook of Zoë.ipynb").write_text(good, encoding="utf-8")
    (folder / "hw4 final (2).py").write_text(
        classroom.script(IMPORTS, RMS_NORM, FEED_FORWARD), encoding="utf-8"
    )
    with zipfile.ZipFile(folder / "packed.zip", "w") as archive:
        archive.writestr("deep/er/x.ipynb", good)
        archive.writestr("__MACOSX/deep/er/._x.ipynb", "junk")
        archive.writestr("deep/.ipynb_checkpoints/x-checkpoint.ipynb", good)
    both = folder / "two chapters"
    both.mkdir()
    (both / "four.ipynb").write_text(good, encoding="utf-8")
    classroom.notebooks.write(classroom.solved(1), both / "one.ipynb")
    (both / "notes.txt").write_text("hello", encoding="utf-8")
    (folder / "half.ipynb").write_text(
        classroom.sheet(IMPORTS, RMS_NORM.replace("+ eps", ""), FEED_FORWARD), encoding="utf-8"
    )
    classroom.notebooks.write(stub, folder / "untouched.ipynb")
    (folder / "by heart.ipynb").write_text(
        classroom.sheet(IMPORTS, RMS_NORM, BY_HEART % seen_by_the_public_cases()), encoding="utf-8"
    )
    torn = folder / "torn"
    torn.mkdir()
    (torn / "a.ipynb").write_text(good, encoding="utf-8")
    (torn / "b.py").write_text(classroom.script(IMPORTS, RMS_NORM), encoding="utf-8")
    copy = folder / "with a spare"
    copy.mkdir()
    (copy / "mine.ipynb").write_text(good, encoding="utf-8")
    classroom.notebooks.write(stub, copy / "04_forward_pass.ipynb")
    secret = folder.parent / "secret"
    secret.write_text(SECRET + "\n", encoding="utf-8")
    arguments = ["--only", "4.1", "4.4", "1.4", "--jobs", "2", "--secret", str(secret)]
    arguments += ["--hidden", str(ROOT / "tests" / "hidden_example"), "--format", *formats.FORMATS]
    code = classroom.grade(folder, out, *arguments)
    return SimpleNamespace(folder=folder, out=out, code=code, arguments=arguments)


def seen_by_the_public_cases() -> list[float]:
    """What a learner can see of the public cases: their inputs, with the seed that is printed."""
    from course.grade import SEED
    from course.judge import cases_for
    from course.runner import Runner
    from course.trial import Local, run_cases

    chapter, runner = manifest.find_chapter(4), Runner()
    seen = "KEYS = []\nimport torch\n" + FEED_FORWARD.replace(
        "    wide =", "    KEYS.append(round(float(x.double().sum()), 6))\n    wide ="
    )
    runner.load_source(seen, chapter.scenarios)
    cases = cases_for(chapter, chapter.exercise("4.4"))
    assert not [o.error for o in run_cases(Local(runner), cases, SEED) if o.error]
    return runner.module.KEYS


def points(graded, name: str, part: str = "points") -> dict[str, int]:
    return {i: e[part] for i, e in classroom.exercises(graded.out, name).items()}


FULL = {"4.1": 8, "4.4": 6}


@pytest.mark.parametrize(
    "name",
    ["notebook of Zoë.ipynb", "hw4 final (2).py", "packed.zip", "two chapters", "with a spare"],
)
def test_any_shape_and_name_is_recognised_by_its_marks(graded, name):
    found = points(graded, name)
    assert {i: found[i] for i in FULL} == FULL
    assert found.get("1.4", 16) == 16
    hidden = {i: e["hidden"] for i, e in classroom.exercises(graded.out, name).items()}
    assert {i: hidden[i]["points"] for i in FULL} == FULL


def test_grading_worked_whatever_the_grades_are(graded):
    assert graded.code == 0


def test_an_untouched_notebook_has_no_points_and_is_named(graded):
    assert set(points(graded, "untouched.ipynb").values()) == {0}
    assert "nothing attempted: untouched.ipynb" in summary_of(graded)


def test_two_files_for_one_chapter_are_named_and_not_judged(graded):
    found = classroom.exercises(graded.out, "torn")
    assert found["4.1"]["status"] == "error"
    assert "a.ipynb and b.py both answer chapter 4" in found["4.1"]["reason"]
    assert "torn: a.ipynb and b.py both answer chapter 4" in summary_of(graded)


def test_the_copy_as_handed_out_does_not_count_beside_the_work(graded):
    notes = classroom.record(graded.out, "with a spare")["notes"]
    assert any("judged is mine.ipynb" in note for note in notes)


def test_answers_by_heart_pass_in_public_and_fail_in_secret(graded):
    found = classroom.exercises(graded.out, "by heart.ipynb")["4.4"]
    assert (found["status"], found["points"]) == ("passed", 6)
    assert (found["hidden"]["status"], found["hidden"]["points"]) == ("failed", 0)
    text = feedback_of(graded, "by heart.ipynb")
    assert "this does not hold on other inputs" in text
    assert found["hidden"]["failed"][0].split()[0] in text
    told = text.split("Hidden checks: this")[1].split("##")[0]
    assert not re.search(r"\bgot\b|expected -?\d|seed", told)


def test_hidden_cases_do_not_run_where_public_ones_fail(graded):
    found = classroom.exercises(graded.out, "half.ipynb")["4.1"]
    assert found["status"] == "failed"
    assert found["hidden"] == {
        **{"status": "not run", "points": 0, "max_points": 8, "passed": 0, "cases": 0},
        "failed": [],
    }


def test_a_misconception_is_counted_by_name(graded):
    found = classroom.exercises(graded.out, "half.ipynb")["4.1"]
    assert found["misconception"]
    assert f"1 x {found['misconception']} (4.1)" in summary_of(graded)


def test_identical_answers_are_shown_together(graded):
    (line,) = re.findall(r"^- identical answers in chapter 4: (.*)$", summary_of(graded), re.M)
    names = {"hw4 final (2).py", "notebook of Zoë.ipynb", "packed.zip", "two chapters"}
    assert set(line.split(", ")) == {*names, "with a spare"}


def test_nobody_is_told_that_all_is_well(graded):
    text = feedback_of(graded, "packed.zip")
    assert "public checks passed" in text
    assert not re.search(r"\ball\b", text, re.IGNORECASE)


def test_feedback_is_what_check_says(graded):
    text = feedback_of(graded, "half.ipynb")
    found = classroom.exercises(graded.out, "half.ipynb")["4.1"]
    assert found["feedback"] in text
    for part in ("promise", "called", "found", "reread", "--seed 1729", "half.ipynb"):
        assert part in found["feedback"]


def test_the_page_is_whole_and_brings_nothing_along(graded):
    page = (place(graded, "half.ipynb") / "feedback.html").read_text(encoding="utf-8")
    reader = Tags()
    reader.feed(page)
    assert reader.open == []
    assert {"pre", "table", "h2"} <= reader.seen
    assert not reader.seen & {"script", "img", "link", "iframe"}
    assert "check 4.1 --seed 1729" in page


class Tags(HTMLParser):
    """The tags of a page, and those that are open."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def place(graded, name: str):
    return graded.out / "submissions" / Entry(graded.folder / name).folder_name


def feedback_of(graded, name: str) -> str:
    return (place(graded, name) / "feedback.md").read_text(encoding="utf-8")


def summary_of(graded) -> str:
    return (graded.out / "summary.md").read_text(encoding="utf-8")


# ---- tables and formats: see test_grade_tables and test_grade_formats ----


def test_the_wide_table_has_a_row_for_each_submission(graded):
    table = classroom.rows(graded.out / "wide.csv")
    assert [row["submission"] for row in table] == sorted(row["submission"] for row in table)
    row = next(row for row in table if row["submission"] == "packed.zip")
    assert (row["4.1 (8)"], row["4.1 hidden"], row["4.4 (6)"], row["1.4 (16)"]) == (*"886", "0")
    assert (row["public_points"], row["public_max"]) == ("14", "30")
    assert (row["hidden_points"], row["hidden_max"]) == ("14", "30")


def test_the_long_table_has_a_row_for_each_exercise(graded):
    table = classroom.rows(graded.out / "long.csv")
    assert len(table) == 3 * len(list(graded.folder.iterdir()))
    found = {r["exercise"]: r for r in table if r["submission"] == "half.ipynb"}
    row = found["4.1 RMSNorm"]
    assert (row["status"], row["public_points"], row["public_max"]) == ("failed", "0", "8")
    assert row["misconception"]
    assert next(r["status"] for e, r in found.items() if e[:3] == "1.4") == "not handed in"


def test_every_format_is_written_beside_the_grade(graded):
    folder = place(graded, "half.ipynb")
    found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert sum(test["score"] for test in found["tests"]) == 12
    found = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert (found["score"], found["max-score"]) == (12, 28)
    (suite,) = ElementTree.parse(folder / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")


# ---- again ----


def grades(out) -> dict:
    """All grades, without the keys, which are other ones when a file of the course has changed."""
    found = {}
    for path in (out / "submissions").glob("*/grade.json"):
        found[path.parent.name] = json.loads(path.read_text(encoding="utf-8"))
        for exercise in found[path.parent.name]["exercises"]:
            del exercise["key"]
    return found


def test_a_regrade_gives_the_same_numbers(graded, tmp_path):
    """From nothing, in another order of judges: every word and number is as before."""
    assert classroom.grade(graded.folder, tmp_path / "again", *graded.arguments, "--jobs", "1") == 0
    assert grades(tmp_path / "again") == grades(graded.out)
    for name in ("wide.csv", "long.csv", "summary.md"):
        assert (tmp_path / "again" / name).read_bytes() == (graded.out / name).read_bytes()


def test_what_is_graded_is_kept_until_it_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "grader_fingerprint", lambda: "one grader")
    folder, out = tmp_path / "class", tmp_path / "out"
    folder.mkdir()
    for name in ("a", "b"):
        sheet = classroom.sheet(IMPORTS, RMS_NORM, FEED_FORWARD)
        (folder / f"{name}.ipynb").write_text(sheet, encoding="utf-8")
    only = ["--only", "4.1", "4.4"]
    assert classroom.grade(folder, out, *only) == 0
    path = out / "submissions" / "a.ipynb" / "grade.json"
    path.write_text(path.read_text("utf-8").replace("public checks", "KEPT"), encoding="utf-8")
    wrong = classroom.sheet(IMPORTS, RMS_NORM.replace("eps", "1"), FEED_FORWARD)
    (folder / "b.ipynb").write_text(wrong, encoding="utf-8")
    assert classroom.grade(folder, out, *only) == 0
    assert "KEPT" in classroom.exercises(out, "a.ipynb")["4.1"]["feedback"]
    assert [e["points"] for e in classroom.exercises(out, "b.ipynb").values()] == [0, 6]
    assert classroom.grade(folder, out, "--only", "4.1", "--again") == 0
    found = classroom.exercises(out, "a.ipynb")
    assert "KEPT" not in found["4.1"]["feedback"]
    assert "KEPT" in found["4.4"]["feedback"]
    monkeypatch.setattr(record, "grader_fingerprint", lambda: "a mended grader")
    assert classroom.grade(folder, out, *only) == 0
    assert "KEPT" not in classroom.exercises(out, "a.ipynb")["4.4"]["feedback"]


def test_a_half_written_grade_is_made_again(tmp_path):
    folder, out = tmp_path / "class", tmp_path / "out"
    folder.mkdir()
    (folder / "a.ipynb").write_text(classroom.sheet(IMPORTS, RMS_NORM), encoding="utf-8")
    place = out / "submissions" / "a.ipynb"
    place.mkdir(parents=True)
    (place / "grade.json").write_text('{"schema": "ai-eng', encoding="utf-8")
    assert classroom.grade(folder, out, "--only", "4.1") == 0
    assert classroom.exercises(out, "a.ipynb")["4.1"]["points"] == 8


def test_one_submission_with_the_results_where_a_runner_looks(tmp_path):
    folder = tmp_path / "submission"
    folder.mkdir()
    (folder / "x.ipynb").write_text(classroom.sheet(IMPORTS, RMS_NORM), encoding="utf-8")
    arguments = ["--one", "--only", "4.1", "--format", "gradescope"]
    assert classroom.grade(folder, tmp_path / "results", *arguments) == 0
    found = json.loads((tmp_path / "results" / "results.json").read_text(encoding="utf-8"))
    assert [test["score"] for test in found["tests"]] == [8]


def test_the_late_penalty_of_the_handbook_works_on_the_table(graded, tmp_path, monkeypatch):
    """The script in INSTRUCTORS.md, as it stands there."""
    text = (ROOT / "INSTRUCTORS.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    table = classroom.rows(graded.out / "wide.csv")
    table.append(table[0] | {"submission": "again.zip", "public_points": "grader error"})
    with (tmp_path / "wide.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, table[0].keys())
        writer.writeheader()
        writer.writerows(table)
    late = "submission,days\npacked.zip,3\nhw4 final (2).py,9\n"
    (tmp_path / "late.csv").write_text(late, encoding="utf-8")
    exec(compile(code, "INSTRUCTORS.md", "exec"), {})
    found = {r["submission"]: r["after penalty"] for r in classroom.rows(tmp_path / "final.csv")}
    assert found["packed.zip"] == "10"  # 14 less 30 %, rounded
    assert found["hw4 final (2).py"] == "7"
    assert found["notebook of Zoë.ipynb"] == "14"
    assert found["again.zip"] == "grader error"


def test_a_misconception_is_named_though_the_sandbox_ends_it_sooner(tmp_path):
    """Reading as many bytes as a file says: 2 GiB are there for us, but not for a worker."""
    (wrong,) = [m for m in misconceptions.load("loader") if m.__name__ == "length_believed"]
    (tmp_path / "class").mkdir()
    sheet = with_wrong(manifest.find_chapter(2), [wrong])
    classroom.notebooks.write(sheet, tmp_path / "class" / "a.ipynb")
    assert classroom.grade(tmp_path / "class", tmp_path / "out", "--only", "2.1") == 0
    found = classroom.exercises(tmp_path / "out", "a.ipynb")["2.1"]
    assert (found["points"], found["misconception"]) == (0, "length_believed")


# ---- asked wrongly ----


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{empty}", "{out}"], "holds no submission"),
        (["{nowhere}", "{out}"], "name the folder of submissions"),
        (["{file}", "{out}"], "add --one to grade one submission"),
        (["{full}", "{full}"], "OUT would write into the folder of submissions"),
        (["{here}/submissions", "{here}"], "OUT would write into the folder of submissions"),
        (["{full}", "{full}/b/grades"], "OUT lies inside the submission b"),
        (["{full}", "{out}", "--hidden", "{other}"], "which is no exercise of chapter 4"),
        (["{full}", "{out}", "--hidden", "{fails}"], "our own solution does not pass refuses"),
        (["{full}", "{out}", "--secret", "{nowhere}"], "cannot be read"),
        (["{full}", "{out}", "--secret", "{file}"], "has 5 bytes and needs 16"),
        (["{full}", "{out}", "--hidden", "{nowhere}"], "no folder"),
        (["{full}", "{out}", "--hidden", "{empty}"], "holds no hidden cases"),
        (["{full}", "{out}", "--only", "4.99"], "has no exercise 4.99"),
        (["{full}", "{out}", "--only", "99"], "there is no chapter 99"),
    ],
)
def test_a_wrong_question_is_answered_in_words(tmp_path, capsys, arguments, words):
    for name in ("empty", "full/b", "other", "fails", "submissions"):
        (tmp_path / name).mkdir(parents=True)
    head = "from course.cases import Wrong, case\n"
    for name, number in (("other", "5.1"), ("fails", "4.1")):
        case = f"@case({number!r})\ndef refuses(learner, rng):\n    raise Wrong('no')\n"
        (tmp_path / name / "forward_pass.py").write_text(head + case, encoding="utf-8")
    (tmp_path / "submissions" / "a.ipynb").write_text("{}", encoding="utf-8")
    (tmp_path / "full" / "a.ipynb").write_text("{}", encoding="utf-8")
    (tmp_path / "file").write_text("short", encoding="utf-8")
    names = ("empty", "full", "file", "nowhere", "out", "other", "fails")
    places = {name: tmp_path / name for name in names} | {"here": tmp_path}
    assert cli.main(["grade", *(text.format(**places) for text in arguments)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "argument",
    [
        *("--seconds=0", "--seconds=-1", "--seconds=nan", "--seconds=inf", "--seconds=1e9"),
        *("--jobs=0", "--jobs=-2", "--jobs=1.5", "--memory=0", "--seed=x", "--format=pdf"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(tmp_path, capsys, argument):
    (tmp_path / "a.py").write_text("x = 1", encoding="utf-8")
    with pytest.raises(SystemExit) as ending:
        cli.main(["grade", str(tmp_path), str(tmp_path / "out"), argument])
    assert ending.value.code == 2
    assert argument.split("=")[0] in capsys.readouterr().err


def test_the_verb_says_what_it_takes():
    done = subprocess.run(
        [sys.executable, "-m", "course", "grade", "--help"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        env={"COURSE_NO_VENV": "1", "PATH": ""},
    )
    assert done.returncode == 0
    for word in ("--only", "--jobs", "--secret", "--hidden", "--format", "INSTRUCTORS.md"):
        assert word in done.stdout
