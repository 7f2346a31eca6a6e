"""Wrong versions of 7.5 Pace, Door and failure."""

from contextlib import contextmanager

from course.misconceptions import misconception
from solutions.api_error import ApiError


@misconception("7.5", "Pace.wait")
def a_gap_for_every_departure(self, ahead, now):
    """You divide by the number of departures. Between three of them lie two gaps, not three: with
    few departures the wait comes out much too short.
    """
    times = list(self._times)
    if len(times) < 2:
        return 1
    mean = (times[-1] - times[0]) / len(times)
    if now - times[-1] > mean:
        mean = (now - times[0]) / (len(times) + 1)
    return min(max(1, math.ceil(ahead * mean)), LONGEST_WAIT)  # noqa: F821


@misconception("7.5", "Pace.wait")
def always_as_fast_as_it_was(self, ahead, now):
    """You look only at the departures there were. When the engine stands still there are none, and
    the last ones still look fast: everybody is sent back into a queue that does not move.
    """
    times = list(self._times)
    if len(times) < 2:
        return 1
    mean = (times[-1] - times[0]) / (len(times) - 1)
    return min(max(1, math.ceil(ahead * mean)), LONGEST_WAIT)  # noqa: F821


@misconception("7.5", "Door.enter")
@contextmanager
def only_the_queue_counts(self, places=1):
    """You count those in the queue, and not those on their way to it. While one body is tokenized a
    thousand others find the same place free.
    """
    if places > self.bound:
        said = f"{places} answers to one request, but only {self.bound} requests may wait here"
        raise ApiError(400, said, "n", "invalid_value")
    if self.waiting() + places > self.bound:
        seconds = self.pace.wait(self.waiting(), self.clock())
        raise ApiError(503, f"try again in {seconds} s", None, "queue_full", seconds)
    self.coming += places
    try:
        yield
    finally:
        self.coming -= places


@misconception("7.5", "Door.enter")
@contextmanager
def places_lost_by_errors(self, places=1):
    """You give the places back only when the block ends well. Every request that fails in it takes
    one away for good: after as many as there are, nobody comes in any more.
    """
    if places > self.bound:
        said = f"{places} answers to one request, but only {self.bound} requests may wait here"
        raise ApiError(400, said, "n", "invalid_value")
    ahead = self.coming + self.waiting()
    if ahead + places > self.bound:
        seconds = self.pace.wait(ahead, self.clock())
        raise ApiError(503, f"try again in {seconds} s", None, "queue_full", seconds)
    self.coming += places
    yield
    self.coming -= places


@misconception("7.5", "failure")
def one_kind_of_timeout(request, retry_after):
    """You answer 504 to everybody whose time is over. Who was never admitted has cost nothing, and
    trying again is right: 503 with Retry-After. 504 says that computing took too long.
    """
    reason = request.finish_reason
    if reason in ("stop", "length"):
        return None
    if reason == "timeout":
        return ApiError(504, "the time for this request is over: ask for less", None, "timeout")
    if reason == "cancelled":
        said = "the request was ended before its answer was complete: try again"
        return ApiError(503, said, None, "cancelled", retry_after)
    kind = type(request.error).__name__
    return ApiError(500, f"the engine failed on this request ({kind})", None, "engine_error")


@misconception("7.5", "failure")
def exceptions_told_to_clients(request, retry_after):
    """You send the text of the exception to the client. It may hold a path, a key, or what another
    user wrote. The class of it says enough.
    """
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
    return ApiError(500, f"the engine failed: {request.error}", None, "engine_error")


@misconception("7.5", "failure")
def exceptions_told_with_their_class(request, retry_after):
    """You send the exception to the client, its class and its text. The text may hold a path, a
    key, or what another user wrote. The class says enough.
    """
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
    return ApiError(500, repr(request.error), None, "engine_error")
