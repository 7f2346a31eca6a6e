"""Print how far correct answers are from the float64 oracle: where the tolerances come from.

Every case of chapter 04 runs with many seeds on the reference and on both styles. For each function
and dtype the largest error is printed, in the unit of tests/grading/forward_pass/tolerances.py.
Then every misconception of the chapter is put through its cases with ten times the tolerances: the
ones that would pass are printed, and make the exit code 1.

    python -m tests.reference.measure_spread
"""

import importlib
import sys

import torch

from course import likely, misconceptions
from course.cases import cases_of
from course.manifest import find_chapter
from course.runner import Runner
from course.trial import Local, run_cases
from tests.grading.forward_pass import tolerances
from tests.reference.record import FOLDER

SEEDS = range(40)
SUBJECTS = {
    "reference": [f"solutions.{name}" for name in find_chapter(4).modules],
    "einsum": ["tests.styles.forward_pass_einsum"],
    "numpy": ["tests.styles.forward_pass_numpy"],
}
CALLERS = ("arithmetic", "attention", "feed_forward", "model")


def subject(modules: list[str]) -> Local:
    """All names of these modules as one module under test."""
    runner = Runner()
    for name in modules:
        vars(runner.module).update(vars(importlib.import_module(name)))
    runner.scenarios = importlib.import_module("tests.scenarios.forward_pass")
    return Local(runner)


def errors_of(backend: Local) -> dict:
    """The largest error for each (function, dtype) over all cases and seeds."""
    worst: dict = {}

    def measure(got, expected, function, dtype=tolerances.F32, what="it"):
        want = torch.as_tensor(expected).double()
        if want.numel():
            scale = want.square().mean().sqrt() + want.abs()
            error = ((got.double() - want.to(dtype).double()).abs() / scale).nan_to_num().max()
            worst[function, dtype] = max(worst.get((function, dtype), 0.0), float(error))
        close(got, expected, function, dtype, what)

    callers = [importlib.import_module(f"tests.grading.forward_pass.{name}") for name in CALLERS]
    close = tolerances.close
    for module in callers:
        module.close = measure
    try:
        for seed in SEEDS:
            for outcome in run_cases(backend, cases_of("forward_pass"), seed):
                if outcome.error:
                    print(f"  seed {seed}, {outcome.case.name}: {outcome.error}")
    finally:
        for module in callers:
            module.close = close
    return worst


def survivors(factor: float = 10.0) -> list[str]:
    """The misconceptions that pass every case of their exercise with wider tolerances."""
    chapter, passed = find_chapter(4), []
    kept = dict(tolerances.TOLERANCES)
    tolerances.TOLERANCES.update({key: factor * value for key, value in kept.items()})
    try:
        for wrong in misconceptions.load("forward_pass"):
            cases = [c for c in cases_of("forward_pass") if c.exercise == wrong.exercise]
            backend = Local(likely.reference_runner(chapter, wrong))
            if not any(outcome.error for outcome in run_cases(backend, cases, 0)):
                passed.append(f"{wrong.exercise} {wrong.__name__}")
    finally:
        tolerances.TOLERANCES.update(kept)
    return passed


def main() -> int:
    """The table, then the misconceptions that are too close to be told from right answers."""
    torch.set_num_threads(1)
    found = {name: errors_of(subject(modules)) for name, modules in SUBJECTS.items()}
    print(f"{'function':18}{'dtype':10}" + "".join(f"{name:>12}" for name in found), " tolerance")
    for key, tolerance in tolerances.TOLERANCES.items():
        cells = "".join(f"{errors.get(key, 0.0):12.1e}" for errors in found.values())
        print(f"{key[0]:18}{str(key[1])[6:]:10}{cells}{tolerance:11.1e}")
    passed = survivors()
    for name in passed:
        print(f"{name} passes with ten times the tolerances ({FOLDER.parent.name})")
    return bool(passed)


if __name__ == "__main__":
    sys.exit(main())
