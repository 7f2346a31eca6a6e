"""The reference batcher on the bundled model, held against transformers; and what it remembers."""

import gc
import weakref

import pytest
import torch

from solutions.batcher import Batcher, Limits
from solutions.kv_cache import KVCache
from solutions.request import Request
from solutions.sampling_params import SamplingParams
from solutions.static_batching import generate_static
from tests.scenarios.batcher_models import Teller, new_cache
from tests.test_engine import PROMPTS, sure

CHOSEN = [p for p in PROMPTS if sure(p["margins"]) >= 5][:5]


def greedy(prompt: list[int], count: int, **more) -> Request:
    """A request for count tokens, each the most probable."""
    return Request(prompt, SamplingParams(temperature=0.0, max_tokens=count), **more)


@pytest.mark.parametrize(("rows", "places", "count"), [(1, 64, 2), (2, 7, 3), (5, 64, 5)])
def test_the_same_tokens_as_transformers_in_any_batch(llama, rows, places, count):
    prompts = CHOSEN[:count]
    requests = [greedy(p["prompt"], 5, ignore_eos=True) for p in prompts]
    longest = max(request.size for request in requests)
    limits = Limits(step_tokens=places)
    batcher = Batcher(llama, KVCache(llama.config, rows, longest), (2,), limits)
    for request in requests:
        batcher.submit(request)
    while not batcher.idle:
        batcher.step()
    assert [r.output for r in requests] == [p["new"][:5] for p in prompts]


def test_a_static_batch_writes_the_same(llama):
    prompts = [p["prompt"] for p in CHOSEN[:3]]
    cache = KVCache(llama.config, 3, max(map(len, prompts)) + 5)
    found = generate_static(llama, cache, prompts, [5, 1, 3])
    expected = [p["new"][:n] for p, n in zip(CHOSEN, (5, 1, 3), strict=False)]
    assert [answer.ids for answer in found.answers] == expected


def test_nothing_of_a_request_is_kept_when_it_is_over():
    """Whatever way it ended, and although its exception holds frames of the step."""
    batcher = Batcher(Teller([], {4: "RuntimeError"}), new_cache(2, 40), (), Limits(max_running=2))
    alive = []
    for number in range(40):
        request = greedy([1 + number, 2], 3, deadline=None if number % 5 else 0.0)
        batcher.submit(request)
        alive.append(weakref.ref(request))
        if number % 7 == 0:
            batcher.cancel(request)
    del request
    while not batcher.idle:
        batcher.step()
    gc.collect()
    assert not [one for one in alive if one() is not None]


def test_an_idle_batcher_keeps_nothing_of_those_that_failed():
    """An exception holds its frames, and those hold the requests."""
    batcher = Batcher(Teller([], {1: "ArithmeticError"}), new_cache(4, 64))
    alive = []
    for _ in range(4):
        request = greedy([1, 2], 3)
        alive.append(weakref.ref(request))
        batcher.submit(request)
    del request
    while not batcher.idle:
        batcher.step()
    gc.collect()
    assert not [one for one in alive if one() is not None]


def test_rows_with_a_gap_cost_their_tokens_and_not_their_room():
    """A free row between two others is usual; what attention reads is then a copy."""
    sizes = []
    for room in (64, 4096):
        cache = new_cache(3, room)
        rows, positions = torch.tensor([0, 2]), torch.arange(5).repeat(2, 1)
        for row in rows.tolist():
            cache.reserve(row, room)
        shape = 2, cache.keys[0].shape[1], 5, cache.keys[0].shape[3]
        cache.write(0, rows, positions, torch.ones(shape), torch.ones(shape))
        keys, values, _ = cache.read(0, rows)
        sizes.append([part.untyped_storage().nbytes() for part in (keys, values)])
    assert sizes[0] == sizes[1]
