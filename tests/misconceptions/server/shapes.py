"""Wrong versions of 7.2, the shapes of answers."""

import json

from course.misconceptions import misconception
from solutions.api_request import CHAT
from solutions.responses import _choice, _envelope


@misconception("7.2", "chunk_body")
def role_in_every_delta(head, piece, token_bytes=None, first=False):
    """You send the role with every delta. Clients join what the deltas bring, key by key: the role
    comes once, in the first of each answer.
    """
    choice = _choice(head, piece, token_bytes)
    if head.endpoint == CHAT:
        choice = {"index": piece.index, "delta": choice.pop("message")} | choice
    return _envelope(head, True, [choice])


@misconception("7.2", "chunk_body")
def message_in_a_chunk(head, piece, token_bytes=None, first=False):
    """You leave "message" in the chunks of a chat. There it is called "delta": the client looks for
    that key, and finds no text.
    """
    return _envelope(head, True, [_choice(head, piece, token_bytes)])


@misconception("7.2", "to_json")
def json_with_escapes(body):
    """You leave json.dumps as it is: it writes é as \\u00e9 and puts spaces between. It is valid,
    but not what is promised, and three times as long for most of the world's texts.
    """
    return json.dumps(body).encode()


@misconception("7.2", "to_json")
def json_that_fails_on_halves(body):
    """encode("utf-8") raises for half a character. A request that quotes one in its fields would
    get no answer at all instead of a 400. "backslashreplace" writes it as JSON does.
    """
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8")


@misconception("7.2", "encode_event")
def one_line_break(body):
    """An event ends with a blank line: two line breaks. After one the client waits for more lines
    of the same event, and shows nothing until the next begins.
    """
    return b"data: " + (b"[DONE]" if body is None else to_json(body)) + b"\n"  # noqa: F821


@misconception("7.2", "error_body")
def error_without_its_box(error):
    """You send the four keys by themselves. The client looks for "error" around them, and shows
    nothing but the status when it is not there.
    """
    names = ("message", "type", "param", "code")
    return {name: getattr(error, name) for name in names}
