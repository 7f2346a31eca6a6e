"""Server-sent events from any cut of the bytes, and what is read from a chunk."""

import json
import random
from itertools import pairwise

import pytest

from course.load_stream import EventStream, finish_reason, piece, read_event, usage

STREAM = (
    'data: {"text": "é\u2028\u0085\x0b🙂"}\n\n'
    ": a comment keeps the connection alive\n\n"
    "event: message\ndata: first\ndata: second\nid: 7\n\n"
    "data:no space\r\n\r\n"
    "data:  two spaces\r\r"
    "\n"
    "data\n\n"
    "data: [DONE]\n\n"
    "data: never finished"
)
EVENTS = [
    '{"text": "é\u2028\u0085\x0b🙂"}',
    "first\nsecond",
    "no space",
    " two spaces",
    "",
    "[DONE]",
]


def test_all_at_once():
    assert EventStream().feed(STREAM.encode()) == EVENTS


def test_byte_by_byte():
    stream = EventStream()
    assert [e for n in STREAM.encode() for e in stream.feed(bytes([n]))] == EVENTS


@pytest.mark.parametrize("seed", range(20))
def test_cut_anywhere(seed):
    rng, data = random.Random(seed), STREAM.encode()
    cuts = [0, *sorted(rng.choices(range(len(data)), k=12)), len(data)]
    stream, found = EventStream(), []
    for start, end in pairwise(cuts):
        found += stream.feed(data[start:end])
    assert found == EVENTS


def test_bytes_that_are_no_utf_8_do_not_stop_it():
    assert EventStream().feed(b"data: \xff!\n\n") == ["\ufffd!"]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"choices": [{"delta": {"content": "Hi"}}]}, "Hi"),
        ({"choices": [{"delta": {"role": "assistant"}}]}, ""),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, ""),
        ({"choices": [{"delta": {"content": None}, "finish_reason": "stop"}]}, ""),
        ({"choices": [{"text": " a"}]}, " a"),
        ({"choices": []}, ""),
        ({}, ""),
    ],
)
def test_the_text_of_a_chunk(event, expected):
    assert piece(event) == expected


def test_why_it_ended_and_how_many_tokens():
    last = {"choices": [{"delta": {}, "finish_reason": "length"}]}
    counts = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}}
    assert (finish_reason(last), finish_reason(counts)) == ("length", None)
    assert (usage(last), usage(counts)) == (None, (5, 9))
    assert usage({"usage": {"prompt_tokens": "5"}}) is None


@pytest.mark.parametrize("data", ["[1]", "3", "null", '"text"', "{", ""])
def test_an_event_is_an_object(data):
    with pytest.raises(ValueError, match=r"an event is|Expecting"):
        read_event(data)
    assert read_event(json.dumps({"a": 1})) == {"a": 1}
