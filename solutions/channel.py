"""Chapter 07: how the text of an answer gets from the engine's thread to the event loop."""

import asyncio
import threading
from collections.abc import Callable

from solutions.detokenizer import Detokenizer
from solutions.request import Request
from solutions.responses import Piece
from solutions.stopping import StopMatcher


class Channel:
    """The pieces of one request's answers, on their way from the engine's thread to a reader.

    Neither waits for the other. While the reader is busy, the pieces of one answer are joined, so
    there is never more in it than one piece an answer, and never more text than max_tokens allows:
    that is its bound. A reader that is slow gets longer pieces, and nobody else notices.

    Args:
        call_soon: runs a function on the reader's event loop, from any thread: its
            call_soon_threadsafe.
    """

    def __init__(self, call_soon: Callable[[Callable[[], object]], object]):
        """Nothing has come."""
        # exercise 7.4
        self._call_soon, self._lock = call_soon, threading.Lock()
        self._pieces: dict[int, Piece] = {}
        self._filled = asyncio.Event()
        self._is_called = False

    def put(self, piece: Piece) -> None:
        """A piece has come; it belongs to the channel from now on. From any thread.

        Pieces of one answer keep their order. The loop is called when the channel was empty, and
        not again before the reader has taken what is in it: a call for each token would cost the
        loop more than the text. A loop that is closed (call_soon raises RuntimeError) has no
        readers: the piece is dropped, and nothing is raised.
        """
        # exercise 7.4
        with self._lock:
            if piece.index in self._pieces:
                self._pieces[piece.index].join(piece)
            else:
                self._pieces[piece.index] = piece
            if self._is_called:
                return
            self._is_called = True
        try:
            self._call_soon(self._filled.set)
        except RuntimeError:
            self._take()

    async def get(self) -> list[Piece]:
        """Wait until something is there, then take it all: one piece an answer, in the order in
        which the first of each came. When the wait is cancelled nothing is lost. On the loop; one
        reader at a time.
        """
        # exercise 7.4
        await self._filled.wait()
        return self._take()

    def _take(self) -> list[Piece]:
        """All that has come; the channel is empty."""
        # exercise 7.4
        with self._lock:
            taken, self._pieces, self._is_called = list(self._pieces.values()), {}, False
            self._filled.clear()
        return taken


def listen(
    request: Request, index: int, channel: Channel, stream: Detokenizer, matcher: StopMatcher
) -> Piece:
    """Make text of a request's tokens as they come, and put it in the channel.

    Sets request.on_token and request.on_finish. Each token goes through the detokenizer, its text
    through the stop strings. A stop string ends the request at once (on_token returns True): it
    gives its room back in the same step, not when some reader has noticed.

    A piece is put for each token that brings text. Where request.params.logprobs is not None it has
    the log-probabilities (request.logprobs; the token's is the last) of this token and of those
    before it that brought none, and as offsets, for each of them, how many characters the
    detokenizer had given for the tokens before it. When the request is over, whatever the reason,
    one more piece is put: with the text that was held back, from the detokenizer through the stop
    strings, with log-probabilities that wait, and with the finish_reason: the request's, but "stop"
    in the place of "length" when a stop string was found at the very end.

    Args:
        request: not submitted yet.
        index: which answer of the channel it is.
        channel: only put is called, on the engine's thread.
        stream: a new one.
        matcher: a new one, with the request's stop strings.

    Returns:
        a Piece that grows with each put, and at last is the whole answer. It is complete when its
        finish_reason is not None.
    """
    # exercise 7.4
    whole, waiting, given = Piece(index), Piece(index), 0

    def put(text: str, reason: str | None = None) -> None:
        nonlocal waiting
        piece, waiting = waiting, Piece(index)
        piece.text, piece.finish_reason = text, reason
        whole.join(piece)
        channel.put(piece)

    def hear(token: int) -> bool:
        nonlocal given
        if request.params.logprobs is not None:
            waiting.logprobs.append(request.logprobs[-1])
            waiting.offsets.append(given)
        text = stream.add(token)
        given += len(text)
        shown = matcher.add(text)
        if shown:
            put(shown)
        return matcher.found is not None

    def over(request: Request) -> None:
        rest = matcher.add(stream.flush()) + matcher.flush()
        at_end = request.finish_reason == "length" and matcher.found is not None
        put(rest, "stop" if at_end else request.finish_reason)

    request.on_token, request.on_finish = hear, over
    return whole
