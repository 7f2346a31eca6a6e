"""Figures from two expositions, and the diagnoses that they lead to."""

import pytest

from solutions.diagnose import diagnose
from solutions.events import Admitted, Arrived, Finished, Rejected, Sent, Stepped, Token
from solutions.metrics import Metrics
from solutions.vitals import figures, read_exposition


class Watched:
    """A Metrics whose memory is set by hand."""

    def __init__(self):
        self.memory = {"process_resident": 1_000, "device_allocated": 500}
        self.metrics = Metrics("small", lambda: dict(self.memory))

    def read(self) -> dict:
        """The exposition, read."""
        return read_exposition(self.metrics.exposition().decode())

    def serve(self, names: str, reason: str = "stop", prompt: int = 40, gap: float = 0.06) -> None:
        """A request for each letter, one after the other, with eleven tokens each."""
        for number, name in enumerate(names):
            at, watch = 100.0 * number, self.metrics.watch
            watch(Arrived(name, at, prompt, 20, 99, "f", True))
            watch(Admitted(name, at + 0.015))
            for step in range(11):
                watch(Token(name, at + 0.25 + step * gap))
                watch(Stepped(at + 0.25 + step * gap, gap, 1, 0, 60, 400))
            watch(Finished(name, at + 2.0, reason, 11))
            watch(Sent(name, at + 2.0, 0.0))


@pytest.fixture
def watched() -> Watched:
    """A fresh one."""
    return Watched()


@pytest.fixture
def usual() -> dict:
    """Figures of a minute in which all was well."""
    service = Watched()
    before = service.read()
    service.serve("abcdefghijkl")
    return figures(before, service.read(), 60.0)


def named(now: dict, usual: dict | None = None) -> list[str]:
    """The causes that are found."""
    return [finding.cause for finding in diagnose(now, usual)]


def test_figures_by_hand(watched):
    watched.serve("xyz")  # before the time that counts
    before = watched.read()
    watched.serve("ab")
    watched.serve("c", reason="length", prompt=400)
    watched.metrics.watch(Rejected(1.0, "queue_full"))
    watched.metrics.watch(Stepped(1.0, 0.5, 0, 0, 100, 400, ("FloatingPointError", "KeyError")))
    watched.metrics.watch(Arrived("w", 1.0, 5, 5, 5, "f", False))
    watched.metrics.pause(0.25)
    watched.memory["process_resident"] = 4_000
    found = figures(before, watched.read(), 10.0)
    expected = {
        "seconds": 10.0,
        "steps": 34.0,
        "tokens": 33.0,
        "prompt_tokens": 480.0,
        "finished": 3.0,
        "stop": 2.0,
        "length": 1.0,
        "cancelled": 0.0,
        "timeout": 0.0,
        "error": 0.0,
        "queue_full": 1.0,
        "too_long": 0.0,
        "draining": 0.0,
        "not_finite": 1.0,
        "memory_errors": 0.0,
        "other_errors": 1.0,
        "paused": 0.25,
        "running": 0.0,
        "waiting": 1.0,
        "kv": 0.25,
        "memory": 4_500.0,
        "memory_before": 1_500.0,
        "longest_prompt": 500.0,  # the bucket from 200 to 500
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    quantiles = {name: value for name, value in found.items() if name not in expected}
    # Three values in one bucket count as evenly spread in it: 0.2 to 0.3, 0.05 to 0.07.
    assert quantiles == pytest.approx(
        {
            "first_token_p50": 0.2 + 0.1 * 0.5,
            "first_token_p95": 0.2 + 0.1 * 0.95,
            "inter_token_p50": 0.05 + 0.02 * 0.5,
            "inter_token_p95": 0.05 + 0.02 * 0.95,
            "queue_p95": 0.01 + 0.01 * 0.95,
            "send_lag_p95": 0.001 * 0.95,
            "step_p50": 0.05 + 0.02 * 17 / 33,
            "step_p95": 0.05 + 0.02 * (0.95 * 34) / 33,
        }
    )


def test_nothing_happened(watched):
    found = figures(watched.read(), watched.read(), 5.0)
    assert found["steps"] == 0.0
    assert found["longest_prompt"] is None
    assert found["first_token_p95"] is None
    assert named(found) == []


def test_a_restart_in_between(watched):
    before = watched.read()
    watched.serve("abcd")
    old = watched.read()
    again = Watched()
    again.serve("a")
    found = figures(old, again.read(), 5.0)
    assert (found["finished"], found["tokens"]) == (1.0, 11.0)
    assert found["inter_token_p50"] == figures(before, old, 5.0)["inter_token_p50"]


def test_an_exposition_of_something_else():
    text = '# TYPE python_info gauge\npython_info 1\nother{a="1",b="2"} 3\n'
    found = figures(read_exposition(text), read_exposition(text), 5.0)
    assert found["running"] is None
    assert found["steps"] == 0.0
    assert named(found) == []


def test_all_is_well(watched, usual):
    before = watched.read()
    watched.serve("mnopqrstuvwx")
    assert named(figures(before, watched.read(), 60.0), usual) == []


def stuck(watched: Watched) -> None:
    watched.metrics.watch(Arrived("q", 1.0, 5, 5, 5, "f", False))


def leaking(watched: Watched) -> None:
    watched.serve("abcdefghijkl")
    watched.memory["process_resident"] = 2_000


def pausing(watched: Watched) -> None:
    watched.serve("abcdefghijkl")
    watched.metrics.pause(4.0)


def garbled(watched: Watched) -> None:
    watched.serve("abcdefghijkl", reason="length")


def huge(watched: Watched) -> None:
    watched.serve("abcdefghijkl", prompt=2_000, gap=0.4)


def slow_reader(watched: Watched) -> None:
    watched.serve("abcdefghijkl")
    watched.metrics.watch(Sent("z", 1.0, 20.0))


def storm(watched: Watched) -> None:
    watched.serve("abcdefghijkl")
    watched.metrics.watch(Rejected(1.0, "queue_full"))


def slow_machine(watched: Watched) -> None:
    watched.serve("abcdefghijkl", gap=0.2)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (stuck, "stuck_engine"),
        (leaking, "memory_leak"),
        (pausing, "collector_pauses"),
        (garbled, "garbled_output"),
        (huge, "huge_request"),
        (slow_reader, "slow_client"),
        (storm, "queue_storm"),
        (slow_machine, "slow_machine"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_fault_is_told_from_the_others(watched, usual, fault, cause):
    before = watched.read()
    fault(watched)
    assert named(figures(before, watched.read(), 60.0), usual)[0] == cause
