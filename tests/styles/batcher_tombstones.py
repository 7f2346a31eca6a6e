"""Chapter 06 by someone who likes numpy, marks of removal in heaps, slots and small generators."""

import collections
import dataclasses
import enum
import heapq
import itertools
import threading
import time

import numpy as np
import torch

from solutions import sampler
from solutions.greedy import Generation, room_for
from solutions.kv_cache import CacheFull
from solutions.sampling_params import SamplingParams


def pad(sequences, starts=None, device="cpu"):
    starts = np.zeros(len(sequences), int) if starts is None else np.asarray(starts)
    lengths = np.array([len(ids) for ids in sequences], int)
    if not len(lengths) or len(starts) != len(lengths):
        raise ValueError(f"{len(lengths)} sequences, {len(starts)} starts")
    if not lengths.all():
        raise ValueError(f"sequence number {lengths.argmin()} has no ids")
    columns = np.arange(lengths.max())
    real = columns < lengths[:, None]
    tokens = np.zeros(real.shape, np.int64)
    tokens[real] = list(itertools.chain.from_iterable(sequences))
    places = np.where(real, columns + starts[:, None], -1)
    return torch.from_numpy(tokens).to(device), torch.from_numpy(places).to(device)


@dataclasses.dataclass(frozen=True)
class StaticBatch:
    answers: list
    useful: int
    wasted: int

    @property
    def places(self):
        return self.useful + self.wasted


class _Row:
    def __init__(self, prompt, limit, ends):
        self.limit, self.ends = limit, ends
        self.feed, self.place, self.ids, self.over = prompt[-1], len(prompt) - 1, [], None

    def take(self, token):
        if self.over:
            return
        if token in self.ends:
            self.over = "stop"
        else:
            self.ids.append(token)
            self.over = "length" if len(self.ids) == self.limit else None
        if not self.over:
            self.feed, self.place = token, self.place + 1


def generate_static(model, cache, prompts, max_new_tokens, end_ids=()):
    if not len(prompts) or len(prompts) > cache.rows:
        raise ValueError(f"{len(prompts)} prompts for {cache.rows} rows")
    if len(prompts) != len(max_new_tokens):
        raise ValueError(f"{len(prompts)} prompts, {len(max_new_tokens)} numbers")
    rooms = [room_for(model.config, p, n, cache) for p, n in zip(prompts, max_new_tokens)]
    places, useful = 0, 0
    rows = [_Row(prompt, room, end_ids) for prompt, room in zip(prompts, rooms)]
    try:
        for n, room in enumerate(rooms):
            cache.reserve(n, len(prompts[n]))
            cache.reserve(n, len(prompts[n]) + room)
        tokens, positions = pad(prompts)
        useful = sum(len(prompt) for prompt in prompts)
        while True:
            places += tokens.numel()
            said = model.forward(tokens, positions, cache).argmax(dim=-1)
            for row, token in zip(rows, said.tolist()):
                row.take(token)
            if all(row.over for row in rows):
                break
            useful += sum(not row.over for row in rows)
            tokens = torch.tensor([[row.feed] for row in rows])
            positions = torch.tensor([[row.place] for row in rows])
    finally:
        for n in range(len(prompts)):
            cache.free(n)
    return StaticBatch([Generation(r.ids, r.over) for r in rows], useful, places - useful)


State = enum.StrEnum("State", ["WAITING", "PREFILL", "DECODE", "FINISHED"])
REASONS = {"stop", "length", "cancelled", "timeout", "error"}


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class _Data:
    prompt: list
    params: SamplingParams = dataclasses.field(default_factory=SamplingParams)
    priority: int = 0
    deadline: float | None = None
    admit_by: float | None = None
    ignore_eos: bool = False
    on_token: object = None
    on_finish: object = None
    id: object = dataclasses.field(default_factory=lambda: object().__hash__())
    state: State = State.WAITING
    arrival: float | None = None
    admitted: float | None = None
    limit: int = 0
    row: int | None = None
    computed: int = 0
    output: list = dataclasses.field(default_factory=list)
    logprobs: list = dataclasses.field(default_factory=list)
    sampling: object = None
    finish_reason: str | None = None
    error: Exception | None = None


class Request(_Data):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.prompt = [*self.prompt]
        self.limit = self.params.max_tokens

    size = property(lambda self: len(self.prompt) + self.limit)
    remaining = property(lambda self: len(self.prompt) - self.computed + len(self.output))

    @property
    def expires(self):
        by = self.admit_by if self.state == "waiting" else None
        times = [float(time) for time in (self.deadline, by) if time is not None]
        return min(times) if times else float("inf")

    def fit(self, context, vocabulary):
        new = self.state == "waiting" and self.arrival is None
        room = context - len(self.prompt)
        bad = [t for t in self.prompt if type(t) is not int or t < 0 or t >= vocabulary]
        if not new:
            raise ValueError("not a new request")
        if not self.prompt:
            raise ValueError("an empty prompt")
        if room <= 0:
            raise ValueError(f"{len(self.prompt)} tokens in a context of {context}")
        if bad:
            raise ValueError(f"unknown ids, first {bad[0]!r}, of {vocabulary}")
        self.limit = room if room < self.params.max_tokens else self.params.max_tokens

    def upcoming(self, count):
        done = self.computed - len(self.prompt)
        rest = itertools.chain(
            itertools.islice(self.prompt, self.computed, None),
            itertools.islice(self.output, max(done, 0), None),
        )
        return list(itertools.islice(rest, count))

    def move(self, state):
        match (str(self.state), str(state)):
            case ("waiting", "prefill") | ("prefill", "decode"):
                pass
            case ("waiting" | "prefill" | "decode", "finished"):
                pass
            case (old, new):
                raise RuntimeError(f"from {old} to {new}")
        self.state = State(state)

    def add(self, token, told=None):
        if self.state != "decode":
            raise RuntimeError(f"in {self.state} there are no tokens")
        if self.sampling is not None:
            self.sampling.add(token)
        self.output = [*self.output, token]
        self.logprobs = self.logprobs if told is None else [*self.logprobs, told]

    def finish(self, reason, error=None):
        if reason not in REASONS:
            raise ValueError(f"unknown reason {reason}")
        if self.state == "finished":
            raise RuntimeError("finished cannot become finished")
        self.state, self.finish_reason, self.error = State.FINISHED, reason, error
        self.sampling = None


class QueueFull(RuntimeError):
    pass


class WaitingQueue:
    def __init__(self, bound, patience=5.0):
        self.bound, self.patience = bound, patience
        self.lock, self.numbers = threading.Lock(), itertools.count()
        self.entries = {}  # request -> the entries that hold it
        self.arrived, self.by_turn, self.by_end = collections.deque(), [], []

    def __len__(self):
        return len(self.entries)

    def __iter__(self):
        with self.lock:
            copy = [entry[-1] for entry in self.arrived if entry[-1] is not None]
        return iter(copy)

    def add(self, request, now):
        with self.lock:
            if len(self.entries) >= self.bound:
                raise QueueFull(f"full with {self.bound}")
            if request.arrival is not None or request.state != "waiting":
                raise ValueError("only new requests")
            number = next(self.numbers)
            turn = [request.priority, request.size, number, request]
            end = [request.expires, number, request]
            place = [now, request]
            self.entries[request] = (turn, end, place)
            heapq.heappush(self.by_turn, turn)
            heapq.heappush(self.by_end, end)
            self.arrived.append(place)
            request.arrival = now

    def first(self, now):
        with self.lock:
            self._clean()
            if not self.arrived:
                return None
            arrival, request = self.arrived[0]
            return request if now > arrival + self.patience else self.by_turn[0][-1]

    def remove(self, request):
        with self.lock:
            return self._drop(request)

    def expired(self, now):
        found = []
        with self.lock:
            self._clean()
            while self.by_end and self.by_end[0][0] <= now:
                found.append(self.by_end[0][-1])
                self._drop(found[-1])
        return found

    def _drop(self, request):
        entries = self.entries.pop(request, ())
        for entry in entries:
            entry[-1] = None
        self._clean()
        return len(entries) > 0

    def _clean(self):
        while self.arrived and self.arrived[0][-1] is None:
            self.arrived.popleft()
        for heap in (self.by_turn, self.by_end):
            while heap and heap[0][-1] is None:
                heapq.heappop(heap)
        if len(self.by_turn) > 3 * len(self.entries) + 50:
            self.by_turn = [entry for entry in self.by_turn if entry[-1] is not None]
            self.by_end = [entry for entry in self.by_end if entry[-1] is not None]
            heapq.heapify(self.by_turn), heapq.heapify(self.by_end)
            self.arrived = collections.deque(e for e in self.arrived if e[-1] is not None)


class Room:
    def __init__(self, cache, rows, budget):
        self.cache, self.rows, self.budget = cache, rows, budget
        self.taken = [False] * rows

    @property
    def free_rows(self):
        return np.flatnonzero(~np.array(self.taken)).tolist()

    def take(self, request):
        try:
            row = self.taken.index(False)
            if self.cache.used_tokens > self.budget - request.size:
                return False
            self.cache.reserve(row, request.size)
        except (ValueError, CacheFull):
            return False
        self.taken[row], request.row = True, row
        return True

    def give_back(self, request):
        row, request.row = request.row, None
        if row is not None:
            self.taken[row] = False
            self.cache.free(row)


def admit(waiting, room, now):
    def entering():
        while True:
            request = waiting.first(now)
            if request is None or not room.take(request):
                return
            assert waiting.remove(request)
            request.state, request.admitted = State.PREFILL, now
            yield request

    return list(entering())


@dataclasses.dataclass(frozen=True)
class Plan:
    decodes: list
    prefills: list

    @property
    def places(self):
        widest = max((count for _, count in self.prefills), default=0)
        return len(self.decodes) + len(self.prefills) * widest


def plan_step(running, budget):
    groups = {"decode": [], "prefill": []}
    for request in running:
        groups[str(request.state)].append(request)
    decodes, prompts = groups["decode"], groups["prefill"]
    if len(decodes) + len(prompts) > budget:
        raise ValueError(f"{len(decodes) + len(prompts)} requests, {budget} places")
    left = budget - len(decodes)
    others = sorted(prompts[1:], key=lambda r: r.remaining)
    rows = np.arange(len(others)) + 2
    counts = np.minimum(np.array([r.remaining for r in others], int), left // rows)
    fits = np.maximum.accumulate(counts) * rows <= left
    inside = len(fits) if fits.all() else int(fits.argmin())
    pairs = [(r, int(n)) for r, n in zip(others, counts)][:inside]
    if prompts:
        pairs.insert(0, (prompts[0], min(prompts[0].remaining, left // (inside + 1))))
    return Plan([(r, 1) for r in sorted(decodes, key=lambda r: r.row)], pairs)


def compute(model, cache, chunks):
    if not chunks:
        return [], None
    width = max(count for _, count in chunks)
    tokens = torch.full((len(chunks), width), 77)
    places = torch.full((len(chunks), width), -1)
    for n, (request, count) in enumerate(chunks):  # padded on the left: positions decide
        tokens[n, width - count :] = torch.tensor(request.upcoming(count))
        places[n, width - count :] = torch.arange(request.computed, request.computed + count)
    rows = torch.tensor([request.row for request, _ in chunks])
    tokens, places, rows = (part.to(model.device) for part in (tokens, places, rows))
    logits = model.forward(tokens, places, cache, rows)
    for request, count in chunks:
        request.computed = request.computed + count
    ready = [n for n, (request, _) in enumerate(chunks) if request.remaining <= 0]
    return [chunks[n][0] for n in ready], (logits[ready] if ready else None)


def emit(request, token, end_ids, told=None):
    ends = token in set(end_ids)
    if ends and not request.ignore_eos:
        return "stop"
    request.add(token, told)
    answer = None if request.on_token is None else request.on_token(token)
    if answer is True:
        return "stop"
    if len(request.output) == request.limit:
        return "length"


def end(request, reason, error=None):
    request.finish(reason, error)
    listener = request.on_finish or (lambda request: None)
    try:
        listener(request)
    except Exception as problem:
        return problem
    return None


def usable_rows(logits):
    array = logits.detach().double().numpy()
    harmful = np.isnan(array) | np.isposinf(array)
    return [bool(b) for b in ~harmful.any(1) & np.isfinite(array).any(1)]


def violations(room, running, waiting):
    return list(_faults(room, running, list(waiting)))


def _faults(room, running, waiting):
    cache = room.cache
    numbers = cache.used_tokens, cache.free_tokens, cache.total_tokens
    if numbers[0] + numbers[1] - numbers[2]:
        yield "{} + {} is not {}".format(*numbers)
    needed = sum(request.size for request in running.values())
    if numbers[0] - needed:
        yield f"used: {numbers[0]}, needed: {needed}"
    times = np.bincount([*room.free_rows, *running], minlength=room.rows)
    for row in np.flatnonzero(times[: room.rows] != 1).tolist():
        yield f"row {row} is lost, or not only in one place"
    for row, request in running.items():
        if request.row != row:
            yield f"{request.id} should be in row {row}"
        if request.state not in ("prefill", "decode"):
            yield f"{request.id} is {request.state} and runs"
    for request in waiting:
        if request.state != "waiting" or request.row is not None:
            yield f"{request.id} is not really waiting"
    for request, times in collections.Counter([*waiting, *running.values()]).items():
        if times != 1:
            yield f"{request.id} is there too often"


@dataclasses.dataclass(frozen=True)
class Limits:
    max_running: int | None = None
    max_waiting: int = 256
    kv_share: float = 1.0
    step_tokens: int = 512
    patience: float = 5.0


class Step:
    def __init__(self, plan, batcher, decode, prefill):
        self.decode, self.prefill, self.places = decode, prefill, plan.places
        self.running, self.waiting = len(batcher.running), len(batcher.waiting)
        self.errors = batcher.errors


class Batcher:
    def __init__(
        self, model, cache, end_ids=(), limits=Limits(), clock=time.monotonic, sampler=sampler
    ):
        self.model, self.cache, self.end_ids = model, cache, tuple(end_ids)
        self.limits, self.clock, self.sampler = limits, clock, sampler
        self.room = Room(
            cache, limits.max_running or cache.rows, int(limits.kv_share * cache.total_tokens)
        )
        self.waiting = WaitingQueue(limits.max_waiting, limits.patience)
        rooms = model.config.max_position_embeddings, cache.max_length, self.room.budget
        self.context, self.running, self.errors = min(rooms), {}, []
        self.mail = collections.deque()

    idle = property(lambda self: not (self.running or self.mail or len(self.waiting)))

    def submit(self, request):
        request.fit(self.context, self.model.config.vocab_size)
        self.waiting.add(request, self.clock())

    def cancel(self, request):
        self.mail.append(request)

    def check(self):
        return violations(self.room, self.running, self.waiting)

    def step(self):
        self.errors, now = [], self.clock()
        for request, reason in list(self.leaving(now)):
            self.over(request, reason)
        for request in admit(self.waiting, self.room, now):
            self.running[request.row] = request
            try:
                request.sampling = self.sampler.SamplingState(request.params, request.prompt)
            except Exception as error:
                self.failed(error, [request])
        plan = plan_step(self.running.values(), self.limits.step_tokens)
        decode = [request.row for request, _ in plan.decodes]
        prefill = {request.row: count for request, count in plan.prefills}
        self.answer(self.computed(plan.decodes) + self.computed(plan.prefills))
        if not self.running and not len(self.waiting):
            if wrong := self.check():
                raise RuntimeError(str(wrong))
        return Step(plan, self, decode, prefill)

    def leaving(self, now):
        mail = dict.fromkeys(self.mail.popleft() for _ in range(len(self.mail)))
        for request in mail:
            if request in self.running.values() or self.waiting.remove(request):
                yield request, "cancelled"
        yield from ((request, "timeout") for request in self.waiting.expired(now))
        for request in self.running.values():
            if request.expires <= now and request not in mail:
                yield request, "timeout"

    def computed(self, chunks):
        try:
            requests, logits = compute(self.model, self.cache, chunks)
        except Exception as error:
            self.failed(error, [request for request, _ in chunks])
            return []
        return [] if logits is None else list(zip(requests, logits.unbind()))

    def answer(self, pairs):
        usable = usable_rows(torch.stack([row for _, row in pairs])) if pairs else []
        for (request, _), fine in zip(pairs, usable):
            if not fine:
                self.failed(FloatingPointError("no usable logits"), [request])
        pairs = [pair for pair, fine in zip(pairs, usable) if fine]
        if not pairs:
            return
        requests, logits = [request for request, _ in pairs], torch.stack([r for _, r in pairs])
        states = [request.sampling for request in requests]
        try:
            ids = self.sampler.sample(logits, states)
            told = self.sampler.report(logits, ids, states)
        except Exception as error:
            return self.failed(error, requests)
        for request, token, about in zip(requests, ids, told):
            request.state = State.DECODE
            try:
                reason = emit(request, int(token), self.end_ids, about)
            except Exception as error:
                self.failed(error, [request])
            else:
                if reason is not None:
                    self.over(request, reason)

    def failed(self, error, requests):
        self.errors.append(error)
        for request in requests:
            self.over(request, "error", error)

    def over(self, request, reason, error=None):
        if request.row is not None:
            self.running.pop(request.row)
            self.room.give_back(request)
        if problem := end(request, reason, error):
            self.errors.append(problem)
