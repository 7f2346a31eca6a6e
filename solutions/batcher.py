"""Chapter 06: many requests, one running batch, one step at a time."""

import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import ModuleType

import torch
from torch import Tensor

from solutions import sampler
from solutions.admission import Room, admit
from solutions.bookkeeping import violations
from solutions.chunking import Chunk, compute, plan_step
from solutions.ending import emit, end, usable_rows
from solutions.forward_pass import Llama
from solutions.kv_cache import KVCache
from solutions.request import Request, State
from solutions.sampler import TokenLogProbs
from solutions.waiting import WaitingQueue


@dataclass(frozen=True)
class Limits:
    """How much a batcher takes on.

    Args:
        max_running: requests that run at once; None for all rows of the cache.
        max_waiting: requests that wait, at most.
        kv_share: the share of the cache's tokens that may be reserved, above 0 up to 1.
        step_tokens: places that a step computes at most; at least max_running.
        patience: seconds after which a waiting request is promoted.
    """

    max_running: int | None = None
    max_waiting: int = 256
    kv_share: float = 1.0
    step_tokens: int = 512
    patience: float = 5.0


@dataclass(frozen=True)
class Step:
    """What one step did. A forward that failed counts like the others.

    Attributes:
        decode: the rows in the decode forward, one token each.
        prefill: tokens of a prompt computed, by row.
        places: places computed, padding included.
        running: requests that hold a row when the step is over.
        waiting: requests that wait when it is over.
        errors: the exceptions met: of the model, of the sampler, of a request's listeners.
    """

    decode: list[int] = field(default_factory=list)
    prefill: dict[int, int] = field(default_factory=dict)
    places: int = 0
    running: int = 0
    waiting: int = 0
    errors: list[Exception] = field(default_factory=list)


class Batcher:
    """Keeps one batch running: requests join when there is room and leave when they are over.

    A thread calls `step` again and again; `submit` and `cancel` may be called from any thread,
    also by a listener (on_token, on_finish) during a step. Listeners are only called by `step`.
    Of a request that is over nothing is kept, but for a while its place in the waiting queue.

    Args:
        model: its forward, config and device are used.
        cache: nobody else uses it.
        end_ids: the ids that end a text.
        limits: how much it takes on.
        clock: gives seconds that never go backwards.
        sampler: what has SamplingState, sample and report: chapter 05's module, or another.

    Attributes:
        running: the requests that hold a row, by row, in the order of their admission.
        waiting: the WaitingQueue.
        room: the Room.
        context: tokens that prompt and answer of a request may have together: what the model, a
            row of the cache and the budget have room for, whichever is least. So whatever is
            accepted fits once the others have gone.

    Errors: ValueError when step_tokens is less than max_running, naming both; those of Room and
    WaitingQueue.
    """

    def __init__(
        self,
        model: Llama,
        cache: KVCache,
        end_ids: Collection[int] = (),
        limits: Limits = Limits(),
        clock: Callable[[], float] = time.monotonic,
        sampler: ModuleType = sampler,
    ):
        rows = cache.rows if limits.max_running is None else limits.max_running
        if limits.step_tokens < rows:
            raise ValueError(
                f"step_tokens {limits.step_tokens} must be at least max_running {rows}: "
                "each request needs a place in every step"
            )
        self.model, self.cache, self.end_ids = model, cache, frozenset(end_ids)
        self.limits, self.clock, self.sampler = limits, clock, sampler
        self.room = Room(cache, rows, int(limits.kv_share * cache.total_tokens))
        self.waiting = WaitingQueue(limits.max_waiting, limits.patience)
        self.running: dict[int, Request] = {}
        longest = model.config.max_position_embeddings
        self.context = min(longest, cache.max_length, self.room.budget)
        self._cancelled: deque[Request] = deque()  # to be ended by the next step
        self._errors: list[Exception] = []  # of this step

    @property
    def idle(self) -> bool:
        """Nobody runs, nobody waits, and nothing is to be cancelled: `step` would do nothing."""
        return not (self.running or self._cancelled or len(self.waiting))

    def submit(self, request: Request) -> None:
        """Let a request wait for its turn. It is refused at once if it could never be served.

        Errors: the ValueErrors of Request.fit, with `context` and the model's vocabulary, and those
        of WaitingQueue.add; QueueFull. on_finish is not called then.
        """
        # exercise 6.8
        request.fit(self.context, self.model.config.vocab_size)
        self.waiting.add(request, self.clock())

    def cancel(self, request: Request) -> None:
        """End a request, "cancelled", at the beginning of the next step, wherever it stands.

        One that is over by then, or does not wait or run here, is left alone.
        """
        # exercise 6.8
        self._cancelled.append(request)

    def step(self) -> Step:
        """One step of everything that runs. It never waits for anything.

        1. The clock is read, once.
        2. Requests that were cancelled end; then those that wait or run and have expired.
        3. Requests are admitted, as long as there is room.
        4. The forwards of plan_step are computed: decodes first, then prefills.
        5. One call of sampler.sample chooses a token for each request that has no more remaining
           tokens: every decode, and every prompt that is complete now.
        6. The tokens are emitted one after the other; a request that is over ends at once.

        Whoever ends gives its room back first, and then hears of it. A fault ends only those whom
        it concerns, "error", with the exception: one in a forward or in the sampler those who were
        in that call; one in making a SamplingState or in on_token, or logits no token can be chosen
        from (the exception is a FloatingPointError), that one request. All such exceptions, and
        those of on_finish, are in Step.errors. What is no Exception (Ctrl-C) goes on to the caller;
        this batcher cannot go on after it.

        Returns:
            a Step.

        Errors: RuntimeError naming all violations, when nobody runs or waits at the end and the
        books do not balance.
        """
        # exercise 6.8
        now = self.clock()
        self._retire(now)
        for request in admit(self.waiting, self.room, now):
            self._start(request)
        plan = plan_step(self.running.values(), self.limits.step_tokens)
        decode = [request.row for request, _ in plan.decodes]
        prefill = {request.row: count for request, count in plan.prefills}
        parts = [self._compute(plan.decodes), self._compute(plan.prefills)]
        for request, token, told in self._sample(parts):
            self._emit(request, token, told)
        self._check_when_idle()
        errors, self._errors = self._errors, []  # they hold their frames, and those the requests
        waiting = len(self.waiting)
        return Step(decode, prefill, plan.places, len(self.running), waiting, errors)

    def check(self) -> list[str]:
        """What is wrong in the books, see violations; nothing while all is well."""
        return violations(self.room, self.running, self.waiting)

    def _retire(self, now: float) -> None:
        """End those who were cancelled and those whose time is over."""
        # exercise 6.8
        while self._cancelled:
            request = self._cancelled.popleft()
            if self.running.get(request.row) is request or self.waiting.remove(request):
                self._end(request, "cancelled")
        late = [request for request in self.running.values() if request.expires <= now]
        for request in [*self.waiting.expired(now), *late]:
            self._end(request, "timeout")

    def _start(self, request: Request) -> None:
        """It has its room: from here on it runs."""
        # exercise 6.8
        self.running[request.row] = request
        make = self.sampler.SamplingState
        request.sampling = self._try([request], lambda: make(request.params, request.prompt))

    def _compute(self, chunks: list[Chunk]) -> tuple[list[Request], Tensor | None]:
        """The forward of these chunks; when it fails, all that were in it end."""
        # exercise 6.8
        requests = [request for request, _ in chunks]
        found = self._try(requests, lambda: compute(self.model, self.cache, chunks))
        return ([], None) if found is None else found

    def _sample(self, parts: list[tuple[list[Request], Tensor | None]]) -> list[tuple]:
        """(request, token, log-probabilities) of all, from one call of the sampler."""
        # exercise 6.8
        requests = [request for part, _ in parts for request in part]
        logits = [logits for part, logits in parts if part]
        if not requests:
            return []
        logits = logits[0] if len(logits) == 1 else torch.cat(logits)
        requests, logits = self._without_faulty(requests, logits)
        if not requests:
            return []
        return self._try(requests, lambda: self._chosen(requests, logits)) or []

    def _chosen(self, requests: list[Request], logits: Tensor) -> list[tuple]:
        """What the sampler says to these logits [B, V]."""
        # exercise 6.8
        states = [request.sampling for request in requests]
        ids = self.sampler.sample(logits, states)
        told = self.sampler.report(logits, ids, states)
        return list(zip(requests, ids.tolist(), told, strict=True))

    def _without_faulty(
        self, requests: list[Request], logits: Tensor
    ) -> tuple[list[Request], Tensor]:
        """Those whose logits can be used; the others end."""
        # exercise 6.8
        usable = usable_rows(logits)
        if all(usable):
            return requests, logits
        for request, fine in zip(requests, usable, strict=True):
            if not fine:
                fault = f"the model's logits for request {request.id} are not finite"
                self._fail([request], FloatingPointError(fault))
        kept = [place for place, fine in enumerate(usable) if fine]
        return [requests[place] for place in kept], logits[kept]

    def _emit(self, request: Request, token: int, told: TokenLogProbs | None) -> None:
        """Hand out one token; the request ends when that was its last."""
        # exercise 6.8
        if request.state is State.PREFILL:
            request.move(State.DECODE)
        reason = self._try([request], lambda: emit(request, token, self.end_ids, told))
        if reason is not None:
            self._end(request, reason)

    def _try(self, requests: list[Request], call: Callable):
        """call(). When it raises, these requests end with the error, and it is None."""
        try:
            return call()
        except Exception as error:
            self._fail(requests, error)
            return None

    def _fail(self, requests: list[Request], error: Exception) -> None:
        """One fault, and the end of those whom it concerns."""
        self._errors.append(error)
        for request in requests:
            self._end(request, "error", error)

    def _end(self, request: Request, reason: str, error: Exception | None = None) -> None:
        """Give back what a request holds, then say that it is over."""
        self.running.pop(request.row, None)
        self.room.give_back(request)
        problem = end(request, reason, error)
        if problem is not None:
            self._errors.append(problem)

    def _check_when_idle(self) -> None:
        """With nobody here, all memory must be back: a leak would only show when it is too late."""
        if self.running or len(self.waiting):
            return
        wrong = self.check()
        if wrong:
            raise RuntimeError("nobody runs or waits, and the books are wrong: " + "; ".join(wrong))
