"""Chapter 08 beside the code under test: diagnoses (8.7) and the upgrade gate (8.8)."""

import tempfile
from pathlib import Path

from tests.scenarios.helpers import Unusable, attempt, in_words, told

# --- 8.7 ---


@told
def diagnosed(module, now: dict, usual: dict | None) -> list:
    """[cause, evidence, whether its step is that of NEXT] of each finding."""
    found = module.diagnose(now, usual) if usual is not None else module.diagnose(now)
    if not isinstance(found, list | tuple):
        raise Unusable(f"diagnose should return a list of Findings, not {in_words(found)}")
    return [[one.cause, one.evidence, one.step == module.NEXT.get(one.cause)] for one in found]


# --- 8.8 ---


@told
def benchmark_read(module, text: str | None, names: list | None) -> dict:
    """What read_benchmark makes of a file before.json with this text, a character a byte.

    names: None, or what the message of the expected error names. text None: there is no file.
    """
    with tempfile.TemporaryDirectory(prefix="course-files-") as folder:
        path = Path(folder) / "before.json"
        if text is not None:
            path.write_bytes(text.encode("latin-1"))
        if names is None:
            found = module.read_benchmark(str(path))
        else:
            return attempt(lambda: module.read_benchmark(str(path)), ["before.json", *names])
    figures = {name: [f.unit, f.better, list(f.values)] for name, f in found.figures.items()}
    kept = {"machine": found.machine, "model": found.model, "settings": found.settings}
    return kept | {"figures": figures}


def figure_of(module, spec: dict):
    """A Figure of the module under test."""
    return module.Figure(spec["unit"], spec["better"], tuple(spec["values"]))


@told
def compared(module, before: dict, after: dict, given: dict) -> dict:
    """What compare_figure says about two figures, with these keyword arguments."""
    return told_of(
        module.compare_figure(figure_of(module, before), figure_of(module, after), **given)
    )


def told_of(found) -> dict:
    """A Comparison as data; of its reason only whether there is one."""
    try:
        reason = isinstance(found.reason, str) and len(found.reason) > 10
        return {"change": found.change, "verdict": found.verdict, "reason": reason}
    except AttributeError:
        raise Unusable(
            f"compare_figure should return a Comparison, but returned {in_words(found)}"
        ) from None


def benchmark_of(module, spec: dict):
    """A Benchmark of the module under test."""
    figures = {name: figure_of(module, one) for name, one in spec["figures"].items()}
    return module.Benchmark(spec["machine"], spec["model"], spec["settings"], figures)


@told
def judged(module, before: dict, after: dict, given: dict) -> dict:
    """What judge_upgrade says; of each reason what stands before the first ": "."""
    found = module.judge_upgrade(benchmark_of(module, before), benchmark_of(module, after), **given)
    return {
        "outcome": found.outcome,
        "about": [reason.partition(": ")[0] for reason in found.reasons],
        "empty": [reason for reason in found.reasons if not reason.partition(": ")[2]],
        "verdicts": {name: one.verdict for name, one in found.comparisons.items()},
    }
