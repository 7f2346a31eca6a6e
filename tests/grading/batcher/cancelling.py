"""6.8 Batcher: who is cancelled, and who is too late."""

from course.cases import case, expect_equal
from tests.grading.batcher.faults import TWO_ROWS, crowd, ends_of, events_of, first_tokens
from tests.grading.batcher.serving import all_in, asks, expect_all_free, expect_answers, serve
from tests.grading.batcher.static import ids_of


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
def cancel_one_of_namesakes(learner, rng):
    """Of requests with the same id that one ends which was cancelled. If it is late besides, the
    reason is still "cancelled".
    """
    wishes = {name: asks(ids_of(rng, 2), 4, id="twin") for name in ("a", "b", "c")}
    wishes["a"]["deadline"] = 105.0
    script = [*all_in(wishes, run=False), ["step"], ["cancel", "a"], ["time", 106.0], ["run"]]
    found = serve(learner, wishes, script)
    expect_answers(found, {name: wishes[name] for name in "bc"})
    got = [first_tokens(wishes["a"], 1), "cancelled"]
    expect_equal(ends_of(found)["a"], got, "[output, reason] of the one, cancelled and then late")
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
