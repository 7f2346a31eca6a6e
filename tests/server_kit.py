"""A real HTTP server in this process, on a free port, with a model whose steps a test can hold."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from course import serve_http
from solutions.app import create_app
from solutions.batcher import Batcher, Limits
from solutions.detokenizer import Detokenizer
from solutions.service import Service
from solutions.settings import Settings
from tests.scenarios.batcher_models import Teller, new_cache

GUARD = 20.0  # seconds after which a test gives up waiting
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


class FakeText:
    """Every character of ASCII is a token: its number less 31; the others are dropped."""

    special = {"<|im_start|>": 97, "<|im_end|>": 98}  # noqa: RUF012

    def __init__(self):
        self.threads: set[int] = set()

    def encode(self, text: str) -> list[int]:
        self.threads.add(threading.get_ident())
        return [max(1, ord(c) - 31) for c in text if ord(c) < 127]

    def stream(self, kind=Detokenizer, continues=False):
        return kind(self.token_bytes)

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        return bytes([token + 31]) if token < 96 else b"~"


class HeldModel(Teller):
    """A Teller whose forwards can be held: each waits until the test lets it go on."""

    def __init__(self):
        super().__init__([], {}, context=4096, spoils=False)
        self.is_held, self.is_waiting, self.permits = False, False, threading.Semaphore(0)
        self.during = self.wait

    def wait(self) -> None:
        """As its forward begins."""
        if self.is_held:
            self.is_waiting = True
            if not self.permits.acquire(timeout=GUARD):
                raise RuntimeError("the test forgot to let the model go on")
            self.is_waiting = False

    def hold(self) -> None:
        """From the next forward on."""
        self.is_held = True

    def nudge(self) -> None:
        """Let one forward go on, if one is held."""
        if self.is_waiting:
            self.is_waiting = False
            self.permits.release()

    def release(self) -> None:
        """All that are held, and the next."""
        self.is_held = False
        self.permits.release()


class Clock:
    """The real one, which a test can put forward."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class Running:
    """A server that runs, and everything in it."""

    url: str
    service: Service
    server: serve_http.Server
    model: HeldModel
    loop: asyncio.AbstractEventLoop
    clock: Clock
    events: list = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    @property
    def cache(self):
        return self.service.batcher.cache

    def client(self, **more) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=GUARD, **more)

    def post(self, path: str, body, **more) -> httpx.Response:
        with self.client() as client:
            if isinstance(body, dict):
                return client.post(path, json=body, **more)
            return client.post(path, content=body, **more)

    def get(self, path: str, **more) -> httpx.Response:
        with self.client() as client:
            return client.get(path, **more)

    def connect(self, receive: int | None = None) -> socket.socket:
        """A raw connection; receive: the size of its receive buffer."""
        sock = socket.socket()
        if receive:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        sock.settimeout(GUARD)
        port = int(self.url.rsplit(":", 1)[1])
        sock.connect(("127.0.0.1", port))
        return sock

    def send_raw(self, path: str, body: dict, sock: socket.socket | None = None) -> socket.socket:
        """A request whose answer is not read yet."""
        sock, data = sock or self.connect(), json.dumps(body).encode()
        lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(data)}"]
        head = "\r\n".join([*lines, "Connection: close", "", ""])
        sock.sendall(head.encode() + data)
        return sock

    def fill(self, body: dict, rows: int, waiting: int = 0) -> list[socket.socket]:
        """Requests that hold so many rows and places to wait, while the model is held."""
        self.model.hold()
        batcher = self.service.batcher
        wanted = len(batcher.running) + rows
        socks = [self.send_raw(COMPLETIONS, body) for _ in range(rows)]

        def all_run() -> bool:
            if len(batcher.running) < wanted:
                self.model.nudge()
            return len(batcher.running) == wanted and self.model.is_waiting

        until(all_run, "all rows are taken")
        socks += [self.send_raw(COMPLETIONS, body) for _ in range(waiting)]
        until(lambda: len(batcher.waiting) == waiting, "all places are taken")
        return socks

    def kinds(self, id: str | None = None) -> list[str]:
        """The kinds of the events so far, but for steps; of one request."""
        told = [e for e in self.events if type(e).__name__ != "Stepped"]
        return [type(e).__name__ for e in told if id is None or getattr(e, "id", None) == id]


def until(holds, what: str) -> None:
    """Wait until holds() is true."""
    end = time.monotonic() + GUARD
    while not holds():
        assert time.monotonic() < end, f"it did not come to pass that {what}"
        time.sleep(0.002)


def read_all(sock: socket.socket) -> str:
    """What comes until the other side closes the connection, which is closed then."""
    data = b""
    while more := sock.recv(100_000):
        data += more
    sock.close()
    return data.decode()


def nobody_is_left(running: Running) -> bool:
    """All memory is back, and nobody runs, waits or is inside."""
    batcher = running.service.batcher
    return batcher.idle and not running.cache.used_tokens and not running.service.jobs


@contextmanager
def serving(
    rows: int = 4, length: int = 256, max_waiting: int = 8, step_tokens: int = 64, **settings
) -> Iterator[Running]:
    """A server that is ready; at the end it is drained, and nobody may be left."""
    wanted = Settings(port=0, max_running=rows, max_waiting=max_waiting, **settings)
    model, events, errors, clock = HeldModel(), [], [], Clock()
    limits = Limits(max_waiting=max_waiting, step_tokens=step_tokens)
    batcher = Batcher(model, new_cache(rows, length), (), limits, clock)
    on_error = errors.append
    service = Service(
        batcher, FakeText(), wanted, "tiny", [events.append], clock, on_error=on_error
    )
    app = create_app(service, wanted, lambda: b"# nothing\n")
    ready = threading.Event()
    with serve_http.listen(wanted) as sock:
        server = serve_http.make(app, service, wanted, ready.set)
        thread = threading.Thread(target=lambda: server.run(sockets=[sock]), daemon=True)
        thread.start()
        assert ready.wait(GUARD), server.failure
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        running = Running(url, service, server, model, server.loop, clock, events, errors)
        events.clear()
        try:
            yield running
        finally:
            model.release()
            if not server.loop.is_closed():
                server.loop.call_soon_threadsafe(server.end)
            thread.join(GUARD)
            assert not thread.is_alive(), "the server does not end"
