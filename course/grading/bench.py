"""The process that judges submissions, one at a time: `python -m course.grading.bench`.

It runs no learner's code, but it takes what that code returns, so it is a process that may die
without taking the gradebook along. Orders come in and results leave as lines of JSON.
"""

import hashlib
import json
import os
import queue
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from course import likely, sandbox_linux
from course.grading.exercise import Rules, blank, blank_hidden, grade_exercise
from course.grading.files import few, read_files
from course.grading.hidden import Hidden
from course.grading.recognise import Handed, answers_fingerprint, recognise
from course.judge import Court
from course.manifest import Chapter, Exercise
from course.sandbox import Limits, Sandbox, SandboxError

Say = Callable[[dict], None]
TAKEN = 32 * 2**20  # bytes of a worker's memory that its module and what it imports have taken


def main() -> None:
    """Answer orders until there are no more."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool says when it is over
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a case prints is no answer

    def say(message: dict) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    order = json.loads(sys.stdin.readline())
    rules = Rules(order["seed"], _hidden(order))
    limits = Limits(order["seconds"], order["memory"])
    covered = [Path(folder) for folder in order["covered"]]
    try:
        sandbox = Sandbox(Path(order["scratch"]), limits, order["slot"], order["sandbox"], covered)
    except SandboxError as problem:
        say({"broken": str(problem)})
        return
    orders = Orders(sandbox)
    if sandbox.mode != "process":
        likely.surroundings = partial(as_much_memory, limits.memory)
    with sandbox:
        try:
            say({"ready": sandbox.describe()})
            while line := orders.next():
                grade(json.loads(line), order["key"], rules, sandbox, say)
        except BrokenPipeError:
            orders.abandon()


@contextmanager
def as_much_memory(size: int) -> Iterator[None]:
    """As much address space as a worker has, so that what is too much for one is so here: else a
    misconception that takes too much would not do here what the learner's code has done."""
    import resource  # where there are such limits

    before = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = sandbox_linux.address_space() + size - TAKEN
    given = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([most, *given]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Orders:
    """The lines of stdin; an empty one is the last. When stdin ends without it, whoever gave the
    orders has died: this process ends at once, in the middle of a submission, and its workers with
    it.
    """

    def __init__(self, sandbox: Sandbox):
        self._sandbox, self._lines = sandbox, queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> str:
        """The next line; empty at the end."""
        return self._lines.get()

    def abandon(self) -> None:
        """End at once, and leave no folder behind: nobody else is there to delete it."""
        _remove(self._sandbox.scratch.parent)
        os._exit(1)

    def _read(self) -> None:
        for line in map(str.strip, sys.stdin):
            self._lines.put(line)
            if not line:
                return
        self.abandon()


def _remove(folder: Path) -> None:
    """Delete a folder in which others may be at work: judges that delete it too, and workers."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


def grade(task: dict, key: str, rules: Rules, sandbox: Sandbox, say: Say) -> None:
    """Grade one submission; says {"exercise": record} or {"keep": id} for each, then {"done"}.

    Args:
        task: id and path of the submission, only (exercise ids or nothing), known (of an earlier
            run: by exercise, its key and its file's sha256), skip (by exercise, why it is not to be
            tried again).
        key: what the class's rules and the grader have been, for the key of a record.
    """
    sandbox.forget()
    sources, notes = read_files(Path(task["path"]))
    handed = recognise(sources)
    for chapter in sorted({*handed.answers, *handed.problems}, key=lambda c: c.number):
        court = Court(sandbox.for_chapter(chapter), sandbox.limits.seconds, sandbox.scratch)
        for exercise in chapter.exercises:
            say({"next": exercise.id})
            say(_one(task, key, rules, court, handed, chapter, exercise))
    prints = {str(c.number): answers_fingerprint(s) for c, s in handed.answers.items()}
    say(
        {
            "done": task["id"],
            "files": [source.name for source in sources],
            "notes": [*notes, *few(handed.notes), *handed.problems.values()],
            "fingerprints": {number: print_ for number, print_ in prints.items() if print_},
        }
    )


def _one(
    task: dict,
    key: str,
    rules: Rules,
    court: Court,
    handed: Handed,
    chapter: Chapter,
    exercise: Exercise,
) -> dict:
    """What to say of one exercise."""
    submission = handed.answers.get(chapter)
    sha256 = submission.sha256 if submission else ""
    facts = [key, task["id"], exercise.id, sha256, handed.problems.get(chapter, "")]
    own_key = hashlib.sha256(repr(facts).encode(errors="replace")).hexdigest()[:16]
    known = task["known"].get(exercise.id, {})
    wanted = not task["only"] or exercise.id in task["only"]
    same = known.get("key") == own_key if wanted else bool(sha256 == known.get("sha256"))
    if known and same:
        court.right[exercise.id] = known["status"] == "passed"
        return {"keep": exercise.id}
    if not wanted:
        return {"left": exercise.id}
    if exercise.id in task["skip"]:
        record = blank(exercise, "grader error", task["skip"][exercise.id])
    elif submission is None:
        record = blank(exercise, "error", handed.problems[chapter])
    else:
        try:
            record = grade_exercise(submission, exercise, task["id"], rules, court)
        except SandboxError:
            raise  # without workers nothing else can be graded either: another judge shall try
        except Exception:
            record = blank(exercise, "grader error", traceback.format_exc()[-4000:])
    if rules.hidden:
        record.setdefault("hidden", blank_hidden(exercise))
    return {"exercise": record | {"key": own_key}}


def _hidden(order: dict) -> Hidden:
    folder = order["hidden"]
    return Hidden(bytes.fromhex(order["secret"]), Path(folder) if folder else None)


if __name__ == "__main__":
    main()
