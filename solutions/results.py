"""Chapter 07: results that can still be fetched when their connection is gone."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

RUNNING = "running"  # what ResultStore.get says of a request that is not over


@dataclass(frozen=True)
class Kept:
    """An answer as it went out, or would have.

    Args:
        status: of HTTP.
        body: the JSON, as bytes.
        until: the time from which it is gone.
    """

    status: int
    body: bytes
    until: float


class ResultStore:
    """Keeps the results of requests for a while after their end: bounded in time, number, bytes.

    Whatever is kept for clients that may never come must have a bound, or the process dies of it.

    Args:
        seconds: how long a result is kept.
        most: how many results are kept.
        size: how many bytes all their bodies have together.
        clock: gives seconds that never go backwards.
    """

    def __init__(self, seconds: float, most: int, size: int, clock: Callable[[], float]):
        """Nothing is kept, and nothing runs."""
        # exercise 7.6
        self.seconds, self.most, self.size, self.clock = seconds, most, size, clock
        self._running: set[str] = set()
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # the oldest first
        self._bytes = 0

    def __len__(self) -> int:
        """How many results are kept; those whose time is over are gone."""
        # exercise 7.6
        self._sweep()
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """The bytes of all bodies that are kept."""
        # exercise 7.6
        self._sweep()
        return self._bytes

    def begin(self, id: str) -> None:
        """A request runs from now on."""
        # exercise 7.6
        self._running.add(id)

    def forget(self, id: str) -> None:
        """A request does not run any more, and has no result; nothing happens if it did not run."""
        # exercise 7.6
        self._running.discard(id)

    def keep(self, id: str, status: int, body: bytes) -> None:
        """A request is over, and this is its result; its seconds begin now.

        Whose time is over goes first. Then, while there are too many or too many bytes, the oldest
        goes. A body that has more than all may have is not kept at all, and drives nobody out; the
        request does not run any more all the same. Of two results of one id the newer one counts,
        also when it is not kept, and it is the youngest.
        """
        # exercise 7.6
        self._running.discard(id)
        if id in self._kept:
            self._drop(id)
        self._sweep()
        if len(body) > self.size:
            return
        self._kept[id] = Kept(status, body, self.clock() + self.seconds)
        self._bytes += len(body)
        while len(self._kept) > self.most or self._bytes > self.size:
            self._drop(next(iter(self._kept)))

    def get(self, id: str) -> Kept | str | None:
        """What was kept; RUNNING for a request that is not over; None for all others.

        When the clock says `until`, or more, it is None.
        """
        # exercise 7.6
        self._sweep()
        return RUNNING if id in self._running else self._kept.get(id)

    def _sweep(self) -> None:
        """Drop all whose time is over: their memory comes back though nobody asks for them."""
        # exercise 7.6
        now = self.clock()
        while self._kept and (oldest := next(iter(self._kept.items())))[1].until <= now:
            self._drop(oldest[0])

    def _drop(self, id: str) -> None:
        """One result less."""
        # exercise 7.6
        self._bytes -= len(self._kept.pop(id).body)
