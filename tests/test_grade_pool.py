"""Several judges at work; in their place stand objects that do as they are told."""

import threading
from pathlib import Path

import pytest

from course.grading import pool
from course.grading.entries import Entry

JUDGES = 4
GUARD = 20.0  # seconds after which a judge that should have been killed gives up


class Class:
    """Judges of one submission each. That of one slot has a result at once, the others none."""

    def __init__(self, first: int):
        self.first, self.made = first, []
        self.all_at_work = threading.Barrier(JUDGES)

    def judge(self, order: dict) -> "Told":
        """A new one, in place of pool.Judge."""
        self.made.append(Told(self, order["slot"]))
        return self.made[-1]


class Told:
    """A judge that is its own process."""

    def __init__(self, others: Class, slot: int):
        self.sandbox, self._process = "plain: nothing", self
        self._others, self._slot, self.killed = others, slot, threading.Event()

    def ask(self, task: pool.Task) -> None:
        self._others.all_at_work.wait(GUARD)

    def hear(self) -> dict:
        if self._slot == self._others.first:
            return {"done": ""}
        self.killed.wait(GUARD)
        raise pool.GraderError("the judge's process ended")

    def kill(self) -> None:
        self.killed.set()

    def close(self) -> None:
        """It has nothing to end."""


def stopped(monkeypatch, first: int) -> tuple[list[Told], list[pool.Graded]]:
    """A run in which the first result cannot be written: the judges made, the results that came."""
    judges, came = Class(first), []

    def done(graded: pool.Graded) -> None:
        came.append(graded)
        raise OSError("the disk is full")

    monkeypatch.setattr(pool, "Judge", judges.judge)
    monkeypatch.setattr(pool.secrets, "randbelow", lambda _: 0)  # the first slot is number 0
    tasks = [pool.Task(Entry(Path(f"{n}.py")), [], {}) for n in range(JUDGES)]
    with pytest.raises(OSError, match="the disk is full"):
        pool.Pool({}, JUDGES).run(tasks, lambda: None, done)
    return judges.made, came


def test_a_judge_killed_at_the_end_is_not_replaced_and_its_submission_has_no_result(monkeypatch):
    made, came = stopped(monkeypatch, first=0)
    assert len(made) == JUDGES
    assert [graded.told for graded in came] == [{"done": ""}]


def test_an_error_in_any_thread_is_heard_at_once(monkeypatch):
    """Not only when all threads before it have done their work."""
    made, came = stopped(monkeypatch, first=JUDGES - 1)
    assert all(judge.killed.is_set() for judge in made)
    assert len(came) == 1
