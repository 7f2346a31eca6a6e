"""What a learner gets back: one file to read, as Markdown and as HTML."""

import html
import re

from course.grading.record import GIVEN_UP, totals

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1b1b; background: #fff; overflow-wrap: break-word; }
table { border-collapse: collapse; overflow-wrap: anywhere; }
td, th { border: 1px solid #999; padding: .2rem .6rem; text-align: left; }
pre { background: #f4f4f4; padding: .8rem; white-space: pre-wrap; }
@media (prefers-color-scheme: dark) {
  body { color: #e6e6e6; background: #1b1b1b; } pre { background: #2a2a2a; }
}
""".strip()
WORDS = {"failed": "not right yet", "error": "cannot be judged", "passed": "public checks passed"}


def markdown(record: dict) -> str:
    """The feedback file as Markdown. A learner's text stands in a code block that it cannot end."""
    lines = [f"# Feedback: {_inline(record['submission'])}", "", sums(record), ""]
    lines += [f"- {_inline(note)}" for note in _notes(record)]
    lines += ["", "| exercise | outcome | points |", "|---|---|---|"]
    lines += [f"| {_inline(row[0])} | {_inline(row[1])} | {row[2]} |" for row in _rows(record)]
    for exercise in record["exercises"]:
        lines += ["", f"## {exercise['exercise']} {_inline(exercise['title'])}", ""]
        lines += block(text(exercise))
        lines += ["", *map(_inline, _hidden(exercise))]
    return "\n".join(lines).rstrip() + "\n"


def page(record: dict) -> str:
    """The same as one HTML page that needs nothing else, and runs nothing."""
    title = _html(f"Feedback: {record['submission']}")
    rows = "".join(
        f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in row)}</tr>\n" for row in _rows(record)
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("exercise", "outcome", "points"))
    notes = "".join(f"<li>{_html(note)}</li>\n" for note in _notes(record))
    parts = "".join(_section(exercise) for exercise in record["exercises"])
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>{STYLE}</style></head><body>
<h1>{title}</h1>
<p>{_html(sums(record))}</p>
{f"<ul>{notes}</ul>" if notes else ""}
<table><tr>{head}</tr>
{rows}</table>
{parts}</body></html>
"""


def text(exercise: dict) -> str:
    """The words on one exercise, without those on its hidden cases."""
    if "feedback" in exercise:
        return exercise["feedback"]
    if exercise["status"] == "grader error":
        return "The grader failed on this exercise. It is not your fault; your instructor knows."
    return f"{WORDS.get(exercise['status'], exercise['status'])}: {exercise['reason']}"


def hidden_text(exercise: dict) -> str:
    """The words on the hidden cases of one exercise: only the properties that do not hold."""
    return "\n".join(line.removeprefix("- ") for line in _hidden(exercise))


def _section(exercise: dict) -> str:
    title = _html(f"{exercise['exercise']} {exercise['title']}")
    hidden = "".join(f"<p>{_html(line)}</p>\n" for line in _hidden(exercise))
    return f"<h2>{title}</h2>\n<pre>{_html(text(exercise))}</pre>\n{hidden}"


def _notes(record: dict) -> list[str]:
    """What a learner reads of the files; how the grader failed is not for them."""
    told = "The grader failed on this submission. It is not your fault; your instructor knows."
    return list(dict.fromkeys(told if n.startswith(GIVEN_UP) else n for n in record["notes"]))


def sums(record: dict) -> str:
    """The points, public and hidden apart, in a sentence."""
    found = totals(record["exercises"])
    said = f"Public checks: {found['points']} of {found['max_points']} points."
    if "hidden_points" in found:
        said += f" Hidden checks: {found['hidden_points']} of {found['hidden_max_points']} points."
    return said


def _rows(record: dict) -> list[tuple[str, str, str]]:
    rows = []
    for e in record["exercises"]:
        outcome = WORDS.get(e["status"], e["status"])
        rows.append(
            (f"{e['exercise']} {e['title']}", outcome, f"{e['points']} of {e['max_points']}")
        )
        hidden = e.get("hidden", {})
        if hidden.get("max_points"):
            points = f"{hidden['points']} of {hidden['max_points']}"
            rows.append((f"{e['exercise']} hidden checks", hidden["status"], points))
    return rows


def _hidden(exercise: dict) -> list[str]:
    hidden = exercise.get("hidden")
    if not hidden or hidden["status"] == "none":
        return []
    if hidden["status"] == "not run":
        return ["Hidden checks: not run, since the public checks do not pass."]
    if hidden["status"] == "passed":
        return ["Hidden checks: passed."]
    return [
        "Hidden checks: this does not hold on other inputs:",
        *(f"- {p}" for p in hidden["failed"]),
    ]


def block(content: str) -> list[str]:
    """A code block whose fence is longer than any that stands in it."""
    content = printable(content)
    longest = max(map(len, re.findall(r"`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", content, fence]


def _inline(content: str) -> str:
    """Text that Markdown takes as it is: no markup, no HTML, one line."""
    prefix, content = ("- ", content[2:]) if content.startswith("- ") else ("", content)
    content = one_line(content)
    return prefix + re.sub(r"([\\`*_{}\[\]<>#|!&~$@])", r"\\\1", content)


def one_line(text: str) -> str:
    """Text without line breaks, and without what a terminal or a reader would be misled by."""
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    """Text without control characters and marks that turn the direction of reading."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _html(text: str) -> str:
    return html.escape(printable(text))
