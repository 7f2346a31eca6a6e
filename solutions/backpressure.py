"""Chapter 07: how the service says no: at once, in a way that helps, and before it is too late."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from solutions.api_error import ApiError
from solutions.request import Request

REMEMBERED = 16  # departures from which the pace is known
LONGEST_WAIT = 60  # seconds that a client is asked to wait, at most


class Pace:
    """How fast the queue moves, from the times at which the last requests were over.

    Whenever a request is over, its room lets the next one in.
    """

    def __init__(self):
        """Nothing is known."""
        # exercise 7.5
        self._times: deque[float] = deque(maxlen=REMEMBERED)

    def note(self, now: float) -> None:
        """A request that had run is over. From any thread."""
        # exercise 7.5
        self._times.append(now)

    def wait(self, ahead: int, now: float) -> int:
        """Seconds until so many requests will be gone, for the header Retry-After.

        ahead times the mean time between the last REMEMBERED departures, several of which may be at
        the same moment, rounded up, at least 1, at most LONGEST_WAIT. The time since the last
        departure counts as one more, when it is longer than that mean: an engine that stands still
        must not look fast. With fewer than two departures nothing is known: 1.

        Args:
            ahead: requests that wait.
            now: a time of the same clock as in note.
        """
        # exercise 7.5
        times = list(self._times)
        if len(times) < 2:
            return 1
        gaps = len(times) - 1
        mean = (times[-1] - times[0]) / gaps
        if now - times[-1] > mean:
            mean = (now - times[0]) / (gaps + 1)
        return min(max(1, math.ceil(ahead * mean)), LONGEST_WAIT)


class Door:
    """Lets in as many requests as may wait, and sends the others away at once.

    A request that comes in must still be read and tokenized before it can wait in the batcher's
    queue. Until then it has its places there already: otherwise a thousand could come in while the
    queue has one place left.

    All calls come from the event loop.

    Args:
        bound: places for requests that wait.
        waiting: how many wait in the batcher's queue now.
        pace: says when it is worth coming again.
        clock: gives seconds that never go backwards.
    """

    def __init__(
        self, bound: int, waiting: Callable[[], int], pace: Pace, clock: Callable[[], float]
    ):
        self.bound, self.waiting, self.pace, self.clock = bound, waiting, pace, clock
        self.coming = 0  # places of those that are on their way to the queue

    @contextmanager
    def enter(self, places: int = 1) -> Iterator[None]:
        """Hold places while a request is on its way to the queue: `with door.enter(2): ...`.

        They are given back at the end of the block, whatever happens in it: by then the request
        waits in the queue, or has failed.

        Errors: ApiError 400, param "n", code "invalid_value", naming both numbers, when it needs
        more places than there are at all; ApiError 503, code "queue_full", with what pace says of
        all that wait or are coming as retry_after, when bound has no room for them now. Nobody
        waits here, and nothing has changed then.
        """
        # exercise 7.5
        if places > self.bound:
            said = f"{places} answers to one request, but only {self.bound} requests may wait here"
            raise ApiError(400, said, "n", "invalid_value")
        ahead = self.coming + self.waiting()
        if ahead + places > self.bound:
            seconds = self.pace.wait(ahead, self.clock())
            said = f"{ahead} requests wait already: try again in {seconds} s"
            raise ApiError(503, said, None, "queue_full", seconds)
        self.coming += places
        try:
            yield
        finally:
            self.coming -= places


def failure(request: Request, retry_after: int) -> ApiError | None:
    """What a client is told about a request that is over; None when it has its answer.

    Args:
        request: its finish_reason is set.
        retry_after: for those that may help to try again.

    Returns:
        None for "stop" and "length". Otherwise an ApiError without param:
        - "timeout", never admitted: 503, code "queue_timeout", with retry_after. Nothing was
          computed, so trying again is right;
        - "timeout" after it was admitted: 504, code "timeout";
        - "cancelled": 503, code "cancelled", with retry_after. Only a service that shuts down ends
          a request that somebody waits for;
        - "error": 500, code "engine_error". The message names the class of the exception, and has
          nothing of its text, which may hold what a user wrote.
    """
    # exercise 7.5
    reason = request.finish_reason
    if reason in ("stop", "length"):
        return None
    if reason == "timeout" and request.admitted is None:
        said = f"it waited too long for its turn: try again in {retry_after} s"
        return ApiError(503, said, None, "queue_timeout", retry_after)
    if reason == "timeout":
        return ApiError(504, "the time for this request is over: ask for less", None, "timeout")
    if reason == "cancelled":
        said = "the request was ended before its answer was complete: try again"
        return ApiError(503, said, None, "cancelled", retry_after)
    kind = type(request.error).__name__
    return ApiError(500, f"the engine failed on this request ({kind})", None, "engine_error")
