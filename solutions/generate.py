"""Chapter 05: one request from its prompt to the end of its answer."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from solutions.detokenizer import Answer, Detokenizer
from solutions.forward_pass import Llama
from solutions.greedy import room_for
from solutions.kv_cache import KVCache
from solutions.sampler import SamplingState, TokenLogProbs, report, sample
from solutions.sampling_params import SamplingParams


@dataclass(frozen=True)
class Completion:
    """An answer that is complete."""

    text: str
    ids: list[int]
    finish_reason: str  # "stop" or "length"
    logprobs: list[TokenLogProbs] = field(default_factory=list)  # one a token, where asked for


def generate(
    model: Llama,
    prompt: Sequence[int],
    params: SamplingParams,
    detokenizer: Detokenizer,
    end_ids: Collection[int] = (),
    cache: KVCache | None = None,
    on_token: Callable[[int], None] | None = None,
    on_text: Callable[[str], None] | None = None,
) -> Completion:
    """Let the model answer a prompt as the params say.

    `generate_greedy` of chapter 04 with a sampler in the place of argmax, and with text.

    Args:
        model, prompt, cache: as in generate_greedy; room for the answer is reserved in row 0 and
            freed at the end, whatever happens.
        params: how to choose the tokens, and when to end. What the context does not have room
            for is cut: the reason is "length".
        detokenizer: a new one.
        end_ids: the ids that end a text.
        on_token: called with each id of the answer as soon as it is known.
        on_text: called with each piece of text that is safe to show; never with "".

    Errors: the ValueErrors of room_for.
    """
    limit = room_for(model.config, prompt, params.max_tokens, cache)
    state, answer = SamplingState(params, prompt), Answer(detokenizer, limit, end_ids, params.stop)
    ids, done = list(prompt), 0  # done: how many ids the cache already holds
    pieces, reports = [], []
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while answer.finish_reason is None:
            logits = next_logits(model, ids[done:], done, cache)
            chosen = sample(logits, [state])
            done = len(ids) if cache is not None else 0
            ids.append(int(chosen[0]))
            reports += report(logits, chosen, [state])
            pieces.append(answer.add(ids[-1]))
            state.add(ids[-1])
            tell(answer, len(pieces), ids[-1], pieces[-1], on_token, on_text)
    finally:
        if cache is not None:
            cache.free(0)
    told = [one for one in reports[: len(answer.ids)] if one is not None]
    return Completion("".join(pieces), answer.ids, answer.finish_reason, told)


def next_logits(model: Llama, new_ids: list[int], start: int, cache: KVCache | None) -> Tensor:
    """The logits [1, V] after new_ids, which stand at position start onwards."""
    tokens = torch.tensor([new_ids], device=model.device)
    positions = torch.arange(start, start + len(new_ids), device=model.device)[None]
    return model.forward(tokens, positions, cache)


def tell(answer: Answer, steps: int, token: int, text: str, on_token, on_text) -> None:
    """Pass on what a step brought; an end id is no part of the answer."""
    if on_token is not None and len(answer.ids) == steps:
        on_token(token)
    if on_text is not None and text:
        on_text(text)
