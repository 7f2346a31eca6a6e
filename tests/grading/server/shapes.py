"""7.2 The shapes of answers, chunks, errors and events."""

import json

from course.cases import case, expect_equal
from tests.grading.forward_pass.driving import drive, expect_failure

TOLD = [[1, -0.25, [[1, -0.25], [2, -1.5]]], [4, -10000.0, []], [5, "-inf", [[6, -20000.0]]]]


def head_of(rng, endpoint: str) -> list:
    """Arguments of a Head."""
    return [f"id-{rng.randrange(10**6)}", rng.randrange(10**9), f"m{rng.randrange(9)}", endpoint]


def made(learner, head: list, *calls) -> list:
    """What the functions gave."""
    return drive(learner, "shapes", head, [list(call) for call in calls])


def envelope(head: list, kind: str, choices: list, **more) -> dict:
    """What stands around choices."""
    return {
        "id": head[0],
        "object": kind,
        "created": head[1],
        "model": head[2],
        "choices": choices,
    } | more


def usage(prompt: int, answer: int) -> dict:
    """The numbers of tokens."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
    }


@case("7.2")
def shape_of_a_chat(learner, rng):
    """A whole answer of a chat: message with role and content, and the numbers of tokens."""
    head, counts = head_of(rng, "chat"), [rng.randrange(1, 99), rng.randrange(1, 99)]
    call = ["response_body", [[0, "Paris. 🙂", [], "stop"], [1, "", [], "length"]], counts]
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "logprobs": None,
            "finish_reason": reason,
        }
        for index, text, reason in ((0, "Paris. 🙂", "stop"), (1, "", "length"))
    ]
    expected = envelope(head, "chat.completion", choices, usage=usage(*counts))
    expect_equal(made(learner, head, call)[0], expected, "response_body of a chat")


@case("7.2")
def shape_of_a_completion(learner, rng):
    """A whole answer of a completion: text where a chat has its message."""
    head, counts = head_of(rng, "completion"), [rng.randrange(1, 99), rng.randrange(1, 99)]
    call = ["response_body", [[0, " Paris", [], "length"]], counts]
    choice = {"index": 0, "text": " Paris", "logprobs": None, "finish_reason": "length"}
    expected = envelope(head, "text_completion", [choice], usage=usage(*counts))
    expect_equal(made(learner, head, call)[0], expected, "response_body of a completion")


def delta(index: int, what: dict, reason=None) -> dict:
    """A choice of a chunk of a chat."""
    return {"index": index, "delta": what, "logprobs": None, "finish_reason": reason}


@case("7.2")
def shape_of_chat_chunks(learner, rng):
    """The first delta of an answer has the role, an empty one is {}, and only the last has a
    finish_reason. A chunk has no usage.
    """
    head, index = head_of(rng, "chat"), rng.randrange(4)
    calls = [
        ["chunk_body", [index, "Par"], True],
        ["chunk_body", [index, ""], True],
        ["chunk_body", [index, "is"], False],
        ["chunk_body", [index, "."], False],
        ["chunk_body", [index, ".", [], "stop"], False],
        ["chunk_body", [index, "", [], "length"], False],
        ["chunk_body", [index, "", [], "stop"], True],
    ]
    role = {"role": "assistant"}
    choices = [
        delta(index, role | {"content": "Par"}),
        delta(index, role | {"content": ""}),
        delta(index, {"content": "is"}),
        delta(index, {"content": "."}),
        delta(index, {"content": "."}, "stop"),
        delta(index, {}, "length"),
        delta(index, role | {"content": ""}, "stop"),
    ]
    expected = [envelope(head, "chat.completion.chunk", [choice]) for choice in choices]
    expect_equal(made(learner, head, *calls), expected, "chunks of a chat")


@case("7.2")
def shape_of_completion_chunks(learner, rng):
    """Chunks of a completion are small completions; first makes no difference."""
    head = head_of(rng, "completion")
    pieces = [[0, "Par", [], None], [2, "", [], None], [0, "is", [], "stop"]]
    calls = [["chunk_body", piece, first] for piece in pieces for first in (True, False)]
    names = ("index", "text", "logprobs", "finish_reason")
    expected = [
        envelope(head, "text_completion", [dict(zip(names, (i, t, None, r), strict=True))])
        for i, t, _, r in pieces
        for _ in range(2)
    ]
    expect_equal(made(learner, head, *calls), expected, "chunks of a completion")


@case("7.2")
def shape_of_the_usage_chunk(learner, rng):
    """One more chunk, with no choices and the numbers of tokens."""
    kinds = (("chat", "chat.completion.chunk"), ("completion", "text_completion"))
    for endpoint, kind in kinds:
        head, counts = head_of(rng, endpoint), [rng.randrange(99), rng.randrange(99)]
        found = made(learner, head, ["usage_chunk", counts])[0]
        expected = envelope(head, kind, [], usage=usage(*counts))
        expect_equal(found, expected, f"usage_chunk of a {endpoint}")


def entry(text: str, data: bytes, value: float) -> dict:
    """A token among the log-probabilities of a chat."""
    return {"token": text, "logprob": value, "bytes": list(data)}


@case("7.2")
def shape_of_chat_logprobs(learner, rng):
    """Log-probabilities of a chat: each token with its bytes and those beside it. Half a character
    is U+FFFD as text, and minus infinity is -9999: JSON has none.
    """
    head = head_of(rng, "chat")
    par, first = entry("Par", b"Par", -0.25), entry("is", b"is", -1.5)
    half, other = entry("\ufffd", b"\xc3", -9999.0), entry("\ufffd", b"\xa9", -9999.0)
    smile = entry("🙂", "🙂".encode(), -9999.0)
    content = [
        par | {"top_logprobs": [par, first]},
        half | {"top_logprobs": []},
        other | {"top_logprobs": [smile]},
    ]
    calls = [
        ["response_body", [[0, "Paré", TOLD, "stop"]], [1, 3], "told"],
        ["chunk_body", [0, "Paré", TOLD], False, "told"],
        ["chunk_body", [0, "", [], "stop"], False, "told"],
        ["chunk_body", [0, "Paré", TOLD], False],
    ]
    found = [body["choices"][0]["logprobs"] for body in made(learner, head, *calls)]
    told = {"content": content}
    expect_equal(found, [told, told, {"content": []}, None], "logprobs of four bodies")


@case("7.2")
def shape_of_completion_logprobs(learner, rng):
    """Log-probabilities of a completion: four lists; text_offset is what the piece says."""
    head, places = head_of(rng, "completion"), sorted(rng.sample(range(100), 3))
    told = {
        "tokens": ["Par", "\ufffd", "\ufffd"],
        "token_logprobs": [-0.25, -9999.0, -9999.0],
        "top_logprobs": [{"Par": -0.25, "is": -1.5}, {}, {"🙂": -9999.0}],
    }
    nothing = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    calls = [
        ["response_body", [[0, "Paré", TOLD, "stop", [0, 3, 3]]], [1, 3], "told"],
        ["chunk_body", [0, "Paré", TOLD, None, places], False, "told"],
        ["chunk_body", [0, "", [], "stop"], False, "told"],
        ["response_body", [[0, "Paré", TOLD, "stop"]], [1, 3]],
    ]
    found = [body["choices"][0]["logprobs"] for body in made(learner, head, *calls)]
    expected = [
        told | {"text_offset": [0, 3, 3]},
        told | {"text_offset": places},
        nothing,
        None,
    ]
    expect_equal(found, expected, "logprobs of four bodies")


@case("7.2")
def shape_of_errors(learner, rng):
    """{"error": {...}} with four keys, None where there is nothing to say."""
    head = head_of(rng, "chat")
    calls = [
        ["error_body", 400, "too hot: é", "temperature", "invalid_value"],
        ["error_body", 503, "later", None, "queue_full", 7],
        ["error_body", 401, "who are you?"],
    ]
    rows = [
        ["too hot: é", "invalid_request_error", "temperature", "invalid_value"],
        ["later", "service_unavailable", None, "queue_full"],
        ["who are you?", "authentication_error", None, None],
    ]
    names = ("message", "type", "param", "code")
    expected = [{"error": dict(zip(names, row, strict=True))} for row in rows]
    expect_equal(made(learner, head, *calls), expected, "three errors")


def in_bytes(texts: list) -> list:
    """The bytes that came as texts of one character each."""
    return [text.encode("latin-1") for text in texts]


@case("7.2")
def json_in_bytes(learner, rng):
    """UTF-8 without spaces, on one line; half a character is written as JSON writes it."""
    head = head_of(rng, "chat")
    number = rng.randrange(1000)
    bodies = [{"a": [1, {"b": None}], "n": number}, {"text": 'é🙂"\\/'}, {"text": "a\r\nb\u2028\t"}]
    texts = [
        f'{{"a":[1,{{"b":null}}],"n":{number}}}',
        '{"text":"é🙂\\"\\\\/"}',
        '{"text":"a\\r\\nb\u2028\\t"}',
    ]
    found = made(learner, head, *(["to_json", body] for body in bodies))
    expect_equal(in_bytes(found), [text.encode() for text in texts], "to_json of three bodies")
    half = made(learner, head, ["to_json", {"text": "é\ud83db"}])[0].encode("latin-1")
    expect_equal(half, '{"text":"é\\ud83db"}'.encode(), "to_json of half a character")
    expect_equal(json.loads(half), {"text": "é\ud83db"}, "what a reader gets of it")
    for value in ("nan", "inf", "-inf"):
        found = made(learner, head, ["to_json", {"number": value}])[0]
        expect_failure(found, "ValueError", f"to_json with {value}")


@case("7.2")
def events_in_bytes(learner, rng):
    """data: and JSON on one line, then a blank line; the last is data: [DONE]."""
    head = head_of(rng, "chat")
    calls = [
        ["encode_event", {"a": "x\n\ny", "é": 1}],
        ["encode_event", None],
        ["encode_event", {}],
    ]
    found = in_bytes(made(learner, head, *calls))
    first = 'data: {"a":"x\\n\\ny","é":1}\n\n'.encode()
    expect_equal(found, [first, b"data: [DONE]\n\n", b"data: {}\n\n"], "three events")


@case("7.2")
def shapes_share_nothing(learner, rng):
    """Whoever changes one body does not change the next, nor the piece that it was made of."""
    before, after, pieces = drive(learner, "shares_nothing")
    expect_equal(after, before, "a chunk after another was changed")
    expect_equal(pieces, [["Par", 1, [7]]] * 2, "[text, log-probabilities, offsets] of both pieces")
