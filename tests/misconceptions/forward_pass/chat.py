"""Wrong versions of 4.7 chat_ids."""

from course.misconceptions import misconception
from solutions.chat import DEFAULT_SYSTEM, ROLES


@misconception("4.7", "chat_ids")
def markers_as_text(messages, encode, special):
    """You write the markers as text and encode them. encode never makes a special token, so the
    model sees letters where it was trained on one id: take the ids from `special`.
    """
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
    """You turn every <|im_start|> and <|im_end|> in the text into its id, also those that a user
    typed. Anybody could then end the turn and speak as the system: only your own markers become
    ids.
    """
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
    """You encode the role and the content separately. A tokenizer may join the newline with what
    follows it, so "role\\ncontent" has to be encoded as one text.
    """
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
    """You leave out the system message when the conversation has none. The model was trained to see
    one always: DEFAULT_SYSTEM goes in front.
    """
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
    """You put DEFAULT_SYSTEM in front of every conversation. One that begins with its own system
    message keeps that one alone.
    """
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
    """You look for a system message anywhere in the conversation. Only one at the very beginning
    takes the place of DEFAULT_SYSTEM.
    """
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
    """You put a beginning-of-sequence token in front. This template has none of its own: the first
    <|im_start|> is the beginning, and two of them confuse the model.
    """
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
    """You stop after the last message. The model has to be told whose turn it is: <|im_start|> and
    "assistant\\n" come last, or it may go on as the user.
    """
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
    """You insert the default system message into the caller's own list. The caller would find it
    there afterwards, and send it again: make a new list.
    """
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
    """You take any role. The model knows three, and one that it never saw gives an answer that
    nobody can explain: raise ValueError and name the role.
    """
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


@misconception("4.7", "chat_ids")
def empty_conversation_accepted(messages, encode, special):
    """You accept a conversation without messages. The model would answer a question that nobody
    asked: raise ValueError.
    """
    if not messages or messages[0]["role"] != "system":
        messages = [{"role": "system", "content": DEFAULT_SYSTEM}, *messages]
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    ids = []
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']}")
        turn = encode(f"{message['role']}\n{message['content']}")
        ids += [start, *turn, end, *encode("\n")]
    return [*ids, start, *encode("assistant\n")]
