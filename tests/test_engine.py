"""The reference engine on the bundled model, held against transformers, and against itself.

greedy.json says what transformers writes in float32, by what margin each id won in float64, and how
far two float32 programs were from float64 (`float32_spread`).
"""

import json
import random

import pytest
import torch

from course.model import ensure_model
from solutions.forward_pass import Llama, attention
from solutions.greedy import generate_greedy
from solutions.kv_cache import KVCache
from solutions.loader import Config
from tests.reference.arrays import read_json, tiny, tiny_config, tiny_weights

STORED = read_json("greedy.json")
PROMPTS = STORED["prompts"]
# Another machine adds in another order: four times the spread that was measured on one.
SPREAD = 4 * max(STORED["float32_spread"].values())
TINY_SPREAD = 8e-5  # relative; measured 9.6e-6, see tests/grading/forward_pass/tolerances.py


def sure(margins: list[float]) -> int:
    """How many ids are beyond doubt: up to the first that won by less than two spreads."""
    return next((i for i, margin in enumerate(margins) if margin < 2 * SPREAD), len(margins))


def left_padded(sequences: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and positions [B, T] with the padding on the left."""
    width = max(map(len, sequences))
    tokens = torch.tensor([[0] * (width - len(ids)) + ids for ids in sequences])
    counts = [[-1] * (width - len(ids)) + list(range(len(ids))) for ids in sequences]
    return tokens, torch.tensor(counts)


def whole(llama: Llama, ids: list[int]) -> torch.Tensor:
    """Logits [T, V] of one sequence, in one forward and without a cache."""
    return llama.forward(torch.tensor([ids]), torch.arange(len(ids))[None], every_position=True)[0]


def test_the_references_are_of_this_model():
    manifest = json.loads((ensure_model() / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["files"]["model.safetensors"]["sha256"] == STORED["model_sha256"]


def test_most_greedy_ids_are_beyond_doubt():
    assert len(PROMPTS) >= 12
    assert all(len(p["new"]) == len(p["margins"]) == 24 for p in PROMPTS)
    assert sum(sure(p["margins"]) for p in PROMPTS) > 0.9 * 24 * len(PROMPTS)


@pytest.mark.parametrize("index", range(len(PROMPTS)))
def test_every_greedy_choice_is_that_of_transformers(llama, index):
    """Along transformers' ids each next one is the engine's choice too: so it would write them."""
    prompt = PROMPTS[index]
    logits = whole(llama, prompt["prompt"] + prompt["new"][:-1])
    count = sure(prompt["margins"])
    chosen = logits[len(prompt["prompt"]) - 1 :].argmax(-1).tolist()
    assert chosen[:count] == prompt["new"][:count]


def test_a_ragged_batch_with_a_cache_writes_what_transformers_writes(llama):
    """A padded prefill, then decode steps of sequences at different positions."""
    tokens, positions = left_padded([p["prompt"] for p in PROMPTS])
    lengths = positions.amax(-1) + 1
    cache = KVCache(llama.config, len(PROMPTS), int(lengths.max()) + 24)
    for row, length in enumerate(lengths.tolist()):
        cache.reserve(row, length + 24)
    new = [llama.forward(tokens, positions, cache).argmax(-1)]
    for step in range(23):
        new.append(llama.forward(new[-1][:, None], (lengths + step)[:, None], cache).argmax(-1))
    for prompt, ids in zip(PROMPTS, torch.stack(new, dim=1).tolist(), strict=True):
        count = sure(prompt["margins"])
        assert ids[:count] == prompt["new"][:count]


@pytest.mark.parametrize("index", [0, 7, 10])
def test_generate_greedy_writes_what_transformers_writes(llama, index):
    prompt = PROMPTS[index]
    count = min(8, sure(prompt["margins"]))
    cache = KVCache(llama.config, 1, len(prompt["prompt"]) + count)
    found = generate_greedy(llama, prompt["prompt"], count, (), cache)
    assert found.ids == prompt["new"][:count]
    assert found.finish_reason == "length"


def test_generate_greedy_without_a_cache_writes_the_same(llama):
    count = min(3, sure(PROMPTS[0]["margins"]))
    found = generate_greedy(llama, PROMPTS[0]["prompt"], count, ())
    assert found.ids == PROMPTS[0]["new"][:count]


def test_logits_are_within_the_float32_spread_of_float64(llama):
    stored = [prompt for prompt in PROMPTS if "logits" in prompt]
    assert len(stored) >= 3
    for prompt in stored:
        logits = whole(llama, prompt["prompt"] + prompt["new"][:-1])[:, STORED["vocabulary"]]
        expected = torch.tensor(prompt["logits"], dtype=torch.float64)
        assert (logits.double() - expected).abs().max() <= SPREAD


def test_batch_chunks_and_cache_give_the_logits_of_one_forward(llama):
    sequences = [PROMPTS[i]["prompt"] + PROMPTS[i]["new"][:8] for i in (0, 3, 11)]
    expected = torch.stack([whole(llama, ids)[-1] for ids in sequences])
    batch = llama.forward(*left_padded(sequences))
    assert (batch - expected).abs().max() <= SPREAD
    cache = KVCache(llama.config, 4, 64)
    for row, ids in zip((3, 0, 2), sequences, strict=True):
        cache.reserve(row, len(ids))
    cuts = [[0, 3, len(ids) - 1, len(ids)] for ids in sequences]
    for step in range(3):
        chunks = [ids[cut[step] : cut[step + 1]] for ids, cut in zip(sequences, cuts, strict=True)]
        tokens, places = left_padded(chunks)
        start = torch.tensor([cut[step] for cut in cuts])[:, None]
        places = torch.where(places >= 0, places + start, -1)
        logits = llama.forward(tokens, places, cache, torch.tensor([3, 0, 2]))
    assert (logits - expected).abs().max() <= SPREAD


def test_a_row_does_not_depend_on_its_neighbours(llama):
    """Alone, in a batch of 2 and in a batch of 5: the same logits, and so the same token."""
    sequences = [p["prompt"] for p in PROMPTS[:5]]
    alone = whole(llama, sequences[0])[-1]
    for size in (2, 5):
        among = llama.forward(*left_padded(sequences[:size]))[0]
        assert (among - alone).abs().max() <= SPREAD
        assert among.argmax() == alone.argmax()


def test_weights_are_never_copied(llama):
    embedding = llama.weights["model.embed_tokens.weight"]
    assert llama.embedding.data_ptr() == embedding.data_ptr()
    assert llama.head.data_ptr() == embedding.data_ptr()  # tied
    weights = llama.weights.values()
    first = min(w.data_ptr() for w in weights)
    last = max(w.data_ptr() + w.nbytes for w in weights)
    size = (ensure_model() / "model.safetensors").stat().st_size
    assert last - first <= size  # all lie in one mapping of the file


@pytest.mark.parametrize(("batch", "keys"), [(0, 5), (2, 0), (0, 0)])
def test_attention_over_nothing_is_zeros(batch, keys):
    q, k = torch.ones(batch, 4, 3, 8), torch.ones(batch, 2, keys, 8)
    positions = torch.arange(3).repeat(batch, 1), torch.arange(keys).repeat(batch, 1)
    assert attention(q[:, :, :0], k, k, positions[0][:, :0], positions[1]).shape == (batch, 4, 0, 8)
    assert attention(q, k, k, *positions).tolist() == torch.zeros_like(q).tolist()


def test_attention_without_key_heads_is_refused():
    q, k, place = torch.ones(1, 4, 1, 8), torch.ones(1, 0, 1, 8), torch.zeros(1, 1).long()
    with pytest.raises(ValueError, match="4 query heads cannot share 0"):
        attention(q, k, k, place, place)


# --- the tiny models: many schedules in little time ---


def tiny_llama(name: str) -> Llama:
    return Llama(Config(**{**tiny_config(name), "eos_token_ids": ()}), tiny_weights(name))


@pytest.mark.parametrize("name", ["tied", "untied"])
def test_tiny_logits_are_those_of_transformers(name):
    llama, arrays = tiny_llama(name), tiny(name)
    for ids, expected in zip(arrays["whole.tokens"].tolist(), arrays["whole.logits"], strict=True):
        difference = (whole(llama, ids).double() - expected).abs().max()
        assert difference <= TINY_SPREAD * expected.abs().max()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["tied", "untied"])
def test_any_schedule_gives_the_logits_of_one_forward(name, seed):
    """Rows advance by random chunks, some not at all, padding in random columns."""
    rng, llama = random.Random(seed), tiny_llama(name)
    sequences = [
        [rng.randrange(llama.config.vocab_size) for _ in range(rng.randrange(1, 25))]
        for _ in range(5)
    ]
    expected = [whole(llama, ids) for ids in sequences]
    rows, done = rng.sample(range(7), 5), [0] * 5
    cache = KVCache(llama.config, 7, 25)
    for row, ids in zip(rows, sequences, strict=True):
        cache.reserve(row, len(ids))
    while any(len(ids) > d for ids, d in zip(sequences, done, strict=True)):
        active = [i for i in range(5) if done[i] < len(sequences[i]) and rng.random() < 0.7]
        if not active:
            continue
        counts = [min(rng.choice([1, 1, 3, 8]), len(sequences[i]) - done[i]) for i in active]
        tokens, positions = scattered(rng, [sequences[i] for i in active], done, active, counts)
        logits = llama.forward(tokens, positions, cache, torch.tensor([rows[i] for i in active]))
        for got, i, count in zip(logits, active, counts, strict=True):
            done[i] += count
            want = expected[i][done[i] - 1]
            assert (got - want).abs().max() <= TINY_SPREAD * want.abs().max()
    for row in rows:
        cache.free(row)
    assert cache.free_tokens == cache.total_tokens


def scattered(rng, sequences, done, active, counts) -> tuple[torch.Tensor, torch.Tensor]:
    """The next tokens of each sequence in random columns, in order, and their positions."""
    width = max(counts) + rng.randrange(3)
    tokens = torch.zeros(len(active), width, dtype=torch.long)
    positions = torch.full((len(active), width), -1)
    for b, (ids, i, count) in enumerate(zip(sequences, active, counts, strict=True)):
        columns = sorted(rng.sample(range(width), count))
        tokens[b, columns] = torch.tensor(ids[done[i] : done[i] + count])
        positions[b, columns] = torch.arange(done[i], done[i] + count)
    return tokens, positions
