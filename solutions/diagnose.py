"""Chapter 08: from figures to a cause that has a name, and to what to do next."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

Figures = Mapping[str, float | None]
NEXT = {  # cause: what to do first
    "stuck_engine": "Take the stacks of all threads (py-spy dump), then restart the engine.",
    "memory_leak": "Watch what grows with tracemalloc; restart before the memory is full.",
    "collector_pauses": "Freeze what lives after warm-up and raise the thresholds: see tamed.",
    "garbled_output": "Read some answers; check dtype, file hashes and what was deployed last.",
    "out_of_memory": "Fewer rows or less room in the cache; see what else is on the device.",
    "failing_requests": "The error log has the class and the place of each exception.",
    "huge_request": "Lower the longest prompt, or step_tokens, so that one prompt stalls less.",
    "slow_machine": "Look for a neighbour, throttling, or a thread count that was changed.",
    "slow_client": "The service is well: see who reads so slowly, and bound what is kept for them.",
    "queue_storm": "More came than can be served: add a replica, or let clients come back later.",
    "full_cache": "Requests reserve more than they use: lower max_tokens, or make room.",
    "impatient_clients": "Compare first_token_p95 with the time limits of the clients.",
    "missed_deadlines": "Compare queue_p95 with the deadlines; refuse at once what will be late.",
}


@dataclass(frozen=True)
class Finding:
    """A cause, the figures that speak for it, and the next step of NEXT."""

    cause: str
    evidence: str
    step: str


def diagnose(now: Figures, usual: Figures | None = None) -> list[Finding]:
    """Name what is wrong.

    A cause is found when its rule holds. A rule does not hold where a figure that it needs is
    None, nor where it says "usual" and that figure is not known, nor is a quotient by 0 known. What
    stands above may be the reason for what stands below: a stuck engine fills the queue too.

    - stuck_engine: steps is 0, and running + waiting above 0.
    - memory_leak: memory is at least 1.1 times memory_before.
    - collector_pauses: paused is at least 0.05 times seconds.
    - garbled_output: not_finite is above 0. Or: stop + length is at least 10, length at least 0.9
      of that, and of the usual stop + length at most 0.5.
    - out_of_memory: memory_errors is above 0.
    - failing_requests: other_errors is above 0.
    - huge_request: longest_prompt is at least 4 times the usual, and inter_token_p95 at least 1.5
      times the usual.
    - slow_machine: step_p50 is at least 1.5 times the usual, and what a step computes, (tokens +
      prompt_tokens) / steps, at most 1.2 times the usual.
    - slow_client: send_lag_p95 is at least 1.
    - queue_storm: steps and queue_full are above 0. Or: steps is above 0, waiting above running,
      and queue_p95 at least 1.
    - full_cache: kv is at least 0.95, and waiting above 0.
    - impatient_clients: cancelled is at least 5, and at least 0.5 times finished.
    - missed_deadlines: timeout is above 0, and at least 0.1 times finished.

    Args:
        now: figures of the time in which something may be wrong.
        usual: figures of the same service when it was well.

    Returns:
        a Finding for each cause, in the order of the table; none when all is well. The evidence
        has "NAME VALUE" for every figure of `now` in the rule, or in the part of it that holds
        (the first, if both do), in the order in which it names them, separated by ", ", with
        six significant digits as "%g" writes them: "steps 0, running 3, waiting 12".
    """
    # exercise 8.7
    usual = usual or {}
    found = ((cause, _evidence(cause, now, usual)) for cause in NEXT)
    return [Finding(cause, evidence, NEXT[cause]) for cause, evidence in found if evidence]


def _evidence(cause: str, now: Figures, usual: Figures) -> str | None:
    """The figures that speak for a cause; None when its rule does not hold."""
    for names, holds in _RULES[cause]:
        values = [now.get(name) for name in names]
        if None not in values and holds(now, usual):
            return ", ".join(f"{n} {v:g}" for n, v in zip(names, values, strict=True))
    return None


def _grown(now: Figures, usual: Figures, name: str, times: float) -> bool:
    """Whether a figure is at least so many times the usual."""
    return usual.get(name) is not None and now[name] >= times * usual[name]


def _by_length(figures: Figures) -> float:
    """The share of the answers that ended by length; NaN, which no rule takes, when not known."""
    stop, length = figures.get("stop"), figures.get("length")
    return math.nan if None in (stop, length) or not stop + length else length / (stop + length)


def _work(figures: Figures) -> float:
    """Tokens that a step computes; NaN, which no rule takes, when not known."""
    values = [figures.get(name) for name in ("tokens", "prompt_tokens", "steps")]
    return math.nan if None in values or not values[2] else (values[0] + values[1]) / values[2]


# cause: the parts of its rule, each with the figures that it needs
_RULES = {
    "stuck_engine": [
        (
            ("steps", "running", "waiting"),
            lambda now, _: not now["steps"] and now["running"] + now["waiting"] > 0,
        )
    ],
    "memory_leak": [
        (("memory", "memory_before"), lambda now, _: now["memory"] >= 1.1 * now["memory_before"])
    ],
    "collector_pauses": [
        (("paused", "seconds"), lambda now, _: now["paused"] >= 0.05 * now["seconds"])
    ],
    "garbled_output": [
        (("not_finite",), lambda now, _: now["not_finite"] > 0),
        (
            ("stop", "length"),
            lambda now, usual: (
                now["stop"] + now["length"] >= 10
                and _by_length(now) >= 0.9
                and _by_length(usual) <= 0.5
            ),
        ),
    ],
    "out_of_memory": [(("memory_errors",), lambda now, _: now["memory_errors"] > 0)],
    "failing_requests": [(("other_errors",), lambda now, _: now["other_errors"] > 0)],
    "huge_request": [
        (
            ("longest_prompt", "inter_token_p95"),
            lambda now, usual: (
                _grown(now, usual, "longest_prompt", 4)
                and _grown(now, usual, "inter_token_p95", 1.5)
            ),
        )
    ],
    "slow_machine": [
        (
            ("step_p50", "tokens", "prompt_tokens", "steps"),
            lambda now, usual: (
                _grown(now, usual, "step_p50", 1.5) and _work(now) <= 1.2 * _work(usual)
            ),
        )
    ],
    "slow_client": [(("send_lag_p95",), lambda now, _: now["send_lag_p95"] >= 1)],
    "queue_storm": [
        (("steps", "queue_full"), lambda now, _: now["steps"] > 0 and now["queue_full"] > 0),
        (
            ("steps", "waiting", "running", "queue_p95"),
            lambda now, _: (
                now["steps"] > 0 and now["waiting"] > now["running"] and now["queue_p95"] >= 1
            ),
        ),
    ],
    "full_cache": [(("kv", "waiting"), lambda now, _: now["kv"] >= 0.95 and now["waiting"] > 0)],
    "impatient_clients": [
        (
            ("cancelled", "finished"),
            lambda now, _: now["cancelled"] >= max(5, 0.5 * now["finished"]),
        )
    ],
    "missed_deadlines": [
        (
            ("timeout", "finished"),
            lambda now, _: now["timeout"] > 0 and now["timeout"] >= 0.1 * now["finished"],
        )
    ],
}
