"""Chapter 06: what one step computes, and never more than so much.

Shapes: B requests in a forward, V the vocabulary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from solutions.forward_pass import Llama
from solutions.kv_cache import KVCache
from solutions.request import Request, State
from solutions.static_batching import pad

Chunk = tuple[Request, int]  # a request, and how many of its tokens a forward computes


@dataclass(frozen=True)
class Plan:
    """The two forwards of a step: decodes [B, 1] and prefills [P, C], C the longest chunk.

    Apart, because one rectangle for both would give every decode C places to use one of them.
    """

    decodes: list[Chunk]
    prefills: list[Chunk]

    @property
    def places(self) -> int:
        """The places that both forwards compute, padding included."""
        widest = max((count for _, count in self.prefills), default=0)
        return len(self.decodes) + len(self.prefills) * widest


def plan_step(running: Iterable[Request], budget: int) -> Plan:
    """Share out the places of a step: first to those who decode, then to prompts.

    Every request that decodes gets one token in every step, and no step has more than `budget`
    places: so a long prompt cannot hold up anybody for longer than that takes. It is computed in
    chunks, in the places that are left, as one rectangle with the other prompts. The prompt that
    was admitted first always has a part of it, with P prompts at least left // P tokens, so that
    everybody's turn comes. Beside it come the others, the shortest first, so that a short one need
    not wait until a long one has been read:

    - The k-th of the others (by what remains of them, of equals by admission; k from 1) would get
      what remains of it, or left // (k + 1) if that is less. It is in if the longest chunk of the
      others up to here, times k + 1, is no more than what is left. If it is not, neither is
      anybody after it.
    - The first gets what remains of it, or left // (1 + how many others are in) if that is less.

    Args:
        running: requests in state DECODE or PREFILL, in the order of their admission.
        budget: places of a step, at least as many as there are requests.

    Returns:
        Plan(decodes, prefills): pairs of a request and a number of tokens. Decodes are in the order
        of their rows; prefills are the first, then the others in the order above. The requests
        are not changed.

    Errors: ValueError when there are more requests than places, naming both numbers.
    """
    # exercise 6.5
    running = list(running)
    if len(running) > budget:
        raise ValueError(f"{len(running)} requests run, but a step has {budget} places")
    decodes = [request for request in running if request.state is State.DECODE]
    prompts = [request for request in running if request.state is State.PREFILL]
    decodes.sort(key=lambda request: request.row)
    return Plan([(request, 1) for request in decodes], _chunks(prompts, budget - len(decodes)))


def compute(
    model: Llama, cache: KVCache, chunks: Sequence[Chunk]
) -> tuple[list[Request], Tensor | None]:
    """One forward for all chunks, whatever they are: a decode is a chunk of one token.

    A chunk is the first of a request's remaining tokens, as many as it says, at the positions from
    `computed` on. After the forward `computed` has grown by that number.

    Args:
        model: its forward and its device are used, the forward once.
        cache: every request has its room in it, in row request.row.
        chunks: pairs of a request and a number, 1 up to what remains of it. There may be none;
            then there is no forward.

    Returns:
        (requests, logits): those with nothing remaining now, in the order of their chunks, and the
        logits [B, V] after their last tokens. ([], None) when there are none.

    Errors: what the forward raises goes on to the caller; no request has changed then.
    """
    # exercise 6.5
    if not chunks:
        return [], None
    requests = [request for request, _ in chunks]
    starts = [request.computed for request in requests]
    ids = [request.upcoming(count) for request, count in chunks]
    tokens, positions = pad(ids, starts, model.device)
    rows = torch.tensor([request.row for request in requests], device=model.device)
    logits = model.forward(tokens, positions, cache, rows)
    for request, count in chunks:
        request.computed += count
    return _complete(requests, logits)


def _complete(requests: list[Request], logits: Tensor) -> tuple[list[Request], Tensor | None]:
    """Those with nothing remaining, and their logits; no copy where that is all of them."""
    places = [place for place, request in enumerate(requests) if not request.remaining]
    if len(places) == len(requests):
        return requests, logits
    return [requests[place] for place in places], logits[places] if places else None


def _chunks(prompts: list[Request], left: int) -> list[Chunk]:
    """As many prompts, and as much of them, as a padded rectangle of so many places holds."""
    if not prompts:
        return []
    first, *others = prompts
    chunks, longest = [], 0
    for rows, request in enumerate(sorted(others, key=lambda r: r.remaining), 2):
        count = min(request.remaining, left // rows)
        longest = max(longest, count)
        if rows * longest > left:
            break
        chunks.append((request, count))
    return [(first, min(first.remaining, left // (1 + len(chunks)))), *chunks]
