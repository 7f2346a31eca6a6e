"""Wrong versions of 6.1 pad and generate_static."""

import torch

from course.misconceptions import misconception
from solutions.greedy import Generation, room_for
from solutions.static_batching import StaticBatch, _check_batch, _take, pad


@misconception("6.1", "pad")
def padded_on_the_left(sequences, starts=None, device="cpu"):
    """You put the padding on the left. The model would not mind, because positions decide; but here
    a token's column is to be its place in what was given, so that chunks are easy to read.
    """
    starts = [0] * len(sequences) if starts is None else starts
    if not sequences or len(starts) != len(sequences):
        raise ValueError(f"{len(sequences)} sequences and {len(starts)} starts")
    width = max(map(len, sequences))
    tokens, positions = [], []
    for index, (ids, start) in enumerate(zip(sequences, starts, strict=True)):
        if not ids:
            raise ValueError(f"sequence {index} is empty")
        blank = width - len(ids)
        tokens.append([*[0] * blank, *ids])
        positions.append([*[-1] * blank, *range(start, start + len(ids))])
    return torch.tensor(tokens, device=device), torch.tensor(positions, device=device)


@misconception("6.1", "pad")
def padding_with_positions(sequences, starts=None, device="cpu"):
    """Your padding has positions that count on, as if tokens stood there. The model would compute
    them, and the cache store them: padding is position -1.
    """
    starts = [0] * len(sequences) if starts is None else starts
    if not sequences or len(starts) != len(sequences):
        raise ValueError(f"{len(sequences)} sequences and {len(starts)} starts")
    width = max(map(len, sequences))
    tokens, positions = [], []
    for index, (ids, start) in enumerate(zip(sequences, starts, strict=True)):
        if not ids:
            raise ValueError(f"sequence {index} is empty")
        tokens.append([*ids, *[0] * (width - len(ids))])
        positions.append([*range(start, start + width)])
    return torch.tensor(tokens, device=device), torch.tensor(positions, device=device)


@misconception("6.1", "pad")
def padding_at_position_0(sequences, starts=None, device="cpu"):
    """Your padding stands at position 0. That is where the first token of the sequence stands: the
    model would compute it again and the cache would keep the padding instead. Padding is -1.
    """
    starts = [0] * len(sequences) if starts is None else starts
    if not sequences or len(starts) != len(sequences):
        raise ValueError(f"{len(sequences)} sequences and {len(starts)} starts")
    width = max(map(len, sequences))
    tokens, positions = [], []
    for index, (ids, start) in enumerate(zip(sequences, starts, strict=True)):
        if not ids:
            raise ValueError(f"sequence {index} is empty")
        blank = width - len(ids)
        tokens.append([*ids, *[0] * blank])
        positions.append([*range(start, start + len(ids)), *[0] * blank])
    return torch.tensor(tokens, device=device), torch.tensor(positions, device=device)


@misconception("6.1", "pad")
def starts_forgotten(sequences, starts=None, device="cpu"):
    """You count every sequence from 0. A chunk from the middle of a prompt starts where the chunk
    before it ended: its positions begin at its own start.
    """
    starts = [0] * len(sequences) if starts is None else starts
    if not sequences or len(starts) != len(sequences):
        raise ValueError(f"{len(sequences)} sequences and {len(starts)} starts")
    width = max(map(len, sequences))
    tokens, positions = [], []
    for index, ids in enumerate(sequences):
        if not ids:
            raise ValueError(f"sequence {index} is empty")
        blank = width - len(ids)
        tokens.append([*ids, *[0] * blank])
        positions.append([*range(len(ids)), *[-1] * blank])
    return torch.tensor(tokens, device=device), torch.tensor(positions, device=device)


@misconception("6.1", "generate_static")
def finished_rows_leave(model, cache, prompts, max_new_tokens, end_ids=()):
    """You take an answer that is over out of the batch. That is the idea of the next sections; a
    static batch keeps all its rows until the longest is complete, and that is its waste.
    """
    _check_batch(cache, prompts, max_new_tokens)
    pairs = zip(prompts, max_new_tokens, strict=True)
    limits = [room_for(model.config, prompt, count, cache) for prompt, count in pairs]
    try:
        for row in range(len(prompts)):
            cache.reserve(row, len(prompts[row]) + limits[row])
        tokens, positions = pad(prompts, device=model.device)
        useful, places = sum(map(len, prompts)), tokens.numel()
        answers, reasons = [[] for _ in prompts], [None] * len(prompts)
        rows = list(range(len(prompts)))
        while True:
            logits = model.forward(tokens, positions, cache, torch.tensor(rows))
            for row, token in zip(rows, logits.argmax(-1).tolist(), strict=True):
                reasons[row] = _take(token, answers[row], limits[row], end_ids)
            rows = [row for row in rows if reasons[row] is None]
            if not rows:
                made = [Generation(*pair) for pair in zip(answers, reasons, strict=True)]
                return StaticBatch(made, useful, places - useful)
            tokens = torch.tensor([[answers[row][-1]] for row in rows])
            lengths = [len(prompts[row]) + len(answers[row]) - 1 for row in rows]
            positions = torch.tensor(lengths)[:, None]
            useful, places = useful + len(rows), places + len(rows)
    finally:
        for row in range(len(prompts)):
            cache.free(row)


@misconception("6.1", "generate_static")
def only_padding_is_waste(model, cache, prompts, max_new_tokens, end_ids=()):
    """You count the padding of the prefill as waste, and forget the rows whose answer is over: each
    of them still computes a place in every forward, for nothing.
    """
    _check_batch(cache, prompts, max_new_tokens)
    pairs = zip(prompts, max_new_tokens, strict=True)
    limits = [room_for(model.config, prompt, count, cache) for prompt, count in pairs]
    rows = range(len(prompts))
    try:
        for row in rows:
            cache.reserve(row, len(prompts[row]) + limits[row])
        tokens, positions = pad(prompts, device=model.device)
        useful, places = sum(map(len, prompts)), tokens.numel()
        answers, reasons = [[] for _ in prompts], [None] * len(prompts)
        newest = [[prompt[-1], len(prompt) - 1] for prompt in prompts]
        while True:
            for row, token in enumerate(
                model.forward(tokens, positions, cache).argmax(-1).tolist()
            ):
                if reasons[row] is None:
                    reasons[row] = _take(token, answers[row], limits[row], end_ids)
                if reasons[row] is None:
                    newest[row] = [token, newest[row][1] + 1]
            if None not in reasons:
                made = [Generation(*pair) for pair in zip(answers, reasons, strict=True)]
                return StaticBatch(made, useful, places - useful)
            tokens, positions = torch.tensor(newest).unsqueeze(-1).unbind(1)
            useful, places = useful + len(prompts), places + len(prompts)
    finally:
        for row in rows:
            cache.free(row)
