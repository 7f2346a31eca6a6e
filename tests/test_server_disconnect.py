"""Clients that go away, or do not read: what they held is free, and nobody else waits."""

import json
import struct
import threading
from socket import SO_LINGER, SOL_SOCKET

import pytest

from solutions.events import Admitted, Finished, Sent, Token
from tests.server_kit import CHAT, COMPLETIONS, GUARD, nobody_is_left, read_all, serving, until

LONG = {"prompt": "x" * 20, "max_tokens": 200, "temperature": 0}
SHORT = {"prompt": "Hello", "max_tokens": 3, "temperature": 0}


@pytest.fixture
def running():
    with serving(rows=2, length=256, step_tokens=8) as made:
        yield made


def leave(sock, abruptly: bool) -> None:
    """Close a connection, in order or by a reset."""
    if abruptly:
        sock.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def ends(running) -> list[str]:
    """The reasons of all requests that are over."""
    return [event.reason for event in running.events if isinstance(event, Finished)]


@pytest.mark.parametrize("abruptly", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_while_it_waits_in_the_queue(running, stream, abruptly):
    others = running.fill(LONG, rows=2)
    sock = running.send_raw(COMPLETIONS, LONG | {"stream": stream})
    until(lambda: len(running.service.batcher.waiting) == 1, "one waits")
    leave(sock, abruptly)
    until(lambda: running.service.lifecycle.inside == 2, "it was noticed, though no step was made")
    running.model.release()
    until(lambda: ends(running)[:1] == ["cancelled"], "it was cancelled, before it was admitted")
    assert sum(isinstance(event, Admitted) for event in running.events) == 2
    for other in others:
        leave(other, False)
    until(lambda: nobody_is_left(running), "all is free")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_while_its_prompt_is_computed(running, stream):
    running.model.hold()
    body = {"prompt": "x" * 100, "max_tokens": 50, "stream": stream}
    sock = running.send_raw(COMPLETIONS, body)
    until(lambda: running.service.batcher.running, "it runs")
    assert running.cache.used_tokens == 150
    leave(sock, False)
    until(lambda: running.service.lifecycle.inside == 0, "it was noticed, in the middle of a step")
    running.model.release()
    until(lambda: nobody_is_left(running), "all is free")
    until(lambda: ends(running) == ["cancelled"], "its end is told")
    assert not any(isinstance(event, Token) for event in running.events)
    assert running.model.calls <= 2 + 2  # the warm-up, the step that was held, one that was begun


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_client_that_leaves_while_its_answer_is_written(running, stream, path):
    body = LONG if path == COMPLETIONS else {"messages": [{"role": "user", "content": "x"}]}
    sock = running.send_raw(path, body | {"stream": stream, "max_tokens": 200})
    until(lambda: any(isinstance(event, Token) for event in running.events), "a token has come")
    running.model.hold()
    leave(sock, False)
    until(lambda: running.service.lifecycle.inside == 0, "it was noticed, in the middle of a step")
    tokens = sum(isinstance(event, Token) for event in running.events)
    running.model.release()
    until(lambda: nobody_is_left(running), "all is free")
    if tokens < 190:  # it was quick enough to be in the middle
        until(lambda: ends(running) == ["cancelled"], "its end is told")
        assert sum(isinstance(event, Token) for event in running.events) <= tokens + 2
    until(lambda: ("Sent" in running.kinds()) == stream, "the end of a stream is told")


def test_nobody_hears_of_those_who_left(running):
    for _ in range(3):
        running.send_raw(COMPLETIONS, LONG | {"stream": True}).close()
    until(lambda: nobody_is_left(running), "all is free")
    assert running.post(COMPLETIONS, SHORT).status_code == 200
    assert running.service.announcer.failures == 0


def test_a_slow_reader_holds_nobody_up():
    """A client that reads nothing: its answer is computed to the end, and others get theirs."""
    with serving(rows=2, length=1000, write_buffer=4096) as running:
        sock = running.connect(receive=4096)
        body = {"prompt": "x", "max_tokens": 800, "stream": True, "temperature": 0}
        running.send_raw(COMPLETIONS, body, sock)
        until(lambda: ends(running) == ["length"], "its answer is computed, though nobody reads it")
        assert running.cache.used_tokens == 0
        assert running.service.lifecycle.inside == 1
        assert running.post(COMPLETIONS, SHORT).status_code == 200
        running.clock.ahead += 50
        data = read_all(sock)
        text = "".join(
            json.loads(line[6:])["choices"][0]["text"]
            for line in data.splitlines()
            if line.startswith("data: {")
        )
        until(lambda: "Sent" in running.kinds(), "the stream has ended")
        lags = [event.lag for event in running.events if isinstance(event, Sent)]
        assert 50 <= lags[0] < 50 + GUARD
        whole = running.post(COMPLETIONS, body | {"stream": False}).json()
        assert text == whole["choices"][0]["text"]
        assert data.count("data: {") < 800  # what waited came in longer pieces
        until(lambda: nobody_is_left(running), "all is free")


def test_a_reader_that_stops_reading_is_not_computed_for():
    """Its socket is full in the middle of the answer: it is cut off, and its request ends."""
    with serving(rows=2, length=4000, write_buffer=4096, write_timeout=0.2) as running:
        sock = running.connect(receive=4096)
        body = {"prompt": "x", "max_tokens": 3900, "stream": True, "logprobs": 5}
        running.send_raw(COMPLETIONS, body, sock)
        until(lambda: ends(running), "its request has ended")
        assert ends(running) == ["cancelled"]
        sock.close()
        until(lambda: nobody_is_left(running), "all is free")


@pytest.mark.parametrize("talks", [False, True])
def test_a_reader_that_never_reads_is_cut_off(talks):
    with serving(rows=2, length=1000, write_buffer=4096, write_timeout=0.2) as running:
        sock = running.connect(receive=4096)
        running.send_raw(COMPLETIONS, {"prompt": "x", "max_tokens": 800, "stream": True}, sock)
        until(lambda: ends(running), "its answer is computed")
        if talks:
            sock.sendall(b"GET /health HTTP/1.1\r\n")
        until(lambda: running.service.lifecycle.inside == 0, "it is cut off")
        until(lambda: nobody_is_left(running), "all is free")
        sock.close()
        assert running.post(COMPLETIONS, SHORT).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_asks_ahead_and_leaves(running, stream):
    """Bytes of a next request are read beside the answer: else nobody sees that it has gone."""
    running.model.hold()
    sock = running.connect()
    data = json.dumps(LONG | {"stream": stream}).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    sock.sendall(head.encode() + data + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    until(lambda: running.service.batcher.running, "it runs")
    sock.sendall(b"GET /health HTTP/1.1\r\n")
    leave(sock, False)
    until(lambda: running.service.lifecycle.inside == 0, "it was noticed, in the middle of a step")
    running.model.release()
    until(lambda: nobody_is_left(running), "all is free")
    assert ends(running) == ["cancelled"]


def test_who_asks_ahead_is_answered_in_turn_and_not_without_end(running):
    running.model.hold()
    data = json.dumps(SHORT).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    sock = running.connect()
    sock.sendall((head.encode() + data) * 2 + last)
    until(lambda: running.service.batcher.running, "it runs")
    running.model.release()
    told = read_all(sock)
    assert told.count("HTTP/1.1 200 OK") == 3
    assert told.index("text_completion") < told.index('"status"')
    running.model.hold()
    sock = running.connect()
    sock.sendall(head.encode() + data)
    until(lambda: running.service.lifecycle.inside == 1, "it is inside")
    with pytest.raises(OSError, match=r"reset|pipe|aborted"):
        sock.sendall(b"x" * 20_000_000)
    sock.close()
    running.model.release()
    until(lambda: nobody_is_left(running), "all is free")


def test_clients_that_come_and_go_at_random(running):
    """Forty clients that leave when they like: at the end everything is free."""

    def client(number):
        body = {"prompt": "x" * (1 + number), "max_tokens": 5 + number, "stream": number % 2 == 0}
        sock = running.send_raw(COMPLETIONS, body)
        if number % 3:
            sock.recv(1 + 100 * (number % 5))
        leave(sock, number % 4 == 0)

    threads = [threading.Thread(target=client, args=[n]) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: nobody_is_left(running) and not running.service.lifecycle.inside, "all is free")
    assert running.service.door.coming == 0
    assert running.get("/health").status_code == 200
