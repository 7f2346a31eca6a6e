"""Chapter 08: the times of a request, put together from the events of its life."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from solutions.events import Admitted, Arrived, Event, Finished, Token


@dataclass(eq=False)
class Timeline:
    """What is known of one request so far. All times are seconds of the service's clock.

    Args:
        request: the event of its arrival.
        admitted: when its prefill began; None before.
        tokens: when each token of its answer came.
        end: the event of its end; None before.
    """

    request: Arrived
    admitted: float | None = None
    tokens: list[float] = field(default_factory=list)
    end: Finished | None = None

    def note(self, event: Event) -> None:
        """Write down an event of this request.

        Only the first Admitted counts: a request that was sent back to the queue has been waited
        for once, and that is its first wait. Arrived and what else there is changes nothing.
        """
        # exercise 8.1
        if isinstance(event, Token):
            self.tokens.append(event.at)
        elif isinstance(event, Admitted) and self.admitted is None:
            self.admitted = event.at
        elif isinstance(event, Finished):
            self.end = event

    @property
    def queue(self) -> float | None:
        """Seconds from arrival to admission; None for a request that was never admitted."""
        # exercise 8.1
        return None if self.admitted is None else self.admitted - self.request.at

    @property
    def first_token(self) -> float | None:
        """Seconds from arrival to the first token, queue included; None without a token."""
        # exercise 8.1
        return self.tokens[0] - self.request.at if self.tokens else None

    @property
    def gap(self) -> float | None:
        """Seconds between the newest token and the one before; None with fewer than two.

        Asked for at every token, so it must not cost more where the answer is long.
        """
        # exercise 8.1
        return self.tokens[-1] - self.tokens[-2] if len(self.tokens) > 1 else None

    @property
    def inter_token(self) -> list[float]:
        """Seconds between each token and the next: one fewer than there are tokens."""
        # exercise 8.1
        return [after - before for before, after in zip(self.tokens, self.tokens[1:], strict=False)]

    @property
    def e2e(self) -> float | None:
        """Seconds from arrival to the end; None before."""
        # exercise 8.1
        return None if self.end is None else self.end.at - self.request.at

    @property
    def tokens_per_second(self) -> float | None:
        """How fast the answer was to read: tokens after the first, over the time that they took.

        The wait for the first token is left out: it has a number of its own. None with fewer than
        two tokens, and when they all came at the same time.
        """
        # exercise 8.1
        taken = self.tokens[-1] - self.tokens[0] if self.tokens else 0.0
        return (len(self.tokens) - 1) / taken if taken > 0 else None


class Timings:
    """The timelines of all requests that are not over; a watcher that never grows for ever.

    Events come from two threads. A request may never finish, if somebody forgets to say so: beyond
    a limit the one that arrived first is forgotten, and counted.

    Args:
        limit: how many timelines are kept, at least 1.

    Attributes:
        forgotten: requests that were dropped because of the limit.
    """

    def __init__(self, limit: int = 10_000):
        self.limit, self.forgotten = limit, 0
        self._known: dict[str, Timeline] = {}  # by id, in the order of arrival
        self._lock = threading.Lock()

    def watch(self, event: Event) -> Timeline | None:
        """Write down an event.

        Arrived begins a timeline, anew if the id is known. Finished is the last event of a
        timeline: it is given back once more, and then forgotten.

        Returns:
            the timeline of the request that the event belongs to, with the event in it. None for
            an event of no request, and of one that is not known: over, forgotten, or never seen.
        """
        # exercise 8.1
        with self._lock:
            if isinstance(event, Arrived):
                return self._begin(event)
            timeline = self._known.get(getattr(event, "id", None))
            if timeline is not None:
                timeline.note(event)
            if isinstance(event, Finished):
                self._known.pop(event.id, None)
            return timeline

    def _begin(self, event: Arrived) -> Timeline:
        """A new timeline, and room for it."""
        # exercise 8.1
        self._known.pop(event.id, None)  # known or not, it is the newest
        if len(self._known) >= self.limit:
            del self._known[next(iter(self._known))]
            self.forgotten += 1
        self._known[event.id] = timeline = Timeline(event)
        return timeline

    def count(self) -> tuple[int, int]:
        """(running, waiting): of the known requests, those that were admitted, and the others."""
        # exercise 8.1
        with self._lock:
            running = sum(one.admitted is not None for one in self._known.values())
            return running, len(self._known) - running


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least this share of all values does not exceed: nearest rank.

    It is always a value that really happened, never one between two.

    Args:
        values: in any order, at least one.
        percent: above 0 and up to 100; 50 is the (lower) median, 100 the largest.

    Returns:
        the value at rank ceil(percent * n / 100) of the n values in ascending order, from 1.

    Errors: ValueError without values, and for a percent out of range or NaN.

    Source: Hyndman and Fan 1996, definition 1.
    """
    # exercise 8.1
    if not len(values):
        raise ValueError("no values: nothing has a percentile")
    if not 0 < percent <= 100:
        raise ValueError(f"a percentile is above 0 and up to 100, not {percent}")
    return sorted(values)[math.ceil(percent * len(values) / 100) - 1]
