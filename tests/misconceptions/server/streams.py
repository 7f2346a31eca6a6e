"""Wrong versions of 7.7 collect, stream and while_connected."""

import asyncio

from course.misconceptions import misconception
from solutions.api_error import ApiError, ClientGone
from solutions.api_request import CHAT
from solutions.responses import chunk_body, encode_event, error_body, response_body, usage_chunk
from solutions.streaming import KEEP_ALIVE, _disconnected, _pieces, _raise_failure


@misconception("7.7", "collect")
async def collected_and_not_cancelled(job):
    """You cancel nothing when collect is left. The client has gone, and its answer is computed to
    the last token: the row and its memory are taken from those who still wait.
    """
    async for piece in _pieces(job, None):
        _raise_failure(job, piece)
    return response_body(job.head, job.answers, job.usage, job.token_bytes)


@misconception("7.7", "stream")
async def cancelled_only_at_the_end(job, quiet):
    """You call job.cancel behind the loop. When the reader closes or cancels the generator, that
    line is never reached: Python leaves at the yield or await where it stands. Only finally runs.
    """
    seen, began = set(), False
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
            job.cancel()
            raise
        yield encode_event(error_body(error))
    job.cancel()


@misconception("7.7", "_pieces")
async def cancelled_in_vain(job, quiet):
    """Your wait forgets who cancels it when a piece comes in the same turn of the loop, as
    asyncio.wait_for does in Python 3.11: it gives the piece, and the answer is computed to its end
    for a client that was just cut off. asyncio.timeout around the await forgets nothing.
    """
    left = len(job.requests)
    while left:
        getting = asyncio.ensure_future(job.channel.get())
        try:
            await asyncio.wait({getting}, timeout=quiet)
        except asyncio.CancelledError:
            if not getting.done():
                getting.cancel()
                raise
        if not getting.done():
            getting.cancel()
            yield None
            continue
        for piece in getting.result():
            left -= piece.finish_reason is not None
            yield piece


@misconception("7.7", "stream")
async def errors_raised_in_the_middle(job, quiet):
    """You let the error out of a stream that has begun. Its status line said 200 long ago; now the
    connection just breaks, and the client cannot tell why. Send it as the last event.
    """
    seen = set()
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
        if job.include_usage:
            yield encode_event(usage_chunk(job.head, job.usage))
        yield encode_event(None)
    finally:
        job.cancel()


@misconception("7.7", "stream")
async def over_with_the_first(job, quiet):
    """You end the stream with the first answer that is over. The others of the same request are cut
    off.
    """
    seen, began = set(), False
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
                if piece.finish_reason is not None:
                    break
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


@misconception("7.7", "stream")
async def alive_in_the_queue(job, quiet):
    """You send the comment while the request still waits in the queue. With its first byte the
    status 200 is out: when the queue timeout comes, no 503 and no Retry-After can be sent any more.
    """
    seen, began = set(), False
    try:
        async for piece in _pieces(job, quiet):
            if piece is None:
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


@misconception("7.7", "while_connected")
async def nobody_listens(work, receive):
    """You await the work and never ask receive. The server is only told that a client has gone when
    it asks: until then it writes to nobody.
    """
    return await work


@misconception("7.7", "while_connected")
async def any_message_is_a_goodbye(work, receive):
    """You take the first message for the end of the connection. Only "http.disconnect" is that."""
    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


@misconception("7.7", "while_connected")
async def tasks_left_behind(work, receive):
    """You leave a task running: the one that waits for a message, or the work itself, which was
    told to end and not awaited. They pile up, one for each request, and end at some time or never.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_disconnected(receive))
    await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return task.result()
    task.cancel()
    raise ClientGone
