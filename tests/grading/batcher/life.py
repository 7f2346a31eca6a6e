"""6.2 Request."""

import math

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive, expect_failure

STATES = ("waiting", "prefill", "decode", "finished")
LEGAL = {
    ("waiting", "prefill"),
    ("waiting", "finished"),
    ("prefill", "decode"),
    ("prefill", "finished"),
    ("decode", "finished"),
}
REASONS = ("stop", "length", "cancelled", "timeout", "error")


def session(learner, steps: list, **fields) -> list:
    """Steps of one request: see request_session."""
    return drive(learner, "request_session", {"prompt": [5, 6, 7]} | fields, steps)


def expect_same(before: dict, after: dict, when: str) -> None:
    """Nothing about the request has changed."""
    expect_equal(after, before, f"how the request stands {when}")


@case("6.2")
def life_forwards_only(learner, rng):
    """Of all sixteen steps from one state to another five are legal; the others are RuntimeErrors
    that name both states, and change nothing.
    """
    for old in STATES:
        for new in STATES:
            step = ["move", new]
            legal = (old, new) in LEGAL
            steps = [["set", "computed", 2], ["state", old]]
            steps.append(step if legal else ["fails", [old, new], step])
            _, (_, before), (answer, after) = session(learner, steps)
            if legal:
                expect_equal(after, before | {"state": new}, f"the request after move({new})")
                continue
            expect_failure(answer, "RuntimeError", f"move from {old} to {new}")
            expect_same(before, after, "after a step that is not legal")


@case("6.2")
def life_ends_once(learner, rng):
    """finish sets state, reason and error from any state, and lets the sampler's memory go, but
    neither the row nor the output. After that nothing changes it any more.
    """
    for old, reason in zip(STATES[:3] * 2, (*REASONS, "error"), strict=True):
        text = [f"fault {rng.randrange(100)}"] if reason == "error" else []
        again = [
            ["fails", ["finished"], ["finish", "stop"]],
            ["fails", ["finished"], ["finish", "error", "another"]],
            ["fails", ["finished"], ["add", 9]],
            ["fails", ["finished", "decode"], ["move", "decode"]],
            ["fails", [], ["fit", 50, 50]],
        ]
        steps = [["set", "row", 3], ["set", "output", [8]], ["state", old]]
        steps += [["finish", reason, *text], *again]
        _, _, (_, before), (_, after), *rest = session(learner, steps)
        error = f"ValueError({text[0]!r})" if text else None
        change = {"state": "finished", "finish_reason": reason, "error": error}
        expect_equal(after, before | change | {"remembered": False}, f"after finish({reason!r})")
        for (answer, found), step in zip(rest, again, strict=True):
            kind = "ValueError" if step[2][0] == "fit" else "RuntimeError"
            expect_failure(answer, kind, f"{step[2][0]} of a finished request")
            expect_same(after, found, "after it was finished")


@case("6.2")
def life_ends_for_a_known_reason(learner, rng):
    """A reason that is not one of the five is a ValueError that names it; the request lives on."""
    for reason in ("eos", "", "Stop"):
        steps = [["state", "decode"], ["fails", [reason], ["finish", reason]], ["add", 4]]
        (_, before), (answer, after), (_, later) = session(learner, steps)
        expect_failure(answer, "ValueError", f"finish({reason!r})")
        expect_same(before, after, f"after finish({reason!r})")
        expect_equal(later["output"], [4], "output after a token")


@case("6.2")
def life_gets_tokens_in_decode(learner, rng):
    """add appends to output and tells the sampler's memory, whatever the limit is; in another state
    it is RuntimeError.
    """
    first, second = rng.randrange(60), rng.randrange(60)
    steps = [["state", "decode"], ["add", first], ["add", second], ["heard"]]
    (_, before), (_, one), (_, two), (heard, _) = session(learner, steps, max_tokens=1)
    expect_equal(one, before | {"output": [first], "remaining": 4}, "after one token")
    expect_equal(two["output"], [first, second], "output")
    expect_equal(heard, [first, second], "what the sampler's memory was told")
    for state in ("waiting", "prefill"):
        steps = [["state", state], ["fails", [state], ["add", 3]], ["heard"]]
        (_, before), (answer, after), (heard, _) = session(learner, steps)
        expect_failure(answer, "RuntimeError", f"add in state {state}")
        expect_same(before, after, f"after add in state {state}")
        expect_equal(heard, [], "what the sampler's memory was told")


@case("6.2")
def life_keeps_log_probabilities(learner, rng):
    """What is told about a token joins logprobs, None does not; it works without a sampler too."""
    steps = [["state", "decode"], ["add", 3, "about 3"], ["add", 4, None], ["add", 5, "about 5"]]
    stands = [stand for _, stand in session(learner, steps)]
    expect_equal(stands[-1]["logprobs"], ["about 3", "about 5"], "logprobs")
    steps = [["set", "sampling", None], ["state", "decode"], ["add", 3], ["finish", "stop"]]
    *_, (_, stand) = session(learner, steps)
    expect_equal([stand["output"], stand["state"]], [[3], "finished"], "[output, state]")


@case("6.2")
def life_fits(learner, rng):
    """fit clamps the answer to what the prompt leaves of the context, and no further; size is what
    both may grow to.
    """
    for length, wish, context, limit in (
        (3, 5, 100, 5),
        (3, 50, 11, 8),
        (10, 10**12, 11, 1),
        (3, 8, 11, 8),
        (1, 1, 2, 1),
    ):
        prompt = [rng.randrange(40) for _ in range(length)]
        fields = {"prompt": prompt, "max_tokens": wish}
        ((_, before), (_, after)) = session(
            learner, [["get", "size"], ["fit", context, 40]], **fields
        )
        expect_equal(before["size"], length + wish, "size before fit")
        change = {"limit": limit, "size": length + limit}
        expect_equal(after, before | change, f"{length} tokens of {context}, {wish} wanted: it")


@case("6.2")
def life_fits_again(learner, rng):
    """After another fit the limit is what the params and that context say."""
    steps = [["fit", 8, 50], ["fit", 30, 50]]
    limits = [stand["limit"] for _, stand in session(learner, steps, max_tokens=20)]
    expect_equal(limits, [5, 20], "limit after each fit")


@case("6.2")
def life_refuses_what_cannot_be(learner, rng):
    """An empty prompt, one that leaves no room (naming both lengths), and an id that is not an int
    of the vocabulary (naming the first): ValueErrors that change nothing.
    """
    size, unknown = rng.randrange(20, 40), rng.randrange(50, 90)
    for prompt, context, names in (
        ([], 30, []),
        ([1] * size, size, [size]),
        ([1] * (size + 7), size, [size + 7, size]),
        ([1, unknown, 95, 2], 30, [unknown]),
        ([1, 2, 50], 30, [50]),
        ([2, -1], 30, [-1]),
        ([1, True], 30, ["True"]),
        ([1, 2.0], 30, ["2.0"]),
        ([1, "7"], 30, ["7"]),
        ([None], 30, ["None"]),
    ):
        steps = [["get", "limit"], ["fails", names, ["fit", context, 50]]]
        (_, before), (answer, after) = session(learner, steps, prompt=prompt, max_tokens=9)
        expect_failure(answer, "ValueError", f"fit({context}, 50) of {len(prompt)} ids")
        expect_same(before, after, "after fit refused it")
    steps = [["fit", 30, 50], ["fit", 30, 50]]
    *_, (_, stand) = session(learner, steps, prompt=[0, 49], max_tokens=9)
    expect_equal(stand["limit"], 9, "limit with the first and the last id of the vocabulary")


@case("6.2")
def life_fits_before_it_waits(learner, rng):
    """A request that has an arrival, or has left WAITING, was submitted before: ValueError."""
    for change in (["set", "arrival", 0.0], ["state", "prefill"], ["state", "decode"]):
        steps = [change, ["fails", [], ["fit", 6, 50]]]
        (_, before), (answer, after) = session(learner, steps, max_tokens=9)
        expect_failure(answer, "ValueError", f"fit after {change}")
        expect_same(before, after, "after fit refused it")


@case("6.2")
def life_counts_what_remains(learner, rng):
    """remaining is the tokens of prompt and answer that the cache does not hold; upcoming gives the
    first of them, at most as many as asked for.
    """
    prompt = [rng.randrange(60) for _ in range(6)]
    stands = ([], 0), ([], 5), ([], 6), ([11], 6), ([11], 7), ([11, 12, 13], 8), ([11, 12], 0)
    for output, computed in stands:
        whole = prompt + output
        steps = [["set", "computed", computed], ["set", "output", output]]
        steps += [["upcoming", count] for count in (0, 1, 3, 100)]
        found = session(learner, steps, prompt=prompt, max_tokens=9)
        what = f"with {len(prompt)} + {len(output)} tokens, {computed} of them computed"
        expect_equal(found[-1][1]["remaining"], len(whole) - computed, f"remaining {what}")
        expected = [whole[computed : computed + count] for count in (0, 1, 3, 100)]
        answers = [answer for answer, _ in found[2:]]
        expect_equal(answers, expected, f"upcoming(0), (1), (3) and (100) {what}")


@case("6.2")
def life_expires(learner, rng):
    """While it waits, at the deadline or admit_by, whichever is earlier; later only at the
    deadline; at infinity without them.
    """
    early, late = rng.uniform(-9, 10), rng.uniform(20, 30)
    for deadline, admit_by, waiting, running in (
        (None, None, math.inf, math.inf),
        (late, None, late, late),
        (None, early, early, math.inf),
        (late, early, early, late),
        (early, late, early, early),
        (0.0, 5.0, 0.0, 0.0),
        (5.0, 0.0, 0.0, 5.0),
    ):
        steps = []
        for state in STATES:
            steps += [["state", state], ["get", "expires"]]
        found = session(learner, steps, deadline=deadline, admit_by=admit_by)
        expected = [waiting, running, running, running]
        answers = [answer for answer, _ in found[1::2]]
        if answers != expected:
            raise Wrong(
                f"expires with deadline {deadline} and admit_by {admit_by} in {', '.join(STATES)} "
                f"is {answers}, expected {expected}"
            )


@case("6.2")
def life_of_two(learner, rng):
    """Two requests share nothing, and the caller's list is not theirs."""
    first, second = drive(learner, "request_pair")
    expect_equal([first["output"], first["state"]], [[9], "decode"], "[output, state] of the one")
    expect_equal(
        [second["output"], second["state"]], [[], "waiting"], "[output, state] of the other"
    )
    expect_equal([first["prompt"], second["prompt"]], [[5, 6, 7]] * 2, "the prompts")


@case("6.2")
def life_of_a_long_answer(learner, rng):
    """upcoming(1) does not copy a long answer to give its newest token."""
    length = 5_000
    expect_equal(
        drive(learner, "upcoming_bytes", length),
        [[length - 1], True],
        "[upcoming(1), whether it needed less memory than a tenth of the answer]",
    )
