"""Wrong versions of 7.4 Channel and listen."""

from course.misconceptions import misconception
from solutions.responses import Piece


@misconception("7.4", "Channel.put")
def a_call_for_every_token(self, piece):
    """You call the loop for every piece. With 64 answers that is 64 calls a step, each of which
    wakes the loop through a socket, though it has not read the first yet. Call it when the channel
    was empty.
    """
    with self._lock:
        if piece.index in self._pieces:
            self._pieces[piece.index].join(piece)
        else:
            self._pieces[piece.index] = piece
    try:
        self._call_soon(self._filled.set)
    except RuntimeError:
        self._take()


@misconception("7.4", "Channel.put")
def only_the_newest_piece(self, piece):
    """You keep only the newest piece of an answer. When the reader was busy while two came, the
    first is lost. Join what comes to what waits.
    """
    with self._lock:
        self._pieces[piece.index] = piece
        if self._is_called:
            return
        self._is_called = True
    try:
        self._call_soon(self._filled.set)
    except RuntimeError:
        self._take()


@misconception("7.4", "Channel.put")
def a_closed_loop_is_a_fault(self, piece):
    """call_soon_threadsafe raises when the loop is closed, and you let it: the engine takes it for
    a fault of the request. But whoever closed the loop does not read any more: drop the piece.
    """
    with self._lock:
        if piece.index in self._pieces:
            self._pieces[piece.index].join(piece)
        else:
            self._pieces[piece.index] = piece
        if self._is_called:
            return
        self._is_called = True
    self._call_soon(self._filled.set)


@misconception("7.4", "listen")
def rest_not_flushed(request, index, channel, stream, matcher):
    """At the end you do not ask the stop strings and the detokenizer for what they still hold. The
    last characters of an answer are lost whenever they could have become something else.
    """
    whole, waiting, given = Piece(index), Piece(index), 0

    def put(text, reason=None):
        nonlocal waiting
        piece, waiting = waiting, Piece(index)
        piece.text, piece.finish_reason = text, reason
        whole.join(piece)
        channel.put(piece)

    def hear(token):
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

    request.on_token, request.on_finish = hear, lambda request: put("", request.finish_reason)
    return whole


@misconception("7.4", "listen")
def goes_on_after_a_stop_string(request, index, channel, stream, matcher):
    """on_token does not return True when a stop string was found. The text ends there, but the
    engine does not know it: it computes up to max_tokens for nobody, and the row is not free.
    """
    whole, waiting, given = Piece(index), Piece(index), 0

    def put(text, reason=None):
        nonlocal waiting
        piece, waiting = waiting, Piece(index)
        piece.text, piece.finish_reason = text, reason
        whole.join(piece)
        channel.put(piece)

    def hear(token):
        nonlocal given
        if request.params.logprobs is not None:
            waiting.logprobs.append(request.logprobs[-1])
            waiting.offsets.append(given)
        text = stream.add(token)
        given += len(text)
        shown = matcher.add(text)
        if shown:
            put(shown)

    def over(request):
        rest = matcher.add(stream.flush()) + matcher.flush()
        at_end = request.finish_reason == "length" and matcher.found is not None
        put(rest, "stop" if at_end else request.finish_reason)

    request.on_token, request.on_finish = hear, over
    return whole


@misconception("7.4", "listen")
def used_after_it_was_put(request, index, channel, stream, matcher):
    """You put a piece in the channel, and then join it to the whole answer. From put on it belongs
    to the channel, which may join others to it or give it to the reader. Use it before.
    """
    whole, waiting, given = Piece(index), Piece(index), 0

    def put(text, reason=None):
        nonlocal waiting
        piece, waiting = waiting, Piece(index)
        piece.text, piece.finish_reason = text, reason
        channel.put(piece)
        whole.join(piece)

    def hear(token):
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

    def over(request):
        rest = matcher.add(stream.flush()) + matcher.flush()
        at_end = request.finish_reason == "length" and matcher.found is not None
        put(rest, "stop" if at_end else request.finish_reason)

    request.on_token, request.on_finish = hear, over
    return whole
