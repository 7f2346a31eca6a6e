"""The drills as a learner meets them: the list, the answers, the debriefs, the end."""

import os
import re
import signal
import subprocess
import sys

import httpx
import psutil
import pytest

from course import drill
from course.drills import DRILLS
from course.drills.causes import CAUSES, NUDGES
from course.paths import ROOT
from solutions.diagnose import NEXT
from solutions.metrics import COUNTERS, GAUGES, HISTOGRAMS

ANSWERS = [(name, cause) for name in DRILLS for cause in CAUSES]


def play(tmp_path, *argv: str) -> subprocess.Popen:
    """The verb in a process of its own, which can be typed at."""
    return subprocess.Popen(
        [sys.executable, "-m", "course", "drill", *argv],
        cwd=ROOT,
        env={**os.environ, "COURSE_WORK": str(tmp_path), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def address(said: str) -> str:
    return re.search(r"(http://\S+)/dashboard", said)[1]


def test_there_is_a_drill_for_every_fault_that_must_be_known():
    assert {one.cause for one in DRILLS.values()} == {
        "huge_request",
        "memory_leak",
        "garbled_output",
        "stuck_engine",
        "slow_client",
        "collector_pauses",
        "queue_storm",
        "nothing",
    }
    assert len(DRILLS) == 8


def test_the_causes_are_those_of_the_chapter_and_nothing():
    assert list(CAUSES) == [*NEXT, "nothing"]
    assert list(NUDGES) == list(CAUSES)


@pytest.mark.parametrize(("name", "cause"), ANSWERS, ids=[f"{n}-{c}" for n, c in ANSWERS])
def test_the_right_answer_passes_and_each_wrong_one_gets_its_nudge(name, cause, capsys):
    code = drill.main([name, "--answer", cause.replace("_", " ").title()])
    said = " ".join(capsys.readouterr().out.split())
    if cause == DRILLS[name].cause:
        assert code == 0
        assert said.startswith(f"Right: {CAUSES[cause]}.")
        assert "The fix." in said
    else:
        assert code == 1
        assert said == f"Not that. {NUDGES[cause]}"


@pytest.mark.parametrize("cause", CAUSES)
def test_a_nudge_names_what_to_look_at(cause):
    known = {*COUNTERS, *GAUGES, *HISTOGRAMS}
    series = {re.sub(r"_(count|sum)$", "", name) for name in re.findall(r"llm_\w+", NUDGES[cause])}
    assert series <= known
    assert series or cause == "nothing"


@pytest.mark.parametrize("name", DRILLS)
def test_neither_name_nor_ticket_gives_the_cause_away(name, capsys):
    assert drill.main([]) == 0
    shown = capsys.readouterr().out.lower()
    assert name in shown
    one = DRILLS[name]
    for word in {*one.cause.split("_"), "metric", "collector", "dtype", "leak", "cache"}:
        assert word not in f"{name} {one.ticket}".lower().split()


@pytest.mark.parametrize("name", DRILLS)
def test_a_debrief_says_what_was_seen_what_it_is_not_where_in_the_logs_and_the_fix(name):
    text = drill.debrief(name)
    for part in ("*What was seen.*", "*Not to be taken for.*", "*In the logs.*", "*The fix.*"):
        assert part in text
    assert len(text.split("\n")) < 35  # half a page
    assert "<" not in text
    if DRILLS[name].cause != "nothing":
        assert f"`{DRILLS[name].cause}`" in text


def test_what_is_no_drill_or_no_cause_is_named(capsys):
    assert drill.main(["someday"]) == 2
    assert "there is no drill 'someday'" in capsys.readouterr().err
    assert drill.main(["monday", "--answer", "gremlins"]) == 1
    said = capsys.readouterr().out
    assert "'gremlins' is none of the causes" in said
    assert all(cause in said for cause in CAUSES)


@pytest.mark.parametrize(
    "answer",
    [
        "huge_request.", "`huge_request`", " Huge  Request! ", '"huge-request"', "(huge request)",
        "HUGE_REQUEST\r\n", "“huge request”", "huge - request", "huge__request?",
    ],
)  # fmt: skip
def test_an_answer_may_be_written_in_many_ways(answer, capsys):
    assert drill.main(["monday", "--answer", answer]) == 0
    assert capsys.readouterr().out.startswith("Right: ")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("memory leek", "memory_leak"),
        ("Quue storm!", "queue_storm"),
        ("stuck_engines", "stuck_engine"),
        ("colector pauses", "collector_pauses"),
        ("nothin", "nothing"),
    ],
)
def test_a_typo_is_asked_about(typed, meant, capsys):
    assert drill.main(["monday", "--answer", typed]) == 1
    assert capsys.readouterr().out == (f"{typed!r} is none of the causes: did you mean {meant}?\n")


def test_what_is_like_no_cause_is_shown_as_it_was_typed(capsys):
    assert drill.main(["monday", "--answer", " The GPU, I think "]) == 1
    said = capsys.readouterr().out
    assert said.startswith("'The GPU, I think' is none of the causes:\n")
    assert all(f"  {cause} " in said for cause in CAUSES)


def test_list_is_a_question_and_no_answer(capsys):
    for answer, code in (("list", 0), ("LIST ", 0), ("?", 0), ("", 1)):
        assert drill.main(["monday", "--answer", answer]) == code
        assert capsys.readouterr().out == drill.causes() + "\n"


@pytest.mark.parametrize("name", ["Monday", "monday ", " MONDAY.", "monday"])
def test_a_drill_is_found_however_it_is_written(name, capsys):
    assert drill.main([name, "--answer", "huge_request"]) == 0
    assert "A huge request." in capsys.readouterr().out


def test_a_drill_with_a_typo_is_asked_about(capsys):
    assert drill.main(["wensday"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("drill: there is no drill 'wensday': did you mean wednesday?\n")
    assert all(name in said for name in DRILLS)


@pytest.mark.parametrize(
    ("seconds", "words"), [(60, "1 minute"), (90, "1.5 minutes"), (600, "10 minutes")]
)
def test_one_minute_is_no_plural(seconds, words):
    assert drill._minutes(seconds) == words


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--answer", "nothing"], "--answer needs the NAME of the drill"),
        (["--random", "--answer", "nothing"], "--answer needs the NAME of the drill"),
        (["monday", "--calm", "600"], "--calm 600 s is as long as the whole drill (--minutes 10)"),
        (["monday", "--minutes", "0.1"], "the incident would never begin"),
        (["monday", "--minutes", "1e300"], "must be above 0 and below a million, not '1e300'"),
        (["monday", "--calm", "nan"], "must be above 0 and below a million, not 'nan'"),
        (["monday", "--calm", "-1"], "must be above 0 and below a million, not '-1'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(argv, words, capsys):
    with pytest.raises(SystemExit) as ended:
        drill.main(argv)
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""


def test_the_list_needs_nothing_heavy():
    code = "import sys; from course import drill; drill.main([]); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_it_is_answered_at_the_prompt_and_leaves_no_server(tmp_path):
    run = play(tmp_path, "payday", "--calm", "0.1")
    said, err = run.communicate("list\nmemory leak\nnothing\n")
    assert run.returncode == 0, err
    text = " ".join(said.split())
    assert "3 people ask, each again 1.5 s after the answer." in text
    assert "The dashboard does not show everything: /metrics has more." in text
    assert "stopping the server; it may take 20 s" in text
    assert NUDGES["memory_leak"] in text
    assert text.index(NUDGES["memory_leak"]) < text.index("Right: nothing is wrong.")
    assert all(cause in said for cause in CAUSES)
    logs = list((tmp_path / "drills").glob("payday-*"))
    assert len(logs) == 1
    assert str(logs[0]) in said
    assert "drained" in (logs[0] / "server.log").read_text(encoding="utf-8")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address(said)}/health")


def test_it_ends_by_itself(tmp_path):
    run = play(tmp_path, "payday", "--minutes", "0.03", "--calm", "1")
    said = ""
    for line in run.stdout:  # stdin stays open: nobody types
        said += line
    assert run.wait() == 1
    assert "The time is over." in said
    assert DRILLS["payday"].ticket[:40] in said
    run.stdin.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address(said)}/health")


@pytest.mark.skipif(sys.platform == "win32", reason="a signal of Ctrl-C alone does not exist there")
def test_ctrl_c_stops_the_server_too(tmp_path):
    run = play(tmp_path, "payday")
    said = ""
    while "Your answer" not in said:
        said += run.stdout.readline()
    run.send_signal(signal.SIGINT)
    rest, err = run.communicate()
    assert run.returncode == 130
    assert "stopping the server" in rest
    assert "Your answer later: python -m course drill payday --answer CAUSE" in err
    assert "Traceback" not in err
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address(said)}/health")


def test_a_server_that_ends_is_told_of_at_once(tmp_path):
    run = play(tmp_path, "payday")
    said = ""
    while "Your answer" not in said:
        said += run.stdout.readline()
    (server,) = psutil.Process(run.pid).children()
    server.kill()
    rest = ""
    for line in run.stdout:  # stdin stays open: nobody types
        rest += line
    assert run.wait() == 1
    assert "The server has ended by itself" in rest
    assert "server.log" in rest
    run.stdin.close()


def _alone(tmp_path, stdin: str) -> subprocess.CompletedProcess:
    """The verb in a shell, with nobody who types."""
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -m course drill payday {stdin}', sys.executable],
        cwd=ROOT,
        env={**os.environ, "COURSE_WORK": str(tmp_path)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no sh")
@pytest.mark.parametrize("stdin", ["<&-", "</dev/null"])
def test_without_anybody_to_ask_it_says_so_before_anything_is_loaded(tmp_path, stdin):
    run = _alone(tmp_path, stdin)
    assert run.returncode == 1
    assert run.stderr == ""
    assert run.stdout == (
        "nobody to ask here: answer with python -m course drill payday --answer CAUSE\n"
    )


def test_whoever_leaves_in_the_middle_is_told_how_to_answer_later(tmp_path):
    run = play(tmp_path, "payday")
    said, _ = run.communicate("list\n")
    assert run.returncode == 1
    assert "nobody to ask here" in said.split("cause>")[-1]
