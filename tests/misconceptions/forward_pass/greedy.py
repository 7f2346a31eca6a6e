"""Wrong versions of 4.8 generate_greedy."""

import torch

from course.misconceptions import misconception
from solutions.greedy import Generation, room_for


@misconception("4.8", "generate_greedy")
def end_id_included(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """Your answer contains the end id. It says that the text is over and is not a part of it."""
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) < len(prompt) + limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
            done = len(ids) if cache is not None else 0
            ids.append(token)
            if token in end_ids:
                return Generation(ids[len(prompt) :], "stop")
            if on_token is not None:
                on_token(token)
        return Generation(ids[len(prompt) :], "length")
    finally:
        if cache is not None:
            cache.free(0)


@misconception("4.8", "generate_greedy")
def end_id_told(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You call on_token with the end id before you look whether it is one. A reader of the stream
    would see it: check first.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) < len(prompt) + limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
            if on_token is not None:
                on_token(token)
            if token in end_ids:
                return Generation(ids[len(prompt) :], "stop")
            done = len(ids) if cache is not None else 0
            ids.append(token)
        return Generation(ids[len(prompt) :], "length")
    finally:
        if cache is not None:
            cache.free(0)


@misconception("4.8", "generate_greedy")
def told_at_the_end(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You call on_token for all ids when the text is complete. It is for streaming: call it as soon
    as an id is known, before the next one is computed.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done, reason = list(prompt), 0, "length"
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) < len(prompt) + limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
            if token in end_ids:
                reason = "stop"
                break
            done = len(ids) if cache is not None else 0
            ids.append(token)
        for token in ids[len(prompt) :]:
            if on_token is not None:
                on_token(token)
        return Generation(ids[len(prompt) :], reason)
    finally:
        if cache is not None:
            cache.free(0)


@misconception("4.8", "generate_greedy")
def one_too_few(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You stop one id too early: a comparison is off by one. max_new_tokens of 5 means five ids,
    and 1 means one.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) + 1 < len(prompt) + limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
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


@misconception("4.8", "generate_greedy")
def prompt_counted(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You count the prompt as part of max_new_tokens. It limits the answer alone."""
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) < limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
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


@misconception("4.8", "generate_greedy")
def prompt_in_the_answer(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You return the prompt together with the answer. Generation.ids are the new ids only."""
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) < len(prompt) + limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
            if token in end_ids:
                return Generation(ids, "stop")
            done = len(ids) if cache is not None else 0
            ids.append(token)
            if on_token is not None:
                on_token(token)
        return Generation(ids, "length")
    finally:
        if cache is not None:
            cache.free(0)


@misconception("4.8", "generate_greedy")
def position_off_by_one(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """After the prefill your positions are one too high. A prompt of 5 fills positions 0 to 4, so
    the first new token stands at 5.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) < len(prompt) + limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None] + (1 if done else 0)
            token = int(model.forward(tokens, positions, cache)[0].argmax())
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


@misconception("4.8", "generate_greedy")
def position_always_zero(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You start positions from 0 in every forward. The single token after the prefill stands behind
    the whole prompt: its position is the number of ids before it.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) < len(prompt) + limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(len(ids) - done)[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
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


@misconception("4.8", "generate_greedy")
def everything_again(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You feed the whole sequence in every step although there is a cache. The ids are right and
    the work is wasted: after the prefill, only the newest id is missing from the cache.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids = list(prompt)
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) < len(prompt) + limit:
            tokens, positions = torch.tensor([ids]), torch.arange(len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
            if token in end_ids:
                return Generation(ids[len(prompt) :], "stop")
            ids.append(token)
            if on_token is not None:
                on_token(token)
        return Generation(ids[len(prompt) :], "length")
    finally:
        if cache is not None:
            cache.free(0)


@misconception("4.8", "generate_greedy")
def one_token_without_a_cache(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You feed a single token after the first step even without a cache. Then the model remembers
    nothing of the text: without one, every forward needs all ids.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) < len(prompt) + limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
            if token in end_ids:
                return Generation(ids[len(prompt) :], "stop")
            done = len(ids)
            ids.append(token)
            if on_token is not None:
                on_token(token)
        return Generation(ids[len(prompt) :], "length")
    finally:
        if cache is not None:
            cache.free(0)


@misconception("4.8", "generate_greedy")
def row_not_freed(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You leave the row reserved when the text is finished. The next request finds no room, and
    tokens of this one: free it.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    while len(ids) < len(prompt) + limit:
        tokens = torch.tensor([ids[done:]])
        positions = torch.arange(done, len(ids))[None]
        token = int(model.forward(tokens, positions, cache)[0].argmax())
        if token in end_ids:
            return Generation(ids[len(prompt) :], "stop")
        done = len(ids) if cache is not None else 0
        ids.append(token)
        if on_token is not None:
            on_token(token)
    return Generation(ids[len(prompt) :], "length")


@misconception("4.8", "generate_greedy")
def freed_only_when_all_goes_well(
    model, prompt, max_new_tokens, end_ids, cache=None, on_token=None
):
    """You free the row at the end, but not whenever the model or on_token raises. A reader who goes
    away would cost you a row for ever: free it in a finally, with the first forward inside.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done, reason = list(prompt), 0, "length"
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    while len(ids) < len(prompt) + limit:
        tokens = torch.tensor([ids[done:]])
        positions = torch.arange(done, len(ids))[None]
        token = int(model.forward(tokens, positions, cache)[0].argmax())
        if token in end_ids:
            reason = "stop"
            break
        done = len(ids) if cache is not None else 0
        ids.append(token)
        if on_token is not None:
            on_token(token)
    if cache is not None:
        cache.free(0)
    return Generation(ids[len(prompt) :], reason)


@misconception("4.8", "generate_greedy")
def room_for_the_prompt_only(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You reserve room for the prompt but not for the answer, so the cache is full at the first
    decode. Ask for both before the first forward.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt))
    try:
        while len(ids) < len(prompt) + limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
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


@misconception("4.8", "generate_greedy")
def room_reserved_token_by_token(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You reserve room for each token when it comes. Somebody else may have taken it by then, in
    the middle of your text: ask for all of it before the first forward.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    try:
        while len(ids) < len(prompt) + limit:
            if cache is not None:
                cache.reserve(0, len(ids))
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
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


@misconception("4.8", "generate_greedy")
def context_not_heeded(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You try to write max_new_tokens whatever the context holds. When prompt and answer reach its
    end, the answer is over, "length": room_for tells how many tokens fit.
    """
    room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + max_new_tokens)
    try:
        while len(ids) < len(prompt) + max_new_tokens:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
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


@misconception("4.8", "generate_greedy")
def cache_not_passed_on(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You reserve room in the cache but do not give the cache to forward, so the single token of a
    decode step sees nothing before it. Pass it on in every call.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) < len(prompt) + limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions)[0].argmax())
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


@misconception("4.8", "generate_greedy")
def room_not_checked_at_all(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You do not check the prompt and max_new_tokens: an empty prompt or a limit of 0 should be a
    ValueError, before anything is computed. room_for raises them.
    """
    context = model.config.max_position_embeddings
    if cache is not None:
        context = min(context, cache.max_length)
    limit = min(max_new_tokens, context - len(prompt))
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    try:
        while len(ids) < len(prompt) + limit:
            tokens = torch.tensor([ids[done:]])
            positions = torch.arange(done, len(ids))[None]
            token = int(model.forward(tokens, positions, cache)[0].argmax())
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


@misconception("4.8", "generate_greedy")
def freed_at_the_limit_only(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    """You free the row when the limit is reached, and not after an end id or an exception. Every
    way out must give the row back: that is what `finally` is for.
    """
    limit = room_for(model.config, prompt, max_new_tokens, cache)
    ids, done = list(prompt), 0
    if cache is not None:
        cache.reserve(0, len(prompt) + limit)
    while len(ids) < len(prompt) + limit:
        tokens = torch.tensor([ids[done:]])
        positions = torch.arange(done, len(ids))[None]
        token = int(model.forward(tokens, positions, cache)[0].argmax())
        if token in end_ids:
            return Generation(ids[len(prompt) :], "stop")
        done = len(ids) if cache is not None else 0
        ids.append(token)
        if on_token is not None:
            on_token(token)
    if cache is not None:
        cache.free(0)
    return Generation(ids[len(prompt) :], "length")
