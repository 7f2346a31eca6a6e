"""Wrong versions of 4.7 chat_ids and 4.8 generate_greedy."""

import torch
from solutions.chat import DEFAULT_SYSTEM, ROLES
from solutions.greedy import Generation, room_for

from course.misconceptions import misconception

# --- 4.7 ---


@misconception("4.7", "chat_ids")
def markers_as_text(messages, encode, special):
    """You write the markers as text and encode them. encode never makes a special token, so the model sees letters where it was trained on one id: take the ids from `special`."""
    if not messages:
        raise ValueError("no messages")
    text = ""
    if messages[0]["role"] != "system":
        text = f"<|im_start|>system\n{DEFAULT_SYSTEM}<|im_end|>\n"
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']}")
        text += f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
    return encode(text + "<|im_start|>assistant\n")


@misconception("4.7", "chat_ids")
def markers_in_content_obeyed(messages, encode, special):
    """You turn every <|im_start|> and <|im_end|> in the text into its id, also those that a user typed. Anybody could then end the turn and speak as the system: only your own markers become ids."""
    if not messages:
        raise ValueError("no messages")
    text = ""
    if messages[0]["role"] != "system":
        text = f"<|im_start|>system\n{DEFAULT_SYSTEM}<|im_end|>\n"
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']}")
        text += f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
    ids = []
    for part in (text + "<|im_start|>assistant\n").split("<|im_start|>")[1:]:
        ids.append(special["<|im_start|>"])
        for index, piece in enumerate(part.split("<|im_end|>")):
            ids += [special["<|im_end|>"]] * (index > 0) + encode(piece)
    return ids


@misconception("4.7", "chat_ids")
def newline_forgotten(messages, encode, special):
    """You forget the newline after <|im_end|>. The model was trained with one between the turns."""
    if not messages:
        raise ValueError("no messages")
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": DEFAULT_SYSTEM}, *messages]
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    ids = []
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']}")
        ids += [start, *encode(f"{message['role']}\n{message['content']}"), end]
    return [*ids, start, *encode("assistant\n")]


@misconception("4.7", "chat_ids")
def role_encoded_apart(messages, encode, special):
    """You encode the role and the content separately. A tokenizer may join the newline with what follows it, so "role\\ncontent" has to be encoded as one text."""
    if not messages:
        raise ValueError("no messages")
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": DEFAULT_SYSTEM}, *messages]
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    ids = []
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']}")
        head, body = encode(f"{message['role']}\n"), encode(message["content"])
        ids += [start, *head, *body, end, *encode("\n")]
    return [*ids, start, *encode("assistant\n")]


@misconception("4.7", "chat_ids")
def no_default_system(messages, encode, special):
    """You leave out the system message when the conversation has none. The model was trained to see one always: DEFAULT_SYSTEM goes in front."""
    if not messages:
        raise ValueError("no messages")
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    ids = []
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']}")
        turn = encode(f"{message['role']}\n{message['content']}")
        ids += [start, *turn, end, *encode("\n")]
    return [*ids, start, *encode("assistant\n")]


@misconception("4.7", "chat_ids")
def always_the_default_system(messages, encode, special):
    """You put DEFAULT_SYSTEM in front of every conversation. One that begins with its own system message keeps that one alone."""
    if not messages:
        raise ValueError("no messages")
    messages = [{"role": "system", "content": DEFAULT_SYSTEM}, *messages]
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    ids = []
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']}")
        turn = encode(f"{message['role']}\n{message['content']}")
        ids += [start, *turn, end, *encode("\n")]
    return [*ids, start, *encode("assistant\n")]


@misconception("4.7", "chat_ids")
def any_system_counts(messages, encode, special):
    """You look for a system message anywhere in the conversation. Only one at the very beginning takes the place of DEFAULT_SYSTEM."""
    if not messages:
        raise ValueError("no messages")
    if all(message["role"] != "system" for message in messages):
        messages = [{"role": "system", "content": DEFAULT_SYSTEM}, *messages]
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    ids = []
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']}")
        turn = encode(f"{message['role']}\n{message['content']}")
        ids += [start, *turn, end, *encode("\n")]
    return [*ids, start, *encode("assistant\n")]


@misconception("4.7", "chat_ids")
def beginning_of_sequence(messages, encode, special):
    """You put a beginning-of-sequence token in front. This template has none of its own: the first <|im_start|> is the beginning, and two of them confuse the model."""
    if not messages:
        raise ValueError("no messages")
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": DEFAULT_SYSTEM}, *messages]
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    ids = [start]
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']}")
        turn = encode(f"{message['role']}\n{message['content']}")
        ids += [start, *turn, end, *encode("\n")]
    return [*ids, start, *encode("assistant\n")]


@misconception("4.7", "chat_ids")
def answer_not_begun(messages, encode, special):
    """You stop after the last message. The model has to be told whose turn it is: <|im_start|> and "assistant\\n" come last, or it may go on as the user."""
    if not messages:
        raise ValueError("no messages")
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": DEFAULT_SYSTEM}, *messages]
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    ids = []
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']}")
        turn = encode(f"{message['role']}\n{message['content']}")
        ids += [start, *turn, end, *encode("\n")]
    return ids


@misconception("4.7", "chat_ids")
def conversation_changed(messages, encode, special):
    """You insert the default system message into the caller's own list. The caller would find it there afterwards, and send it again: make a new list."""
    if not messages:
        raise ValueError("no messages")
    if messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": DEFAULT_SYSTEM})
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    ids = []
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']}")
        turn = encode(f"{message['role']}\n{message['content']}")
        ids += [start, *turn, end, *encode("\n")]
    return [*ids, start, *encode("assistant\n")]


@misconception("4.7", "chat_ids")
def any_role_accepted(messages, encode, special):
    """You take any role. The model knows three, and one that it never saw gives an answer that nobody can explain: raise ValueError and name the role."""
    if not messages:
        raise ValueError("no messages")
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": DEFAULT_SYSTEM}, *messages]
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    ids = []
    for message in messages:
        turn = encode(f"{message['role']}\n{message['content']}")
        ids += [start, *turn, end, *encode("\n")]
    return [*ids, start, *encode("assistant\n")]


# --- 4.8 ---


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
    """You call on_token with the end id before you look whether it is one. A reader of the stream would see it: check first."""
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
    """You call on_token for all ids when the text is complete. It is for streaming: call it as soon as an id is known, before the next one is computed."""
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
    """You stop one id too early: a comparison is off by one. max_new_tokens of 5 means five ids, and 1 means one."""
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
    """After the prefill your positions are one too high. A prompt of 5 fills positions 0 to 4, so the first new token stands at 5."""
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
    """You start positions from 0 in every forward. The single token after the prefill stands behind the whole prompt: its position is the number of ids before it."""
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
    """You feed the whole sequence in every step although there is a cache. The ids are right and the work is wasted: after the prefill, only the newest id is missing from the cache."""
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
    """You feed a single token after the first step even without a cache. Then the model remembers nothing of the text: without one, every forward needs all ids."""
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
    """You leave the row reserved when the text is finished. The next request finds no room, and tokens of this one: free it."""
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
    """You free the row at the end, but not when the model or on_token raises. A reader who goes away would cost you a row for ever: free it in a finally."""
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
    """You reserve room for the prompt but not for the answer, so the cache is full at the first decode. Ask for both before the first forward."""
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
def room_reserved_token_by_token(
    model, prompt, max_new_tokens, end_ids, cache=None, on_token=None
):
    """You reserve room for each token when it comes. Somebody else may have taken it by then, in the middle of your text: ask for all of it before the first forward."""
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
    """You try to write max_new_tokens whatever the context holds. When prompt and answer reach its end, the answer is over, "length": room_for tells how many tokens fit."""
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
    """You reserve room in the cache but do not give the cache to forward, so the single token of a decode step sees nothing before it. Pass it on in every call."""
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
    """You do not check the prompt and max_new_tokens: an empty prompt or a limit of 0 should be a ValueError, before anything is computed. room_for raises them."""
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
