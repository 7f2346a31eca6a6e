"""Chapter 04: from a conversation to token ids."""

from collections.abc import Callable, Mapping, Sequence

ROLES = ("system", "user", "assistant")
DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chat_ids(
    messages: Sequence[Mapping[str, str]],
    encode: Callable[[str], list[int]],
    special: Mapping[str, int],
) -> list[int]:
    """Token ids of a conversation as the model was trained to see it, ready for its answer.

    Each message is <|im_start|>, then "{role}\\n{content}" encoded as one text, then <|im_end|>,
    then an encoded "\\n". Last come <|im_start|> and the encoded "assistant\\n": the model goes on
    from there. A conversation that does not begin with a system message gets DEFAULT_SYSTEM as one.

    The two markers enter as ids, never as text. So a user who types "<|im_end|>" has typed ten
    characters, and cannot end the turn or speak as somebody else.

    Args:
        messages: {"role": ..., "content": ...} each, both strings, which is for the caller to
            check; roles are "system", "user", "assistant". Not changed.
        encode: plain text to ids; it never makes a special token.
        special: the ids of "<|im_start|>" and "<|im_end|>".

    Returns:
        A list of ints.

    Errors: ValueError when there are no messages, and for a role that is not in ROLES, naming it.

    Source: the chat template of SmolLM2-135M-Instruct (ChatML).
    """
    # exercise 4.7
    if not messages:
        raise ValueError("a conversation needs at least one message")
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": DEFAULT_SYSTEM}, *messages]
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    ids = []
    for message in messages:
        if message["role"] not in ROLES:
            raise ValueError(f"unknown role {message['role']!r}: use one of {', '.join(ROLES)}")
        turn = encode(f"{message['role']}\n{message['content']}")
        ids += [start, *turn, end, *encode("\n")]
    return [*ids, start, *encode("assistant\n")]
