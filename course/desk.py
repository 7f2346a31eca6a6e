"""check, hint, solution and progress: the same work for the notebook and the command line."""

import random
from collections.abc import Callable

from course import notebooks, verdict
from course.judge import Verdict, judge
from course.manifest import Chapter, Exercise, chapters, find_exercise
from course.paths import WORK
from course.progress import Progress, table
from course.submission import Submission, SubmissionError, find_submission, read_submission

ReadSubmission = Callable[[Chapter], Submission]


def saved(chapter: Chapter) -> Submission:
    """The learner's file of a chapter, as saved."""
    return read_submission(chapter, find_submission(chapter))


def check(
    exercise_id: str, read: ReadSubmission = saved, seed: int | None = None
) -> Verdict | None:
    """Judge one exercise, print the verdict, record it. None when there is no file to judge."""
    chapter, exercise = find_exercise(exercise_id)
    try:
        submission = read(chapter)
    except SubmissionError as problem:
        print(verdict.no_file(chapter, problem))
        return None
    return _check(submission, exercise, seed)


def check_chapter(chapter: Chapter, seed: int | None = None) -> list[Verdict] | None:
    """Judge every exercise of a chapter. None when there is no file to judge."""
    try:
        submission = saved(chapter)
    except SubmissionError as problem:
        print(verdict.no_file(chapter, problem))
        return None
    verdicts = [_check(submission, exercise, seed, brief=True) for exercise in chapter.exercises]
    points = sum(v.points for v in verdicts)
    print(f"\nchapter {chapter.number}: {points} of {chapter.points} points")
    return verdicts


def begun() -> list[Chapter]:
    """The chapters of which the learner has a file."""
    return [
        c for c in chapters() if any((WORK / f"{c.name}{s}").exists() for s in (".ipynb", ".py"))
    ]


def hint(exercise_id: str) -> None:
    """Print the next hint of an exercise, each one closer than the last."""
    _, exercise = find_exercise(exercise_id)
    progress = Progress()
    again = not progress.hints_left(exercise)  # all read: show them all once more
    read = min(progress.get(exercise.id).get("hints", 0) + 1, len(exercise.hints))
    progress.update(exercise.id, hints=read)
    first = 0 if again else read - 1
    for number, text in enumerate(exercise.hints[first:read], first + 1):
        print(f"{exercise.id} hint {number} of {len(exercise.hints)}: {text}")
    if read == len(exercise.hints):
        print(
            f"That was the last hint; `python -m course solution {exercise.id}` shows our answer."
        )


def solution(exercise_id: str, confirm: Callable[[str], str] | None) -> bool:
    """Print our answer to an exercise after asking once; False when the learner decided not to.

    Args:
        confirm: asks a question and returns the answer; None when there is nothing to ask.
    """
    chapter, exercise = find_exercise(exercise_id)
    progress = Progress()
    if confirm and not progress.get(exercise.id).get("revealed"):
        question = f"Show our solution of {exercise.id} {exercise.title}? It is noted. [y/N] "
        if confirm(question).strip().lower() not in {"y", "yes"}:
            print("Not shown.")
            return False
    progress.update(exercise.id, revealed=True)
    print(notebooks.solved_cell(chapter, exercise))
    return True


def show_progress() -> None:
    """Print the table of all chapters and exercises."""
    print(table(Progress()))


def _check(
    submission: Submission, exercise: Exercise, seed: int | None, brief: bool = False
) -> Verdict:
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    result = judge(submission, exercise, seed)
    progress = Progress()
    progress.record(result, submission.sha256)
    if brief and result.status == "not attempted":
        print(verdict.headline(result), flush=True)
    else:
        print(verdict.render(result, submission, progress.hints_left(exercise)), flush=True)
    return result
