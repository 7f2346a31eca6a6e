"""6.1 pad and generate_static."""

from functools import lru_cache

import torch

from course.cases import Wrong, case, expect_equal, expect_tensor
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.oracles import batcher as oracle
from tests.oracles import forward_pass as model_oracle
from tests.reference.arrays import tiny_config, tiny_weights


def ids_of(rng, length: int, low: int = 1, high: int = 91) -> list[int]:
    """Random token ids."""
    return [rng.randrange(low, high) for _ in range(length)]


def expect_padded(found, sequences, starts) -> None:
    """tokens and positions are int64 and those of the oracle."""
    for got, want, name in zip(
        found, oracle.padded(sequences, starts), ("tokens", "positions"), strict=True
    ):
        expect_tensor(got, torch.tensor(want), atol=0, what=name)


@case("6.1")
def pad_to_the_longest(learner, rng):
    """One rectangle as wide as the longest sequence: tokens on the left, padding on the right,
    token 0 at position -1.
    """
    tables = [[[5, 6, 7], [8]], [[9], [3, 4], [1, 2, 3, 4]], [[7]], [[1, 2], [151_935, 4]]]
    tables.append([ids_of(rng, rng.randrange(1, 9)) for _ in range(6)])
    found = drive(learner, "pads", [{"sequences": table} for table in tables])
    for got, table in zip(found, tables, strict=True):
        expect_padded(got, table, [0] * len(table))


@case("6.1")
def pad_from_a_start(learner, rng):
    """With starts, each sequence counts from its own; sequences and starts may be tuples."""
    table = [ids_of(rng, length) for length in (3, 1, 5)]
    starts = [rng.randrange(1, 90), 0, 1000]
    for kind in ("list", "tuple"):
        call = {"sequences": table, "starts": starts, "kind": kind}
        (got,) = drive(learner, "pads", [call])
        expect_padded(got, table, starts)


@case("6.1")
def pad_on_a_device(learner, rng):
    """The tensors are made for the device that is asked for."""
    expect_equal(drive(learner, "pad_on_meta"), ["meta", "meta"], "devices of the two tensors")


@case("6.1")
def pad_refuses(learner, rng):
    """No sequence, an empty one and another number of starts are ValueErrors that name which."""
    place = rng.randrange(11, 20)
    table = [[1, 2]] * place + [[]] + [[3]] * 4
    calls = [
        {"sequences": [], "fails": []},
        {"sequences": [], "starts": [0], "fails": []},
        {"sequences": table, "fails": [place]},
        {"sequences": [[1]] * 13, "starts": [0] * 12, "fails": [13, 12]},
        {"sequences": [[1]] * 12, "starts": [0] * 14, "fails": [12, 14]},
        {"sequences": [[1]] * 12, "starts": [], "fails": [12, 0]},
    ]
    for call, found in zip(calls, drive(learner, "pads", calls), strict=True):
        shown = f"pad of {len(call['sequences'])} sequences, starts {call.get('starts')}"
        expect_failure(found, "ValueError", shown)


def static(learner, prompts, counts, ends=(), **more) -> dict:
    """generate_static on a Teller; see static_told."""
    setting = {"prompts": prompts, "counts": counts, "ends": list(ends), "kind": "list"}
    setting |= {"rows": 6, "length": 64, "context": 256, "breaks": [], "full": None, "fails": None}
    return drive(learner, "static_told", setting | more)


def batch_of(rng, sizes) -> list[list[int]]:
    """Prompts of these lengths."""
    return [ids_of(rng, size) for size in sizes]


def chosen(prompts, counts, ends=()) -> list[list[int]]:
    """All tokens that are chosen for each prompt, an end id included."""
    found = []
    for prompt, count in zip(prompts, counts, strict=True):
        ids, reason = oracle.told(prompt, count, ends)
        found.append(ids + [oracle.next_token([*prompt, *ids])] * (reason == "stop"))
    return found


def expect_static(found: dict, prompts, counts, ends=()) -> None:
    """Answers, forwards and places are the oracle's."""
    pairs = zip(prompts, counts, strict=True)
    answers = [list(oracle.told(prompt, count, ends)) for prompt, count in pairs]
    expect_equal(found["answers"], answers, "[ids, finish_reason] of the answers")
    forwards, useful, wasted = oracle.static_forwards(prompts, chosen(prompts, counts, ends))
    expect_equal(found["forwards"], forwards, "[tokens, positions] of the forwards, no padding")
    shapes = [[len(prompts), max(map(len, prompts))]] + [[len(prompts), 1]] * (len(forwards) - 1)
    expect_equal(found["shapes"], shapes, "the shapes of the forwards")
    expect_equal([found["useful"], found["wasted"]], [useful, wasted], "[useful, wasted] places")


@case("6.1")
def static_waits_for_the_longest(learner, rng):
    """One padded prefill, then [B, 1] until the longest answer is complete; an answer that is over
    stays in the batch, with the token and the position it had, and counts as wasted.
    """
    for sizes, counts in (((2, 5, 3), (2, 5, 3)), ((4, 1, 9, 2), (1, 6, 2, 4)), ((3,), (4,))):
        prompts = batch_of(rng, sizes)
        expect_static(static(learner, prompts, list(counts)), prompts, counts)


@case("6.1")
def static_of_single_tokens(learner, rng):
    """With one token each there is only the prefill; then nobody is fed again."""
    prompts = batch_of(rng, (3, 3, 6))
    expect_static(static(learner, prompts, [1, 1, 1]), prompts, [1, 1, 1])


@case("6.1")
def static_ends_at_end_ids(learner, rng):
    """An end id ends its own answer, "stop", and is no part of it, in any kind of collection; also
    where only one more token may come.
    """
    for kind, most in (("list", 6), ("tuple", 7), ("set", 3), ("frozenset", 8)):
        prompts = batch_of(rng, (2, 4, 3))
        ends = [oracle.told(prompts[0], 3)[0][-1], oracle.told(prompts[2], 1)[0][0], 100]
        counts = [most, 5, 1 if most == 3 else 7]
        expect_static(static(learner, prompts, counts, ends, kind=kind), prompts, counts, ends)


@case("6.1")
def static_reserves_and_frees(learner, rng):
    """Room for every prompt and all that may come is there at the first forward, and free at the
    end: also after an exception, of the cache as well, and after Ctrl-C.
    """
    prompts, counts = batch_of(rng, (2, 5, 3)), [4, 2, 6]
    found = static(learner, prompts, counts)
    expect_equal(found["rooms"], [22] * 6, "tokens reserved at each forward")
    expect_freed(found, "at the end")
    for number, error in ((1, "ArithmeticError"), (3, "RuntimeError"), (2, "KeyboardInterrupt")):
        found = static(learner, prompts, counts, breaks=[[number, error]], fails=[])
        expect_failure(found, error, f"generate_static when forward number {number} fails")
        expect_freed(found, f"after {error} in forward number {number}")
    found = static(learner, prompts, counts, full=2, fails=[])
    expect_failure(found, "CacheFull", "generate_static when row 2 of the cache has no room")
    expect_freed(found, "when only rows 0 and 1 could be reserved")


def expect_freed(found: dict, when: str) -> None:
    """Nothing is reserved or held."""
    expect_equal(found["used_after"], 0, f"tokens reserved {when}")
    expect_equal(found["held_after"], [0] * len(found["held_after"]), f"tokens held {when}")


@case("6.1")
def static_clamps(learner, rng):
    """What the context, the model's or the cache's, does not leave room for is not written."""
    prompts = batch_of(rng, (9, 3))
    for length, context in ((64, 12), (12, 256)):
        found = static(learner, prompts, [50, 4], length=length, context=context)
        expect_static(found, prompts, [3, 4])
        expect_equal(found["rooms"][0], 12 + 7, "tokens reserved at the first forward")


@case("6.1")
def static_refuses(learner, rng):
    """No prompt, too many, another number of counts, an empty prompt, no token wanted, no room:
    ValueErrors, and nothing was reserved.
    """
    one, many = [5, 6], 13
    for prompts, counts, names in (
        ([], [], []),
        ([one] * many, [2] * many, [many, 6]),
        ([one, one], [2], [2, 1]),
        ([one], [2, 3, 4], [1, 3]),
        ([one] * 2, [2] * many, [2, many]),
        ([one], [], [1, 0]),
        ([one, []], [2, 2], []),
        ([one, one], [2, 0], []),
        ([one, [1] * 70], [2, 2], [70, 64]),
    ):
        found = static(learner, prompts, counts, fails=names)
        expect_failure(found, "ValueError", f"{len(prompts)} prompts with counts {counts}")
        expect_freed(found, "after the error")
        expect_equal(found["forwards"], [], "forwards")


@lru_cache(64)
def written(prompt: tuple[int, ...], count: int) -> tuple[list[int], float]:
    """What the oracle writes with the untied model, and its smallest margin."""
    return model_oracle.greedy(tiny_config("untied"), tiny_weights("untied"), list(prompt), count)


def sure_prompt(rng, length: int, count: int) -> tuple[list[int], list[int]]:
    """A prompt and its count greedy tokens, none of them won by less than 0.001."""
    for _ in range(100):
        prompt = ids_of(rng, length, 0, 67)
        ids, margin = written(tuple(prompt), count)
        if margin >= 1e-3:
            return prompt, ids
    raise Wrong("no prompt with a clear answer was found")


@case("6.1")
def static_with_a_real_model(learner, rng):
    """A batch of a tiny Llama writes what each prompt alone does in float64."""
    counts = [5, 2, 4]
    pairs = [sure_prompt(rng, size, n) for size, n in zip((4, 9, 1), counts, strict=True)]
    found = drive(learner, "static_llama", "untied", [prompt for prompt, _ in pairs], counts)
    expect_equal(found, [[ids, "length"] for _, ids in pairs], "[ids, finish_reason]")
