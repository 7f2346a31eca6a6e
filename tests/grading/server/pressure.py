"""7.5 Pace, Door and failure."""

import math

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive


def waits(learner, notes: list, asks: list) -> None:
    """After these departures, each of asks [ahead, now] gets this many seconds."""
    script = [[0, "note", now] for now in notes] + [[0, "wait", *ask[:2]] for ask in asks]
    found = drive(learner, "paces", script)[len(notes) :]
    for ask, got in zip(asks, found, strict=True):
        expect_equal(got, ask[2], f"wait{tuple(ask[:2])} after departures at {notes[-17:]}")


@case("7.5")
def pace_by_hand(learner, rng):
    """Departures at 10, 12 and 14: one every two seconds. Five that wait are gone in ten."""
    start = rng.randrange(1000)
    notes = [start + 10.0, start + 12.0, start + 14.0]
    now = start + 15.0
    asks = [[5, now, 10], [1, now, 2], [30, now, 60], [31, now, 60], [0, now, 1], [500, now, 60]]
    waits(learner, notes, asks)
    waits(learner, [1.0, 1.5, 2.5], [[3, 2.5, 3], [10, 2.5, 8]])
    # Two that leave in the same moment, as when one step ends both, are one gap of 0 apart.
    waits(learner, [5.0, 5.0], [[10, 5.0, 1], [10, 6.0, 5]])


@case("7.5")
def pace_of_the_unknown(learner, rng):
    """With fewer than two departures nothing is known: one second."""
    waits(learner, [], [[50, 100.0, 1], [0, 100.0, 1]])
    waits(learner, [5.0], [[50, 5.5, 1], [50, 4000.0, 1]])


@case("7.5")
def pace_that_stands_still(learner, rng):
    """An engine from which nobody has come for long gets slower while one looks."""
    waits(learner, [0.0, 1.0, 2.0], [[4, 2.5, 4], [4, 3.0, 4], [4, 8.0, 11], [4, 602.0, 60]])
    waits(learner, [0.0, 0.25], [[8, 0.25, 2], [8, 2.25, 9]])


@case("7.5")
def pace_forgets(learner, rng):
    """Only the last 16 departures count."""
    notes = [float(n * 20) for n in range(10)] + [200.0 + n / 4 for n in range(16)]
    waits(learner, notes, [[20, notes[-1], 5], [40, notes[-1], 10]])
    waits(learner, notes[-15:], [[20, notes[-1], 5]])
    found = drive(learner, "paces", [[0, "note", 1.0], [1, "note", 9.0], [0, "wait", 9, 9.0]])
    expect_equal(found[-1], 1, "wait of a Pace beside another that had a departure")


@case("7.5")
def pace_at_random(learner, rng):
    """Any departures: ahead times the mean gap, rounded up."""
    for _ in range(10):
        now, notes = 0.0, []
        for _ in range(rng.randrange(2, 30)):
            now += rng.choice([0.125, 0.5, 0.75, 2.0])
            notes.append(now)
        last = notes[-16:]
        mean = (last[-1] - last[0]) / (len(last) - 1)
        ahead = rng.randrange(0, 40)
        expected = max(1, min(60, math.ceil(ahead * mean)))
        if abs(ahead * mean - round(ahead * mean)) < 1e-6:
            continue  # rounding may go either way
        waits(learner, notes, [[ahead, now, expected]])


def door(learner, bound: int, script: list, expected: list, seconds=(7,) * 9) -> None:
    """A script of a Door; expected: for each step [what is refused or None, coming afterwards]."""
    found = drive(learner, "doors", bound, list(seconds), script)
    for n, (step, got, want) in enumerate(zip(script, found, expected, strict=True)):
        what = f"step {n + 1} of {script[: n + 1]}"
        refused = got["raised"] and [got["raised"][k] for k in ("status", "param", "code")]
        expect_equal([refused, got["coming"]], want, f"[refused, coming] at {what}")
        if refused and refused[0] == 503:
            expect_equal(got["raised"]["retry_after"], seconds[0], f"retry_after at {what}")
        elif refused:
            expect_equal(got["raised"]["retry_after"], None, f"retry_after at {what}")
            for number in (step[2], bound):
                if str(number) not in got["raised"]["message"]:
                    raise Wrong(f"the message at {what} does not name {number}")


FULL = [503, None, "queue_full"]


@case("7.5")
def door_counts(learner, rng):
    """Who comes in holds places until the end of the block; as many are let in as there are."""
    bound = rng.randrange(3, 6)
    script = [["enter", n, 1] for n in range(bound + 1)]
    expected = [[None, n + 1] for n in range(bound)] + [[FULL, bound]]
    script += [["leave", 1], ["enter", "new"], ["enter", "more", 1]]
    expected += [[None, bound - 1], [None, bound], [FULL, bound]]
    door(learner, bound, script, expected)


@case("7.5")
def door_counts_the_queue(learner, rng):
    """Those in the queue and those on their way to it have the same places."""
    script = [["waiting", 3], ["enter", "a", 1], ["enter", "b", 1], ["enter", "c", 1]]
    expected = [[None, 0], [None, 1], [None, 2], [FULL, 2]]
    script += [["leave", "a"], ["waiting", 4], ["enter", "c", 1], ["waiting", 0], ["enter", "c", 4]]
    expected += [[None, 1], [None, 1], [FULL, 1], [None, 1], [None, 5]]
    script += [["enter", "d", 1], ["leave", "c"], ["leave", "b"], ["waiting", 9], ["enter", "e", 1]]
    expected += [[FULL, 5], [None, 1], [None, 0], [None, 0], [FULL, 0]]
    door(learner, 5, script, expected)


@case("7.5")
def door_for_several(learner, rng):
    """A request for several answers needs so many places at once, or none; one that needs more than
    there are can never come in: that is its own fault, 400.
    """
    never = [400, "n", "invalid_value"]
    script = [["enter", "a", 5], ["enter", "b", 4], ["enter", "c", 1], ["leave", "b"]]
    expected = [[never, 0], [None, 4], [FULL, 4], [None, 0]]
    script += [["waiting", 2], ["enter", "d", 3], ["enter", "e", 2], ["enter", "f", 100]]
    expected += [[None, 0], [FULL, 0], [None, 2], [never, 2]]
    door(learner, 4, script, expected)


@case("7.5")
def door_gives_places_back(learner, rng):
    """Whatever happens in the block, the places are free after it, and the exception goes on."""
    script = [["enter", "a", 2], ["raise", "a"], ["enter", "b", 2], ["raise", "b"]]
    door(learner, 2, script, [[None, 2], [None, 0], [None, 2], [None, 0]])
    script = [["enter", "a", 2], ["cancel", "a"], ["enter", "b", 2]]  # a client that goes away
    door(learner, 2, script, [[None, 2], [None, 0], [None, 2]])


@case("7.5")
def door_says_when(learner, rng):
    """retry_after is what pace says of all that wait or are coming, at the time of the clock."""
    now = float(rng.randrange(1000))
    script = [["time", now], ["waiting", 2], ["enter", "a", 2], ["enter", "b", 1]]
    script += [["time", now + 5], ["waiting", 4], ["leave", "a"], ["enter", "c", 1]]
    found = drive(learner, "doors", 4, [11, 13], script)
    asked = [found[3].get("asked"), found[7].get("asked")]
    expect_equal(asked, [[[4, now]], [[4, now + 5]]], "what pace was asked: [ahead, now]")
    told = [found[n]["raised"]["retry_after"] for n in (3, 7)]
    expect_equal(told, [11, 13], "retry_after of the two that were refused")


@case("7.5")
def failure_by_reason(learner, rng):
    """Every way in which a request can end, and what the client is told."""
    wait = rng.randrange(2, 50)
    secret = f"the secret of user {rng.randrange(10**9)}"
    ends = [
        ["stop", 5.0, None, wait],
        ["length", 5.0, None, wait],
        ["timeout", None, None, wait],
        ["timeout", 5.0, None, wait],
        ["timeout", 0.0, None, wait],
        ["cancelled", None, None, wait],
        ["cancelled", 5.0, None, wait],
        ["error", 5.0, ["FloatingPointError", secret], wait],
        ["error", None, ["ValueError", secret], wait],
    ]
    later = [503, None, "cancelled", wait, "service_unavailable"]
    failed = [500, None, "engine_error", None, "server_error"]
    late = [504, None, "timeout", None, "timeout_error"]
    expected = [
        *[None, None, [503, None, "queue_timeout", wait, "service_unavailable"], late, late],
        *[later, later, failed, failed],
    ]
    found = drive(learner, "failures", ends)
    names = ("status", "param", "code", "retry_after", "type")
    for end, got, want in zip(ends, found, expected, strict=True):
        shown = f"{end[0]!r}, admitted {end[1]}"
        expect_equal(got and [got[name] for name in names], want, f"{names} of {shown}")
        if got and not got["message"]:
            raise Wrong(f"the message of {shown} is empty: say what happened, and what to do")
        if got and end[2]:
            if got["tells_text"]:
                raise Wrong(
                    f"the message gives away the exception's text, which may hold what a user "
                    f"wrote: {got['message']!r}"
                )
            if not got["names_class"]:
                raise Wrong(f"the message does not name {end[2][0]}: {got['message']!r}")
