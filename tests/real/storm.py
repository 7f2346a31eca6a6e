"""Clients that behave as clients do: patient, hasty, slow, broken. Plain sockets, so that each can
go away at any byte.

Each action ends in one of ENDS, or in words that say what was wrong.
"""

import asyncio
import json
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

ANSWER, REFUSAL, LEFT = "an answer", "a clear refusal", "left by the client"
ENDS = (ANSWER, REFUSAL, LEFT)
PATIENCE = 180  # seconds after which a request counts as hanging
BACK_OFF = 3.0  # seconds, at most, that a client stays away that was refused
WORD = "the "  # one token


@dataclass
class Storm:
    """Where it blows, and what came of it: how often each action ended in which way."""

    host: str
    port: int
    rng: random.Random
    ended: Counter = field(default_factory=Counter)

    def wrong(self) -> dict:
        """What ended in a way that is none of ENDS."""
        return {key: n for key, n in self.ended.items() if key[1] not in ENDS}

    def total(self, end: str) -> int:
        """How many ended this way."""
        return sum(n for (_, kind), n in self.ended.items() if kind == end)


class Connection:
    """One request on a connection of its own, closed at the end."""

    def __init__(self, storm: Storm, buffer: int | None = None):
        self._storm, self._buffer = storm, buffer

    async def __aenter__(self) -> "Connection":
        sock = socket.socket()
        sock.setblocking(False)
        if self._buffer:  # before connecting: it decides the window that the server sees
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer)
        await asyncio.get_running_loop().sock_connect(sock, (self._storm.host, self._storm.port))
        limit = self._buffer or 2**20
        self.reader, self.writer = await asyncio.open_connection(sock=sock, limit=limit)
        return self

    async def __aexit__(self, *_) -> None:
        self.writer.transport.abort()  # at once, without a goodbye

    async def send(self, body: bytes, path: str = "/v1/completions", *, length: int | None = None):
        """A POST; `length` may promise more than there is."""
        size = len(body) if length is None else length
        head = (
            f"POST {path} HTTP/1.1\r\nHost: storm\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        await self.writer.drain()

    async def pieces(self, count: int) -> bytes:
        """Read until so many events have come, or the end."""
        got = b""
        while got.count(b"data: ") < count and (part := await self.reader.read(4096)):
            got += part
        return got

    async def rest(self) -> bytes:
        """All that comes until the server closes."""
        return await self.reader.read()


def judge(raw: bytes) -> str:
    """How a whole response ended."""
    head, _, body = raw.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 "):
        return f"no HTTP: {raw[:40]!r}"
    status = int(head[9:12])
    if status == 200:
        if b'"error":' in body:  # with the colon: a token may be the word alone
            return REFUSAL if b'"message":' in body else "an error without a message"
        whole = b"data: [DONE]" in body or b'"usage":' in body
        return ANSWER if whole else "half an answer"
    if status >= 500 and status not in (503, 504):
        return f"status {status}"
    if status == 503 and b"\nretry-after: " not in head.lower():
        return "503 without Retry-After"
    return REFUSAL if b'"message":' in body or status < 404 else f"status {status} without words"


def body_of(prompt: str, tokens: int, **more) -> bytes:
    """A request for exactly so many tokens."""
    wishes = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    return json.dumps(wishes | more).encode()


# ---- what a client may do ----


async def read_all(storm: Storm) -> str:
    """A short request, streamed or not, read to its end."""
    rng = storm.rng
    body = body_of(WORD * rng.randint(1, 20), rng.randint(1, 12), stream=rng.random() < 0.5)
    async with Connection(storm) as line:
        await line.send(body)
        return judge(await line.rest())


async def read_long(storm: Storm) -> str:
    """A long prompt, which takes several steps to read."""
    async with Connection(storm) as line:
        await line.send(body_of(WORD * storm.rng.randint(300, 600), 4))
        return judge(await line.rest())


async def leave_at_once(storm: Storm) -> str:
    """Gone while the request is queued, or being read."""
    async with Connection(storm) as line:
        await line.send(body_of(WORD * storm.rng.randint(1, 400), 200))
        await asyncio.sleep(storm.rng.random() * 0.5)
    return LEFT


async def leave_in_the_middle(storm: Storm) -> str:
    """Gone after some tokens of many."""
    async with Connection(storm) as line:
        await line.send(body_of(WORD, 400))
        got = await line.pieces(storm.rng.randint(1, 4))
    return LEFT if got.startswith(b"HTTP/1.1 200") else judge(got)


async def read_slowly(storm: Storm) -> str:
    """A small window, a few bytes at a time; in the end read the rest, or go."""
    async with Connection(storm, buffer=2048) as line:
        await line.send(body_of(WORD, 60))
        got = b""
        for _ in range(storm.rng.randint(5, 25)):
            got += await line.reader.read(40)
            await asyncio.sleep(0.1)
        if storm.rng.random() < 0.3:
            return LEFT
        return judge(got + await line.rest())


async def send_nonsense(storm: Storm) -> str:
    """A body that is none; it must be refused with a word why."""
    async with Connection(storm) as line:
        await line.send(storm.rng.choice(NONSENSE))
        answer = await line.rest()
    found = judge(answer)
    return "nonsense was answered" if found == ANSWER else found


async def send_half(storm: Storm) -> str:
    """Half a body, or half a head, then gone."""
    async with Connection(storm) as line:
        if storm.rng.random() < 0.5:
            await line.send(b'{"prompt": "the', length=1000)
        else:
            line.writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: st")
            await line.writer.drain()
        await asyncio.sleep(storm.rng.random() * 0.3)
    return LEFT


NONSENSE = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"prompt": "\\ud800", "max_tokens": 2}',
    b'{"prompt": "", "max_tokens": 2}',
    b'{"prompt": "Hi", "max_tokens": 0}',
    b'{"prompt": "Hi", "max_tokens": -5}',
    b'{"prompt": "Hi", "max_tokens": 1e400}',
    b'{"prompt": "Hi", "temperature": NaN}',
    b'{"prompt": "Hi", "temperature": "hot"}',
    b'{"prompt": [1, 2, 999999999], "max_tokens": 2}',
    b'{"prompt": [[], []], "max_tokens": 2}',
    b'{"prompt": "Hi", "n": 5000}',
    b'{"prompt": "Hi", "model": "another"}',
    b'{"messages": [{"role": "user", "content": "wrong route"}]}',
    b'{"prompt": "Hi", "stop": ["a", "b", "c", "d", "e"]}',
    json.dumps({"prompt": WORD * 20_000}).encode(),
    b'{"prompt": ' + b"[" * 50_000,
]
ACTIONS: dict[Callable[[Storm], Awaitable[str]], int] = {  # and how often each is chosen
    read_all: 8,
    read_long: 2,
    leave_at_once: 3,
    leave_in_the_middle: 3,
    read_slowly: 2,
    send_nonsense: 3,
    send_half: 1,
}


async def client(storm: Storm, go_on: Callable[[], bool]) -> None:
    """One action after the other."""
    while go_on():
        (action,) = storm.rng.choices(list(ACTIONS), list(ACTIONS.values()))
        try:
            async with asyncio.timeout(PATIENCE):
                end = await action(storm)
        except TimeoutError:
            end = "no end"
        except ConnectionError as problem:
            end = type(problem).__name__
        storm.ended[action.__name__, end] += 1
        if end == REFUSAL and action is not send_nonsense:
            await asyncio.sleep(storm.rng.random() * BACK_OFF)
