"""Chapter 07 beside the code under test: bodies in, answers out.

Every scenario takes the module under test first and returns plain data.
"""

import json
import math
from dataclasses import fields

from solutions.sampler import TokenLogProbs
from tests.scenarios.helpers import Unusable, in_words, told

# --- 7.1 ---


@told
def parses(module, calls: list) -> list:
    """What parse_body makes of each call: [endpoint, body as text, model, names].

    A text that begins with "bytes:" goes in as bytes, one for each of its characters. names: what
    the message of an error should hold.
    """
    return [_parsed(module, *call) for call in calls]


def _parsed(module, endpoint: str, body: str, model: str, names: list) -> dict:
    given = body.removeprefix("bytes:").encode("latin-1") if body.startswith("bytes:") else body
    try:
        found = module.parse_body(given, endpoint, model)
    except module.ApiError as error:
        return {"error": _facts(error, names)}
    names = [one.name for one in fields(module.ApiRequest)]
    if not all(hasattr(found, name) for name in names):
        raise Unusable(f"parse_body should return an ApiRequest, but returned {in_words(found)}")
    made = {name: getattr(found, name) for name in names} | {"choices": found.choices}
    made["params"] = {one.name: getattr(found.params, one.name) for one in fields(found.params)}
    made["params"]["stop"] = list(made["params"]["stop"])
    made["prompts"] = [list(p) if isinstance(p, tuple) else p for p in made["prompts"]]
    return made


def _facts(error, names: list) -> dict:
    said, facts = str(error.message), ("status", "param", "code", "type", "retry_after")
    unnamed = [name for name in names if name not in said]
    return {name: getattr(error, name) for name in facts} | {"message": said, "unnamed": unnamed}


# --- 7.2 ---

BYTES = {  # token id -> bytes; 4 and 5 are halves of é
    0: b"",
    1: b"Par",
    2: b"is",
    3: b" \n",
    4: b"\xc3",
    5: b"\xa9",
    6: "🙂".encode(),
    7: b'"\\',
}


def _probabilities(told_tokens: list) -> list:
    """[token, value, [[token, value], ...]] each, as TokenLogProbs. "-inf" is minus infinity."""

    def number(value):
        return -math.inf if value == "-inf" else value

    return [
        TokenLogProbs(token, number(value), {t: number(v) for t, v in top})
        for token, value, top in told_tokens
    ]


def _piece(module, index, text, logprobs=(), finish_reason=None, offsets=()):
    return module.Piece(index, text, _probabilities(logprobs), finish_reason, list(offsets))


@told
def shapes(module, head: list, calls: list) -> list:
    """What the functions of 7.2 make: each call is [name, args], pieces as lists of arguments.

    "told" as the last of args gives token_bytes. The result, and the pieces' texts afterwards.
    """
    made, answers = module.Head(*head), []
    for name, *args in calls:
        table = BYTES.__getitem__ if args and args[-1] == "told" else None
        args = args[: len(args) - (table is not None)]
        answers.append(_shape(module, name, made, args, table))
    return answers


def _shape(module, name: str, head, args: list, table):
    if name == "response_body":
        pieces = [_piece(module, *one) for one in args[0]]
        return module.response_body(head, pieces, module.Usage(*args[1]), table)
    if name == "chunk_body":
        piece, first = _piece(module, *args[0]), args[1]
        return module.chunk_body(head, piece, table, first)
    if name == "usage_chunk":
        return module.usage_chunk(head, module.Usage(*args[0]))
    if name == "error_body":
        return module.error_body(module.ApiError(*args))
    return _bytes(module, name, args)


def _bytes(module, name: str, args: list):
    """to_json and encode_event: a text with one character a byte, or the error's name."""
    body = args[0]
    if isinstance(body, dict) and "number" in body:
        try:
            getattr(module, name)({"number": float(body["number"])})
            return {}
        except ValueError as error:
            return {"raised": [kind.__name__ for kind in type(error).__mro__], "unnamed": []}
    found = getattr(module, name)(body)
    if not isinstance(found, bytes):
        raise Unusable(f"{name} should return bytes, but returned {in_words(found)}")
    return found.decode("latin-1")


@told
def shares_nothing(module) -> list:
    """Two chunks of the same head: whether changing one body changes the other; and the pieces of
    two bodies with log-probabilities, after these were made and changed.
    """
    head = module.Head("id", 5, "m", "chat")
    first = module.chunk_body(head, module.Piece(0, "a"), None, True)
    before = json.dumps(module.chunk_body(head, module.Piece(0, "a"), None, True))
    first["choices"][0]["delta"]["role"] = "nobody"
    first["choices"].append("more")
    first["id"] = "another"
    after = json.dumps(module.chunk_body(head, module.Piece(0, "a"), None, True))
    head, pieces = module.Head("id", 5, "m", "completion"), []
    for is_whole in (True, False):
        piece, table = _piece(module, 0, "Par", [[1, -0.5, []]], None, [7]), BYTES.__getitem__
        if is_whole:
            body = module.response_body(head, [piece], module.Usage(1, 1), table)
        else:
            body = module.chunk_body(head, piece, table)
        body["choices"][0]["logprobs"]["text_offset"].append(8)
        pieces.append([piece.text, len(piece.logprobs), list(piece.offsets)])
    return [before, after, pieces]
