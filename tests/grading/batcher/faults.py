"""6.8 Batcher: what fails, and whom it concerns."""

from course.cases import Wrong, case, expect_equal
from tests.grading.batcher.serving import all_in, asks, expect_all_free, expect_answers, serve
from tests.grading.batcher.static import ids_of
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.oracles import batcher as oracle
from tests.scenarios.batcher_models import INF, NAN, NOTHING


def crowd(rng) -> dict:
    """With 2 rows and 6 places, after two steps: c decodes, p is being read, w waits."""
    return {
        "c": asks(ids_of(rng, 3), 9),
        "p": asks(ids_of(rng, 40), 3, priority=1),
        "w": asks(ids_of(rng, 2), 4, priority=2),
    }


TWO_ROWS = {"cache": [2, 64], "limits": {"step_tokens": 6}}


def ends_of(found: dict) -> dict:
    """[output, reason] by name."""
    return {name: [end["output"], end["reason"]] for name, end in found["ends"].items()}


def error_of(found: dict, name: str) -> str:
    """The kind of exception that ended a request, or "none"."""
    error = found["ends"][name]["error"]
    return "none" if error is None else error[0]


def events_of(step: dict, *kinds: str) -> list:
    """The events of some kinds in a step."""
    return [event for event in step["events"] if event[0] in kinds]


def first_tokens(wish: dict, count: int) -> list:
    """The beginning of an answer."""
    return oracle.told(wish["prompt"], count)[0]


@case("6.8")
def fault_in_a_forward(learner, rng):
    """When a forward raises, those who were in it end, "error", with the exception; those in the
    other forward and those who wait go on, and so does the batcher.
    """
    for number, failed in ((2, "c"), (3, "p"), (1, "cp")):  # the first has the prompts of both
        wishes = crowd(rng)
        setting = TWO_ROWS | {"breaks": {number: "ArithmeticError"}}
        found = serve(learner, wishes, all_in(wishes), **setting)
        steps = found["answers"][-1]
        got = [name for name, end in found["ends"].items() if end["reason"] == "error"]
        expect_equal(got, list(failed), f"who ended when forward {number} failed")
        for name in got:
            error = ["ArithmeticError", "the model failed on purpose"]
            expect_equal(found["ends"][name]["error"], error, f"the error of {name!r}")
        errors = [error for step in steps for error in step["errors"]]
        expect_equal(errors, ["ArithmeticError"], "Step.errors of all steps together")
        (failing,) = [step for step in steps if step["errors"]]
        forwards = 1 if number == 1 else 2
        expect_equal(len(events_of(failing, "forward")), forwards, "the forwards of that step")
        expect_answers(found, {n: w for n, w in wishes.items() if n not in got})
        expect_all_free(found)


@case("6.8")
def fault_of_everybody_in_it(learner, rng):
    """All of one forward end with the same exception; who comes later is served."""
    wishes = {n: asks(ids_of(rng, 2), 4) for n in ("a", "b", "c", "late")}
    script = [["submit", n] for n in "abc"] + [["step"], ["step"], ["submit", "late"], ["run"]]
    found = serve(learner, wishes, script, breaks={2: "RuntimeError"})
    expected = {n: [first_tokens(wishes[n], 1), "error"] for n in "abc"}
    expect_equal({n: ends_of(found)[n] for n in "abc"}, expected, "[output, reason] of each")
    step = found["answers"][4]
    expect_equal(step["errors"], ["RuntimeError"], "errors of the step")
    record = [step["decode"], step["prefill"], step["counts"]]
    what = "[decode, prefill, [places, running, waiting]] of the step whose forward failed"
    expect_equal(record, [[0, 1, 2], {}, [3, 0, 0]], what)
    expect_answers(found, {"late": wishes["late"]})
    expect_equal([s["errors"] for s in found["answers"][-1]], [[]] * 4, "errors of later steps")
    expect_all_free(found)


@case("6.8")
def fault_in_the_sampler(learner, rng):
    """When the sampler raises, in sample or in report, all in that call end, "error"; whose prompt
    goes on does not.
    """
    for name in ("sample", "report"):
        wishes, broken = crowd(rng), {f"{name}_breaks": {2: "RuntimeError"}}
        found = serve(learner, wishes, all_in(wishes), **broken, **TWO_ROWS)
        ended = [first_tokens(wishes["c"], 1), "error"]
        expect_equal(ends_of(found)["c"], ended, f"[output, reason] of c when {name} failed")
        error = ["RuntimeError", f"{name} failed on purpose"]
        expect_equal(found["ends"]["c"]["error"], error, "the error of c")
        expect_answers(found, {name: wishes[name] for name in "pw"})
        expect_all_free(found)


@case("6.8")
def fault_before_the_first_forward(learner, rng):
    """A request whose SamplingState cannot be made ends, "error"; nobody else notices."""
    wishes = {name: asks(ids_of(rng, 3), 4) for name in ("a", "b", "d")}
    found = serve(learner, wishes, all_in(wishes), states_break={2: "RuntimeError"})
    expect_equal(ends_of(found)["b"], [[], "error"], "[output, reason] of the second")
    expect_equal(error_of(found, "b"), "RuntimeError", "the error of the second")
    expect_answers(found, {name: wishes[name] for name in "ad"})
    expect_all_free(found)


@case("6.8")
def fault_in_logits(learner, rng):
    """Logits that no token can be chosen from end that one request, with a FloatingPointError; its
    neighbours in the same forward go on. In the middle of a prompt nobody looks at them.
    """
    for spoilt in (NAN, INF, NOTHING):
        wishes = {name: asks(ids_of(rng, 3), 4) for name in ("a", "b", "d")}
        wishes["b"]["prompt"][-1] = spoilt
        wishes["c"] = asks([spoilt, *ids_of(rng, 2)], 4)
        found = serve(learner, wishes, all_in(wishes))
        expect_equal(ends_of(found)["b"], [[], "error"], "[output, reason] of the one")
        expect_equal(error_of(found, "b"), "FloatingPointError", "the error of the one")
        errors = [error for step in found["answers"][-1] for error in step["errors"]]
        expect_equal(errors, ["FloatingPointError"], "Step.errors of all steps together")
        expect_answers(found, {n: w for n, w in wishes.items() if n != "b"})
        expect_all_free(found)
        expect_equal(len(found["answers"][-1]), 4, "the number of steps for four tokens each")
    wishes = {"alone": asks([4, NAN], 3), "next": asks(ids_of(rng, 2), 2, priority=1)}
    wishes["cut"] = asks([5, 6, INF, 7, 8], 2, priority=2)  # its first chunk ends at the third
    found = serve(learner, wishes, all_in(wishes), cache=[1, 64], limits={"step_tokens": 3})
    expect_equal(ends_of(found)["alone"], [[], "error"], "[output, reason] of one that was alone")
    expect_answers(found, {name: wishes[name] for name in ("next", "cut")})


@case("6.8")
def fault_in_a_listener(learner, rng):
    """What on_token raises ends that request, "error", with the token in its output; what on_finish
    raises changes nothing. Both are in Step.errors, and nobody else is concerned.
    """
    wishes = {
        "a": asks(ids_of(rng, 2), 5),
        "b": asks(ids_of(rng, 2), 5, on_token={2: "ArithmeticError"}),
        "c": asks(ids_of(rng, 2), 2, on_finish="RuntimeError"),
        "d": asks(ids_of(rng, 2), 5, on_token={1: "ArithmeticError"}, on_finish="RuntimeError"),
        "e": asks(ids_of(rng, 2), 3, priority=1),
    }
    found = serve(learner, wishes, all_in(wishes))
    got = {name: ends_of(found)[name] for name in "bd"}
    expected = {n: [first_tokens(wishes[n], c), "error"] for n, c in (("b", 2), ("d", 1))}
    expect_equal(got, expected, "[output, reason] of those whose on_token failed")
    expect_equal(error_of(found, "b"), "ArithmeticError", "the error of b")
    expect_answers(found, {name: wishes[name] for name in "ace"})
    expect_equal(found["ends"]["c"]["error"], None, "the error of c, whose on_finish failed")
    finishes = sorted(e[1:3] for e in found["events"] if e[0] == "finish")
    reasons = {"a": "length", "b": "error", "c": "length", "d": "error", "e": "length"}
    expect_equal(finishes, [list(pair) for pair in reasons.items()], "calls of on_finish")
    errors = sorted(error for step in found["answers"][-1] for error in step["errors"])
    expect_equal(errors, ["ArithmeticError"] * 2 + ["RuntimeError"] * 2, "all Step.errors")
    expect_all_free(found)


@case("6.8")
def fault_that_is_no_exception(learner, rng):
    """Ctrl-C in a forward or in a listener goes on to the caller of step."""
    wishes = {"a": asks(ids_of(rng, 2), 4), "b": asks(ids_of(rng, 2), 4)}
    for where in ({"breaks": {2: "KeyboardInterrupt"}}, {"sample_breaks": {2: "SystemExit"}}):
        (kind,) = [name for broken in where.values() for name in broken.values()]
        script = [*all_in(wishes, run=False), ["step"], ["fails", [], ["step"]]]
        found = serve(learner, wishes, script, **where)
        expect_failure(found["answers"][-1], kind, f"step with a {kind}")
        reasons = [reason for _, reason in ends_of(found).values()]
        expect_equal(reasons, [None, None], "the reasons of those who ran")


@case("6.8")
def step_with_nobody(learner, rng):
    """A step with nobody does nothing; `idle` says when. When memory has leaked by then, step
    raises RuntimeError and names the tokens.
    """
    wishes = {"a": asks(ids_of(rng, 2), 2)}
    script = [["idle"], ["step"], ["submit", "a"], ["idle"], ["step"], ["idle"], ["step"], ["idle"]]
    found = serve(learner, wishes, [*script, ["step"]])
    answers = found["answers"]
    idle = [answers[n] for n in (0, 3, 5, 7)]
    expect_equal(idle, [True, False, False, True], "idle: before, submitted, running, over")
    for step in (answers[1], answers[8]):
        record = [step["decode"], step["prefill"], step["counts"], step["events"]]
        expect_equal(record, [[], {}, [0, 0, 0], []], "[decode, prefill, counts, events]")
    leak = rng.randrange(11, 30)
    script = [["submit", "a"], ["step"], ["leak", 3, leak], ["fails", [leak], ["step"]]]
    found = drive(learner, "serve", {}, wishes, script)
    expect_failure(found["answers"][-1], "RuntimeError", f"the last step with {leak} tokens leaked")


@case("6.8")
def step_holds_up_nobody(learner, rng):
    """While a forward is computed, other threads submit and cancel without waiting for it."""
    wishes = {name: asks(ids_of(rng, 3), 4) for name in ("a", "b", "c", "d")}
    found = drive(learner, "serve_from_threads", {"cache": [2, 64]}, wishes)
    if found["held_up"]:
        raise Wrong("submit or cancel from another thread waited for the end of a forward")
    reasons = {name: end["reason"] for name, end in found["ends"].items()}
    expected = {"a": "length", "b": "length", "c": "cancelled", "d": "length"}
    expect_equal([reasons, found["check"]], [expected, []], "[reasons, check()]")
