"""Mutants put before the cases of their exercise, each in a process of its own.

Where the platform forks, torch and the cases are loaded once and every process starts with them.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from course import manifest
from course.judge import cases_for
from course.manifest import Chapter, Exercise
from course.mutate import Mutant, mutated_source
from course.runner import Runner
from course.trial import Local, run_cases

FORKS = "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"
SLOWER = (
    10  # a mutant may take that many times as long as the answer itself, and GRACE seconds more
)
GRACE = 10.0
MEMORY = 2 * 2**30  # bytes on top of what torch and the cases have


@dataclass(frozen=True)
class Result:
    """What became of a mutant: killed by a case, by "time" or by its "end"; "" when it survived."""

    killer: str
    reason: str
    times: dict[str, float]  # seconds, by case that was run
    seconds: float  # in all


class Broken(Exception):
    """The answer itself does not pass its cases, so that nothing can be said of its mutants."""


@dataclass
class _Running:
    key: object
    process: multiprocessing.Process
    began: float
    limit: float

    @property
    def left(self) -> float:
        return self.began + self.limit - time.monotonic()


class Trials:
    """Runs mutants, several at once.

    Args:
        jobs: processes at a time.
        seed: of the cases.
    """

    def __init__(self, jobs: int, seed: int):
        self.jobs, self.seed = jobs, seed
        self.context = multiprocessing.get_context("fork" if FORKS else "spawn")
        self.limits: dict[str, float] = {}  # seconds, by exercise
        self.order: dict[str, list[str]] = {}  # by exercise, its cases, the quick ones first

    def measure(self, exercise_ids: list[str]) -> None:
        """Run the answers themselves, to know how long their mutants may take.

        Errors: Broken when one does not pass.
        """
        tasks = [(exercise_id, (exercise_id, None, [])) for exercise_id in exercise_ids]
        for exercise_id, result in self._run(tasks, lambda _: 120.0):
            if result.killer:
                raise Broken(f"the answer to {exercise_id} fails {result.killer}: {result.reason}")
            self.limits[exercise_id] = GRACE + SLOWER * result.seconds
            self.order[exercise_id] = sorted(result.times, key=result.times.get)

    def run(self, mutants: list[Mutant], first: dict[str, str]) -> Iterator[tuple[Mutant, Result]]:
        """Each mutant with its result, as they end. first: by id, the case to begin with."""
        tasks = []
        for mutant in mutants:
            order = [name for e in (mutant.exercise, *mutant.also) for name in self.order[e]]
            tasks.append((mutant, (mutant.exercise, mutant, [first.get(mutant.id, ""), *order])))
        yield from self._run(
            tasks, lambda mutant: sum(self.limits[e] for e in (mutant.exercise, *mutant.also))
        )

    def _run(self, tasks: list[tuple], limit) -> Iterator[tuple]:
        running: dict[Connection, _Running] = {}
        waiting = tasks[::-1]
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                while waiting or running:
                    while waiting and len(running) < self.jobs:
                        key, task = waiting.pop()
                        connection, process = self._start(task, folder)
                        running[connection] = _Running(key, process, time.monotonic(), limit(key))
                    yield from _ended(running)
            finally:
                for one in running.values():
                    _kill(one.process)

    def _start(self, task: tuple, folder: str) -> tuple[Connection, multiprocessing.Process]:
        here, there = self.context.Pipe(duplex=False)
        process = self.context.Process(target=_trial, args=(there, *task, self.seed, folder))
        process.start()
        there.close()
        return here, process


def _ended(running: dict[Connection, _Running]) -> Iterator[tuple]:
    """The trials that are over, or have taken too long; they are taken out of running."""
    patience = max(0.0, min(one.left for one in running.values()))
    ready = wait(list(running), patience)
    late = [connection for connection, one in running.items() if one.left <= 0]
    for connection in {*ready, *late}:
        one = running.pop(connection)
        seconds = time.monotonic() - one.began
        if connection in ready:
            result = _received(connection, seconds)
        else:
            result = Result("time", f"not done after {one.limit:.0f} s", {}, seconds)
        connection.close()
        _kill(one.process)
        yield one.key, result


def _received(connection: Connection, seconds: float) -> Result:
    try:
        return Result(*connection.recv(), seconds)
    except (EOFError, OSError):
        return Result("end", "it ended its process", {}, seconds)


def _kill(process: multiprocessing.Process) -> None:
    """End a trial and what it started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


# ---- In the process of a trial ----


def _trial(
    answers: Connection,
    exercise_id: str,
    mutant: Mutant | None,
    order: list,
    seed: int,
    folder: str,
) -> None:
    """Send (killer, reason, times), and end whatever threads are left."""
    _settle(folder)
    chapter, exercise = manifest.find_exercise(exercise_id)
    answers.send(_judged(chapter, exercise, mutant, order, seed))
    os._exit(0)


def _settle(folder: str) -> None:
    """A process group, a place for files and a share of the memory of its own; nothing is shown."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    tempfile.tempdir = folder
    torch.set_num_threads(1)
    statm = Path("/proc/self/statm")
    if statm.exists():
        import resource

        used = int(statm.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))


def _judged(
    chapter: Chapter, exercise: Exercise, mutant: Mutant | None, order: list[str], seed: int
) -> tuple[str, str, dict]:
    """(killer, reason) of the first case that fails, ("", "") when none does; and their seconds.

    order: names of cases; those not among them come last.
    """
    runner, times = Runner(), {}
    try:
        runner.load_source(mutated_source(chapter, mutant), chapter.scenarios)
    except BaseException as error:
        return "loading", repr(error)[:300], times
    others = [chapter.exercise(name) for name in mutant.also] if mutant else []
    cases = [case for each in (exercise, *others) for case in cases_for(chapter, each)]
    ranks = {name: rank for rank, name in reversed([*enumerate(order)])}
    cases.sort(key=lambda case: ranks.get(case.name, len(order)))
    began = time.perf_counter()
    for outcome in run_cases(Local(runner), cases, seed):
        times[outcome.case.name] = time.perf_counter() - began
        began = time.perf_counter()
        if outcome.error:
            return outcome.case.name, str(outcome.error)[:300], times
    return "", "", times


def prepare(chapters: list[Chapter]) -> None:
    """Load the cases and scenarios that the trials need, so that forked ones have them."""
    if FORKS:
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(False)  # as it is; the first call imports for seconds
        for chapter in chapters:
            for exercise in chapter.exercises:
                cases_for(chapter, exercise)
            Runner().load_source(mutated_source(chapter, None), chapter.scenarios)


def default_jobs() -> int:
    """One for every core."""
    return os.cpu_count() or 1
