"""Figures of a service, and what the cases of 8.7 expect of a diagnosis of them."""

from course.cases import Wrong, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.oracles import monitoring as oracle


def healthy(rng, **changes) -> dict:
    """Ten good seconds."""
    steps = rng.randrange(100, 160)
    return {
        "seconds": 10.0,
        "steps": steps,
        "tokens": 3 * steps,
        "prompt_tokens": 2 * steps,
        "finished": 24.0,
        "stop": 18.0,
        "length": 5.0,
        "cancelled": 1.0,
        "timeout": 0.0,
        "error": 0.0,
        "queue_full": 0.0,
        "too_long": 1.0,
        "draining": 0.0,
        "not_finite": 0.0,
        "memory_errors": 0.0,
        "other_errors": 0.0,
        "paused": 0.1,
        "running": 3.0,
        "waiting": 1.0,
        "kv": 0.4,
        "memory": 1.03e9,
        "memory_before": 1.0e9,
        "longest_prompt": 100.0,
        "first_token_p50": 0.2,
        "first_token_p95": 0.4,
        "inter_token_p50": 0.06,
        "inter_token_p95": 0.08,
        "queue_p95": 0.02,
        "send_lag_p95": 0.001,
        "step_p50": 0.05,
        "step_p95": 0.09,
    } | changes


NEEDS = {  # cause: the figures in its rule
    "stuck_engine": ("steps", "running", "waiting"),
    "memory_leak": ("memory", "memory_before"),
    "collector_pauses": ("paused", "seconds"),
    "garbled_output": ("not_finite", "stop", "length"),
    "out_of_memory": ("memory_errors",),
    "failing_requests": ("other_errors",),
    "huge_request": ("longest_prompt", "inter_token_p95"),
    "slow_machine": ("step_p50", "tokens", "prompt_tokens", "steps"),
    "slow_client": ("send_lag_p95",),
    "queue_storm": ("steps", "queue_full", "waiting", "running", "queue_p95"),
    "full_cache": ("kv", "waiting"),
    "impatient_clients": ("cancelled", "finished"),
    "missed_deadlines": ("timeout", "finished"),
}
COMPARED = ("garbled_output", "huge_request", "slow_machine")  # with the usual


def disputed(now: dict, usual: dict | None, found: list, expected: tuple) -> str:
    """The figures that decide about the causes of which only one of the two knows."""
    causes = [cause for cause in NEEDS if (cause in found) != (cause in expected)]
    said = [f"now {shown(now, causes)}"] if causes else []
    if set(causes) & set(COMPARED):
        compared = [cause for cause in causes if cause in COMPARED]
        said.append(f"usual {shown(usual, compared) if usual else 'not known'}")
    return f"the causes ({'; '.join(said)})" if said else "the causes"


def shown(figures: dict, causes: list) -> str:
    """What these rules need of the figures, each once."""
    names = dict.fromkeys(name for cause in causes for name in NEEDS[cause])
    return ", ".join(f"{name} {figures.get(name)}" for name in names)


def expect_causes(learner, now: dict, usual: dict | None, *causes: str) -> None:
    """These causes, in this order, each with its evidence and its step."""
    found = drive(learner, "diagnosed", now, usual)
    names = [cause for cause, *_ in found]
    expect_equal(names, list(causes), disputed(now, usual, names, causes))
    rules = oracle.causes(now, usual)
    for cause, evidence, right in found:
        expected = ", ".join(f"{name} {now[name]:g}" for name in rules[cause])
        expect_equal(evidence, expected, f"the evidence for {cause}")
        if not right:
            raise Wrong(f"the step of {cause} is not that of NEXT")
