"""Chapter 06: several sequences in one rectangle, and what the rectangle wastes.

Shapes: B sequences, T columns, V the vocabulary.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from solutions.forward_pass import Llama
from solutions.greedy import Generation, room_for
from solutions.kv_cache import KVCache


def pad(
    sequences: Sequence[Sequence[int]],
    starts: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
) -> tuple[Tensor, Tensor]:
    """Put sequences of different lengths into one rectangle, as a forward wants them.

    The padding stands on the right, so that a token's column is its place in what was given. For
    the model it could stand anywhere: positions decide, not columns.

    Args:
        sequences: token ids, at least one sequence and at least one id in each.
        starts: the position of each sequence's first id; 0 for all by default. A chunk from the
            middle of a prompt starts where the chunk before it ended.
        device: where the tensors shall be.

    Returns:
        (tokens, positions), both int64 [B, T], where T is the length of the longest sequence.
        The padding has token 0 and position -1.

    Errors: ValueError when there is no sequence, when one is empty, naming its index, and when
    there are not as many starts as sequences, naming both numbers.
    """
    # exercise 6.1
    starts = [0] * len(sequences) if starts is None else starts
    if not sequences or len(starts) != len(sequences):
        raise ValueError(f"{len(sequences)} sequences and {len(starts)} starts: give one of each")
    width = max(map(len, sequences))
    tokens, positions = [], []
    for index, (ids, start) in enumerate(zip(sequences, starts, strict=True)):
        if not ids:
            raise ValueError(f"sequence {index} is empty: it has no token to compute")
        blank = width - len(ids)
        tokens.append([*ids, *[0] * blank])
        positions.append([*range(start, start + len(ids)), *[-1] * blank])
    return torch.tensor(tokens, device=device), torch.tensor(positions, device=device)


@dataclass(frozen=True)
class StaticBatch:
    """The answers of one static batch, and what it cost.

    A place is one token's worth of computing: a forward of [B, T] has B times T of them. A place is
    useful when it holds a token of a prompt, or one of an answer that is not over yet.
    """

    answers: list[Generation]
    useful: int  # places
    wasted: int  # places: padding, and rows whose answer is over

    @property
    def places(self) -> int:
        """All places computed."""
        return self.useful + self.wasted


def generate_static(
    model: Llama,
    cache: KVCache,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: Sequence[int],
    end_ids: Collection[int] = (),
) -> StaticBatch:
    """Answer several prompts as one batch, greedily, from the first token to the last.

    Everybody starts together and waits for the longest. An answer that is over gets no more tokens,
    but its row stays in the batch until the end: a forward always has all B rows.

    The first forward is all prompts, padded. Each later one is [B, 1]: the newest token of every
    answer that goes on, at its own position; for an answer that is over, the same token at the same
    position as in the forward before. As soon as all are over there is no further forward.

    Args:
        model: its forward and its config are used.
        cache: sequence b lives in row b. Before the first forward, room for its prompt and every
            token that may come is reserved there, and all B rows are freed at the end, also
            after an exception. Nobody else may use the cache.
        prompts: token ids, at least one prompt and at least one id in each.
        max_new_tokens: of each prompt, at least 1; clamped to what the context leaves, as in
            generate_greedy.
        end_ids: the ids that end an answer. The one produced is not part of it.

    Returns:
        StaticBatch(answers, useful, wasted): a Generation for each prompt, in their order, the
        same as generate_greedy gives; and the places of all forwards.

    Errors: ValueError when there is no prompt, when there are more prompts than rows in the cache,
    or another number of max_new_tokens, naming both numbers; the ValueErrors of room_for. Nothing
    was reserved then.
    """
    # exercise 6.1
    _check_batch(cache, prompts, max_new_tokens)
    pairs = zip(prompts, max_new_tokens, strict=True)
    limits = [room_for(model.config, prompt, count, cache) for prompt, count in pairs]
    rows = range(len(prompts))
    try:
        for row in rows:
            cache.reserve(row, len(prompts[row]) + limits[row])
        return _run_static(model, cache, prompts, limits, end_ids)
    finally:
        for row in rows:
            cache.free(row)


def _check_batch(cache: KVCache, prompts: Sequence, max_new_tokens: Sequence[int]) -> None:
    """The ValueErrors about numbers of things."""
    if not prompts:
        raise ValueError("there is no prompt: give at least one")
    if len(prompts) > cache.rows:
        raise ValueError(f"{len(prompts)} prompts, but the cache has {cache.rows} rows")
    if len(max_new_tokens) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts, but {len(max_new_tokens)} max_new_tokens")


def _run_static(model, cache, prompts, limits, end_ids) -> StaticBatch:
    """All forwards of the batch; the room is reserved."""
    tokens, positions = pad(prompts, device=model.device)
    useful, places = sum(map(len, prompts)), tokens.numel()
    answers, reasons = [[] for _ in prompts], [None] * len(prompts)
    newest = [[prompt[-1], len(prompt) - 1] for prompt in prompts]  # token and position of each row
    while True:
        for row, token in enumerate(model.forward(tokens, positions, cache).argmax(-1).tolist()):
            if reasons[row] is None:
                reasons[row] = _take(token, answers[row], limits[row], end_ids)
            if reasons[row] is None:
                newest[row] = [token, newest[row][1] + 1]
        if None not in reasons:
            made = [Generation(*pair) for pair in zip(answers, reasons, strict=True)]
            return StaticBatch(made, useful, places - useful)
        tokens, positions = torch.tensor(newest, device=model.device).unsqueeze(-1).unbind(1)
        useful, places = useful + reasons.count(None), places + len(prompts)


def _take(token: int, answer: list[int], limit: int, end_ids: Collection[int]) -> str | None:
    """Add a token to an answer, unless it ends it; why the answer is over, or None."""
    if token in end_ids:
        return "stop"
    answer.append(token)
    return "length" if len(answer) == limit else None
