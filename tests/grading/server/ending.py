"""7.8 health and Lifecycle."""

from course.cases import case, expect_equal
from tests.grading.forward_pass.driving import drive


def health_of(learner, rows: list) -> None:
    """Rows of [phase, is_alive, step_seconds, stall_seconds, status, word]."""
    found = drive(learner, "healths", [row[:4] for row in rows])
    for row, got in zip(rows, found, strict=True):
        expect_equal(got, list(row[4:]), f"health{tuple(row[:4])}")


@case("7.8")
def health_when_all_is_well(learner, rng):
    """200 only when a request that comes now is computed: not while it warms up or drains."""
    for seconds in (None, 0.0, 3.0):
        health_of(
            learner,
            [
                ["ready", True, seconds, 60.0, 200, "ready"],
                ["warming", True, seconds, 60.0, 503, "warming"],
                ["draining", True, seconds, 60.0, 503, "draining"],
                ["stopped", True, seconds, 60.0, 503, "stopped"],
            ],
        )
    health_of(learner, [["ready", True, 0.25, 0.0, 503, "stalled"]])


@case("7.8")
def health_of_the_dead(learner, rng):
    """An engine that has ended cannot serve, whatever the phase says. Before the start it is not
    dead but to come, and after the end it is just stopped.
    """
    health_of(
        learner,
        [
            ["ready", False, None, 60.0, 503, "dead"],
            ["draining", False, None, 60.0, 503, "dead"],
            ["warming", False, None, 60.0, 503, "warming"],
            ["stopped", False, None, 60.0, 503, "stopped"],
            ["ready", False, 999.0, 60.0, 503, "dead"],
        ],
    )


@case("7.8")
def health_of_the_stuck(learner, rng):
    """A step that takes longer than it may has hung: the thread lives, and serves nobody."""
    limit = float(rng.randrange(5, 90))
    health_of(
        learner,
        [
            ["ready", True, limit, limit, 200, "ready"],
            ["ready", True, limit + 0.5, limit, 503, "stalled"],
            ["draining", True, limit + 0.5, limit, 503, "stalled"],
            ["warming", True, limit + 0.5, limit, 503, "stalled"],
            ["warming", False, limit + 0.5, limit, 503, "stalled"],
            ["stopped", True, limit + 0.5, limit, 503, "stopped"],
        ],
    )


def lived(learner, script: list, answers: list, drains: list, ends=(), until=1000.0) -> None:
    """A script gives these answers, and these drains [began, ended, by themselves, phase]."""
    found = drive(learner, "lifecycles", script, until)
    expect_equal(found["answers"], answers, f"what the steps of {script} gave")
    expect_equal(found["drains"], drains, f"[began, ended, gave, phase] of the drains of {script}")
    expect_equal(found["ends"], list(ends), f"when end_all was called in {script}")


@case("7.8")
def life_begins(learner, rng):
    """Nobody is let in before it is ready; then everybody is, and counted until they leave."""
    script = [[0.0, "look"], [0.0, "enter", "a"], [1.0, "ready"], [1.0, "look"]]
    answers = [["warming", 0], [503, "warming", 1], None, ["ready", 0]]
    script += [[2.0, "enter", "a"], [2.0, "enter", "b"], [2.0, "look"], [3.0, "leave", "a"]]
    answers += [None, None, ["ready", 2], None]
    script += [[3.0, "look"], [4.0, "raise", "b"], [4.0, "look"], [5.0, "ready"], [5.0, "look"]]
    answers += [["ready", 1], None, ["ready", 0], None, ["ready", 0]]
    script += [[6.0, "enter", "c"], [7.0, "cancel", "c"], [7.0, "look"]]
    answers += [None, None, ["ready", 0]]
    lived(learner, script, answers, [])


@case("7.8")
def life_drains(learner, rng):
    """While it drains it refuses what is new and lets those inside finish; with the last it stops,
    not earlier and not later.
    """
    seconds = float(rng.randrange(20, 40))
    script = [[0.0, "ready"], [1.0, "enter", "a"], [1.0, "enter", "b"]]
    script += [[2.0, "drain", seconds, 5.0, []], [2.0, "look"], [3.0, "enter", "c"]]
    answers = [None, None, None, None, ["draining", 2], [503, "draining", 1]]
    script += [[4.0, "leave", "a"], [5.0, "look"], [9.0, "leave", "b"], [9.0, "look"]]
    answers += [None, ["draining", 1], None, ["stopped", 0]]
    script += [[10.0, "enter", "d"], [10.0, "ready"], [10.0, "look"]]
    answers += [[503, "stopped", 1], None, ["stopped", 0]]
    lived(learner, script, answers, [[2.0, 9.0, True, "stopped"]])


@case("7.8")
def life_drains_when_empty(learner, rng):
    """With nobody inside it stops at once, though people were inside before; while it warms up
    too, and then it never gets ready.
    """
    script = [[0.0, "ready"], [1.0, "enter", "a"], [2.0, "leave", "a"]]
    script += [[3.0, "drain", 30.0, 5.0, []], [3.0, "look"]]
    answers = [None, None, None, None, ["stopped", 0]]
    lived(learner, script, answers, [[3.0, 3.0, True, "stopped"]])
    script = [[3.0, "drain", 30.0, 5.0, []], [4.0, "ready"], [4.0, "look"]]
    lived(learner, script, [None, None, ["stopped", 0]], [[3.0, 3.0, True, "stopped"]])


@case("7.8")
def life_goes_on_draining(learner, rng):
    """Nothing makes a service ready again that drains: not ready, and not that somebody who waits
    for the end of the drain is cancelled.
    """
    script = [[0.0, "ready"], [1.0, "enter", "a"], [2.0, "drain", 30.0, 5.0, []]]
    script += [[3.0, "drain", 30.0, 5.0, []], [4.0, "ready"], [4.0, "look"], [5.0, "give up"]]
    script += [[6.0, "look"], [7.0, "enter", "b"], [8.0, "leave", "a"], [9.0, "look"]]
    answers = [None] * 5 + [["draining", 1], None, ["draining", 1], [503, "draining", 1], None]
    answers.append(["stopped", 0])
    lived(learner, script, answers, [[3.0, 8.0, True, "stopped"]])


@case("7.8")
def life_drains_after_being_empty(learner, rng):
    """That nobody was inside at some time before the drain says nothing about now."""
    script = [[0.0, "ready"], [1.0, "enter", "a"], [2.0, "leave", "a"], [3.0, "enter", "b"]]
    script += [[4.0, "drain", 30.0, 5.0, []], [5.0, "look"], [6.0, "leave", "b"]]
    answers = [None] * 5 + [["draining", 1], None]
    lived(learner, script, answers, [[4.0, 6.0, True, "stopped"]])


@case("7.8")
def life_loses_patience(learner, rng):
    """Who is still inside when the time is over is ended, once, and gets a little time to say so;
    no longer than it needs.
    """
    seconds = float(rng.randrange(10, 20))
    script = [[0.0, "ready"], [1.0, "enter", "a"], [1.0, "enter", "b"]]
    script += [[2.0, "drain", seconds, 5.0, [["a", 1.0], ["b", 2.0]]], [8.0, "look"]]
    answers = [None, None, None, None, ["draining", 2]]
    end = 2.0 + seconds
    lived(learner, script, answers, [[2.0, end + 2.0, False, "stopped"]], [end])


@case("7.8")
def life_does_not_wait_for_ever(learner, rng):
    """Who does not leave though he was ended is not waited for longer than the grace."""
    grace = float(rng.randrange(1, 9))
    script = [[0.0, "ready"], [1.0, "enter", "a"], [2.0, "drain", 10.0, grace, []]]
    script += [[500.0, "look"], [501.0, "leave", "a"], [502.0, "look"]]
    answers = [None, None, None, ["stopped", 1], None, ["stopped", 0]]
    lived(learner, script, answers, [[2.0, 12.0 + grace, False, "stopped"]], [12.0])
    script = [[0.0, "ready"], [1.0, "enter", "a"], [2.0, "drain", 0.0, 0.0, []]]
    lived(learner, script, [None] * 3, [[2.0, 2.0, False, "stopped"]], [2.0])


@case("7.8")
def life_drains_once(learner, rng):
    """A second drain starts nothing: it waits for the first, and says the same."""
    script = [[0.0, "ready"], [1.0, "enter", "a"], [2.0, "drain", 10.0, 5.0, [["a", 1.0]]]]
    script += [[4.0, "drain", 1.0, 1.0, []], [6.0, "look"], [50.0, "drain", 10.0, 5.0, []]]
    answers = [None, None, None, None, ["draining", 1], None]
    drains = [[2.0, 13.0, False, "stopped"], [4.0, 13.0, False, "stopped"]]
    drains.append([50.0, 50.0, False, "stopped"])
    lived(learner, script, answers, drains, [12.0])
