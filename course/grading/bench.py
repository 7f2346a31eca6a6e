"""The process that judges submissions, one at a time: `python -m course.grading.bench`.

It runs no learner's code, but it takes what that code returns, so it is a process that may die
without taking the gradebook along. Orders come in and results leave as lines of JSON.
"""

import hashlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from course.grading.entries import Entry
from course.grading.exercise import Rules, blank, blank_hidden, grade_exercise
from course.grading.files import read_files
from course.grading.hidden import Hidden
from course.grading.recognise import Handed, answers_fingerprint, recognise
from course.judge import Court
from course.manifest import Chapter, Exercise
from course.sandbox import Limits, Sandbox, SandboxError

Say = Callable[[dict], None]


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
    try:
        sandbox = Sandbox(Path(order["scratch"]), limits, order["slot"], order["sandbox"])
    except SandboxError as problem:
        say({"broken": str(problem)})
        return
    with sandbox:
        say({"ready": sandbox.describe()})
        for line in sys.stdin:
            grade(json.loads(line), order["key"], rules, sandbox, say)


def grade(task: dict, key: str, rules: Rules, sandbox: Sandbox, say: Say) -> None:
    """Grade one submission; says {"exercise": record} or {"keep": id} for each, then {"done"}.

    Args:
        task: path, only (exercise ids or nothing), known (of an earlier run: by exercise, its key
            and its file's sha256), skip (by exercise, why it is not to be tried again).
        key: what the class's rules and the grader have been, for the key of a record.
    """
    entry = Entry(Path(task["path"]))
    say({"begun": entry.id})
    sandbox.forget()
    sources, notes = read_files(entry.path)
    handed = recognise(sources)
    for chapter in sorted({*handed.answers, *handed.problems}, key=lambda c: c.number):
        court = Court(sandbox.for_chapter(chapter), sandbox.limits.seconds, sandbox.scratch)
        for exercise in chapter.exercises:
            say({"next": exercise.id})
            say(_one(task, entry, key, rules, court, handed, chapter, exercise))
    prints = {str(c.number): answers_fingerprint(s) for c, s in handed.answers.items()}
    say(
        {
            "done": entry.id,
            "files": [source.name for source in sources],
            "notes": [*notes, *handed.notes, *handed.problems.values()],
            "fingerprints": {number: print_ for number, print_ in prints.items() if print_},
        }
    )


def _one(
    task: dict,
    entry: Entry,
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
    own_key = hashlib.sha256(f"{key} {entry.id} {exercise.id} {sha256}".encode()).hexdigest()[:16]
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
            record = grade_exercise(submission, exercise, entry.id, rules, court)
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
