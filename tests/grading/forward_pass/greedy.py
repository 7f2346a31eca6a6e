"""4.8 generate_greedy."""

from functools import lru_cache
from itertools import product

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.grading.forward_pass.tolerances import random_ids
from tests.oracles import forward_pass as oracle
from tests.reference.arrays import tiny_config, tiny_weights
from tests.scenarios.forward_pass import BREAKS, ERRORS, NEIGHBOUR


def generate(learner, prompt, script, count, ends=(), cached=None, context=64, **more) -> dict:
    """generate_greedy on a model that says script after prompt; see greedy_scripted."""
    setting = {"prompt": prompt, "script": script, "max_new_tokens": count, "kind": "list"}
    setting |= {"end_ids": list(ends), "cached": cached, "context": context}
    setting |= {"fails": None, "breaks": None}
    return drive(learner, "greedy_scripted", setting | more)


def expect_text(found: dict, ids: list[int], reason: str) -> None:
    """The answer has these ids and ended for this reason."""
    expect_equal(found["ids"], ids, "ids")
    expect_equal(found["finish_reason"], reason, "finish_reason")


def story(rng) -> tuple[list[int], list[int]]:
    """A prompt and what the model will say to it: 12 ids, all from 1 to 49."""
    lengths = rng.randrange(2, 6), 12
    prompt, script = ((1 + random_ids(rng, 49, length)).tolist() for length in lengths)
    return prompt, script


def used_before(found: dict) -> int:
    """used_tokens of the cache at the first forward, without what others have reserved."""
    return next(event[3] for event in found["events"] if event[0] == "forward") - NEIGHBOUR


def expect_freed(found: dict, when: str) -> None:
    """Row 0 is free and empty, and the other row of the cache is as it was."""
    what = f"used_tokens {when} ({NEIGHBOUR} are reserved in row 1)"
    expect_equal(found["used_after"], NEIGHBOUR, what)
    expect_equal(found["held_after"], 0, f"the number of tokens that row 0 holds {when}")


def forwards(found: dict) -> list:
    """[tokens, positions] of each forward, as lists."""
    return [[e[1].tolist(), e[2].tolist()] for e in found["events"] if e[0] == "forward"]


@case("4.8")
def greedy_to_the_length(learner, rng):
    """max_new_tokens ids, each the most probable one, with or without a cache: "length". The same
    id again and again is no reason to end.
    """
    prompt, script = story(rng)
    for cached in (None, 32):
        for count, said in ((1, script), (5, script), (6, script[:1] * 4 + script)):
            found = generate(learner, prompt, said, count, cached=cached)
            expect_text(found, said[:count], "length")


@case("4.8")
def greedy_to_the_end(learner, rng):
    """An end id ends the text, "stop", and is not part of it; even as the very first id, and
    even if it is 0.
    """
    prompt, script = story(rng)
    for cached in (None, 32):
        for place, end in ((3, 50), (0, 50), (5, 0)):
            said = [*script[:place], end, *script[place:]]
            found = generate(learner, prompt, said, 6, (99, end), cached)
            expect_text(found, script[:place], "stop")


@case("4.8")
def greedy_of_any_collection(learner, rng):
    """The prompt may be any sequence, end_ids any collection: a tuple, a set, a frozenset."""
    prompt, script = story(rng)
    for kind in ("tuple", "set", "frozenset"):
        found = generate(learner, prompt, [*script[:2], 50], 6, (50,), 32, kind=kind)
        expect_text(found, script[:2], "stop")


@case("4.8")
def greedy_with_a_cache(learner, rng):
    """With a cache: one forward for the whole prompt, then one token at a time, at its place."""
    prompt, script = story(rng)
    found = generate(learner, prompt, script, 4, cached=32)
    expected = [[[prompt], [list(range(len(prompt)))]]]
    for step in range(3):
        expected.append([[[script[step]]], [[len(prompt) + step]]])
    expect_equal(forwards(found), expected, "[tokens, positions] of the forwards")
    expect_text(found, script[:4], "length")


@case("4.8")
def greedy_without_a_cache(learner, rng):
    """Without a cache, every forward computes all tokens so far."""
    prompt, script = story(rng)
    found = generate(learner, prompt, script, 3)
    told = [prompt + script[:step] for step in range(3)]
    expected = [[[ids], [list(range(len(ids)))]] for ids in told]
    expect_equal(forwards(found), expected, "[tokens, positions] of the forwards")
    expect_text(found, script[:3], "length")


@case("4.8")
def greedy_tells_each_token(learner, rng):
    """on_token is called with each id before the next is computed, and never with an end id."""
    prompt, (first, third, *_) = story(rng)
    for cached in (None, 32):
        found = generate(learner, prompt, [first, 0, third, 50, 1], 9, (50,), cached)
        told = [event[1] for event in found["events"] if event[0] == "token"]
        expect_equal(told, [first, 0, third], "what on_token was given")
        order = [event[0] for event in found["events"]]
        expect_equal(order, ["forward", "token"] * 3 + ["forward"], "the order of calls")


@case("4.8")
def greedy_reserves_and_frees(learner, rng):
    """Room for prompt and answer, and no more, is reserved in row 0 before the first forward, and
    free at the end.
    """
    prompt, script = story(rng)
    for ends, said, count in (((), script, 9), ((50,), [*script[:2], 50], 6)):
        found = generate(learner, prompt, said, count, ends, cached=32)
        what = (
            f"with {len(prompt)} prompt tokens and {count} to come, the room at the first forward"
        )
        expect_equal(used_before(found), len(prompt) + count, what)
        expect_freed(found, "at the end")


@case("4.8")
def greedy_frees_after_an_error(learner, rng):
    """The row is freed and the exception goes on when a forward or on_token raises, whatever it is:
    Ctrl-C is a KeyboardInterrupt, sys.exit() a SystemExit.
    """
    prompt, script = story(rng)
    for where, what in product(BREAKS, ERRORS):
        found = generate(learner, prompt, script, 6, cached=32, fails=[], breaks=[where, what])
        if what not in found.get("raised", []):
            raise Wrong(f"{what} of {where} was lost: it must go on to the caller")
        expect_freed(found, f"after {what} in {where}")


@case("4.8")
def greedy_fills_the_context(learner, rng):
    """The answer ends, "length", when the context is full: the model's or the cache's."""
    prompt, script = story(rng)
    for room in (1, rng.randrange(2, 5)):
        size = len(prompt) + room
        for cached, context in ((None, size), (32, size), (size, 64), (size, size)):
            found = generate(learner, prompt, script, 11, (), cached, context)
            expect_text(found, script[:room], "length")
            if cached:
                expect_equal(used_before(found), size, "tokens reserved at the first forward")


@case("4.8")
def greedy_end_id_in_the_prompt(learner, rng):
    """End ids end the answer, each of them, and mean nothing in the prompt."""
    prompt, script = story(rng)
    for end in (50, 51):
        said = [*script[:2], end, *script]
        found = generate(learner, [50, *prompt, 51], said, 6, (50, 51), cached=32)
        expect_text(found, script[:2], "stop")


@case("4.8")
def greedy_refuses_the_impossible(learner, rng):
    """No prompt, no token wanted, no room for one: ValueErrors; the last names both lengths."""
    size = rng.randrange(12, 31)
    for length, count, cached, context in (
        (0, 3, None, 64),
        (5, 0, 32, 64),
        (5, -2, None, 64),
        (size, 3, size, 64),
        (size + 7, 3, 32, size),
    ):
        names = [length, size] if length >= size else []
        prompt = [5] * length
        found = generate(learner, prompt, [1, 2], count, (), cached, context, fails=names)
        room = min(context, cached or context)
        what = f"generate_greedy with {length} prompt tokens, max_new_tokens {count}, room {room}"
        expect_failure(found, "ValueError", what)
        if cached:
            expect_freed(found, "afterwards")


@lru_cache(64)  # each misconception is put through the same cases with the same seed
def written(prompt: tuple[int, ...]) -> tuple[list[int], float]:
    """What the oracle writes to a prompt with the untied model, and its smallest margin."""
    return oracle.greedy(tiny_config("untied"), tiny_weights("untied"), list(prompt), 6)


@case("4.8")
def greedy_with_a_real_model(learner, rng):
    """A tiny Llama writes the same with and without a cache, and the same as the oracle."""
    margin = 0.0
    while margin < 1e-3:  # a tie would leave two right answers
        prompt = random_ids(rng, 67, 5).tolist()
        ids, margin = written(tuple(prompt))
    for cached in (False, True):
        got = drive(learner, "greedy_llama", "untied", prompt, 6, cached)
        expect_equal(got, [ids, "length"], "[ids, finish_reason]")
