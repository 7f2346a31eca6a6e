"""Chapter 06 with one part written otherwise."""

from typing import NamedTuple

import torch

from tests.parts import part


@part("6.1")
def padded_by_columns(m):
    """The rectangle is filled column by column, and StaticBatch is a named tuple."""

    def pad(sequences, starts=None, device="cpu"):
        starts = [0 for _ in sequences] if starts is None else starts
        empty = [n for n, ids in enumerate(sequences) if not len(ids)]
        if len(starts) != len(sequences) or not len(sequences) or empty:
            raise ValueError(f"{len(sequences)} sequences, {len(starts)} starts, empty: {empty}")
        shape = len(sequences), max(len(ids) for ids in sequences)
        tokens = torch.zeros(shape, dtype=torch.int64, device=device)
        positions = torch.full_like(tokens, -1)
        for column in range(shape[1]):
            for row, ids in enumerate(sequences):
                if column < len(ids):
                    tokens[row, column] = ids[column]
                    positions[row, column] = column + starts[row]
        return [tokens, positions]

    class StaticBatch(NamedTuple):
        answers: list
        useful: int
        wasted: int

    m.pad, m.StaticBatch = pad, StaticBatch


@part("6.2")
def request_with_more(m):
    """Errors are of kinds of their own, and finish says whether it was good."""

    class Impossible(RuntimeError):
        pass

    move, finish = m.Request.move, m.Request.finish

    def told(self, state):
        try:
            move(self, state)
        except RuntimeError as error:
            raise Impossible(f"({error})") from error
        return self

    def finish_self(self, reason, error=None):
        finish(self, reason, error)
        return True

    m.Request.move, m.Request.finish = told, finish_self


@part("6.3")
def queue_of_buckets(m):
    """A sorted list of keys in two dicts, and one walk over the few that may be promoted."""
    right = m.WaitingQueue

    class Queue(right):
        def __iter__(self):
            yield from list(super().__iter__())

        def add(self, request, now):
            super().add(request, now)
            return len(self)

        def expired(self, now):
            return list(dict.fromkeys(super().expired(now)))

    m.WaitingQueue = Queue


@part("6.4")
def admitted_by_recursion(m):
    """One is admitted, then the others; take does not ask before the cache has been asked."""

    def admit(waiting, room, now):
        request = waiting.first(now)
        if request is None or room.take(request) is False:
            return []
        waiting.remove(request)
        request.admitted, request.state = now, m.State.PREFILL
        return [request, *admit(waiting, room, now)]

    m.admit = admit


@part("6.5")
def computed_from_the_left(m):
    """Chunks are padded on the left, forward gets names, pairs are lists."""
    plan_step = m.plan_step

    def plan_lists(running, budget):
        plan = plan_step(running, budget)
        return m.Plan([list(pair) for pair in plan.decodes], [*map(list, plan.prefills)])

    def compute(model, cache, chunks):
        chunks = list(chunks)
        if not chunks:
            return (), None
        width = max(count for _, count in chunks)
        tokens, positions = [], []
        for request, count in chunks:
            blank = [-1] * (width - count)
            tokens.append([0] * len(blank) + request.upcoming(count))
            positions.append([*blank, *range(request.computed, request.computed + count)])
        logits = model.forward(
            tokens=torch.tensor(tokens, device=model.device),
            positions=torch.tensor(positions, device=model.device),
            cache=cache,
            rows=torch.tensor([request.row for request, _ in chunks]).to(model.device),
        )
        done = []
        for place, (request, count) in enumerate(chunks):
            request.computed += count
            done += [place] * (request.remaining == 0)
        return [chunks[n][0] for n in done], logits[done] if done else None

    m.plan_step, m.compute = plan_lists, compute


@part("6.6")
def ended_with_else(m):
    """usable_rows row by row; end says nothing where nothing was raised."""

    def end(request, reason, error=None):
        request.finish(reason, error=error)
        if request.on_finish is None:
            return
        try:
            request.on_finish(request)
        except Exception as problem:
            return problem

    def usable_rows(logits):
        found = []
        for row in logits.float().tolist():
            clean = all(x == x and x != float("inf") for x in row)
            found.append(clean and any(x != float("-inf") for x in row))
        return found

    m.end, m.usable_rows = end, usable_rows


@part("6.7")
def books_in_other_words(m):
    """The sentences come in another order, and say more."""
    right = m.violations

    def violations(room, running, waiting):
        found = right(room, running, waiting)
        return [f"{text}, which must not be" for text in reversed(found)]

    m.violations = violations


@part("6.8")
def batcher_with_another_step(m):
    """Logits are joined row by row, errors come as a tuple, decode as one too."""
    right, sample = m.Batcher.step, m.Batcher._sample

    class Took(NamedTuple):
        decode: tuple
        prefill: dict
        places: int
        running: int
        waiting: int
        errors: tuple

    def step(self):
        s = right(self)
        counts = s.places, s.running, s.waiting
        return Took(tuple(s.decode), dict(s.prefill), *counts, tuple(s.errors))

    def sample_rows(self, parts):
        requests = [request for part, _ in parts for request in part]
        rows = [row for part, logits in parts if part for row in logits]
        return sample(self, [(requests, torch.stack(rows) if rows else None)])

    m.Batcher.step, m.Batcher._sample = step, sample_rows
