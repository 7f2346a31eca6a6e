"""7.3 EngineThread: who computes, and when."""

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.oracles import batcher as oracle


def names_of(rng, count: int) -> list:
    """Names of requests."""
    return [f"r{number}" for number in rng.sample(range(1000), count)]


@case("7.3")
def thread_runs_requests(learner, rng):
    """What is submitted is computed, all of it on one thread that is not the caller's, and more
    after a pause.
    """
    prompts = {
        name: [rng.randrange(1, 50) for _ in range(rng.randrange(1, 6))]
        for name in names_of(rng, 6)
    }
    found = drive(learner, "thread_serves", prompts)
    expected = {name: list(oracle.told(ids, 5)) for name, ids in prompts.items()}
    expect_equal(found["outputs"], expected, "[output, reason] of each")
    expect_equal([found["threads"], found["own"]], [1, False], "[threads, whether it was ours]")
    alive = [True, None, False]
    expect_equal(found["alive"], alive, "[is_alive, error, is_alive after stop]")


@case("7.3")
def thread_sleeps_when_idle(learner, rng):
    """With nothing to do it sleeps: it does not even look whether there is something."""
    looks, steps, many = drive(learner, "thread_sleeps")
    if looks > 2:
        raise Wrong("with nothing to do it looks again and again whether there is work: it spins")
    expect_equal([steps, many], [0, False], "[steps while idle, more steps than there was work]")


@case("7.3")
def thread_misses_nobody(learner, rng):
    """A request that comes just when the thread has seen that nobody is there is computed too; also
    when the batcher takes its time to let it in.
    """
    count = rng.randrange(4, 9)
    expect_equal(drive(learner, "thread_wakes", count), count, "requests that ended")


@case("7.3")
def thread_holds_nobody_up(learner, rng):
    """While a step is being computed, submit and cancel come back at once, and is_alive and began
    say that it computes.
    """
    names = names_of(rng, 4)
    found = drive(learner, "thread_does_not_hold_up", names)
    expect_equal(found["during"], [True, True, 0], "[is_alive, began is set, ends] in the step")
    expected = [[name, "stop", None] for name in names[:-1]] + [[names[-1], "cancelled", None]]
    expect_equal(found["heard"], sorted(expected), "[name, reason, error] that on_finish saw")


@case("7.3")
def thread_passes_refusals_on(learner, rng):
    """What the batcher refuses is not the thread's: submit raises what the batcher raised, and that
    request's on_finish is never called.
    """
    found = drive(learner, "thread_refuses")
    raised = [["RuntimeError", "full"], ["ValueError", "empty"]]
    expect_equal(found["raised"], raised, "what submit raised")
    expect_equal(found["heard"], [["fine", "stop", None]], "who heard of an end")


@case("7.3")
def thread_tells_of_steps(learner, rng):
    """on_step gets each Step and the seconds of the clock that it took; began is the time when the
    step began, and None when it is over.
    """
    found = drive(learner, "thread_tells_steps")
    expected = []
    for number in range(4):
        expected += [["in", 50.0 + 2 * number], ["after", number + 1, 2.0, None]]
    expect_equal(found["seen"], expected, "began in each step, then what on_step got")
    expect_equal(found["began"], None, "began at last")


@case("7.3")
def thread_forgets_who_is_over(learner, rng):
    """Requests that are over are held by nobody: memory does not grow with history."""
    count = rng.randrange(20, 30)
    found = drive(learner, "thread_forgets", count)
    expect_equal(found, [True, count + 1], "[forgotten, requests that ended]")
