"""Chapter 04: from logits to the next token, and when to stop."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch

from solutions.config import Config
from solutions.forward_pass import Llama
from solutions.kv_cache import KVCache


@dataclass(frozen=True)
class Generation:
    """What a model wrote: the new ids, and why it ended ("stop" or "length")."""

    ids: list[int]
    finish_reason: str


def generate_greedy(
    model: Llama,
    prompt: Sequence[int],
    max_new_tokens: int,
    end_ids: Collection[int],
    cache: KVCache | None = None,
    on_token: Callable[[int], None] | None = None,
) -> Generation:
    """Append the most probable token, again and again, until there is a reason to end.

    With a cache, the first forward computes the whole prompt (prefill) and each later one a single
    token (decode). Without, every step computes everything anew; the ids are the same.

    Args:
        model: its forward and its config are used.
        prompt: token ids, at least one.
        max_new_tokens: at least 1. What prompt and answer together may hold is the context:
            config.max_position_embeddings, or cache.max_length where that is less. Room that is
            not there is not an error: the answer ends, "length", when the context is full.
        end_ids: the ids that end the text. The one produced is not part of the answer.
        cache: row 0 is used, no other. Room for the prompt and every token that may come, and
            no more, is reserved before the first forward, and freed at the end, also after an
            exception or Ctrl-C.
        on_token: called with each new id as soon as it is known; not with an end id.

    Returns:
        Generation(ids, finish_reason): ints, and "stop" after an end id, "length" otherwise.

    Errors: ValueError for an empty prompt, for max_new_tokens under 1, and for a prompt that
    leaves no room for one token, naming its length and the context's.
    """
    # exercise 4.8
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    ids, done = list(prompt), 0  # done: how many ids the cache already holds
    try:
        while len(ids) < len(prompt) + limit:
            token = _most_probable(model, ids[done:], done, cache)
            if token in end_ids:
                return Generation(ids[len(prompt) :], "stop")
            done = len(ids) if cache is not None else 0
            ids.append(token)
            if on_token is not None:
                on_token(token)
        return Generation(ids[len(prompt) :], "length")
    finally:
        if cache is not None:
            cache.free(0)


def room_for(
    config: Config, prompt: Sequence[int], max_new_tokens: int, cache: KVCache | None
) -> int:
    """How many new tokens there may be: what was asked for, clamped to what the context leaves.

    Errors: the ValueErrors of generate_greedy.
    """
    context = config.max_position_embeddings
    if cache is not None:
        context = min(context, cache.max_length)
    if not prompt:
        raise ValueError("the prompt is empty: give at least one token id")
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
    if len(prompt) >= context:
        raise ValueError(
            f"the prompt has {len(prompt)} tokens and the context holds {context}: "
            "no room for a new one"
        )
    return min(max_new_tokens, context - len(prompt))


def _most_probable(model: Llama, new_ids: list[int], start: int, cache: KVCache | None) -> int:
    """The id with the highest logit after new_ids, which stand at position start onwards."""
    tokens = torch.tensor([new_ids], device=model.device)
    positions = torch.arange(start, start + len(new_ids), device=model.device)[None]
    return int(model.forward(tokens, positions, cache)[0].argmax())
