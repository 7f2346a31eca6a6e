"""Every drill run for real: the metrics show what its debrief says, and `diagnose` names it."""

import time

import httpx
import pytest

from course.drills import DRILLS
from course.drills.incident import Incident, incident
from solutions.diagnose import diagnose
from solutions.vitals import figures, read_exposition

PATIENCE = 240.0  # seconds after which a test gives up waiting

# What the debrief says is seen, of the figures of the incident and the usual ones.
SEEN = {
    "monday": lambda now, usual: now["longest_prompt"] > 1000 and not now["queue_full"],
    "tuesday": lambda now, usual: now["kv"] < 0.5 and not now["length"] + now["error"],
    "wednesday": lambda now, usual: (
        now["length"] > now["stop"]
        and usual["stop"] > usual["length"]
        and not now["not_finite"] + now["other_errors"]
    ),
    "thursday": lambda now, usual: not now["tokens"] and not now["finished"] and now["waiting"],
    "friday": lambda now, usual: (
        now["send_lag_p95"] > 10 * usual["send_lag_p95"]
        and now["inter_token_p95"] < 1.5 * usual["inter_token_p95"]
    ),
    "saturday": lambda now, usual: now["longest_prompt"] <= usual["longest_prompt"],
    "sunday": lambda now, usual: now["steps"] and now["queue_full"],
}


class Readings:
    """Readings of /metrics, each with its time."""

    def __init__(self, url: str):
        self.url = url
        self.taken = [self._take()]

    def take(self) -> dict:
        """One more; the figures since the first."""
        self.taken.append(self._take())
        return self.since(0)

    def since(self, number: int) -> dict:
        """The figures from that reading to the last."""
        (before, then), (after, now) = self.taken[number], self.taken[-1]
        return figures(before, after, now - then)

    def _take(self):
        text = httpx.get(f"{self.url}/metrics", timeout=PATIENCE).text
        return read_exposition(text), time.monotonic()


def until(holds, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(1)


def usual_of(running: Incident) -> dict:
    """The figures of the calm before: six requests or more."""
    readings = Readings(running.url)
    until(lambda: readings.take()["finished"] >= 6, "the usual load does not run")
    return readings.since(0)


@pytest.mark.parametrize("name", SEEN)
def test_the_fault_shows_and_diagnose_names_it(name, tmp_path):
    with incident(name, tmp_path / "logs") as running:
        usual = usual_of(running)
        assert DRILLS[name].cause not in [found.cause for found in diagnose(usual)]
        running.begin()
        readings = Readings(running.url)
        seen: list = []

        def is_named() -> bool:
            """From the first reading on, or from any later one: what was under way is in it."""
            readings.take()
            for number in range(len(readings.taken) - 1):
                now = readings.since(number)
                causes = [found.cause for found in diagnose(now, usual)]
                seen.append((number, causes, now))
                if DRILLS[name].cause in causes and SEEN[name](now, usual):
                    return True
            return False

        until(is_named, f"nothing but {seen[-1:]} after {usual}")
        if name == "thursday":
            until(lambda: _health(running) == (503, "stalled"), "/health does not notice")


def _health(running: Incident) -> tuple[int, str]:
    found = httpx.get(f"{running.url}/health", timeout=PATIENCE)
    return found.status_code, found.json()["status"]


def test_where_nothing_is_wrong_nothing_is_found(tmp_path):
    """A busy neighbour of the test's own machine may show for a while: one window must be clean."""
    with incident("payday", tmp_path / "logs") as running:
        usual = usual_of(running)
        running.begin()

        def is_clean() -> bool:
            readings = Readings(running.url)
            until(lambda: readings.take()["finished"] >= 4, "the usual load does not run")
            return diagnose(readings.since(0), usual) == []

        until(is_clean, "something is found in every window")


def test_the_server_of_a_drill_ends_with_whoever_started_it(tmp_path):
    with incident("payday", tmp_path / "logs") as running:
        running.process.stdin.close()
        assert running.process.wait(60) == 0
