"""6.8 Batcher: cancelled, too late, failed; and whom it concerns."""

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
def cancel_in_any_state(learner, rng):
    """Whoever waits, is read or decodes ends at the beginning of the next step, "cancelled", and
    its room is free before the next forward; the others go on.
    """
    for name, used in (("c", 43 + 6), ("p", 12 + 6), ("w", 12 + 43)):
        wishes = crowd(rng)
        script = [
            *all_in(wishes, run=False),
            ["step"],
            ["step"],
            ["cancel", name],
            ["step"],
            ["run"],
        ]
        found = serve(learner, wishes, script, **TWO_ROWS)
        stands = found["answers"][4]["stands"]
        expect_equal(stands, {"c": "decode", "p": "prefill", "w": "waiting"}, "states before")
        step = found["answers"][6]
        expect_equal(step["stands"][name], "finished", f"the state of {name!r} after the next step")
        first = step["events"][0]
        expect_equal(first[:3], ["finish", name, "cancelled"], "the first event of that step")
        others = {n: w for n, w in wishes.items() if n != name}
        expect_answers(found, others)
        got = first_tokens(wishes["c"], 2) if name == "c" else []
        expect_equal(ends_of(found)[name], [got, "cancelled"], f"[output, reason] of {name!r}")
        held = used - (6 if name != "w" else 0)
        expect_equal(first[3], held, "tokens still reserved when on_finish was called")
        expect_all_free(found)


@case("6.8")
def cancel_what_is_over(learner, rng):
    """To cancel twice, after the end, or what was never submitted changes nothing, and nobody is
    told a second time.
    """
    wishes = {"a": asks(ids_of(rng, 2), 2), "b": asks(ids_of(rng, 2), 3), "never": asks([1], 2)}
    script = [["cancel", "never"], ["submit", "a"], ["submit", "b"], ["step"], ["cancel", "b"]]
    script += [["cancel", "b"], ["step"], ["cancel", "a"], ["cancel", "b"], ["run"]]
    found = serve(learner, wishes, [*script, ["submit", "never"], ["run"]])
    expect_answers(found, {name: wishes[name] for name in ("a", "never")})
    finishes = sorted(event[1:3] for event in found["events"] if event[0] == "finish")
    expected = [["a", "length"], ["b", "cancelled"], ["never", "length"]]
    expect_equal(finishes, expected, "[name, reason] of each call of on_finish")
    expect_all_free(found)


@case("6.8")
def cancel_several(learner, rng):
    """All who were cancelled since the last step end in the next one."""
    wishes = {f"r{n}": asks(ids_of(rng, 2), 6) for n in range(7)}
    script = [*all_in(wishes, run=False), ["step"], *(["cancel", f"r{n}"] for n in (6, 1, 2, 4))]
    found = serve(learner, wishes, [*script, ["step"], ["run"]])
    step = found["answers"][len(wishes) + 5]
    names = sorted(event[1] for event in events_of(step, "finish"))
    expect_equal(names, ["r1", "r2", "r4", "r6"], "who ended in the next step")
    expect_answers(found, {name: wishes[name] for name in ("r0", "r3", "r5")})
    expect_all_free(found)


@case("6.8")
def cancel_from_a_listener(learner, rng):
    """A listener may cancel others and its own request, and submit another, in the middle of a
    step: it takes effect in the next one.
    """
    wishes = {
        "a": asks(ids_of(rng, 2), 6, on_token={2: ["cancel", "b"]}),
        "b": asks(ids_of(rng, 2), 6),
        "c": asks(ids_of(rng, 2), 6, on_token={3: ["cancel", "c"]}),
        "d": asks(ids_of(rng, 2), 1, on_finish=["submit", "e"]),
        "e": asks(ids_of(rng, 2), 2),
    }
    script = [["submit", name] for name in "abcd"]
    found = serve(learner, wishes, [*script, ["run"]])
    expect_answers(found, {name: wishes[name] for name in "ade"})
    got = {name: ends_of(found)[name] for name in "bc"}
    counts = {"b": 2, "c": 3}
    expected = {n: [first_tokens(wishes[n], counts[n]), "cancelled"] for n in counts}
    expect_equal(got, expected, "[output, reason] of the cancelled ones")
    expect_all_free(found)


@case("6.8")
def late_in_any_state(learner, rng):
    """At its deadline a request ends, "timeout", in whatever state: in the first step that begins
    at that moment or later. admit_by counts only while it waits.
    """
    for name in "cpw":
        wishes = crowd(rng)
        for other, wish in wishes.items():
            wish["admit_by"] = 103.0 if other != "w" else None
        wishes[name]["deadline"] = 105.0
        script = [*all_in(wishes, run=False), ["step"], ["step"], ["time", 104.9], ["step"]]
        found = serve(learner, wishes, [*script, ["time", 105.0], ["step"], ["run"]], **TWO_ROWS)
        before, step = found["answers"][6], found["answers"][8]
        expect_equal(events_of(before, "finish"), [], "who ended before the deadline")
        expect_equal(step["events"][0][:3], ["finish", name, "timeout"], "the first event at 105.0")
        expect_answers(found, {n: w for n, w in wishes.items() if n != name})
        got = first_tokens(wishes["c"], 3) if name == "c" else []
        expect_equal(ends_of(found)[name], [got, "timeout"], f"[output, reason] of {name!r}")
        expect_all_free(found)


@case("6.8")
def late_to_be_admitted(learner, rng):
    """Whoever has not been admitted by admit_by ends, "timeout", though there be room by then."""
    wishes = {"a": asks(ids_of(rng, 2), 1), "b": asks(ids_of(rng, 2), 2, priority=1)}
    wishes["b"]["admit_by"] = 104.0
    for time, reason in ((103.9, "length"), (104.0, "timeout")):
        script = [*all_in(wishes, run=False), ["step"], ["time", time], ["step"], ["run"]]
        found = serve(learner, wishes, script, cache=[1, 64])
        expect_equal(ends_of(found)["b"][1], reason, f"the reason with a free row at {time}")
        expect_all_free(found)


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
    expect_equal(step["counts"][1:], [0, 0], "[running, waiting] after it")
    expect_answers(found, {"late": wishes["late"]})
    expect_equal([s["errors"] for s in found["answers"][-1]], [[]] * 4, "errors of later steps")
    expect_all_free(found)


@case("6.8")
def fault_in_the_sampler(learner, rng):
    """When the sampler raises, all in that call end, "error"; whose prompt goes on does not."""
    wishes = crowd(rng)
    found = serve(learner, wishes, all_in(wishes), sampler_breaks={2: "RuntimeError"}, **TWO_ROWS)
    expect_equal(ends_of(found)["c"], [first_tokens(wishes["c"], 1), "error"], "of c")
    error = ["RuntimeError", "the sampler failed on purpose"]
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
    for where in ({"breaks": {2: "KeyboardInterrupt"}}, {"sampler_breaks": {2: "SystemExit"}}):
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
