"""The HTTP server under `python -m course serve`: uvicorn, with bounds and an orderly end."""

import asyncio
import logging
import socket
from collections.abc import Callable
from types import FrameType

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from solutions.api_error import ApiError
from solutions.responses import error_body, to_json
from solutions.service import Service
from solutions.settings import Settings

LEAVE = 5  # seconds that connections get to close when all is answered
AHEAD = 65_536  # bytes that a client may send of its next requests before this one is answered


class Server(uvicorn.Server):
    """Drains the service at the first signal, and leaves at once at the second.

    Args:
        config: of uvicorn.
        service: is started when the address is bound, and drained at the end.
        on_ready: called when the service is.
    """

    def __init__(self, config: uvicorn.Config, service: Service, on_ready: Callable[[], None]):
        super().__init__(config)
        self.service, self.on_ready = service, on_ready
        self.failure: BaseException | None = None  # of the start
        self.torn = 0  # requests that were inside when the second signal came
        self._ending: asyncio.Future | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then warm up: whoever asks meanwhile is told so."""
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._starting = asyncio.ensure_future(self._start())

    async def _start(self) -> None:
        try:
            await self.service.start()
            if self._ending is None:
                self.on_ready()
        except Exception as problem:
            self.failure, self.should_exit = problem, True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM or Ctrl-C. It is not raised again at the end: the exit code is 0."""
        if self._ending is not None:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it is no error
            self.should_exit = self.force_exit = True
            self.torn = self.service.lifecycle.inside
        if self.loop is None:  # not even begun
            raise KeyboardInterrupt
        self.loop.call_soon_threadsafe(self.end)

    def end(self) -> None:
        """Drain, then leave. On the loop."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        try:
            await self.service.drain()
        finally:
            self.should_exit = True


def bounded_protocol(settings: Settings) -> type[H11Protocol]:
    """HTTP with bounds: on connections, on the time for a head, on readers that do not read."""

    class Bounded(H11Protocol):
        head_timer: asyncio.TimerHandle | None = None
        write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            if len(self.connections) >= settings.max_connections:
                transport.write(_FULL)
                transport.close()
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=0)  # what waits, waits in the system's buffer
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.write_buffer)
            # A small packet must not wait until the one before it is acknowledged, up to 40 ms.
            # asyncio only sees to that for sockets that it made itself.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._expect_head()

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._cancel("head_timer")
                self._look_ahead()
            elif self.head_timer is None:  # a part of the next head
                self._expect_head()

        def _look_ahead(self) -> None:
            """Go on reading beside the answer: else nobody sees that the client has gone."""
            if self.conn.their_state is h11.DONE:  # its body is here: this is of its next request
                if len(self.conn.trailing_data[0]) > AHEAD:
                    self.transport.abort()
                self.flow.resume_reading()

        def send_400_response(self, msg: str) -> None:
            """What is no HTTP is refused in the shape that clients read."""
            said = "this is no request of HTTP/1.1, or its head is longer than 16 KiB"
            self.transport.write(_refusal("400 Bad Request", ApiError(400, said, code="not_http")))
            self.transport.close()

        def pause_writing(self) -> None:
            super().pause_writing()
            seconds = settings.write_timeout
            self.write_timer = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._cancel("write_timer")

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel("head_timer")
            self._cancel("write_timer")
            super().connection_lost(exc)

        def _expect_head(self) -> None:
            seconds = settings.read_timeout
            self.head_timer = self.loop.call_later(seconds, self.transport.abort)

        def _cancel(self, name: str) -> None:
            timer = getattr(self, name)
            if timer is not None:
                timer.cancel()
                setattr(self, name, None)

    return Bounded


def _refusal(status: str, error: ApiError) -> bytes:
    """A whole response with an error in it, after which the connection is closed."""
    body = to_json(error_body(error))
    lines = [f"HTTP/1.1 {status}", "content-type: application/json", "connection: close"]
    if error.retry_after is not None:
        lines.append(f"retry-after: {error.retry_after}")
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


# What a connection too many is told, before it says anything.
_FULL = _refusal(
    "503 Service Unavailable",
    ApiError(503, "too many connections", code="connections_full", retry_after=1),
)


def listen(settings: Settings) -> socket.socket:
    """The socket of the address. OSError when it is taken or is not ours."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=1024)


def make(app, service: Service, settings: Settings, on_ready: Callable[[], None]) -> Server:
    """The server; its `run(sockets=[...])` serves until a signal comes.

    Args:
        app: of ASGI.
        on_ready: called when the service is warm.
    """
    config = uvicorn.Config(
        app,
        http=bounded_protocol(settings),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # what a client does wrong is told to the client
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=LEAVE,
    )
    return Server(config, service, on_ready)
