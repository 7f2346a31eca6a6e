"""Chapter 06 by someone who keeps sorted lists, counts with sets, and writes step in one piece."""

import bisect
import itertools
import math
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch.nn.utils.rnn import pad_sequence

from solutions import sampler
from solutions.greedy import Generation, room_for
from solutions.kv_cache import CacheFull
from solutions.sampling_params import SamplingParams


def pad(sequences, starts=None, device="cpu"):
    if starts is None:
        starts = [0 for _ in sequences]
    if len(sequences) == 0 or len(starts) != len(sequences):
        raise ValueError(f"got {len(sequences)} sequences, {len(starts)} starts")
    lengths = [len(ids) for ids in sequences]
    if 0 in lengths:
        raise ValueError(f"nothing in sequence {lengths.index(0)}")
    tokens = [torch.tensor(list(ids), dtype=torch.long) for ids in sequences]
    places = [torch.arange(n) + start for n, start in zip(lengths, starts, strict=True)]
    tokens = pad_sequence(tokens, batch_first=True)
    places = pad_sequence(places, batch_first=True, padding_value=-1)
    return tokens.to(device), places.to(device)


@dataclass(frozen=True)
class StaticBatch:
    answers: list
    useful: int
    wasted: int

    @property
    def places(self):
        return self.useful + self.wasted


def generate_static(model, cache, prompts, max_new_tokens, end_ids=()):
    count = len(prompts)
    if count == 0 or count > cache.rows or len(max_new_tokens) != count:
        raise ValueError(f"{count} prompts, {len(max_new_tokens)} counts, {cache.rows} rows")
    limits = list(map(lambda p, n: room_for(model.config, p, n, cache), prompts, max_new_tokens))
    try:
        for row, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
            cache.reserve(row, limit + len(prompt))
        tokens, places = pad(prompts, device=model.device)
        useful = int((places >= 0).sum())
        wasted = places.numel() - useful
        logits = model.forward(tokens, places, cache=cache, rows=torch.arange(count))
        last = torch.tensor([[prompt[-1]] for prompt in prompts])
        places = torch.tensor([[len(prompt) - 1] for prompt in prompts])
        answers, over = [[] for _ in prompts], ["" for _ in prompts]
        while True:
            for row, token in enumerate(torch.max(logits, dim=1).indices.tolist()):
                if over[row]:
                    continue
                if token in end_ids:
                    over[row] = "stop"
                    continue
                answers[row] += [token]
                if len(answers[row]) >= limits[row]:
                    over[row] = "length"
                else:
                    last[row, 0] = token
                    places[row, 0] += 1
            going = over.count("")
            if going == 0:
                break
            useful += going
            wasted += count - going
            logits = model.forward(last, places, cache=cache, rows=torch.arange(count))
        made = [Generation(ids, why) for ids, why in zip(answers, over, strict=True)]
        return StaticBatch(made, useful, wasted)
    finally:
        for row in range(count):
            cache.free(row)


class State(StrEnum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


ORDER = list(State)
counter = itertools.count(1)


class Request:
    def __init__(
        self,
        prompt,
        params=None,
        priority=0,
        deadline=None,
        admit_by=None,
        ignore_eos=False,
        on_token=None,
        on_finish=None,
        id=None,
    ):
        self.prompt, self.params = list(prompt), params or SamplingParams()
        self.priority, self.deadline, self.admit_by = priority, deadline, admit_by
        self.ignore_eos, self.on_token, self.on_finish = ignore_eos, on_token, on_finish
        self.id = next(counter) if id is None else id
        self.state, self.limit = State.WAITING, self.params.max_tokens
        self.arrival = self.admitted = self.row = self.sampling = None
        self.computed, self.output, self.logprobs = 0, [], []
        self.finish_reason = self.error = None

    def fit(self, context, vocabulary):
        if self.arrival is not None or self.state != State.WAITING:
            raise ValueError("only a new request can be fitted")
        if len(self.prompt) == 0:
            raise ValueError("no prompt")
        if len(self.prompt) + 1 > context:
            raise ValueError(f"prompt: {len(self.prompt)} tokens, context: {context}")
        for token in self.prompt:
            if isinstance(token, bool) or not isinstance(token, int):
                raise ValueError(f"{token!r} is no token id")
            if token not in range(vocabulary):
                raise ValueError(f"{token} is not below {vocabulary}")
        self.limit = self.params.max_tokens
        if len(self.prompt) + self.limit > context:
            self.limit = context - len(self.prompt)

    @property
    def size(self):
        return self.limit + len(self.prompt)

    @property
    def remaining(self):
        return len(self.output) - (self.computed - len(self.prompt))

    @property
    def expires(self):
        times = [math.inf]
        if self.deadline is not None:
            times.append(self.deadline)
        if self.state == State.WAITING and self.admit_by is not None:
            times.append(self.admit_by)
        return min(times)

    def upcoming(self, count):
        chunk = self.prompt[self.computed :][:count]
        skip = max(self.computed - len(self.prompt), 0)
        return chunk + self.output[skip : skip + count - len(chunk)]

    def move(self, state):
        forward = ORDER.index(state) == ORDER.index(self.state) + 1
        ends = state == State.FINISHED and self.state != State.FINISHED
        if not (forward or ends):
            raise RuntimeError(f"{self.state} -> {state} is not possible")
        self.state = state

    def add(self, token, told=None):
        if self.state != State.DECODE:
            raise RuntimeError(f"no token for a request that is {self.state}")
        self.output.append(token)
        if self.sampling:
            self.sampling.add(token)
        if told is not None:
            self.logprobs.append(told)

    def finish(self, reason, error=None):
        if reason not in ("stop", "length", "cancelled", "timeout", "error"):
            raise ValueError(f"what is {reason!r}?")
        self.move(State.FINISHED)
        self.finish_reason, self.error = reason, error
        self.sampling = None


class QueueFull(RuntimeError):
    pass


class WaitingQueue:
    def __init__(self, bound, patience=5.0):
        self.bound, self.patience, self.lock = bound, patience, threading.RLock()
        self.number, self.keys, self.turns, self.times = 0, {}, [], []

    def __len__(self):
        return len(self.keys)

    def __iter__(self):
        with self.lock:
            yield from tuple(self.keys)

    def add(self, request, now):
        with self.lock:
            if request.arrival is not None or request.state != State.WAITING:
                raise ValueError("it was here before")
            if len(self) == self.bound:
                raise QueueFull(f"no more than {self.bound}")
            self.number += 1
            turn = (request.priority, request.size, self.number)
            self.keys[request] = turn, (request.expires, self.number)
            bisect.insort(self.turns, (turn, request))
            if request.expires != math.inf:
                bisect.insort(self.times, ((request.expires, self.number), request))
            request.arrival = now

    def first(self, now):
        with self.lock:
            for request in self.keys:
                if request.arrival < now - self.patience:
                    return request
                break
            return self.turns[0][1] if self.turns else None

    def remove(self, request):
        with self.lock:
            keys = self.keys.pop(request, None)
            if keys is None:
                return False
            for entries, key in zip((self.turns, self.times), keys, strict=True):
                at = bisect.bisect_left(entries, (key,))
                if at < len(entries) and entries[at][1] is request:
                    del entries[at]
            return True

    def expired(self, now):
        with self.lock:
            found = [request for key, request in self.times if key[0] <= now]
            for request in found:
                self.remove(request)
            return found


class Room:
    def __init__(self, cache, rows, budget):
        self.cache, self.rows, self.budget, self.held = cache, rows, budget, set()

    @property
    def free_rows(self):
        return [row for row in range(self.rows) if row not in self.held]

    def take(self, request):
        rows = self.free_rows
        if not rows or self.budget - self.cache.used_tokens < request.size:
            return False
        try:
            self.cache.reserve(rows[0], request.size)
        except CacheFull:
            return False
        self.held.add(rows[0])
        request.row = rows[0]
        return True

    def give_back(self, request):
        if request.row in self.held:
            self.cache.free(request.row)
            self.held.discard(request.row)
            request.row = None


def admit(waiting, room, now):
    found = []
    while len(waiting):
        request = waiting.first(now)
        if not room.take(request):
            break
        waiting.remove(request)
        request.admitted = now
        request.move(State.PREFILL)
        found += [request]
    return found


@dataclass(frozen=True)
class Plan:
    decodes: list
    prefills: list

    @property
    def places(self):
        chunks = [count for _, count in self.prefills]
        return len(self.decodes) + len(chunks) * max([0, *chunks])


def plan_step(running, budget):
    decodes, prompts = {}, []
    for request in running:
        if request.state == State.DECODE:
            decodes[request.row] = (request, 1)
        elif request.state == State.PREFILL:
            prompts.append(request)
    if len(decodes) + len(prompts) > budget:
        raise ValueError(f"{len(decodes) + len(prompts)} in {budget} places")
    left, chunks = budget - len(decodes), []
    others = [(request.remaining, n, request) for n, request in enumerate(prompts[1:])]
    for rest, _, request in sorted(others):
        n = len(chunks) + 2
        tried = [*chunks, (request, min(rest, left // n))]
        if n * max(count for _, count in tried) > left:
            break
        chunks = tried
    for request in prompts[:1]:
        chunks.insert(0, (request, min(request.remaining, left // (len(chunks) + 1))))
    return Plan([decodes[row] for row in sorted(decodes)], chunks)


def compute(model, cache, chunks):
    if len(chunks) == 0:
        return [], None
    ids = [request.upcoming(count) for request, count in chunks]
    tokens, places = pad(ids, [request.computed for request, _ in chunks], model.device)
    rows = torch.tensor([r.row for r, _ in chunks], device=model.device)
    logits = model.forward(tokens, places, cache, rows)
    for request, count in chunks:
        request.computed += count
    done = [request.remaining == 0 for request, _ in chunks]
    if not any(done):
        return [], None
    requests = [request for (request, _), ready in zip(chunks, done, strict=True) if ready]
    return requests, logits[torch.tensor(done)]


def emit(request, token, end_ids, told=None):
    if not request.ignore_eos and token in end_ids:
        return "stop"
    request.add(token, told)
    stop = False
    if request.on_token:
        stop = request.on_token(token)
    if stop is True:
        return "stop"
    return None if len(request.output) < request.limit else "length"


def end(request, reason, error=None):
    request.finish(reason, error)
    if request.on_finish:
        try:
            request.on_finish(request)
        except Exception as problem:
            return problem


def usable_rows(logits):
    return [
        bool((row.isfinite() | row.isneginf()).all() and row.isfinite().any()) for row in logits
    ]


def violations(room, running, waiting):
    found, waiting = [], list(waiting)
    used, free, total = room.cache.used_tokens, room.cache.free_tokens, room.cache.total_tokens
    if used + free != total:
        found.append(f"used {used}, free {free}, total {total}")
    sizes = sum(request.size for request in running.values())
    if used != sizes:
        found.append(f"used {used}, wanted {sizes}")
    free_rows = list(room.free_rows)
    for row in range(room.rows):
        if free_rows.count(row) + (row in running) != 1:
            found.append(f"row {row} is lost, or there too often")
    for row, request in running.items():
        if request.row != row:
            found.append(f"{request.id} is kept under {row}")
        if request.state in (State.WAITING, State.FINISHED):
            found.append(f"{request.id} does not run")
    everybody = list(running.values()) + waiting
    seen = []
    for request in waiting:
        if request.state != State.WAITING or request.row is not None:
            found.append(f"{request.id} does not wait")
    for request in everybody:
        if everybody.count(request) > 1 and request not in seen:
            seen.append(request)
            found.append(f"{request.id} is there more than once")
    return found


@dataclass(frozen=True)
class Limits:
    max_running: int | None = None
    max_waiting: int = 256
    kv_share: float = 1.0
    step_tokens: int = 512
    patience: float = 5.0


@dataclass
class Step:
    decode: list = field(default_factory=list)
    prefill: dict = field(default_factory=dict)
    places: int = 0
    running: int = 0
    waiting: int = 0
    errors: list = field(default_factory=list)


class Batcher:
    def __init__(
        self, model, cache, end_ids=(), limits=Limits(), clock=time.monotonic, sampler=sampler
    ):
        rows = limits.max_running or cache.rows
        self.model, self.cache, self.end_ids, self.limits = model, cache, set(end_ids), limits
        self.clock, self.sampler = clock, sampler
        self.room = Room(cache, rows, int(cache.total_tokens * limits.kv_share))
        self.waiting = WaitingQueue(limits.max_waiting, limits.patience)
        self.context = min(model.config.max_position_embeddings, cache.max_length, self.room.budget)
        self.running, self.to_cancel, self.lock = {}, [], threading.Lock()

    @property
    def idle(self):
        return not self.running and not self.to_cancel and len(self.waiting) == 0

    def submit(self, request):
        request.fit(self.context, self.model.config.vocab_size)
        self.waiting.add(request, self.clock())

    def cancel(self, request):
        with self.lock:
            self.to_cancel.append(request)

    def check(self):
        return violations(self.room, self.running, self.waiting)

    def step(self):
        now, errors = self.clock(), []

        def leave(request, reason, error=None):
            if request.row is not None:
                del self.running[request.row]
                self.room.give_back(request)
            problem = end(request, reason, error)
            if problem is not None:
                errors.append(problem)

        with self.lock:
            cancelled, self.to_cancel = self.to_cancel, []
        for request in cancelled:
            if self.waiting.remove(request) or request in self.running.values():
                leave(request, "cancelled")
        for request in self.waiting.expired(now):
            leave(request, "timeout")
        for request in [r for r in self.running.values() if now >= r.expires]:
            leave(request, "timeout")
        for request in admit(self.waiting, self.room, now):
            self.running[request.row] = request
            try:
                request.sampling = self.sampler.SamplingState(request.params, request.prompt)
            except Exception as error:
                errors.append(error)
                leave(request, "error", error)
        plan = plan_step(self.running.values(), self.limits.step_tokens)
        decode = [request.row for request, _ in plan.decodes]
        prefill = {request.row: count for request, count in plan.prefills}
        ready, rows = [], []
        for chunks in (plan.decodes, plan.prefills):
            try:
                requests, logits = compute(self.model, self.cache, chunks)
            except Exception as error:
                errors.append(error)
                for request, _ in chunks:
                    leave(request, "error", error)
                continue
            fine = usable_rows(logits) if requests else []
            for n, request in enumerate(requests):
                if fine[n]:
                    ready.append(request)
                    rows.append(logits[n])
                else:
                    errors.append(FloatingPointError(f"logits of {request.id}"))
                    leave(request, "error", errors[-1])
        if ready:
            logits, states = torch.stack(rows), [request.sampling for request in ready]
            try:
                ids = self.sampler.sample(logits, states)
                told = self.sampler.report(logits, ids, states)
            except Exception as error:
                errors.append(error)
                for request in ready:
                    leave(request, "error", error)
            else:
                for request, token, about in zip(ready, ids.tolist(), told, strict=True):
                    if request.state == State.PREFILL:
                        request.move(State.DECODE)
                    try:
                        reason = emit(request, token, self.end_ids, about)
                    except Exception as error:
                        errors.append(error)
                        leave(request, "error", error)
                    else:
                        if reason:
                            leave(request, reason)
        if not self.running and not len(self.waiting) and self.check():
            raise RuntimeError("; ".join(self.check()))
        return Step(decode, prefill, plan.places, len(self.running), len(self.waiting), errors)
