"""Chapter 07: answers on their way to a client that may go away at any moment."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from solutions.api_error import ApiError, ClientGone
from solutions.api_request import CHAT
from solutions.channel import Channel
from solutions.request import Request
from solutions.responses import (
    Head,
    Piece,
    TokenBytes,
    Usage,
    chunk_body,
    encode_event,
    error_body,
    response_body,
    usage_chunk,
)

KEEP_ALIVE = b": still here\n\n"  # a comment: readers of events pass over it


@dataclass(eq=False)
class Job:
    """One HTTP request that was let in: its answers as they come.

    Args:
        head: what all parts of the answer share.
        requests: of the batcher, one for each answer.
        answers: all that has come of each, as `listen` gave them.
        channel: the same, piece by piece.
        prompt_tokens: of all prompts together.
        cancel: ends all requests that are not over; may be called at any time, also twice.
        failure: what the client is told of a request that is over; None when it has its answer.
        is_stream: the client wants events.
        include_usage: one event more, with the numbers of tokens.
        token_bytes: gives the bytes of a token id, where log-probabilities are asked for.
    """

    head: Head
    requests: list[Request]
    answers: list[Piece]
    channel: Channel
    prompt_tokens: int
    cancel: Callable[[], None]
    failure: Callable[[Request], ApiError | None]
    is_stream: bool = False
    include_usage: bool = False
    token_bytes: TokenBytes | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)  # all requests are
    ended: float = math.inf  # when they were; a time of the service's clock

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return Usage(self.prompt_tokens, sum(len(request.output) for request in self.requests))


async def collect(job: Job) -> dict:
    """Wait for all answers of a job, then give the whole body.

    However it ends, by an error or because somebody cancels it, job.cancel is called: what nobody
    waits for any more must not be computed.

    Errors: the ApiError of the first request that job.failure has one for, as soon as it is over.
    """
    # exercise 7.7
    try:
        async for piece in _pieces(job, None):
            _raise_failure(job, piece)
        return response_body(job.head, job.answers, job.usage, job.token_bytes)
    finally:
        job.cancel()


async def stream(job: Job, quiet: float) -> AsyncIterator[bytes]:
    """The events of a job, each as soon as there is something to tell.

    Every piece of the channel is one chunk; of a chat, the first of each answer brings the role.
    When all answers are over comes the usage chunk, if it was asked for, then data: [DONE]. After
    every quiet seconds in which nothing came, KEEP_ALIVE is sent: else a proxy would take the
    connection for dead. But not while all requests still wait for their turn (admitted is None):
    with the first byte the status 200 is out, and they may yet get a 503.

    However it ends, when it is closed or cancelled in the middle too, job.cancel is called. Who
    cancels it is obeyed, also in the very turn of the loop in which a piece comes.

    Errors: the ApiError of a request that ends without its answer is raised, when nothing was
    given before, not even KEEP_ALIVE: the status of the response can still be chosen. Later it is
    too late for that: it is one event with error_body, in the place of the request's last piece,
    and the stream ends there, without usage and [DONE].
    """
    # exercise 7.7
    seen: set[int] = set()
    began = False
    try:
        async for piece in _pieces(job, quiet):
            if piece is None:
                if not any(request.admitted is not None for request in job.requests):
                    continue
                yield KEEP_ALIVE
            else:
                _raise_failure(job, piece)
                first = job.head.endpoint == CHAT and piece.index not in seen
                seen.add(piece.index)
                yield encode_event(chunk_body(job.head, piece, job.token_bytes, first))
            began = True
        if job.include_usage:
            yield encode_event(usage_chunk(job.head, job.usage))
        yield encode_event(None)
    except ApiError as error:
        if not began:
            raise
        yield encode_event(error_body(error))
    finally:
        job.cancel()


async def while_connected(work: Coroutine, receive: Callable[[], Awaitable[dict]]):
    """Await work, but not for longer than the client is there.

    Nobody tells a server that a client has gone, unless it asks: receive of ASGI gives
    {"type": "http.disconnect"} then. It is asked all the time, beside the work, so it does not
    matter whether the request waits, computes its prompt or streams. Other messages mean nothing.

    Args:
        work: not awaited before.
        receive: of the ASGI connection, with the whole body read.

    Returns:
        what work gives.

    Errors: what work raises; ClientGone when the client leaves before that: work was cancelled
    then, and has ended. When somebody cancels this, work is cancelled too. Nothing is left running
    in any case.
    """
    # exercise 7.7
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        watch.result()
        raise ClientGone
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _disconnected(receive: Callable[[], Awaitable[dict]]) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _pieces(job: Job, quiet: float | None) -> AsyncIterator[Piece | None]:
    """What comes until all answers are over; None when nothing came for quiet seconds."""
    left = len(job.requests)
    while left:
        try:
            async with asyncio.timeout(quiet):
                pieces = await job.channel.get()
        except TimeoutError:
            yield None
            continue
        for piece in pieces:
            left -= piece.finish_reason is not None
            yield piece


def _raise_failure(job: Job, piece: Piece) -> None:
    """Raise what a client must be told when this piece is the last of its answer."""
    if piece.finish_reason is not None:
        error = job.failure(job.requests[piece.index])
        if error is not None:
            raise error
