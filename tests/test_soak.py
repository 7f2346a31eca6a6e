"""What must not grow: memory with the requests that there were, a step with those that wait."""

import cProfile
import itertools
import pstats
import weakref

import pytest

from benchmarks import scheduler, soak
from benchmarks.fake import FakeModel, small_cache
from solutions.batcher import Batcher, Limits
from solutions.request import Request
from solutions.sampling_params import SamplingParams


@pytest.mark.parametrize("seed", [1, 2])
def test_after_requests_of_every_end_all_memory_is_free_and_nothing_is_left(seed: int):
    """2,500 of the 100,000 of `python -m course bench soak`, which looks at bytes as well."""
    others = soak._held()["requests"]  # an earlier test of this process may hold some
    found = soak.soak(2500, seed)
    assert sum(found["ends"].values()) == 2500
    kinds = ("cancelled", "error", "length", "refused", "stop", "timeout")
    assert min(found["ends"][kind] for kind in kinds) >= 10, found["ends"]
    assert (found["free"], found["wrong"]) == (found["total"], [])
    assert max(found[when]["requests"] for when in ("early", "late")) <= others
    assert found["late"]["objects"] <= found["early"]["objects"] + 20


def test_the_soak_says_what_is_wrong():
    """Each fault that it is there to find, put into what it found."""
    mark = {"objects": 1000, "requests": 0, "resident": 100_000_000}
    good = {"wrong": [], "free": 9, "total": 9, "early": mark, "late": mark}
    assert soak.faults(good) == []
    late = [
        {"requests": 1},
        {"objects": 1001},
        {"resident": 120_000_000},
    ]
    bad = [good | {"free": 8}, good | {"wrong": ["row 3 is held twice"]}]
    bad += [good | {"late": mark | change} for change in late]
    said = [soak.faults(found) for found in bad]
    assert [len(problems) for problems in said] == [1] * 5
    words = ["8 of 9 tokens", "row 3", "1 requests are alive", "1 objects more", "20.0 MB grew"]
    assert all(word in problems[0] for word, problems in zip(words, said, strict=True))


def test_a_request_that_is_over_is_not_kept():
    """Only whoever sent it holds it: not the queue, not its row, not the step before."""
    batcher = Batcher(FakeModel(), small_cache(2, 64), limits=Limits(max_waiting=50))
    refs = []
    for number in range(40):
        params = SamplingParams(temperature=0.0, max_tokens=1 + number % 5)
        request = Request([1, 2, 3], params, deadline=1e12)
        refs.append(weakref.ref(request))
        batcher.submit(request)
        if number % 4 == 0:
            batcher.cancel(request)
        del request
    while not batcher.idle:
        batcher.step()
    batcher.step()
    kept = sum(ref() is not None for ref in refs)
    # the queue drops its entries when they have become many: it may hold SLACK of them, see 6.3
    assert kept <= 64
    for _ in range(3):
        batcher.submit(Request([1], SamplingParams(temperature=0.0, max_tokens=1)))
        batcher.step()
    assert sum(ref() is not None for ref in refs) <= 64


def calls_in_a_step(running: int, waiting: int, answer: int | None) -> float:
    """Function calls, Python's and C's: the work of a step, on any machine. The mean of 32."""
    profile = cProfile.Profile()
    for batcher in itertools.islice(scheduler.under_load(running, waiting, answer), 32):
        profile.enable()
        batcher.step()
        profile.disable()
    return pstats.Stats(profile).total_calls / 32


@pytest.mark.parametrize("answer", [32, None])  # one in 32 leaves in each step; nobody does
def test_a_step_costs_no_more_where_many_wait(answer: int | None):
    alone, crowd = (calls_in_a_step(64, waiting, answer) for waiting in (0, 3000))
    assert crowd < 1.1 * alone


@pytest.mark.parametrize("answer", [32, None])
def test_a_step_grows_no_faster_than_the_number_of_those_that_run(answer: int | None):
    few, many = (calls_in_a_step(running, 100, answer) for running in (64, 256))
    assert many < 4 * few


def test_a_step_costs_no_more_late_in_a_long_answer():
    """No work in proportion to what was written already: 800 tokens later it is the same."""
    loaded, counts = scheduler.under_load(16, 0, None), []
    for steps in (64, 800):
        profile = cProfile.Profile()
        for batcher in itertools.islice(loaded, steps):
            batcher.step()
        profile.enable()
        next(loaded).step()
        profile.disable()
        counts.append(pstats.Stats(profile).total_calls)
    assert counts[1] <= counts[0]
