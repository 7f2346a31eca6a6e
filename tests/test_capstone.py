"""How the capstone goes from check to check: on servers that are only pretended."""

import io
import json
import random
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from course import background, capstone_run, capstone_words, mine, mine_places
from course.capstone_checks import CHECKS, Check
from course.capstone_target import Failed
from course.mine import Plan
from course.paths import ROOT
from course.submission import build
from tests.learner_kit import make_work


class Server:
    """A target, its process, and whether something is left under way in it."""

    def __init__(self):
        self.left, self.code, self.killed = False, None, False
        self.process, self.logs = self, Path("there are none")

    def poll(self):
        return self.code

    def kill(self):
        self.killed, self.code = True, -9

    def empty(self, seconds: float = 30.0) -> None:
        if self.left:
            raise Failed("there is something left")


def run(*functions):
    """What was told of each check, and the servers that were started."""
    servers, told = [], []

    @contextmanager
    def start():
        servers.append(Server())
        yield servers[-1]

    checks = [Check(one.__name__, "It holds.", ("batcher",), one) for one in functions]
    capstone_run.run(start, checks, lambda check, problem: told.append((check.name, problem)))
    return told, servers


def passes(at) -> None:
    assert not at.left  # what the last one left would spoil it
    assert at.code is None


def leaves(at) -> None:
    at.left = True
    raise Failed("6 left; 0 ended")


def leaves_in_silence(at) -> None:
    at.left = True


def ends(at) -> None:
    at.code = 1
    raise ConnectionRefusedError("nobody listens")


def has_no_metrics(at) -> None:
    def empty(seconds):
        raise KeyError("llm_requests_running")

    at.empty = empty
    raise KeyError("llm_requests_running")


def test_a_check_that_leaves_requests_does_not_spoil_the_next(capsys):
    told, servers = run(passes, leaves, passes, leaves_in_silence, passes)
    assert told == [
        ("passes", None),
        ("leaves", "6 left; 0 ended"),
        ("passes", None),
        ("leaves_in_silence", None),
        ("passes", None),
    ]
    assert [server.killed for server in servers] == [True, True, False]
    assert "left over from 'leaves': a new server" in capsys.readouterr().err


def test_a_server_that_ended_is_replaced():
    told, servers = run(ends, passes)
    problem = "the server has ended (ConnectionRefusedError: nobody listens)"
    assert told == [("ends", problem), ("passes", None)]
    assert len(servers) == 2


def test_without_metrics_a_new_server_would_not_help():
    told, servers = run(has_no_metrics, passes)
    assert "has not the shape that clients read" in told[0][1]
    assert told[1] == ("passes", None)
    assert len(servers) == 1


def test_where_everything_leaves_something_it_comes_to_an_end():
    told, servers = run(*[leaves] * 8)
    assert len(servers) == 1 + capstone_run.MOST_NEW
    assert told[3][1] == "6 left; 0 ended"
    assert told[5][1] == "6 left; 0 ended (requests are left over from 'leaves')"


def test_each_check_is_told_as_soon_as_it_is_over():
    seen = []

    def breaks_off(at) -> None:
        raise KeyboardInterrupt

    @contextmanager
    def start():
        yield Server()

    checks = [Check(one.__name__, "", (), one) for one in (passes, breaks_off, passes)]
    with pytest.raises(KeyboardInterrupt):
        capstone_run.run(start, checks, lambda check, _: seen.append(check.name))
    assert seen == ["passes"]


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda seed: str(random.random()), "seed 1, alone, gave"),
        (lambda seed: "always the same", "every seed gave"),
    ],
)
def test_a_seed_that_is_not_used_is_not_laid_on_the_others(draw, words):
    (check,) = [check for check in CHECKS if check.name == "sampling"]

    class Ignores:
        def complete(self, prompt, seed=None, **body) -> str:
            return draw(seed)

    with pytest.raises(Failed) as said:
        check.run(Ignores())
    assert words in str(said.value)
    assert "beside it" not in str(said.value)


FOLLOWS = """
import time
from course import background
background.follow_stdin(lambda: print("begun", flush=True))
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a sleep there hears of no signal")
def test_a_server_ends_with_the_end_of_its_stdin():
    child = subprocess.Popen(
        [sys.executable, "-c", FOLLOWS], cwd=ROOT, stdin=-1, stdout=-1, stderr=-1, text=True
    )
    said, err = child.communicate("begin\n")
    assert said == "begun\n"
    assert "KeyboardInterrupt" in err
    assert child.returncode != 0


# ---- What is said ----

TABLE = "this server is made of\n" + "  ab12…  solutions/loader.py  loader (reference)\n" * 40
WARM = "smollm2-135m-instruct at http://127.0.0.1:1, warming up\n"


def only(*modules: str) -> list[Plan]:
    """A learner who wrote nothing but these layers; all else is ours."""
    plans = []
    for chapter in mine.layers():
        own = tuple(module for module in chapter.modules if module in modules)
        ours = tuple(module for module in chapter.modules if module not in own)
        file = SimpleNamespace(shown_path=f"work/{chapter.name}.py", sha256="ab" * 32)
        plans.append(Plan(chapter, file if own else None, own, ours))
    return plans


def words_of(check: Check, *modules: str, problem: str = "it is wrong") -> str:
    return " ".join(capstone_words.told(check, problem, only(*modules)).split())


MODULES = [module for chapter in mine.layers() for module in chapter.modules]
ASIDE = {  # layers that no server under test runs: of other ways to read, measure or generate
    *("gguf_blocks", "quantize", "quantizer", "quality", "greedy", "comparing", "generate"),
    *("vitals", "diagnose", "upgrade_gate", "monitoring"),
}


def test_the_ways_hold_every_layer_that_serves_and_no_other():
    every = {module for check in CHECKS for module in (*check.layers, *way(check))}
    assert every == set(MODULES) - ASIDE
    assert {*capstone_words.LOADING, *capstone_words.FIRST} <= every
    assert set(capstone_words.WAYS) <= {check.name for check in CHECKS}


def way(check: Check) -> tuple[str, ...]:
    return capstone_words.WAYS.get(check.name, capstone_words.WAY)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_only_layer_that_is_ones_own_is_named_whichever_it_is(check):
    for module in {*check.layers, *way(check)}:
        said = words_of(check, module).split("look at: ")[1]
        assert said.startswith(f"{module} in work/")
        assert said.endswith("what is ours is known to pass")
        assert "solutions/" not in said


def test_ones_own_likely_layers_come_first_then_the_files_of_the_others():
    (check,) = [check for check in CHECKS if check.name == "one request"]
    said = words_of(check, "sampler", "batcher", "chat", "waiting", "diagnose")
    assert said.endswith(
        "look at: chat in work/04_forward_pass.py; batcher in work/06_batcher.py; "
        "also on its way: work/05_sampler.py; what is ours is known to pass"
    )
    assert "ours" not in words_of(check, *MODULES)


def test_a_failure_in_which_nothing_is_ones_own_is_not_laid_on_the_learner():
    (check,) = [check for check in CHECKS if check.name == "refusals"]
    assert "look at: none of your layers is on its way" in words_of(check, "sampler")


def test_what_would_move_a_terminal_is_not_said():
    said = capstone_words.told(CHECKS[0], "it said \x1b[2J\r\u202e", only("loader"))
    assert said.isascii()
    assert "\x1b" not in said
    assert "\r" not in said


def test_a_name_is_one_line_without_codes():
    text = capstone_words.summary([(CHECKS[0], None)], only(), "Ada\x1b[31m\nSHA-256 \x07 Lovelace")
    assert "built by Ada?[31m SHA-256 ? Lovelace\n" in text
    assert "built by you" in capstone_words.summary([], only(), " ")


def test_what_failed_is_named_in_the_last_line():
    found = [(CHECKS[0], None), (CHECKS[1], "no"), (CHECKS[3], "no")]
    last = capstone_words.summary(found, only(), "").splitlines()[-1]
    assert last.startswith(f"FAILED: {CHECKS[1].name}, {CHECKS[3].name} ")
    assert "FAILED" not in capstone_words.summary(found[:1], only(), "")


def test_a_frame_of_the_log_becomes_a_place_in_the_learners_file(tmp_path, monkeypatch):
    folder = make_work(tmp_path)
    monkeypatch.setattr(mine, "WORK", folder)
    plans = mine.choose([], folder)
    (plan,) = [plan for plan in plans if plan.chapter.slug == "sampler"]
    built = build(plan.submission, folder)
    part = next(part for part in built.parts if part.cell.exercise == "5.4")
    line = json.dumps(
        {
            "error": "RuntimeError",
            "frames": ["batcher.py:255 _try", f"{built.path.name}:{part.start + 1} sample"],
            "because": [{"error": "KeyError", "frames": ["05_sampler_00000000.py:1 pick"]}],
        }
    )
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "errors-2026-11-30.jsonl").write_text(f"old\n{line}\n", encoding="utf-8")
    target = SimpleNamespace(logs=logs)
    frame = capstone_run._raised(target, 1, "")
    assert frame == f"{built.path.name}:{part.start + 1} sample"
    assert capstone_run._raised(target, 2, "") == ""
    said = capstone_words.told(CHECKS[1], f"it answered 500 (raised in {frame})", plans)
    assert "05_sampler.ipynb, the cell of exercise 5.4, line 2" in " ".join(said.split())


@pytest.fixture
def start(tmp_path):
    """What is raised of a process that runs this code and never is a server that is ready."""

    def begin(code: str, seconds: float = 60, waiting=lambda *_: None) -> background.NotReady:
        said = tmp_path / "stderr"
        with said.open("wb") as stderr:
            child = subprocess.Popen([sys.executable, "-c", code], stderr=stderr)
        try:
            with pytest.raises(background.NotReady) as raised:
                background.address_when_ready(child, said, seconds, waiting)
        finally:
            child.kill()
            child.wait()
        return raised.value

    return begin


def test_the_exit_code_is_told_and_only_whole_lines(start):
    problem = start(
        f"import os, sys; sys.stderr.write({TABLE * 4!r}); sys.stderr.flush(); os._exit(3)"
    )
    first, *rest = str(problem).splitlines()
    assert first == "the server ended before it was ready, with exit code 3:"
    assert len(rest) == background.LAST
    assert set(rest) <= set(TABLE.splitlines())
    assert problem.said == TABLE * 4


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is killed by a signal there")
def test_a_signal_that_killed_it_is_named(start):
    problem = start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert str(problem) == "the server ended before it was ready, killed by SIGKILL"


def test_one_that_never_is_ready_has_no_exit_code(start):
    calls = []
    problem = start("import time; time.sleep(600)", 0.2, lambda *call: calls.append(call))
    assert problem.code is None
    assert problem.why == "the server is not ready after 0.2 s"
    assert calls


def test_a_server_that_takes_long_is_asked_where_it_stands_and_that_is_told(start, capsys):
    process, place = (
        SimpleNamespace(stdin=io.BytesIO()),
        "work/05_sampler.py, line 705: while True:",
    )
    waiting = capstone_run._Waiting(process)
    waiting(1.0, "")
    assert process.stdin.getvalue() == b""
    waiting(4.5, "")
    waiting(5.1, WARM)
    waiting(6.0, WARM)
    waiting(36.0, f"{WARM}{mine_places.NOW_IN}{place}\n")
    assert process.stdin.getvalue() == b"\n\n"
    first, second = capsys.readouterr().err.splitlines()
    assert first == "(waiting for the server, 5 s: computing its first request)"
    assert second.endswith(f"36 s: computing its first request; it stands in {place})")


def not_started(said: str, code: int | None, *own: str) -> str:
    why = "the server ended" if code is not None else "the server is not ready after 180 s"
    return capstone_words.not_started(background.NotReady(why, said, code), only(*own))


def test_a_first_request_that_fails_is_told_with_its_place_and_without_what_is_ours():
    place = "  raised in work/05_sampler.py, line 705, in the cell of exercise 5.4: raise Boom"
    said = not_started(f"{WARM}serve: it could not start: Boom()\n{place}\n", 1, "sampler")
    assert said.splitlines() == [
        "the server ended, while computing its first request",
        "  serve: it could not start: Boom()",
        f"  {place}",
    ]


def test_a_first_request_that_never_comes_back_is_told_with_where_it_stands():
    lines = [f"{mine_places.NOW_IN}work/05_sampler.py, line {n}\n" for n in (704, 705)]
    said = not_started(WARM + "".join(lines), None, "sampler")
    assert said.splitlines() == [
        "the server is not ready after 180 s: it is still computing its first request",
        "  it stands in work/05_sampler.py, line 705",
    ]


@pytest.mark.parametrize("code", [0, None])
def test_where_it_says_nothing_ones_own_layers_on_that_way_are_named(code):
    said = not_started(WARM, code, "sampler", "chat", "config")
    assert "it gave no reason" in said
    assert said.endswith("look at: sampler in work/05_sampler.py; what is ours is known to pass")
    said = not_started("", code, "sampler", "chat", "config")
    assert "while putting your layers" in said or "still putting your layers" in said
    assert said.endswith("look at: config in work/02_loader.py; what is ours is known to pass")
