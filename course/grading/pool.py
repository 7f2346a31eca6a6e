"""Several judges at work (course/grading/bench.py), each a process that may die and be replaced."""

import contextlib
import json
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from course.grading.entries import Entry
from course.grading.record import GIVEN_UP
from course.paths import ROOT
from course.sandbox import SLOTS

PATIENCE = 600.0  # seconds beyond an exercise's own limit after which a judge itself hangs
MOST_DEATHS = 3  # of judges over one submission, before the rest of it is given up


class GraderError(RuntimeError):
    """Grading itself failed; the message says how."""


@dataclass
class Task:
    """One submission to be graded, and what is known of it from before."""

    entry: Entry
    only: list[str]
    known: dict[str, dict]
    skip: dict[str, str] = field(default_factory=dict)

    def message(self) -> dict:
        """As the judge reads it."""
        path = str(self.entry.path.resolve())
        told = {"id": self.entry.id, "path": path, "only": self.only}
        return {**told, "known": self.known, "skip": self.skip}


@dataclass
class Graded:
    """What came of a task: records of exercises, new and kept, and what was said of the files."""

    entry: Entry
    exercises: list[dict]
    told: dict


class Judge:
    """One judge's process."""

    def __init__(self, order: dict):
        self._stderr = Path(order["scratch"]) / "stderr"
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "course.grading.bench"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                encoding="utf-8",
            )
        self._patience = order["seconds"] * 3 + PATIENCE
        self._lines: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self._send(order)
        said = self.hear()
        if "broken" in said:
            raise GraderError(said["broken"])
        self.sandbox = said["ready"]

    def ask(self, task: Task) -> None:
        """Give it a submission."""
        self._send(task.message())

    def hear(self) -> dict:
        """The next thing it says. Errors: GraderError when it is dead, or says nothing."""
        try:
            line = self._lines.get(timeout=self._patience)
        except queue.Empty:
            self.close()
            raise GraderError(f"the judge said nothing for {self._patience:.0f} seconds") from None
        if not line:
            said = f"exit code {self._process.wait()}{self._last_words()}"
            raise GraderError(f"the judge's process ended ({said})")
        return json.loads(line)

    def close(self) -> None:
        """End it; its workers end with it."""
        with contextlib.suppress(OSError):
            self._process.stdin.write("\n")
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, message: dict) -> None:
        with contextlib.suppress(OSError):  # that it is dead shows when it is heard
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _last_words(self) -> str:
        """The end of what it wrote to stderr: the exception, if there was one."""
        lines = self._stderr.read_text(encoding="utf-8", errors="replace").strip().split("\n")
        return f", {lines[-1][:500]}" if lines[-1] else ""

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


class Pool:
    """Judges, and the threads that wait for them."""

    def __init__(self, order: dict, jobs: int):
        self._order, self._jobs = order, jobs
        self._stopped = threading.Event()
        self._judges: list[Judge] = []
        self._scratch = Path()
        self._first_slot = secrets.randbelow(SLOTS)  # another `grade` may run at the same time
        self.sandbox = ""

    def run(
        self, tasks: Iterable[Task], step: Callable[[], None], done: Callable[[Graded], None]
    ) -> None:
        """Grade all of them; `step` after each exercise, `done` with each result, one at a time.

        Errors: GraderError when no judge can be started.
        """
        waiting: queue.SimpleQueue = queue.SimpleQueue()
        for task in tasks:
            waiting.put(task)
        lock = threading.Lock()
        with _scratch() as self._scratch, ThreadPoolExecutor(self._jobs) as threads:
            work = [
                threads.submit(self._work, slot, waiting, step, done, lock)
                for slot in range(min(self._jobs, max(waiting.qsize(), 1)))
            ]
            try:
                for one in as_completed(work):
                    one.result()
            except BaseException:
                self._stopped.set()
                for judge in list(self._judges):
                    judge._process.kill()
                raise

    def _work(self, slot: int, waiting, step, done, lock) -> None:
        judge = self._start(slot)
        while not self._stopped.is_set():
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                break
            judge, graded = self._grade(judge, slot, task, step)
            with lock:
                if not self._stopped.is_set():
                    done(graded)
        judge.close()

    def _start(self, slot: int) -> Judge:
        folder = tempfile.mkdtemp(dir=self._scratch)
        slot = (self._first_slot + slot) % SLOTS
        judge = Judge({**self._order, "slot": slot, "scratch": folder})
        self._judges.append(judge)
        self.sandbox = judge.sandbox
        return judge

    def _grade(self, judge: Judge, slot: int, task: Task, step) -> tuple[Judge, Graded]:
        """One submission. When the judge dies over an exercise, another one does the rest."""
        exercises: dict[str, dict] = {}
        at, deaths = "", 0
        judge.ask(task)
        while not self._stopped.is_set():
            try:
                said = judge.hear()
            except GraderError as problem:
                if self._stopped.is_set():
                    break  # it was killed for that: nobody needs another
                deaths += 1
                if deaths > MOST_DEATHS or not at:
                    return self._start(slot), _given_up(task, exercises, problem)
                task.skip[at] = str(problem)
                judge, at = self._start(slot), ""
                task.known = {**task.known, **exercises}
                judge.ask(task)
                continue
            at = said.get("next", at)
            if "exercise" in said:
                exercises[said["exercise"]["exercise"]] = said["exercise"]
            elif "keep" in said:
                exercises[said["keep"]] = task.known[said["keep"]]
            elif "done" in said:
                return judge, Graded(task.entry, list(exercises.values()), said)
            if "next" not in said:
                step()
        return judge, Graded(task.entry, [], {})


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for the judges, which goes even when they were killed."""
    with tempfile.TemporaryDirectory(prefix="course-grade-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name).resolve()


def _given_up(task: Task, exercises: dict[str, dict], problem: GraderError) -> Graded:
    notes = [f"{GIVEN_UP} {problem}; the rest of this submission was not graded"]
    return Graded(task.entry, list(exercises.values()), {"notes": notes})
