"""Chapter 07: telling those who watch what happens to every request."""

import hashlib
import logging
import secrets
from collections.abc import Callable, Sequence

from solutions.api_error import ApiError
from solutions.batcher import Batcher, Step
from solutions.events import (
    Admitted,
    Arrived,
    Event,
    Finished,
    Rejected,
    Sent,
    Stepped,
    Token,
    Watcher,
)
from solutions.request import Request

REJECTED = {  # the code of an error -> what watchers are told
    "queue_full": "queue_full",
    "context_length_exceeded": "too_long",
    "draining": "draining",
}
log = logging.getLogger("course.service")


class Announcer:
    """Makes events of what happens, and gives them to the watchers. Its calls come from any thread.

    Args:
        watchers: are called with each event; one that fails harms nobody.
        clock: gives seconds that never go backwards.

    Attributes:
        failures: exceptions that watchers have raised.
    """

    def __init__(self, watchers: Sequence[Watcher], clock: Callable[[], float]):
        self.watchers, self.clock, self.failures = list(watchers), clock, 0
        self._key = secrets.token_bytes(16)
        self._unadmitted: dict[str, Request] = {}

    def tell(self, event: Event) -> None:
        """Every watcher hears it."""
        for watch in self.watchers:
            try:
                watch(event)
            except Exception as problem:
                self.failures += 1
                if self.failures & (self.failures - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
                    _complain(event, problem, self.failures)

    def arrived(self, request: Request, at: float, characters: int, is_stream: bool) -> None:
        """A request is about to be submitted; it came in at that time."""
        self._unadmitted[request.id] = request
        count, limit, print = len(request.prompt), request.limit, self._fingerprint(request.prompt)
        self.tell(Arrived(request.id, at, count, limit, characters, print, is_stream))

    def refused(self, error: ApiError) -> None:
        """A request got this error in the place of an answer."""
        if error.code in REJECTED:
            self.tell(Rejected(self.clock(), REJECTED[error.code]))

    def attach(self, request: Request, over: Callable[[Request], None]) -> None:
        """Tell of its tokens and its end as well; then over is called with it."""
        hear, finish = request.on_token, request.on_finish

        def on_token(token: int) -> bool | None:
            self._admitted(request)
            self.tell(Token(request.id, self.clock()))
            return hear(token)

        def on_finish(request: Request) -> None:
            self.finished(request)  # first: whoever has an answer finds it counted
            finish(request)
            over(request)

        request.on_token, request.on_finish = on_token, on_finish

    def finished(self, request: Request, error: Exception | None = None) -> None:
        """A request is over; error, when it could not even be submitted."""
        self._admitted(request)
        self._unadmitted.pop(request.id, None)
        error = error or request.error
        kind, reason = error and type(error).__name__, request.finish_reason or "error"
        self.tell(Finished(request.id, self.clock(), reason, len(request.output), kind))

    def sent(self, request: Request, ended: float) -> None:
        """Its stream has ended; the request was over at the time ended, or is not over yet."""
        now = self.clock()
        self.tell(Sent(request.id, now, max(0.0, now - ended)))

    def stepped(self, batcher: Batcher, step: Step, seconds: float) -> None:
        """The batcher has made a step."""
        for request in batcher.running.values():
            self._admitted(request)
        used, total = int(batcher.cache.used_tokens), int(batcher.cache.total_tokens)
        kinds = tuple(type(error).__name__ for error in step.errors)
        counts = step.running, step.waiting, used, total
        self.tell(Stepped(self.clock(), seconds, *counts, kinds))

    def _admitted(self, request: Request) -> None:
        """Tell, once, that it was admitted, if it was."""
        if request.admitted is not None and self._unadmitted.pop(request.id, None):
            self.tell(Admitted(request.id, request.admitted))

    def _fingerprint(self, prompt: Sequence[int]) -> str:
        """Equal for equal prompts, in this process; the key never leaves it."""
        data = ",".join(map(str, prompt)).encode()
        return hashlib.blake2b(data, key=self._key, digest_size=8).hexdigest()


def _complain(event: Event, problem: Exception, count: int) -> None:
    """Without the exception's text, which may hold what a user wrote."""
    kinds = type(event).__name__, type(problem).__name__
    log.warning("a watcher failed on %s: %s (failure %d)", *kinds, count)
