"""7.3 EngineThread: faults, and the end."""

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.grading.server.thread import names_of

RAISES = ["raise", "RuntimeError"]


def died(learner, script: list, names: list, finished: list, kind="RuntimeError", **more) -> None:
    """The thread ends by an exception of that kind; all but the finished ones end with it."""
    found = drive(learner, "thread_dies", script, names, *more.values())
    is_error = kind not in ("KeyboardInterrupt", "SystemExit")
    told = kind if is_error else "RuntimeError"
    ends = {name: ["stop", None] if name in finished else ["error", told] for name in names}
    heard = sorted([name, *end] for name, end in ends.items())
    expect_equal(found["heard"], heard, "[name, reason, error] of each on_finish")
    expect_equal(found["error"], kind, "the class of the engine's error")
    failed = dict.fromkeys([name for name in names if name not in finished], is_error)
    expect_equal(found["same"], failed, "whether the requests' error is the engine's")
    if not is_error:
        expect_equal(found["named"], dict.fromkeys(failed, True), "whether it names the engine's")
    expect_equal([found["late"], found["late_over"]], [True, None], "a submit that comes too late")
    expect_equal([found["stopped"], found["began"]], [True, None], "[stop(), began] afterwards")
    said = "requests whose on_finish found the engine alive still, or its error None"
    expect_equal(found["early"], [], said)


@case("7.3")
def thread_dies_aloud(learner, rng):
    """An exception that step does not handle ends the thread, not in silence: everybody who waits
    or runs hears of it, once, error keeps it, and whoever comes later is told.
    """
    names = names_of(rng, 4)
    died(learner, [[RAISES]], names, [])
    died(learner, [["finish"], ["finish", RAISES]], names, names[:2])


@case("7.3")
def thread_dies_with_all(learner, rng):
    """A request that the batcher lost on the way, when the fault came, hears of it as well."""
    names = names_of(rng, 3)
    died(learner, [["lose", RAISES]], names, [])


@case("7.3")
def thread_dies_of_anything(learner, rng):
    """What is no Exception (a SystemExit) is the end as well; the requests get a RuntimeError that
    names it.
    """
    for kind in ("KeyboardInterrupt", "SystemExit"):
        names = names_of(rng, 3)
        died(learner, [["finish"], [["raise", kind]]], names, names[:1], kind)


@case("7.3")
def thread_dies_of_its_listener(learner, rng):
    """What on_step raises is the end as well."""
    names = names_of(rng, 3)
    died(learner, [["finish"]], names, names[:1], "ArithmeticError", by="ArithmeticError")


@case("7.3")
def thread_stops_in_time(learner, rng):
    """stop waits no longer than it is told for the step; then those who are left end "cancelled",
    and nobody is taken any more. It may be called again.
    """
    names = names_of(rng, 3)
    found = drive(learner, "thread_stops", names)
    expect_equal(found["stopped"], [False, True, True], "what stop said, three times")
    expect_equal(
        [found["alive"], found["late"]], [[False, False], True], "[is_alive, a late submit]"
    )
    heard = sorted([name, "cancelled", None] for name in names)
    expect_equal(found["heard"], [[], heard], "[name, reason, error], before and after the step")
    expect_equal([found["steps"], found["error"]], [1, None], "[steps, error]")


@case("7.3")
def thread_stops_before_it_starts(learner, rng):
    """A thread that was never started stops at once; its requests end all the same, and nobody is
    taken any more.
    """
    found = drive(learner, "thread_never_started")
    expect_equal(found["alive"], [False, False], "is_alive before and after")
    expect_equal([found["stopped"], found["heard"]], [True, [["a", "cancelled", None]]], "the end")
    expect_equal(found["late"], True, "whether a submit that comes too late raises EngineDead")


@case("7.3")
def thread_dies_while_one_comes(learner, rng):
    """A request that is being submitted while the thread dies is refused, or it ends: one of both,
    once.
    """
    found = drive(learner, "thread_dies_meanwhile")
    if found not in (["refused"], ["error"]):
        raise Wrong(f"what became of it: {found}, expected one of 'refused' and 'error'")
