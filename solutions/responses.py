"""Chapter 07: answers in the shape that clients of the OpenAI API expect."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from solutions.api_error import ApiError
from solutions.api_request import CHAT
from solutions.sampler import TokenLogProbs

LEAST = -9999.0  # in the place of -infinity, which JSON does not have
OBJECTS = {  # endpoint, whether it is a chunk of a stream -> "object"
    ("chat", False): "chat.completion",
    ("chat", True): "chat.completion.chunk",
    ("completion", False): "text_completion",
    ("completion", True): "text_completion",
}
TokenBytes = Callable[[int], bytes]


@dataclass(frozen=True)
class Head:
    """What all parts of one answer share.

    Args:
        id: such as "chatcmpl-3f2a".
        created: seconds since 1970, whole.
        model: the name of the model.
        endpoint: CHAT or COMPLETION.
    """

    id: str
    created: int
    model: str
    endpoint: str


@dataclass(frozen=True)
class Usage:
    """Tokens of all prompts, and of all answers."""

    prompt_tokens: int
    completion_tokens: int


@dataclass
class Piece:
    """Some of one answer, or all of it.

    Args:
        index: which answer of the request, from 0.
        text: as it can be shown.
        logprobs: of the tokens in it, where they were asked for.
        finish_reason: None as long as there is more to come.
        offsets: for each of logprobs, where its token begins: characters of the answer's text that
            the tokens before it completed.
    """

    index: int
    text: str = ""
    logprobs: list[TokenLogProbs] = field(default_factory=list)
    finish_reason: str | None = None
    offsets: list[int] = field(default_factory=list)

    def join(self, other: "Piece") -> None:
        """What came after it becomes part of it."""
        self.text += other.text
        self.logprobs += other.logprobs
        self.offsets += other.offsets
        self.finish_reason = other.finish_reason


def response_body(
    head: Head, answers: Sequence[Piece], usage: Usage, token_bytes: TokenBytes | None = None
) -> dict:
    """A whole answer.

    {"id", "object", "created", "model", "choices": [...], "usage": {"prompt_tokens",
    "completion_tokens", "total_tokens"}}. "object" is as in OBJECTS. A choice is {"index",
    "message": {"role": "assistant", "content": text}, "logprobs", "finish_reason"}; of a
    completion "text" stands in the place of "message".

    "logprobs" is None when token_bytes is None: nobody asked. Otherwise, of a chat, {"content":
    [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}, ...]}, ...]}: a
    token's text is its bytes as UTF-8, with U+FFFD for what is none, and "bytes" is a list of ints.
    Of a completion, {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, four lists with an
    entry for each token: its text, its logarithm, {text: logarithm} of the most probable ones, and
    the piece's offsets. A logarithm under LEAST is LEAST.

    The pieces and Piece.logprobs are only read. Bodies share nothing with them that could change.

    Args:
        head: of the answer.
        answers: all of each answer, in the order of their indices.
        usage: of all together.
        token_bytes: gives the bytes of a token id.
    """
    # exercise 7.2
    choices = [_choice(head, answer, token_bytes) for answer in answers]
    return _envelope(head, False, choices) | {"usage": _usage(usage)}


def chunk_body(
    head: Head, piece: Piece, token_bytes: TokenBytes | None = None, first: bool = False
) -> dict:
    """A part of an answer, on its own in an event.

    As in response_body, with one choice and no usage, and "object" as in OBJECTS. Of a chat,
    "delta" stands in the place of "message": {"content": text}, and the first delta of an answer
    has "role": "assistant" before that. A delta that would bring an empty text and is not the first
    is {}. "finish_reason" is None but in the last.
    """
    # exercise 7.2
    choice = _choice(head, piece, token_bytes)
    if head.endpoint == CHAT:
        message = choice.pop("message")
        delta = message if first else {"content": piece.text} if piece.text else {}
        choice = {"index": piece.index, "delta": delta} | choice
    return _envelope(head, True, [choice])


def usage_chunk(head: Head, usage: Usage) -> dict:
    """The event that include_usage asks for: as in chunk_body, "choices" empty, with "usage"."""
    # exercise 7.2
    return _envelope(head, True, []) | {"usage": _usage(usage)}


def error_body(error: ApiError) -> dict:
    """{"error": {"message", "type", "param", "code"}}, as the official client reads it."""
    # exercise 7.2
    names = ("message", "type", "param", "code")
    return {"error": {name: getattr(error, name) for name in names}}


def to_json(body: dict) -> bytes:
    """JSON in UTF-8, without spaces, on one line.

    Characters stand for themselves. Half a character, which has no UTF-8, becomes \\ud83d: in JSON
    that is how it is written. ValueError for NaN and infinities.
    """
    # exercise 7.2
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def encode_event(body: dict | None) -> bytes:
    """A server-sent event: "data: ", the JSON, a blank line. None is the last one, data: [DONE].

    Source: the WHATWG's HTML standard, section 9.2. A line break would end the event, and JSON on
    one line has none.
    """
    # exercise 7.2
    return b"data: " + (b"[DONE]" if body is None else to_json(body)) + b"\n\n"


def _envelope(head: Head, is_chunk: bool, choices: list[dict]) -> dict:
    kind = OBJECTS[head.endpoint, is_chunk]
    named = {"id": head.id, "object": kind, "created": head.created, "model": head.model}
    return named | {"choices": choices}


def _usage(usage: Usage) -> dict:
    prompt, answer = usage.prompt_tokens, usage.completion_tokens
    total = prompt + answer
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": total}


def _choice(head: Head, piece: Piece, token_bytes: TokenBytes | None) -> dict:
    chat = head.endpoint == CHAT
    content = {"message": {"role": "assistant", "content": piece.text}}
    told = None
    if token_bytes is not None:
        told = (_chat_logprobs if chat else _completion_logprobs)(piece, token_bytes)
    content = content if chat else {"text": piece.text}
    return {"index": piece.index, **content, "logprobs": told, "finish_reason": piece.finish_reason}


def _chat_logprobs(piece: Piece, token_bytes: TokenBytes) -> dict:
    def entry(token: int, value: float) -> dict:
        data = token_bytes(token)
        return {"token": _shown(data), "logprob": max(value, LEAST), "bytes": list(data)}

    return {
        "content": [
            entry(told.token, told.value)
            | {"top_logprobs": [entry(token, value) for token, value in told.top.items()]}
            for told in piece.logprobs
        ]
    }


def _completion_logprobs(piece: Piece, token_bytes: TokenBytes) -> dict:
    texts = [_shown(token_bytes(told.token)) for told in piece.logprobs]
    tops = [
        {_shown(token_bytes(token)): max(value, LEAST) for token, value in told.top.items()}
        for told in piece.logprobs
    ]
    values = [max(told.value, LEAST) for told in piece.logprobs]
    return {
        "tokens": texts,
        "token_logprobs": values,
        "top_logprobs": tops,
        "text_offset": list(piece.offsets),
    }


def _shown(data: bytes) -> str:
    return data.decode("utf-8", "replace")
