"""How the capstone goes from check to check: on servers that are only pretended."""

import random
import subprocess
import sys
from contextlib import contextmanager

import pytest

from course import capstone_run
from course.capstone_checks import CHECKS, Check
from course.capstone_target import Failed
from course.paths import ROOT


class Server:
    """A target, its process, and whether something is left under way in it."""

    def __init__(self):
        self.left, self.code, self.killed = False, None, False
        self.process = self

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
