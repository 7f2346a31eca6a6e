"""A whole verdict, with the learner's code in its own process."""

import ast
import copy
import inspect
from types import SimpleNamespace

import pytest
import torch

from course import desk, verdict
from course.cases import Wrong, expect_tensor
from course.judge import Court, _spoken_of, judge
from course.manifest import Chapter
from course.progress import Progress
from course.remote import NO_END, Remote
from course.runner import _differ
from course.submission import SubmissionError, find_submission, read_submission
from tests.misconceptions import forward_pass as wrong

SEED = 7


def judged(submission, exercise_id: str):
    return judge(submission, submission.chapter.exercise(exercise_id), SEED)


def test_the_solved_notebook_gets_full_marks(submit, solved, chapter: Chapter):
    submission = submit(solved)
    verdicts = [judge(submission, exercise, SEED) for exercise in chapter.exercises]
    assert [v.status for v in verdicts] == ["passed"] * len(verdicts)
    assert sum(v.points for v in verdicts) == chapter.points


def test_the_untouched_notebook_scores_zero(submit, untouched, chapter: Chapter):
    submission = submit(untouched)
    verdicts = [judge(submission, exercise, SEED) for exercise in chapter.exercises]
    assert {v.status for v in verdicts} == {"not attempted"}
    assert sum(v.points for v in verdicts) == 0


def test_a_stub_in_other_words_is_not_attempted_either(submit, untouched):
    body = "raise NotImplementedError('exercise 4.1: later')"
    cell = f"#| exercise 4.1\ndef rms_norm(x, weight, eps):\n    {body}"
    assert judged(submit(untouched, ex4_1=cell), "4.1").status == "not attempted"


def test_a_half_done_exercise_fails_and_says_what_is_missing(submit, untouched, solved):
    whole = source_of(solved, "4.2")
    half = whole.replace(
        body_of(whole, "apply_rope"), '    raise NotImplementedError("exercise 4.2: apply_rope")'
    )
    result = judged(submit(untouched, ex4_2=half), "4.2")
    assert (result.status, result.points) == ("failed", 0)
    assert "not written yet: exercise 4.2: apply_rope" in result.failure.message
    assert 0 < result.passed < result.cases


def test_a_cell_that_does_not_parse_fails_alone(submit, solved):
    submission = submit(solved, ex4_1="#| exercise 4.1\ndef rms_norm(x, weight, eps)\n    return x")
    result = judged(submission, "4.1")
    assert result.status == "error"
    assert "does not parse: line 2" in result.reason
    assert judged(submission, "4.2").status == "passed"
    assert "it uses 4.1" in judged(submission, "4.6").reason


def test_a_notebook_magic_in_an_exercise_is_named(submit, solved):
    result = judged(submit(solved, ex4_1="#| exercise 4.1\n%time\ndef rms_norm(x): ..."), "4.1")
    assert "notebook magics do not belong" in result.reason


def test_a_removed_cell_is_missing(submit, solved):
    result = judged(submit(solved, ex4_4=None), "4.4")
    assert (result.status, result.points) == ("missing", 0)
    assert "#| exercise 4.4" in result.reason


def test_a_renamed_function_is_named(submit, solved):
    cell = source_of(solved, "4.1").replace("def rms_norm", "def my_norm")
    result = judged(submit(solved, ex4_1=cell), "4.1")
    assert result.status == "error"
    assert "does not define rms_norm" in result.reason


def test_two_cells_for_one_exercise_are_refused(submit, solved):
    cell = source_of(solved, "4.1")
    result = judged(submit(solved, ex4_4=cell), "4.1")
    assert "2 cells begin with" in result.reason


def test_importing_the_reference_is_not_an_answer(submit, solved):
    cell = "#| exercise 4.1\nfrom solutions.forward_pass import rms_norm"
    result = judged(submit(solved, ex4_1=cell), "4.1")
    assert (result.status, result.points) == ("error", 0)
    assert "imports the chapter's own solution" in result.reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import sys; sys.exit(0)", "it raised SystemExit"),
        ("import os; os._exit(0)", "ended the Python process"),
        ("return None", "should be a tensor, but is None"),
        ("return x.tolist()", "should be a tensor, but is list"),
        ("return x[..., :1] * weight[:1]", "has shape"),
        ("return (x * weight).double()", "has dtype float64"),
        ("return x * float('nan')", "not finite"),
        ("x.mul_(0); return x", "changed its argument"),
        ("return 1 / 0", "it raised ZeroDivisionError"),
        ("print('x' * 10**7); return x", "differs"),
    ],
)
def test_broken_code_gets_a_reason(submit, untouched, body, reason):
    cell = f"#| exercise 4.1\ndef rms_norm(x, weight, eps):\n    {body}"
    result = judged(submit(untouched, ex4_1=cell), "4.1")
    assert result.points == 0
    message = result.failure.message if result.failure else result.reason
    assert reason in message
    assert len(result.printed) <= 4000


def test_a_loop_without_an_end_is_stopped(submit, untouched, monkeypatch):
    monkeypatch.setattr("course.judge.SECONDS", 1.0)
    cell = "#| exercise 4.1\ndef rms_norm(x, weight, eps):\n    while True: pass"
    result = judged(submit(untouched, ex4_1=cell), "4.1")
    assert result.points == 0
    assert "did not finish in time" in (result.failure.message if result.failure else result.reason)


@pytest.mark.parametrize("harm", ["while True: pass", "import os; os._exit(3)"])
def test_a_cell_that_never_ends_costs_the_others_nothing(submit, solved, monkeypatch, harm):
    monkeypatch.setattr("course.loading.SECONDS", 8.0)
    submission = submit(solved, ex4_7=source_of(solved, "4.7") + f"\n{harm}")
    assert judged(submission, "4.4").status == "passed"
    own = judged(submission, "4.7")
    assert own.status == "error"
    assert "the cell of exercise 4.7 does not run" in own.reason


def test_an_exercise_below_that_does_not_run_is_named(submit, solved):
    submission = submit(solved, ex4_2=source_of(solved, "4.2") + "\n1 / 0")
    reason = judged(submission, "4.6").reason
    assert "the cell of exercise 4.2 does not run: it raised ZeroDivisionError" in reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import torch; return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)", "a Tensor"),
        ("import os; os.close(0); os.close(1); return x * weight", "differs"),
        ("import sys; sys.stdout.close(); return x * weight", "differs"),
        ("return {(1, 2): x}", "a dict"),
        ("return 10 ** 10000", "what cannot be compared"),
        ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()", "it raised Odd"),
        ("raise NotImplementedError('bf16 not yet')", "it raised NotImplementedError: bf16"),
        ("print('\\x1b[2J'); return x", "differs"),
    ],
)
def test_odd_answers_are_judged_like_others(submit, untouched, body, reason):
    cell = f"#| exercise 4.1\ndef rms_norm(x, weight, eps):\n    {body}"
    submission = submit(untouched, ex4_1=cell)
    result = judged(submission, "4.1")
    assert result.points == 0
    assert reason in result.failure.message
    assert "\x1b" not in verdict.render(result, submission, 3)


def test_a_helper_in_an_unmarked_cell_is_found(submit, untouched):
    cell = "#| exercise 4.1\ndef rms_norm(x, weight, eps):\n    return helper(x)"
    notebook = copy.deepcopy(untouched)
    notebook["cells"][1]["source"] = ["def helper(x): return x\n"]
    result = judged(submit(notebook, ex4_1=cell), "4.1")
    assert "only marked cells" in result.failure.message


def test_interleaved_pairs_are_told_exactly_that(submit, solved):
    whole = source_of(solved, "4.2")
    body = inspect.getsource(wrong.interleaved_pairs)
    statements = ast.parse(body).body[0].body[1:]
    code = "\n".join("    " + line for s in statements for line in ast.unparse(s).split("\n"))
    result = judged(submit(solved, ex4_2=whole.replace(body_of(whole, "apply_rope"), code)), "4.2")
    assert result.misconception == "interleaved_pairs"
    text = verdict.render(result, submit(solved), hints_left=3)
    assert "neighbour" in text
    assert "README.md#rotate" in text
    assert f"check 4.2 --seed {SEED}" in text
    assert "3 hints left" in text


def test_an_exercise_that_rests_on_a_wrong_one_says_where_to_begin(submit, solved):
    cell = "#| exercise 4.1\ndef rms_norm(x, weight, eps):\n    return x * weight"
    result = judged(submit(solved, ex4_1=cell), "4.6")
    assert result.status == "failed"
    assert "4.1" in result.failure.likely


class OutOfTime(Remote):
    """A worker whose time is over when exercise 4.1 is asked for itself."""

    def answer(self, request: dict) -> dict:
        if request["name"] == "rms_norm":
            self._end(NO_END)
        return super().answer(request)


def test_for_want_of_time_no_exercise_below_is_called_wrong(submit, solved, tmp_path):
    """It shares the time of the exercise that uses it; what is left may be too little for it."""
    cell = source_of(solved, "4.6").replace(
        "return self.linear(self.norm", "return 1.5 * self.linear(self.norm"
    )
    submission = submit(solved, ex4_6=cell)
    court = Court(SimpleNamespace(take=OutOfTime), folder=tmp_path)
    result = judge(submission, submission.chapter.exercise("4.6"), SEED, court)
    assert result.status == "failed"
    assert result.failure.likely == ""
    assert court.right == {}  # nothing is known of 4.1 either when it is judged itself


def test_a_refusal_by_a_right_exercise_points_to_the_call(submit, solved):
    whole = source_of(solved, "4.6")
    cell = whole.replace(
        "cache.write(layer, rows, positions, k, v)", "cache.write(layer, rows + 7, positions, k, v)"
    )
    result = judged(submit(solved, ex4_6=cell), "4.6")
    assert result.failure.likely.startswith("Exercise 4.5 is right, and refused what it was asked")
    assert "the cell of exercise 4.6" in result.failure.place
    assert "rows + 7" in result.failure.place


def test_the_verdict_names_the_file_its_hash_and_its_time(submit, solved):
    submission = submit(solved)
    text = verdict.render(judged(submission, "4.4"), submission, hints_left=3)
    assert submission.sha256[:16] in text
    assert submission.path.name in text
    assert f"{submission.saved_at:%Y-%m-%d %H:%M:%S}" in text


def test_the_line_is_that_of_the_definition_which_the_failed_check_is_about(submit, solved):
    whole = source_of(solved, "4.2")
    cell = whole.replace(body_of(whole, "apply_rope"), "    return x + 0 * cos.sum()")
    result = judged(submit(solved, ex4_2=cell), "4.2")
    assert "def apply_rope" in result.failure.place


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ([3, 1], [1, 3], True),
        ({"a": [1]}, {"a": [2]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ([torch.ones(2)], [torch.zeros(2)], True),
        ([1], [True], True),
        ([float("nan"), "x", None], [float("nan"), "x", None], False),
        ({"a": (torch.ones(2), 1)}, {"a": (torch.ones(2), 1)}, False),
        (torch.tensor([NAN, 1.0]), torch.tensor([NAN, 1.0]), False),
        (torch.tensor([NAN, 1.0]), torch.tensor([0.0, 1.0]), True),
        (torch.tensor([-INF]), torch.tensor([torch.finfo(torch.float32).min]), True),
        (torch.ones(2), torch.ones(2, 1), True),
    ],
)
def test_a_change_inside_an_argument_is_seen(old, new, changed):
    assert _differ(old, new) is changed


@pytest.mark.parametrize("got", [0.0, -1e30, float("inf"), float("nan")])
def test_only_minus_infinity_is_close_to_minus_infinity(got):
    hidden = torch.tensor([1.0, float("-inf")])
    with pytest.raises(Wrong):
        expect_tensor(torch.tensor([1.0, got]), hidden, atol=1e-6, rtol=1e-6)
    expect_tensor(hidden.clone(), hidden, atol=1e-6, rtol=1e-6)


def test_where_nothing_says_which_definition_is_meant_no_line_is_shown():
    several = ("pack", "unpack")
    assert _spoken_of(("a series of calls", "unpack returned"), several) == ["unpack"]
    assert _spoken_of(("", "wrong", "pack_of_ones"), several) == ["pack"]
    assert _spoken_of(("packing", "packed"), several) == []
    assert _spoken_of(("", "wrong"), ("KVCache",)) == ["KVCache"]


def test_an_exception_is_shown_at_its_line_in_the_notebook(submit, untouched):
    cell = "#| exercise 4.1\ndef rms_norm(x, weight, eps):\n    y = x\n    return y.no_such_thing"
    result = judged(submit(untouched, ex4_1=cell), "4.1")
    assert "line 4: return y.no_such_thing" in result.failure.place


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"not json", "is not a notebook"),
        (b"{}", "is not a notebook"),
        (b'{"cells": [{"cell_type": "code", "source": "x = 1"}]}', "no cell that begins with"),
        (b"[" * 100_000, "is not a notebook"),
        (b"\xff\xfe\x00", "is not a notebook"),
    ],
)
def test_a_file_that_is_no_submission_is_refused(chapter, tmp_path, data, reason):
    path = tmp_path / f"{chapter.name}.ipynb"
    path.write_bytes(data)
    with pytest.raises(SubmissionError, match=reason):
        read_submission(chapter, path)


def test_a_renamed_or_missing_file_is_named(chapter, tmp_path):
    with pytest.raises(SubmissionError, match="python -m course start 4"):
        find_submission(chapter, tmp_path)


def test_two_files_for_one_chapter_are_refused(chapter, tmp_path):
    for suffix in (".ipynb", ".py"):
        (tmp_path / f"{chapter.name}{suffix}").write_text("x", encoding="utf-8")
    with pytest.raises(SubmissionError, match=r"\.ipynb and .*\.py"):
        find_submission(chapter, tmp_path)


def test_check_records_the_verdict(submit, solved, chapter, tmp_path, monkeypatch, capsys):
    submission = submit(solved)
    monkeypatch.setattr(desk, "Progress", lambda: Progress(tmp_path))
    desk.check("4.4", read=lambda _: submission, seed=SEED)
    assert "passed" in capsys.readouterr().out
    entry = Progress(tmp_path).get("4.4")
    assert (entry["status"], entry["points"], entry["sha256"]) == ("passed", 6, submission.sha256)


def source_of(notebook: dict, exercise: str) -> str:
    mark = f"#| exercise {exercise}"
    return next(s for c in notebook["cells"] if (s := "".join(c["source"])).startswith(mark))


def body_of(source: str, function: str) -> str:
    """The lines of a function behind its docstring."""
    node = next(n for n in ast.walk(ast.parse(source)) if getattr(n, "name", "") == function)
    return "\n".join(source.split("\n")[node.body[0].end_lineno : node.end_lineno])
