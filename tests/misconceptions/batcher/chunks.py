"""Wrong versions of 6.5 plan_step and compute."""

import torch

from course.misconceptions import misconception
from solutions.chunking import Plan, _chunks, _complete
from solutions.request import State
from solutions.static_batching import pad


@misconception("6.5", "plan_step")
def prompts_first(running, budget):
    """You serve prompts first, and those who decode get what is left. A long prompt then stops
    every answer until it has been read: decodes come first, one token each.
    """
    running = list(running)
    if len(running) > budget:
        raise ValueError(f"{len(running)} requests run, but a step has {budget} places")
    decodes = sorted((r for r in running if r.state is State.DECODE), key=lambda r: r.row)
    prompts = [request for request in running if request.state is State.PREFILL]
    chunks = _chunks(prompts, budget)
    left = budget - Plan([], chunks).places
    return Plan([(request, 1) for request in decodes[:left]], chunks)


@misconception("6.5", "plan_step")
def whole_prompts_only(running, budget):
    """You compute a prompt only when all that remains of it fits into the step. One that is longer
    than a step would never begin: give it the places that are left, and go on in the next step.
    """
    running = list(running)
    if len(running) > budget:
        raise ValueError(f"{len(running)} requests run, but a step has {budget} places")
    decodes = sorted((r for r in running if r.state is State.DECODE), key=lambda r: r.row)
    chunks, widest, left = [], 0, budget - len(decodes)
    prompts = [r for r in running if r.state is State.PREFILL]
    for request in [*prompts[:1], *sorted(prompts[1:], key=lambda r: r.remaining)]:
        widest = max(widest, request.remaining)
        if (len(chunks) + 1) * widest > left:
            break
        chunks.append((request, request.remaining))
    return Plan([(request, 1) for request in decodes], chunks)


@misconception("6.5", "plan_step")
def padding_not_counted(running, budget):
    """You count tokens. Chunks of 100, 2 and 2 tokens are 104 tokens, and a rectangle of 300
    places: padding costs as much as anything, so it is places that must not exceed the budget.
    """
    running = list(running)
    if len(running) > budget:
        raise ValueError(f"{len(running)} requests run, but a step has {budget} places")
    decodes = sorted((r for r in running if r.state is State.DECODE), key=lambda r: r.row)
    chunks, left = [], budget - len(decodes)
    prompts = [r for r in running if r.state is State.PREFILL]
    for request in [*prompts[:1], *sorted(prompts[1:], key=lambda r: r.remaining)]:
        count = min(request.remaining, left)
        if count:
            chunks.append((request, count))
            left -= count
    return Plan([(request, 1) for request in decodes], chunks)


@misconception("6.5", "plan_step")
def tokens_shared_out(running, budget):
    """You add up the tokens of the chunks and compare that with what is left. The chunks form one
    rectangle, so a short one takes as many places as the longest: number of rows times longest.
    """
    running = list(running)
    if len(running) > budget:
        raise ValueError(f"{len(running)} requests run, but a step has {budget} places")
    decodes = sorted((r for r in running if r.state is State.DECODE), key=lambda r: r.row)
    prompts, left = [r for r in running if r.state is State.PREFILL], budget - len(decodes)
    chunks, total = [], 0
    for rows, request in enumerate(sorted(prompts[1:], key=lambda r: r.remaining), 2):
        count = min(request.remaining, left // rows)
        if total + count >= left:
            break
        total += count
        chunks.append((request, count))
    first = [(request, min(request.remaining, left - total)) for request in prompts[:1]]
    return Plan([(request, 1) for request in decodes], first + chunks)


@misconception("6.5", "plan_step")
def first_takes_all(running, budget):
    """You give the prompt that was admitted first all the places it can use. Short ones that came a
    moment after a long one then wait until it has been read to the end: let them in beside it.
    """
    running = list(running)
    if len(running) > budget:
        raise ValueError(f"{len(running)} requests run, but a step has {budget} places")
    decodes = sorted((r for r in running if r.state is State.DECODE), key=lambda r: r.row)
    chunks, widest, left = [], 0, budget - len(decodes)
    for number, request in enumerate((r for r in running if r.state is State.PREFILL), 1):
        count = min(request.remaining, left // number)
        widest = max(widest, count)
        if number * widest > left:
            break
        chunks.append((request, count))
    return Plan([(request, 1) for request in decodes], chunks)


@misconception("6.5", "plan_step")
def shortest_prompts_only(running, budget):
    """You go by length alone. While short prompts keep coming, the long one gets nothing, and holds
    its row for ever: the prompt that was admitted first always has a part.
    """
    running = list(running)
    if len(running) > budget:
        raise ValueError(f"{len(running)} requests run, but a step has {budget} places")
    decodes = sorted((r for r in running if r.state is State.DECODE), key=lambda r: r.row)
    prompts = sorted((r for r in running if r.state is State.PREFILL), key=lambda r: r.remaining)
    chunks, widest, left = [], 0, budget - len(decodes)
    for number, request in enumerate(prompts, 1):
        count = min(request.remaining, left // number)
        widest = max(widest, count)
        if number * widest > left:
            break
        chunks.append((request, count))
    return Plan([(request, 1) for request in decodes], chunks)


@misconception("6.5", "compute")
def every_chunk_at_zero(model, cache, chunks):
    """You compute every chunk at positions from 0. It continues what the cache already holds: it
    starts at `computed`.
    """
    if not chunks:
        return [], None
    requests = [request for request, _ in chunks]
    tokens, positions = pad([r.upcoming(count) for r, count in chunks], device=model.device)
    logits = model.forward(tokens, positions, cache, torch.tensor([r.row for r in requests]))
    for request, count in chunks:
        request.computed += count
    return _complete(requests, logits)


@misconception("6.5", "compute")
def counted_before_it_is_true(model, cache, chunks):
    """You raise `computed` before the forward. When that fails, the request claims tokens that the
    cache does not hold: count them when they are there.
    """
    if not chunks:
        return [], None
    requests = [request for request, _ in chunks]
    ids, starts = [], []
    for request, count in chunks:
        ids.append(request.upcoming(count))
        starts.append(request.computed)
        request.computed += count
    tokens, positions = pad(ids, starts, model.device)
    logits = model.forward(tokens, positions, cache, torch.tensor([r.row for r in requests]))
    return _complete(requests, logits)


@misconception("6.5", "compute")
def in_the_first_rows(model, cache, chunks):
    """You leave `rows` out, so that sequence b goes to row b of the cache: into somebody else's
    memory. Each request has its own row.
    """
    if not chunks:
        return [], None
    requests = [request for request, _ in chunks]
    ids = [request.upcoming(count) for request, count in chunks]
    tokens, positions = pad(ids, [request.computed for request in requests], model.device)
    logits = model.forward(tokens, positions, cache)
    for request, count in chunks:
        request.computed += count
    return _complete(requests, logits)
