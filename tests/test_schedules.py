"""The batcher under random schedules: whatever happens, after every step all is as promised.

What each request should be told comes from tests/oracles: told() for the Teller, whose answer shows
a token too many, too few or twice; and the numpy model in float64 for the tiny Llamas.
"""

import itertools
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from solutions import forward_pass
from solutions.batcher import Batcher, Limits
from solutions.kv_cache import KVCache
from solutions.request import Request, State
from solutions.sampling_params import SamplingParams
from solutions.waiting import QueueFull
from tests.grading.forward_pass.tolerances import TOLERANCES
from tests.oracles import forward_pass as oracle
from tests.oracles.batcher import told
from tests.reference.arrays import tiny_config, tiny_weights
from tests.scenarios.batcher_models import NAN, Clock, Teller, new_cache
from tests.scenarios.helpers import llama_of

ROWS, LENGTH, BOUND, PATIENCE = 5, 40, 12, 5.0
ENDS = (7, 41)  # about one token in 45 is one of them
FAILURES = ("ArithmeticError", "RuntimeError")


class Watched:
    """A request, what should come of it, and what did."""

    def __init__(self, rng: random.Random, number: int, now: float):
        self.prompt = [rng.randint(1, 90) for _ in range(rng.choice((1, 2, 5, 12, 30)))]
        self.spoilt = rng.random() < 0.03
        if self.spoilt:
            self.prompt[-1] = NAN
        self.leaves = rng.randint(1, 6) if rng.random() < 0.1 else 0  # its listener says stop there
        self.raises = rng.randint(1, 6) if rng.random() < 0.05 else 0
        self.grumbles = rng.random() < 0.05  # its on_finish raises
        self.tokens: list[int] = []
        self.steps: list[int] = []  # in which its tokens came
        self.finished: list[str] = []
        self.now = 0  # the number of the step that runs
        self.ahead = None  # prompt tokens to compute until its first token, when it was admitted
        self.request = Request(
            self.prompt,
            SamplingParams(temperature=0.0, max_tokens=rng.choice((1, 3, 9, 25, 1000))),
            priority=rng.choice((0, 0, 0, -1, 1)),
            deadline=now + rng.uniform(0, 60) if rng.random() < 0.15 else None,
            admit_by=now + rng.uniform(0, 15) if rng.random() < 0.15 else None,
            ignore_eos=rng.random() < 0.3,
            on_token=self.hear,
            on_finish=self.over,
            id=number,
        )

    def hear(self, token: int) -> bool | None:
        """The on_token of it."""
        assert not self.finished, "a token after the end"
        self.tokens.append(token)
        self.steps.append(self.now)
        if len(self.tokens) == self.raises:
            raise ArithmeticError("the listener failed on purpose")
        return len(self.tokens) == self.leaves

    def over(self, request: Request) -> None:
        """The on_finish of it."""
        assert request is self.request
        assert request.row is None, "it hears of its end before its room is given back"
        self.finished.append(request.finish_reason)
        if self.grumbles:
            raise ArithmeticError("the listener failed on purpose")

    def check_end(self) -> None:
        """Its tokens are the oracle's, as far as it came, and its reason is the right one."""
        request, reason = self.request, self.request.finish_reason
        answer, end = told(self.prompt, request.limit, () if request.ignore_eos else ENDS)
        assert self.finished == [reason], request
        assert request.output == self.tokens == answer[: len(self.tokens)], request
        assert max(Counter(self.steps).values(), default=0) <= 1, "two tokens in one step"
        if reason == "length":
            assert (self.tokens, end) == (answer, "length")
        if reason == "stop":
            assert len(self.tokens) == self.leaves or (self.tokens, end) == (answer, "stop")
        assert (reason == "error") == (request.error is not None)
        assert not self.spoilt or not self.tokens
        for last in (self.leaves, self.raises):
            assert not last or len(self.tokens) <= last, "a token after the listener's last one"


class Schedule:
    """A batcher with little memory, and a crowd in front of it."""

    def __init__(self, seed: int):
        self.rng = rng = random.Random(seed)
        self.clock, self.breaks = Clock(0.0), {}
        self.model = Teller([], self.breaks)
        running = rng.randint(1, ROWS)
        limits = Limits(
            max_running=running,
            max_waiting=rng.randint(1, BOUND),
            kv_share=rng.choice((1.0, 0.6, 0.3)),
            step_tokens=running + rng.choice((0, 1, 4, 40)),
            patience=PATIENCE,
        )
        self.batcher = Batcher(self.model, new_cache(ROWS, LENGTH), ENDS, limits, self.clock)
        self.known: dict[Request, Watched] = {}  # those that are not over
        self.ends: Counter = Counter()
        self.errors = self.steps = self.refused = self.faults = 0
        self.numbers = itertools.count()

    def arrive(self) -> None:
        """One more request; when it is refused, for one of two reasons only."""
        watched = Watched(self.rng, next(self.numbers), self.clock.now)
        waiting, bound = len(self.batcher.waiting), self.batcher.limits.max_waiting
        try:
            self.batcher.submit(watched.request)
        except QueueFull:
            assert waiting == bound
            self.refused += 1
        except ValueError:
            assert len(watched.prompt) >= self.batcher.context
            self.refused += 1
        else:
            assert waiting < bound
            assert len(watched.prompt) < self.batcher.context
            self.known[watched.request] = watched

    def disturb(self) -> None:
        """What the world does between two steps."""
        rng = self.rng
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 4))):
            self.arrive()
        if self.known and rng.random() < 0.1:
            self.batcher.cancel(rng.choice(list(self.known)))
        if rng.random() < 0.03:
            self.breaks[self.model.calls + 1] = rng.choice(FAILURES)
        self.clock.now += rng.choice((0.0, 0.1, 0.5, 2.0))

    def step(self) -> None:
        """One step, and everything that must be true after it."""
        self.steps += 1
        for watched in self.known.values():
            watched.now = self.steps
        before = {r: (r.state, r.computed, len(r.output)) for r in self.known}
        patient = self.tired()
        made = self.batcher.step()
        self.model.events.clear()
        self.check_books(made)
        self.check_tokens(before)
        self.check_progress()
        self.check_turns(before, patient)
        self.retire(made)

    def tired(self) -> list[Request]:
        """Those who are promoted, the oldest first, as they stand before the step."""
        now = self.clock.now
        return [r for r in self.batcher.waiting if now - r.arrival > PATIENCE]

    def check_books(self, made) -> None:
        """Memory, rows and queue."""
        batcher, cache = self.batcher, self.batcher.cache
        assert batcher.check() == []
        assert cache.used_tokens + cache.free_tokens == cache.total_tokens == ROWS * LENGTH
        assert cache.used_tokens == sum(r.size for r in batcher.running.values())
        assert cache.used_tokens <= batcher.limits.kv_share * cache.total_tokens
        assert len(batcher.running) <= batcher.limits.max_running
        assert len(batcher.waiting) <= batcher.limits.max_waiting
        here = [*batcher.running.values(), *batcher.waiting]
        assert len(set(here)) == len(here)
        assert set(here) == {r for r in self.known if r.state is not State.FINISHED}
        assert made.places <= batcher.limits.step_tokens
        assert (made.running, made.waiting) == (len(batcher.running), len(batcher.waiting))

    def check_tokens(self, before: dict) -> None:
        """Who decodes gets exactly one token or ends; nobody gets two; none without a prefill."""
        for request, (state, _, length) in before.items():
            gained = len(request.output) - length
            assert gained in (0, 1), request
            if state is State.DECODE and request.state is not State.FINISHED:
                assert gained == 1, request
            if request.state is State.DECODE:
                assert request.computed >= len(request.prompt), request
                assert request.remaining == 1, request

    def check_progress(self) -> None:
        """For everybody in prefill, his own prompt or one before it got on in this step."""
        prompts = [r for r in self.batcher.running.values() if r.state is State.PREFILL]
        for place, request in enumerate(prompts):
            watched = self.known[request]
            ahead = sum(r.remaining for r in prompts[: place + 1])
            if watched.ahead is not None:
                assert ahead < watched.ahead, "a step in which its turn came no nearer"
            watched.ahead = ahead

    def check_turns(self, before: dict, patient: list[Request]) -> None:
        """While a promoted one waits nobody who came after him is let in."""
        waits = [r for r in patient if r.state is State.WAITING]
        entered = [r for r in before if before[r][0] is State.WAITING and r.admitted is not None]
        if waits:
            assert all(r in patient and r.arrival <= waits[0].arrival for r in entered)
        for request in self.batcher.running.values():
            assert request.deadline is None or request.deadline > self.clock.now

    def retire(self, made) -> None:
        """Look once more at those that are over, and let them go."""
        over = [r for r in self.known if r.state is State.FINISHED]
        expected = Counter()
        for request in over:
            watched = self.known.pop(request)
            watched.check_end()
            self.ends[request.finish_reason] += 1
            expected["on_finish"] += watched.grumbles
        failed = {id(r.error) for r in over if r.error is not None}
        assert len(made.errors) == len(failed) + expected["on_finish"]
        self.errors += len(made.errors)

    def drain(self) -> int:
        """Steps until nobody is left. Each step gives somebody a token, or a prompt its chunk."""
        work = sum(r.remaining + r.limit for r in self.known) + 1
        taken = 0
        while not self.batcher.idle:
            assert taken <= work, "it never ends"
            self.step()
            taken += 1
        return taken


@pytest.mark.parametrize("seed", range(24))
def test_every_promise_holds_after_every_step(seed: int):
    schedule = Schedule(seed)
    for _ in range(250):
        schedule.disturb()
        schedule.step()
    schedule.drain()
    assert not schedule.known
    cache = schedule.batcher.cache
    assert (cache.used_tokens, cache.free_tokens) == (0, cache.total_tokens)
    assert schedule.batcher.room.free_rows == list(range(schedule.batcher.limits.max_running))
    assert int(cache.lengths.sum()) == 0


def test_the_schedules_meet_every_kind_of_end():
    """So that the test above cannot pass by never coming to where it matters."""
    ends, refused, steps = Counter(), 0, 0
    for seed in range(100, 108):
        schedule = Schedule(seed)
        for _ in range(250):
            schedule.disturb()
            schedule.step()
        steps += schedule.steps
        ends += schedule.ends
        refused += schedule.refused
    assert steps == 2000
    assert min(ends[r] for r in ("stop", "length", "cancelled", "timeout", "error")) > 20, ends
    assert refused > 20


def test_listeners_may_submit_and_cancel_while_a_step_runs():
    """A token that brings a new request, an end that cancels another: and all end."""
    rng = random.Random(5)
    batcher = Batcher(Teller([], {}), new_cache(3, LENGTH), (), Limits(max_waiting=500), Clock())
    made: list[Request] = []
    ended: Counter = Counter()

    def submit() -> None:
        prompt = [rng.randint(1, 90) for _ in range(rng.randint(1, 9))]
        params = SamplingParams(temperature=0.0, max_tokens=rng.randint(1, 12))
        request = Request(prompt, params, on_token=hear, on_finish=over)
        made.append(request)
        batcher.submit(request)

    def hear(token: int) -> None:
        if len(made) < 300 and rng.random() < 0.3:
            submit()

    def over(request: Request) -> None:
        ended[request] += 1
        if rng.random() < 0.2:
            batcher.cancel(rng.choice(made))
            batcher.cancel(request)  # it is over already
        if len(made) < 300:
            submit()

    submit()
    for _ in range(5000):
        if batcher.idle:
            break
        assert batcher.step().errors == []
        assert batcher.check() == []
    assert batcher.idle
    assert len(made) == 300
    assert ended == Counter(made)
    for request in made:
        answer, _ = told(request.prompt, request.limit)
        assert request.output == answer[: len(request.output)]
        assert request.finish_reason in ("length", "cancelled")
    assert {r.finish_reason for r in made} == {"length", "cancelled"}


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns after a microsecond instead of five milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_other_threads_may_submit_and_cancel_at_any_time(restless):
    """Three threads send 80 requests each and cancel every third; a fourth one steps."""
    batcher = Batcher(Teller([], {}), new_cache(4, LENGTH), (), Limits(max_waiting=8), Clock())
    ended: Counter = Counter()
    made: list[list[Request]] = [[], [], []]

    def send(name: int) -> None:
        rng = random.Random(name)
        while len(made[name]) < 80:
            prompt = [rng.randint(1, 90) for _ in range(rng.randint(1, 12))]
            params = SamplingParams(temperature=0.0, max_tokens=rng.randint(1, 6))
            request = Request(prompt, params, on_finish=lambda r: ended.update([r]))
            try:
                batcher.submit(request)
            except QueueFull:
                continue
            made[name].append(request)
            if len(made[name]) % 3 == 0:
                batcher.cancel(request)

    threads = [threading.Thread(target=send, args=(n,), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or not batcher.idle:
        batcher.step()
    everyone = list(itertools.chain(*made))
    assert len(everyone) == 240
    assert ended == Counter(everyone)
    assert batcher.check() == []
    for request in everyone:
        answer, _ = told(request.prompt, request.limit)
        whole = request.finish_reason == "length"
        assert request.output == (answer if whole else answer[: len(request.output)])
    assert sum(r.finish_reason == "length" for r in everyone) >= 160


@pytest.fixture(scope="module", params=["tied", "untied"])
def answers(request) -> tuple[str, list[tuple[list[int], list[int]]]]:
    """(model, [(prompt, greedy ids)]) in numpy, where every id won by far more than rounding."""
    name, rng, found = request.param, random.Random(6), []
    config, weights = tiny_config(name), tiny_weights(name)
    spread = 8 * TOLERANCES["logits", next(iter(tiny_weights(name).values())).dtype]
    while len(found) < 12:
        prompt = [rng.randrange(config["vocab_size"]) for _ in range(rng.choice((1, 4, 11, 20)))]
        ids, margin = oracle.greedy(config, weights, prompt, rng.choice((1, 4, 9)))
        if margin > spread * abs(oracle.logits(config, weights, prompt)).max():
            found.append((prompt, ids))
    return name, found


@pytest.mark.parametrize("seed", range(6))
def test_greedy_tokens_do_not_depend_on_the_schedule(answers, seed: int):
    """Alone, in any company, in chunks of any size, in any order, between failures of others."""
    name, wanted = answers
    rng, llama = random.Random(seed), llama_of(forward_pass, name)
    rows = rng.choice((1, 2, 5, 12))
    limits = Limits(step_tokens=rows + rng.choice((0, 2, 9, 100)), patience=rng.choice((0.0, 5.0)))
    batcher = Batcher(llama, KVCache(llama.config, rows, 40), (), limits, Clock())
    to_come, made, steps = rng.sample(wanted, len(wanted)), [], 0
    while to_come or not batcher.idle:
        for _ in range(min(rng.choice((0, 1, 5)), len(to_come))):
            prompt, ids = to_come.pop()
            params = SamplingParams(temperature=0.0, max_tokens=len(ids))
            made.append((Request(prompt, params, priority=rng.randint(-1, 1)), ids))
            batcher.submit(made[-1][0])
        batcher.step()
        steps += 1
        assert batcher.check() == []
        assert steps < 2000
    assert len(made) == len(wanted)
    for request, ids in made:
        assert request.output == ids, (name, seed, request.prompt)
