"""4.6 Llama: logits of tiny models, whole, padded, in chunks and with a cache."""

from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch

from course.cases import Wrong, case, describe, expect_equal, randn
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.grading.forward_pass.tolerances import BF16, F16, close, places, random_ids
from tests.oracles import forward_pass as oracle
from tests.reference.arrays import tiny, tiny_config, tiny_weights


def call(tokens, positions, rows=None, every_position=False, cache=0, **more) -> dict:
    """One forward for the scenario, with the cache of that number if there is one."""
    rows = None if rows is None else torch.tensor(rows)
    found = {"tokens": torch.as_tensor(tokens), "positions": torch.as_tensor(positions)}
    return {**found, "rows": rows, "every_position": every_position, "cache": cache, **more}


def forward(
    learner, model: str, *calls: dict, room=None, rooms=(), kind="own", dtype="float32"
) -> list:
    """The answers of one model, and a cache with that room (or several), to some forwards."""
    rooms = list(rooms) if room is None else [room]
    calls = [one if rooms else {**one, "cache": None} for one in calls]
    return drive(learner, "llama_session", model, calls, rooms, kind, dtype)


def truth(model: str, ids) -> torch.Tensor:
    """The oracle's logits [T, V] of one sequence of ids."""
    return _truth(model, tuple(ids))


@lru_cache(64)  # each misconception is put through the same cases with the same seed
def _truth(model: str, ids: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(oracle.logits(tiny_config(model), tiny_weights(model), ids))


def spread(table, sequences) -> torch.Tensor:
    """Tokens [B, T]: each sequence's ids at the columns where its positions are; 3 elsewhere."""
    tokens = torch.full_like(table, 3)
    for row, ids in enumerate(sequences):
        tokens[row, table[row] >= 0] = torch.tensor([ids[p] for p in table[row] if p >= 0])
    return tokens


def sequences_of(rng, model: str, lengths) -> list[list[int]]:
    """Random ids for sequences of these lengths."""
    vocabulary = tiny_config(model)["vocab_size"]
    return [random_ids(rng, vocabulary, length).tolist() for length in lengths]


@case("4.6")
def logits_at_every_position(learner, rng):
    """With every_position, the logits of all columns are those of Hugging Face's Llama."""
    for model in ("tied", "untied"):
        tokens = tiny(model)["whole.tokens"]
        positions = torch.arange(tokens.shape[1]).repeat(len(tokens), 1)
        (got,) = forward(learner, model, call(tokens, positions, every_position=True))
        close(got, tiny(model)["whole.logits"], "logits", what=f"{model} model: it")


@case("4.6")
def logits_of_the_last_token(learner, rng):
    """By default there are logits for the last token of each sequence only: [B, V]."""
    for model in ("tied", "untied"):
        (ids,) = sequences_of(rng, model, [rng.randrange(1, 9)])
        for padding in (0, 2):
            positions = [[*range(len(ids)), *[-1] * padding]]
            (got,) = forward(learner, model, call([ids + [3] * padding], positions))
            close(got, truth(model, ids)[-1:], "logits", what=f"{model} model: it")


@case("4.6")
def logits_of_a_padded_batch(learner, rng):
    """A batch padded on the left gives the logits of Hugging Face's Llama."""
    for model in ("tied", "untied"):
        arrays = tiny(model)
        (got,) = forward(learner, model, call(arrays["padded.tokens"], arrays["padded.positions"]))
        close(got, arrays["padded.logits"], "logits", what=f"{model} model: it")


@case("4.6")
def logits_with_padding_anywhere(learner, rng):
    """Padding at the right or in the middle changes nothing, whatever token stands there; also
    with every_position, with and without a cache.
    """
    sequences = sequences_of(rng, "tied", (4, 7, 1))
    right = torch.arange(8) * (torch.arange(8) < torch.tensor([[4], [7], [1]]))
    right = torch.where(torch.arange(8) < torch.tensor([[4], [7], [1]]), right, -1)
    for table, other in ((right, 10**6), (places(rng, [4, 7, 1], 8), -1000)):
        tokens = spread(table, sequences).masked_fill(table < 0, other)
        (got,) = forward(learner, "tied", call(tokens, table))
        expected = torch.stack([truth("tied", ids)[-1] for ids in sequences])
        close(got, expected, "logits")
        every = call(tokens, table, rows=[2, 0, 1], every_position=True)
        wanted = torch.cat([truth("tied", ids) for ids in sequences])
        for room, what in (([], "without a cache"), ([7, 1, 4], "with a cache")):
            (got,) = forward(learner, "tied", every, rooms=[room] if room else [])
            expect_shape(got, [3, 8, wanted.shape[-1]])
            close(got[table >= 0], wanted, "logits", what=f"{what}, at every real position, it")


def expect_shape(got, shape: list[int]) -> None:
    """got is a tensor of that shape: what is undefined in it may be anything."""
    if not torch.is_tensor(got) or list(got.shape) != shape:
        raise Wrong(f"with every_position it is {describe(got)}, expected the shape {shape}")


@case("4.6")
def logits_with_a_cache(learner, rng):
    """Prefill, then one token at a time against the cache: the logits of the whole sequence."""
    (ids,) = sequences_of(rng, "tied", [8])
    answers = forward(learner, "tied", *step_by_step(ids, 5), room=[8])
    for got, position in zip(answers, (4, 5, 6, 7), strict=True):
        want = truth("tied", ids)[position][None]
        close(got, want, "logits", what=f"after position {position} it")


def step_by_step(ids: list[int], prompt: int, **more) -> list[dict]:
    """The first ids in one forward, then the others one by one."""
    calls = [call([ids[:prompt]], [range(prompt)], **more)]
    return calls + [call([[ids[p]]], [[p]], **more) for p in range(prompt, len(ids))]


@case("4.6")
def logits_in_default_rows(learner, rng):
    """Without `rows`, sequence b of the batch lives in row b of the cache, whatever the size of the
    batch is in each call.
    """
    sequences = sequences_of(rng, "tied", (6, 5))
    table = torch.tensor([[0, 1, 2, 3], [-1, 0, 1, 2]])
    steps = [call(spread(table, sequences), table)]
    steps.append(call([sequences[0][4:5]], [[4]]))
    steps.append(call([sequences[0][5:], sequences[1][3:4]], [[5], [3]]))
    answers = forward(learner, "tied", *steps, room=[6, 5])
    for step, (got, last) in enumerate(zip(answers, ((3, 2), (4,), (5, 3)), strict=True)):
        pairs = zip(sequences, last, strict=False)
        want = torch.stack([truth("tied", ids)[place] for ids, place in pairs])
        close(got, want, "logits", what=f"forward number {step + 1}")


@case("4.6")
def logits_with_two_caches(learner, rng):
    """A forward uses the cache it is given, of any kind that has `write` and `read`."""
    sequences = sequences_of(rng, "tied", (5, 4))
    each = [step_by_step(ids, 3, cache=c) for c, ids in enumerate(sequences)]
    order = [each[0][0], each[1][0], each[0][1], each[1][1], each[0][2]]
    answers = forward(learner, "tied", *order, rooms=[[5], [4]], kind="other")
    wanted = [(0, 2), (1, 2), (0, 3), (1, 3), (0, 4)]
    for step, (got, (c, position)) in enumerate(zip(answers, wanted, strict=True)):
        want = truth("tied", sequences[c])[position][None]
        close(got, want, "logits", what=f"forward number {step + 1}, with cache {c + 1},")


@case("4.6")
def logits_in_16_bits(learner, rng):
    """A model in half precision computes in it, with and without a cache."""
    (ids,) = sequences_of(rng, "tied", [5])
    for dtype in (F16, BF16):
        want, name = _half_truth(tuple(ids), dtype), str(dtype).removeprefix("torch.")
        (got,) = forward(learner, "tied", call([ids], [range(5)]), dtype=name)
        close(got, want, "logits", dtype)
        got = forward(learner, "tied", *step_by_step(ids, 4), room=[5], dtype=name)[-1]
        close(got, want, "logits", dtype, "with a cache it")


@lru_cache(64)
def _half_truth(ids: tuple[int, ...], dtype) -> torch.Tensor:
    """The oracle's last logits [1, V] with weights that were rounded to dtype."""
    weights = {name: weight.to(dtype) for name, weight in tiny_weights("tied").items()}
    return torch.tensor(oracle.logits(tiny_config("tied"), weights, ids)[-1:])


@case("4.6")
def logits_in_chunks(learner, rng):
    """A prompt in chunks of any size through the cache: the logits of the whole sequence."""
    (ids,) = sequences_of(rng, "untied", [11])
    cuts = [0, *sorted(rng.sample(range(1, 11), 3)), 11]
    pairs = list(pairwise(cuts))
    calls = [call([ids[a:b]], [range(a, b)], every_position=True) for a, b in pairs]
    expected = truth("untied", ids)
    for got, (a, b) in zip(forward(learner, "untied", *calls, room=[11]), pairs, strict=True):
        close(got, expected[None, a:b], "logits", what=f"the chunk at {a} to {b - 1}")


@case("4.6")
def logits_of_ragged_rows(learner, rng):
    """Prefill and decode of different lengths in one call, each sequence in the row it names."""
    sequences = sequences_of(rng, "tied", (9, 6, 6))
    expected = [truth("tied", ids) for ids in sequences]
    rows, done = [2, 0, 3], [0, 0, 0]
    calls, wanted = [], []
    for counts in ((4, 1, 3), (1, 3, 1), (3, 1, 1), (1, 1, 1)):
        width = 1 if max(counts) == 1 else 4
        table = places(rng, list(counts), width, firsts=done)
        calls.append(call(spread(table, sequences), table, rows))
        done = [d + c for d, c in zip(done, counts, strict=True)]
        wanted.append(torch.stack([e[d - 1] for e, d in zip(expected, done, strict=True)]))
    answers = forward(learner, "tied", *calls, room=[8, 0, 9, 7])
    for step, (got, want) in enumerate(zip(answers, wanted, strict=True)):
        close(got, want, "logits", what=f"forward number {step + 1}")


@case("4.6")
def attend_alone(learner, rng):
    """attend: project, rotate queries and keys, attend, join the heads, project."""
    for model in ("tied", "untied"):
        sizes = tiny_config(model)
        x = randn(rng, 2, 5, sizes["hidden_size"])
        table = torch.tensor([[3, 4, 5, 6, 7], [0, 1, 2, 3, 4]])
        angles = oracle.rope_angles(table, sizes["head_dim"], sizes["rope_theta"])
        angles = torch.tensor(angles).float()
        rotation = (angles.cos(), angles.sin())
        got = drive(learner, "llama_attend", model, 1, x, table, rotation)
        weights = tiny_weights(model)
        expected = [oracle.attend(sizes, weights, 1, x[b], table[b].numpy()) for b in range(2)]
        close(got, np.stack(expected), "attend", what=f"{model} model: it")


@case("4.6")
def logits_through_linear(learner, rng):
    """Every product with a matrix goes through `linear`: here it alone can read the weights, and a
    tied head it doubles. Only the positions that are asked for go through the head.
    """
    for model in ("untied", "tied"):
        sequences = sequences_of(rng, model, (5, 5))
        tokens, positions = torch.tensor(sequences), torch.arange(5).repeat(2, 1)
        calls = {
            "a prompt": call(tokens, positions, cache=None),
            "every position": call(tokens, positions, cache=None, every_position=True),
            "a prefill": call(tokens[:, :4], positions[:, :4]),
            "a decode step": call(tokens[:, 4:], positions[:, 4:]),
            "one token": call(tokens[:, :1], positions[:, :1], cache=None),
        }
        answers = drive(learner, "llama_packed", model, list(calls.values()), [5, 5])
        truths = (1 + (model == "tied")) * torch.stack([truth(model, ids) for ids in sequences])
        wanted = truths[:, 4], truths, truths[:, 3], truths[:, 4], truths[:, 0]
        for name, (got, rows), want in zip(calls, answers, wanted, strict=True):
            close(got, want, "logits", what=f"{model} model, {name}: it")
            asked = want.shape[:-1].numel()
            if rows != asked:
                raise Wrong(f"{name}: {rows} rows of x went through the head, not {asked}")


@case("4.6")
def forward_refuses_bad_inputs(learner, rng):
    """What check_inputs refuses is refused before anything is written to the cache."""
    sizes = tiny_config("tied")
    vocabulary, context = sizes["vocab_size"], sizes["max_position_embeddings"]
    wrong = (
        call([[5, vocabulary]], [[0, 1]], fails=[vocabulary]),
        call([[-2, 5]], [[0, 1]], fails=[]),
        call([[5]], [[context]], fails=[]),
        call([[5, 6]], [[0, 1], [0, 1]], fails=[]),
        call([[5, 6], [7, 8]], [[0, 1], [-1, -1]], fails=[]),
    )
    for found in forward(learner, "tied", *wrong):
        expect_failure(found, "ValueError", "forward without a cache")
    for found in forward(learner, "tied", *wrong, room=[4, 4]):
        expect_failure(found, "ValueError", "forward")
        if found["kept"].numel():
            raise Wrong("after a refused forward the cache holds tokens, expected none")


@case("4.6")
def logits_of_the_rightmost_column(learner, rng):
    """The rightmost real column answers, even where it does not hold the highest position."""
    (ids,) = sequences_of(rng, "tied", [3])
    table = torch.tensor([[2, 0, 1, -1]])
    tokens = torch.tensor([[ids[2], ids[0], ids[1], 0]])
    (got,) = forward(learner, "tied", call(tokens, table))
    close(got, truth("tied", ids)[1:2], "logits")


@case("4.6")
def forward_without_room(learner, rng):
    """A forward beyond what the cache has reserved is CacheFull, as the cache says it."""
    steps = [call([[5, 6, 7]], [[0, 1, 2]]), call([[8, 9]], [[3, 4]], fails=[])]
    first, found = forward(learner, "tied", *steps, room=[4])
    close(first, truth("tied", [5, 6, 7])[-1:], "logits")
    expect_failure(found, "CacheFull", "forward at positions 3 and 4 with room for 4")
    expect_equal(found["kept"].tolist(), [[0, 1, 2]], "positions in the cache afterwards")
