"""A server that answers as a test says, byte for byte; HTTP/1.1, one request a connection.

An answer is a list of parts, each written by itself; None is silence without end.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

Parts = list[bytes | None]
Answer = Callable[[str, dict | None], Parts]


def response(
    body: bytes, status: str = "200 OK", *headers: str, length: int | None = None
) -> Parts:
    """A whole response; `length` may lie about the body."""
    size = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status}", "Connection: close", f"Content-Length: {size}", *headers]
    return [("\r\n".join(lines) + "\r\n\r\n").encode() + body]


def models(name: str = "tiny") -> Parts:
    """What /v1/models says."""
    return response(json.dumps({"object": "list", "data": [{"id": name}]}).encode())


def events(*data: str, done: bool = True) -> Parts:
    """A stream of events, each written by itself; it ends with the connection."""
    head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n"
    ends = ("[DONE]",) if done else ()
    return [head.encode(), *(f"data: {text}\n\n".encode() for text in (*data, *ends))]


def chunk(text: str, reason: str | None = None) -> str:
    """A chunk of /v1/completions."""
    return json.dumps({"choices": [{"text": text, "finish_reason": reason}]}, ensure_ascii=False)


def usage(prompt: int, answer: int) -> str:
    """The last chunk."""
    counts = {"prompt_tokens": prompt, "completion_tokens": answer}
    return json.dumps({"choices": [], "usage": counts})


def model_of_three(path: str, body: dict | None) -> Parts:
    """Three tokens to everybody; the prompt has as many tokens as words."""
    if path == "/v1/models":
        return models()
    words = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
    count = len(words.split())
    if body["stream"]:
        return events(chunk(" a"), chunk(" b"), chunk(" c", "length"), usage(count, 3))
    whole = json.loads(chunk(" a b c", "length")) | {"usage": json.loads(usage(count, 3))["usage"]}
    return response(json.dumps(whole).encode())


@contextmanager
def serve(answer: Answer) -> Iterator[tuple[str, list]]:
    """The address of a server in a thread, and a list that grows by every (path, body, headers)."""
    seen, started, ready = [], [], threading.Event()

    async def run() -> None:
        stop = asyncio.Event()
        server = await asyncio.start_server(partial(_handle, answer, seen), "127.0.0.1", 0)
        started.extend([asyncio.get_running_loop(), stop, server.sockets[0].getsockname()[1]])
        ready.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    ready.wait()
    loop, stop, port = started
    try:
        yield f"http://127.0.0.1:{port}", seen
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


async def _handle(answer: Answer, seen: list, reader, writer) -> None:
    """One connection."""
    try:
        path, body, headers = await _read(reader)
        seen.append((path, body, headers))
        for part in answer(path, body):
            if part is None:
                await asyncio.get_running_loop().create_future()
            writer.write(part)
            await writer.drain()
    except (asyncio.CancelledError, ConnectionError):
        pass  # the test is over, or the client has gone
    writer.close()


async def _read(reader: asyncio.StreamReader) -> tuple[str, dict | None, dict[str, str]]:
    """Path, body and headers of a request."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines if line)}
    raw = await reader.readexactly(int(headers.get("content-length", 0)))
    return first.split()[1], json.loads(raw) if raw else None, headers
