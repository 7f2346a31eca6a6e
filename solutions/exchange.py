"""Chapter 07: one HTTP request to the model, from its head to the last byte of its answer."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from starlette.responses import Response

from solutions.api_error import ApiError, ClientGone
from solutions.lifecycle import Phase
from solutions.responses import encode_event, error_body, to_json
from solutions.service import Service
from solutions.streaming import Job

GRACE = 5.0  # seconds over its deadline after which a request is not waited for any more

Receive = Callable[[], Awaitable[dict]]
Send = Callable[[dict], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
JSON: Headers = [(b"content-type", b"application/json")]
EVENTS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold the events back
]


class Exchange(Response):
    """The response to a POST of one of the two endpoints. It reads the body itself.

    With the header `Prefer: respond-async` the answer is 202 at once, with the place where the
    result can be fetched; the client may go away then (RFC 7240).

    Args:
        service: answers.
        endpoint: CHAT or COMPLETION.
    """

    def __init__(self, service: Service, endpoint: str):
        super().__init__()
        self.service, self.endpoint = service, endpoint
        self._has_begun = False  # the status line is out

    async def __call__(self, scope: dict, receive: Receive, send: Send) -> None:
        """Answer, whatever happens; nothing is sent to a client that has gone."""
        arrived = self.service.clock()

        async def tell(message: dict) -> None:
            self._has_begun = True
            await send(message)

        try:
            with self.service.lifecycle.request():
                body = await self._read(scope, receive)
                wishes = _header(scope, b"prefer").replace(b";", b",").split(b",")
                later = b"respond-async" in map(bytes.strip, wishes)
                work = self._later(body, arrived, tell) if later else self._now(body, arrived, tell)
                await self.service.parts.while_connected(work, receive)
        except ClientGone:
            return
        except ApiError as error:
            self.service.announcer.refused(error)
            await self._fail(error, tell)
        except asyncio.CancelledError:
            if self.service.lifecycle.phase not in (Phase.DRAINING, Phase.STOPPED):
                raise
            # The server leaves: it was told twice, or the step with this request in it hangs.
            await self._fail(ApiError(503, "the server has stopped", None, "cancelled", 1), tell)

    async def _read(self, scope: dict, receive: Receive) -> bytes:
        """The whole body, unless it is too long or takes too long."""
        seconds, length = self.service.settings.read_timeout, _header(scope, b"content-length")
        self._require_room(int(length[:20]) if length.isdigit() else 0)
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    body += message.get("body", b"")
                    self._require_room(len(body))
                    more = message.get("more_body", False)
        except TimeoutError:
            said = f"the body did not come within {seconds:g} s"
            raise ApiError(408, said, code="body_too_slow") from None
        return bytes(body)

    def _require_room(self, size: int) -> None:
        most = self.service.settings.max_body_bytes
        if size > most:
            raise ApiError(413, f"a body may have {most} bytes at most", code="body_too_large")

    async def _now(self, body: bytes, arrived: float, send: Send) -> None:
        """The answer, whole or in events."""
        job = await self.service.open(body, self.endpoint, arrived)
        left = arrived + self.service.settings.request_timeout + GRACE - self.service.clock()
        try:
            async with asyncio.timeout(left):  # the engine ends it earlier, unless it hangs
                if job.is_stream:
                    await self._stream(job, send)
                else:
                    found = await self.service.parts.collect(job)
                    await send_whole(send, 200, self.service.parts.to_json(found), _named(job))
        except TimeoutError:
            raise ApiError(504, "the engine does not answer", None, "timeout") from None

    async def _stream(self, job: Job, send: Send) -> None:
        quiet = self.service.settings.keep_alive
        try:
            async with aclosing(self.service.parts.stream(job, quiet)) as events:
                data = await anext(events)  # what fails before it still gets a status of its own
                await send_start(send, 200, EVENTS + _named(job))
                await send_part(send, data)
                async for data in events:
                    await send_part(send, data)
            await send_part(send, b"", is_last=True)
        finally:
            for request in job.requests:
                self.service.announcer.sent(request, job.ended)

    async def _later(self, body: bytes, arrived: float, send: Send) -> None:
        """Only where the result will be found. The client need not stay."""
        job = await self.service.open(body, self.endpoint, arrived)
        if job.is_stream:
            job.cancel()
            said = "stream does not go with Prefer: respond-async, which answers later and whole"
            raise ApiError(400, said, "stream", "invalid_value")
        self.service.keep_inside(job)
        place = f"/v1/results/{job.head.id}"
        said = {"id": job.head.id, "object": "result", "status": "running", "url": place}
        await send_whole(send, 202, to_json(said), [(b"location", place.encode()), *_named(job)])

    async def _fail(self, error: ApiError, send: Send) -> None:
        """The error: as a response, or as the last event of a stream."""
        if self._has_begun:
            await send_part(send, encode_event(error_body(error)))
            await send_part(send, b"", is_last=True)
        else:
            await send_error(send, error)


async def send_error(send: Send, error: ApiError) -> None:
    """A response with an error in it, in the shape that clients read."""
    headers: Headers = []
    if error.retry_after is not None:
        headers.append((b"retry-after", str(error.retry_after).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status in (500, 504):  # clients of OpenAI would do it all again, twice
        headers.append((b"x-should-retry", b"false"))
    if error.status in (408, 413):  # the rest of the body would be read as the next request
        headers.append((b"connection", b"close"))
    await send_whole(send, error.status, to_json(error_body(error)), headers)


async def send_whole(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """A response of JSON, in one piece."""
    length = [(b"content-length", str(len(body)).encode())]
    await send_start(send, status, JSON + length + headers)
    await send_part(send, body, is_last=True)


async def send_start(send: Send, status: int, headers: Headers) -> None:
    """The status line and the headers."""
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def send_part(send: Send, body: bytes, is_last: bool = False) -> None:
    """Some of the body."""
    await send({"type": "http.response.body", "body": body, "more_body": not is_last})


def _header(scope: dict, name: bytes) -> bytes:
    """The value of a header, in lower case; empty without one."""
    return dict(scope["headers"]).get(name, b"").strip().lower()


def _named(job: Job) -> Headers:
    return [(b"x-request-id", job.head.id.encode())]
