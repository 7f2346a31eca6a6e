"""One exercise of one submission: public cases, hidden cases, points, and words for the learner."""

from dataclasses import dataclass

from course import verdict
from course.grading.hidden import Hidden
from course.judge import Court, Verdict, cases_for, judge
from course.loading import Unusable, load
from course.manifest import Exercise
from course.remote import Gone
from course.submission import Submission, build
from course.trial import run_cases


@dataclass(frozen=True)
class Rules:
    """What is the same for a whole class."""

    seed: int
    hidden: Hidden


def grade_exercise(
    submission: Submission, exercise: Exercise, submission_id: str, rules: Rules, court: Court
) -> dict:
    """The record of one exercise, as it stands in grade.json."""
    public = judge(submission, exercise, rules.seed, court)
    court.right[exercise.id] = public.status == "passed"
    record = {
        **blank(exercise, public.status, public.reason),
        "points": public.points,
        "seed": public.seed,
        "passed": public.passed,
        "cases": public.cases,
        "misconception": public.misconception,
        "feedback": verdict.render(public, submission, hints_left=None),
        "file": str(submission.path.as_posix()),
        "sha256": submission.sha256,
    }
    if public.failure:
        record["reason"] = public.failure.message
    if rules.hidden:
        record["hidden"] = _grade_hidden(submission, exercise, submission_id, rules, court, public)
    return record


def blank(exercise: Exercise, status: str, reason: str) -> dict:
    """The record of an exercise that earns nothing, for a reason."""
    return {
        "exercise": exercise.id,
        "title": exercise.title,
        "status": status,
        "reason": reason,
        "points": 0,
        "max_points": exercise.points,
    }


def blank_hidden(exercise: Exercise, status: str = "not run") -> dict:
    """Hidden cases that were not run."""
    return {
        "status": status,
        "points": 0,
        "max_points": exercise.points,
        "passed": 0,
        "cases": 0,
        "failed": [],
    }


def _grade_hidden(
    submission: Submission,
    exercise: Exercise,
    submission_id: str,
    rules: Rules,
    court: Court,
    public: Verdict,
) -> dict:
    """Hidden cases of an exercise that passed the public ones; only the properties that failed."""
    cases = rules.hidden.cases(
        submission.chapter, exercise, cases_for(submission.chapter, exercise)
    )
    if not cases:
        return blank_hidden(exercise, "none") | {"max_points": 0}
    found = blank_hidden(exercise)
    if public.status != "passed":
        return found
    seed = rules.hidden.seed(exercise.id, submission_id)
    try:
        built = build(submission, court.folder)
        remote = load(submission, built, exercise, court.workers, court.harmful)
    except (Unusable, Gone) as problem:
        return found | {"status": "failed", "failed": [str(problem)], "cases": len(cases)}
    try:
        remote.limit(court.limit())
        outcomes = list(run_cases(remote, cases, seed))
    finally:
        remote.close()
    failed = [outcome for outcome in outcomes if outcome.error]
    passed = len(outcomes) - len(failed)
    return found | {
        "status": "failed" if failed else "passed",
        "points": 0 if failed else exercise.points,
        "passed": passed,
        "cases": len(cases),
        "failed": list(dict.fromkeys(outcome.case.promise for outcome in failed)),
    }
