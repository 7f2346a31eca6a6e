"""`serve --mine`: whose layers the server is made of, and what is refused."""

import os
import subprocess
import sys

import pytest

from course import mine, notebooks
from course.manifest import find_chapter
from course.mine import Refused
from course.paths import ROOT
from tests.conftest import replace_cell
from tests.learner_kit import make_work

OTHERS = ["loader", "quantizer", "sampler", "batcher", "server", "monitoring"]  # all but chapter 4


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return make_work(tmp_path_factory.mktemp("work"))


def course(folder, *argv, code: str = "") -> subprocess.CompletedProcess:
    """`python -m course ...`, or code, in a process of its own with that work folder."""
    command = ["-c", code] if code else ["-m", "course", *argv]
    environment = {**os.environ, "COURSE_WORK": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env=environment,
        check=False,
    )


def test_every_layer_is_the_learners(work):
    plans = mine.choose([], work)
    assert [plan.chapter.number for plan in plans] == list(range(2, 9))
    ours = {module for plan in plans for module in plan.chapter.modules if module not in plan.mine}
    assert ours == {"monitoring"}  # it has no exercise: it joins the parts of chapter 08


def test_the_table_names_every_file_and_its_hash(work):
    plans = mine.choose(["admission", "8"], work)
    text = mine.table(plans)
    for plan in plans[:-1]:
        assert plan.submission.sha256[:16] in text
        assert f"{plan.chapter.name}.ipynb" in text
    assert "admission (reference)" in text
    assert "08_monitoring.ipynb" not in text
    assert "solutions/metrics.py" in text


def test_names_of_layers():
    batcher = set(find_chapter(6).modules)
    for name in ("batcher", "6", "06_batcher"):
        assert mine.modules_named([name]) == batcher
    assert mine.modules_named(["batcher.py", "admission"]) == {"batcher", "admission"}
    with pytest.raises(Refused, match=r"'batchr' is no layer.*batcher.*admission"):
        mine.modules_named(["batchr"])


def test_what_is_not_begun_is_refused_by_name_and_all_at_once(tmp_path):
    with pytest.raises(Refused) as refused:
        mine.choose(["quantizer"], tmp_path)
    for slug, number in (("loader", 2), ("batcher", 6), ("monitoring", 8)):
        assert f"--reference {slug}" in str(refused.value)
        assert f"python -m course start {number}" in str(refused.value)
    assert "--reference quantizer" not in str(refused.value)


def test_a_chapter_that_fails_its_own_checks_is_refused_until_it_is_switched_back(tmp_path):
    chapter = find_chapter(4)
    notebook = notebooks.build_notebook(chapter, solved=True)
    replace_cell(notebook, "4.7", "#| exercise 4.7\ndef chat_ids(messages, encode, special): ...")
    notebooks.write(notebook, tmp_path / f"{chapter.name}.ipynb")
    with pytest.raises(
        Refused,
        match=r"4\.7 of \S+ does not pass its.*check 4.*--reference chat for chat\.py alone",
    ) as refused:
        mine.choose(OTHERS, tmp_path)
    assert "4.6" not in str(refused.value)
    plans = mine.choose([*OTHERS, "chat"], tmp_path)  # the only module that 4.7 is in
    assert next(plan.mine for plan in plans if plan.chapter == chapter) == (
        "kv_cache",
        "forward_pass",
        "greedy",
    )


def test_a_file_is_judged_again_when_it_has_changed(tmp_path, monkeypatch):
    folder, judged = make_work(tmp_path), []
    monkeypatch.setattr(mine.passed, "judge", lambda found, _: judged.append(found.sha256) or [])
    mine.choose([], folder)
    assert judged == []
    path = folder / "06_batcher.ipynb"
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(Refused, match=r"06_batcher: 6\.1, .*6\.8 of"):
        mine.choose([], folder)
    assert len(judged) == 1


def _change(folder, name: str) -> None:
    """A file that is not the one that was judged."""
    path = folder / f"{name}.ipynb"
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")


def test_what_fails_with_what_it_stands_on_adds_no_layer(tmp_path, monkeypatch):
    folder, chapter = make_work(tmp_path), find_chapter(5)
    status = {one.id: "passed" for one in chapter.exercises} | {"5.6": "failed", "5.7": "failed"}
    monkeypatch.setattr(mine.passed, "judge", lambda *_: mine.passed.sound(chapter, status))
    _change(folder, chapter.name)
    with pytest.raises(
        Refused, match=r"05_sampler: 5\.6 of \S+ does not.*Or take ours: --reference"
    ) as said:
        mine.choose([], folder)
    assert "--reference stopping for stopping.py alone" in str(said.value)
    assert "5.7" not in str(said.value)
    plans = mine.choose(["stopping"], folder)  # what was named is enough
    assert "detokenizer" in next(plan.mine for plan in plans if plan.chapter == chapter)
    monkeypatch.setattr(mine.passed, "judge", lambda found, _: pytest.fail("judged once more"))
    mine.choose(["stopping"], folder)


def test_what_is_not_written_is_not_excused_by_what_it_stands_on():
    chapter = find_chapter(5)
    status = {one.id: "passed" for one in chapter.exercises}
    for five_seven in ("not attempted", "missing", "error"):
        found = mine.passed.sound(chapter, status | {"5.6": "failed", "5.7": five_seven})
        assert found == ["5.1", "5.2", "5.3", "5.4", "5.5", "5.8"]


def test_it_says_how_many_files_are_still_to_be_judged(tmp_path, monkeypatch, capsys):
    folder = make_work(tmp_path)
    monkeypatch.setattr(
        mine.passed, "judge", lambda found, _: [one.id for one in found.chapter.exercises]
    )
    for name in ("05_sampler", "07_server"):
        _change(folder, name)
    mine.choose([], folder)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("judging ")
    assert first.endswith("05_sampler.ipynb (1 of 2; once for each version of a file) ...")
    assert second.endswith("07_server.ipynb (2 of 2) ...")
    mine.choose([], folder)
    assert capsys.readouterr().err == ""


def test_a_provided_definition_that_is_gone_is_named(tmp_path):
    chapter = find_chapter(4)
    notebook = notebooks.build_notebook(chapter, solved=True)
    for cell in notebook["cells"]:
        text = "".join(cell["source"]).replace("class CacheFull", "class Full")
        cell["source"] = text.splitlines(keepends=True)
    notebooks.write(notebook, tmp_path / f"{chapter.name}.ipynb")
    with pytest.raises(Refused, match="does not define CacheFull"):
        mine.choose(OTHERS, tmp_path)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("#| exercise 5.4\nx = = 3", "5.4 does not parse: line 2, invalid syntax: 'x = = 3'"),
        ("# exercise 5.4\nx = 3", "make that `#| exercise 5.4`"),
        (None, "has no cell that begins with `#| exercise 5.4`"),
    ],
)
def test_of_a_cell_that_cannot_be_read_is_said_what_check_says(source, words, tmp_path):
    chapter = find_chapter(5)
    notebook = notebooks.build_notebook(chapter, solved=True)
    replace_cell(notebook, "5.4", source)
    notebooks.write(notebook, tmp_path / f"{chapter.name}.ipynb")
    others = ["loader", "quantizer", "forward_pass", "batcher", "server", "monitoring"]
    with pytest.raises(Refused) as refused:
        mine.choose(others, tmp_path)
    said = str(refused.value)
    assert words in said
    assert "does not define" not in said
    ways = "Or take ours: --reference sampler.py for sampler.py alone, or --reference sampler for"
    assert ways in said
    assert said.count("--reference") == 2


def test_where_all_of_a_chapter_is_wrong_there_is_one_way_out(tmp_path, monkeypatch):
    folder = make_work(tmp_path)
    monkeypatch.setattr(mine.passed, "judge", lambda *_: [])
    _change(folder, "05_sampler")
    with pytest.raises(Refused) as refused:
        mine.choose([], folder)
    assert str(refused.value).endswith("says why. Or take ours: --reference sampler")


INSTALLED = """
import sys
from course import mine
mine.install(mine.choose({names!r}))
from course.assemble import REFERENCE
from solutions import admission, batcher, kv_cache, request, service
print(*[vars(REFERENCE[name])["__name__"] for name in ("loader", "sampler", "batcher")])
print(admission.__name__, admission.CacheFull is kv_cache.CacheFull)
print(batcher.admit is admission.admit, service.Parts().Request is request.Request)
"""


def test_later_layers_are_built_on_the_learners_earlier_ones(work):
    run = course(work, code=INSTALLED.format(names=[]))
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[:3] == [
        "mine_02_loader mine_05_sampler mine_06_batcher",
        "mine_06_batcher True",
        "True True",
    ]


def test_a_module_switched_back_serves_the_others_of_its_chapter(work):
    run = course(work, code=INSTALLED.format(names=["admission", "sampler"]))
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[:3] == [
        "mine_02_loader solutions.sampler mine_06_batcher",
        "solutions.admission True",
        "True True",
    ]


def test_layers_that_were_imported_before_are_not_passed_over(work):
    from solutions import loader  # noqa: F401

    with pytest.raises(RuntimeError, match=r"solutions\.\w+ was imported before"):
        mine.install(mine.choose([], work), work)


def test_the_verb_says_in_words_what_it_needs(tmp_path):
    run = course(tmp_path, "serve", "--mine")
    assert run.returncode == 1
    assert run.stderr.startswith("serve: these chapters cannot be put together yet:")
    assert "Traceback" not in run.stderr
    run = course(tmp_path, "serve", "--reference", "batcher")
    assert [run.returncode, run.stderr.count("\n")] == [2, 1]
    assert "goes with --mine" in run.stderr


def test_help_tells_of_it(tmp_path):
    run = course(tmp_path, "serve", "--help")
    assert run.returncode == 0
    assert "--mine" in run.stdout
    assert "--reference NAME" in run.stdout


def test_what_a_layer_raises_at_the_start_is_told_with_its_place(monkeypatch, capsys):
    from course import serve as verb

    def fails(_):
        raise TypeError("no such dtype")

    monkeypatch.setattr(verb, "main", fails)
    monkeypatch.setattr(mine.mine_places, "raised", lambda *_: "\n  raised in work/02_loader.py")
    assert mine.serve([]) == 1
    said = "serve: it could not start: TypeError: no such dtype\n  raised in work/02_loader.py\n"
    assert capsys.readouterr().err == said
    monkeypatch.setattr(mine.mine_places, "raised", lambda *_: "")
    with pytest.raises(TypeError):  # ours: it keeps its traceback
        mine.serve([])
