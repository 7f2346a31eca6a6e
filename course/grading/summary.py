"""What an instructor reads first: outcomes, misconceptions, what needs a person's eye."""

from collections import Counter, defaultdict

from course.grading.entries import Entry, same_names
from course.grading.feedback import block, one_line
from course.grading.record import given_up
from course.grading.tables import NOT_HANDED_IN, absent, has_hidden
from course.manifest import Exercise

STATUSES = ("passed", "failed", "error", "not attempted", "missing", NOT_HANDED_IN, "grader error")
MOST = 15  # misconceptions listed
LONGEST = 600  # characters of a line


def summary(
    records: list[dict],
    exercises: list[Exercise],
    entries: list[Entry],
    ignored: list[str],
    sandbox: str,
) -> str:
    """The summary as Markdown that reads well as plain text."""
    s = "s" if len(records) != 1 else ""
    parts = [f"# Summary of {len(records)} submission{s}", f"Sandbox: {sandbox}."]
    parts += ["## Outcomes by exercise", *_outcomes(records, exercises)]
    parts += ["## Points", _points(records, exercises)]
    parts += ["## Commonest misconceptions", *_misconceptions(records)]
    parts += ["## For a person's eye", *_odd(records, entries, ignored)]
    return "\n\n".join(parts) + "\n"


def grader_errors(records: list[dict]) -> list[str]:
    """The exercises on which grading itself failed."""
    found = [
        f"{record['submission']}, {exercise['exercise']}: {exercise['reason'].splitlines()[-1]}"
        for record in records
        for exercise in record["exercises"]
        if exercise["status"] == "grader error"
    ]
    return found + [f"{r['submission']}: {given_up(r)}" for r in records if given_up(r)]


def _outcomes(records: list[dict], exercises: list[Exercise]) -> list[str]:
    counts: dict[str, Counter] = defaultdict(Counter)
    hidden: Counter = Counter()
    for record in records:
        found = {e["exercise"]: e for e in record["exercises"]}
        for exercise in exercises:
            entry = found.get(exercise.id, {"status": absent(record)})
            counts[exercise.id][entry["status"]] += 1
            hidden[exercise.id] += entry.get("hidden", {}).get("status") == "passed"
    used = [s for s in STATUSES if any(counts[e.id][s] for e in exercises)]
    more = ["hidden passed"] if has_hidden(records) else []
    lines = [_row(["exercise", *used, *more]), _row(["---"] * (1 + len(used) + len(more)))]
    for exercise in exercises:
        cells = [str(counts[exercise.id][status]) for status in used]
        cells += [str(hidden[exercise.id])] if more else []
        lines.append(_row([f"{exercise.id} {exercise.title}", *cells]))
    return ["\n".join(lines)]


def _points(records: list[dict], exercises: list[Exercise]) -> str:
    """How many submissions have how many of all public points, in tenths."""
    most = sum(exercise.points for exercise in exercises)
    if not most:
        return "Nothing was graded."
    ids = {exercise.id for exercise in exercises}
    shares = [
        sum(e["points"] for e in record["exercises"] if e["exercise"] in ids) / most
        for record in records
    ]
    tenths = Counter(min(int(share * 10), 9) for share in shares)
    lines = [f"Public points of {most}, submissions in each tenth:", "", "```text"]
    for tenth in range(10):
        upper = "100 %" if tenth == 9 else f"<{10 * tenth + 10:3} %"
        bar = "#" * round(40 * tenths[tenth] / max(tenths.values()))
        lines.append(f"{10 * tenth:3} to {upper} {tenths[tenth]:4} {bar}".rstrip())
    return "\n".join([*lines, "```"])


def _misconceptions(records: list[dict]) -> list[str]:
    counts = Counter(
        (e["exercise"], e["misconception"])
        for record in records
        for e in record["exercises"]
        if e.get("misconception")
    )
    if not counts:
        return ["None was recognised."]
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ["\n".join(f"- {n} x {name} ({exercise})" for (exercise, name), n in ranked[:MOST])]


def _odd(records: list[dict], entries: list[Entry], ignored: list[str]) -> list[str]:
    found = [f"grading itself failed: {text}" for text in grader_errors(records)]
    found += [f"identical answers in chapter {c}: {', '.join(ids)}" for c, ids in twins(records)]
    found += [f"perhaps one person's: {', '.join(ids)}" for ids in same_names(entries)]
    for record in records:
        statuses = {e["status"] for e in record["exercises"]}
        if statuses <= {"not attempted", "missing"} and not given_up(record):
            found.append(f"nothing attempted: {record['submission']}")
        found += [f"{record['submission']}: {note}" for note in record["notes"]]
    found += [f"not graded: {name}" for name in ignored]
    lines = [f"- {one_line(text)[:LONGEST]}" for text in dict.fromkeys(found)]
    return ["\n".join(block("\n".join(lines)))] if lines else ["Nothing."]


def twins(records: list[dict]) -> list[tuple[str, list[str]]]:
    """Submissions with the same answers to a chapter, character for character."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for record in records:
        for chapter, print_ in record["fingerprints"].items():
            groups[chapter, print_].append(record["submission"])
    return [(chapter, ids) for (chapter, _), ids in sorted(groups.items()) if len(ids) > 1]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
