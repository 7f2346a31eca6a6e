"""Chapter 06: who waits, and who is next."""

import heapq
import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator

from solutions.request import Request, State

SLACK = 32  # entries of requests that have left, which a heap may have beyond those that wait


class QueueFull(RuntimeError):
    """As many requests wait as may."""


class WaitingQueue:
    """The requests that wait for room: a bounded number, in the order of their turn.

    First come the promoted: those that have waited for more than `patience` seconds, in the order
    of their arrival. Then the others: by priority (the lower number first), those of equal priority
    by size (short first), those of equal size by arrival. Short first makes the mean wait short;
    promotion keeps the long ones from waiting for ever.

    add, first and remove cost no more than the logarithm of how many wait, on average. Of the
    requests that have left it keeps no more than twice as many as wait, plus 64, so that memory
    does not grow with history. All calls may come from any thread.

    Args:
        bound: how many may wait, at least 1.
        patience: seconds.

    Errors: ValueError when bound is under 1 or patience under 0.
    """

    def __init__(self, bound: int, patience: float = 5.0):
        if bound < 1 or patience < 0:
            raise ValueError(f"bound must be at least 1 and patience 0, not {bound}, {patience}")
        self.bound, self.patience = bound, patience
        self._lock = threading.Lock()  # held for a moment, never while anything is computed
        self._numbers = itertools.count()
        self._waiting: OrderedDict[Request, None] = OrderedDict()  # the oldest first
        self._line: list[tuple] = []  # heap of (priority, size, number, request)
        self._ends: list[tuple] = []  # heap of (expires, number, request)

    def __len__(self) -> int:
        """How many wait."""
        # exercise 6.3
        return len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        """Those that wait now, in the order of their arrival; later changes do not show."""
        # exercise 6.3
        with self._lock:
            return iter(list(self._waiting))

    def add(self, request: Request, now: float) -> None:
        """Let a request wait; its arrival is now.

        Args:
            request: in state WAITING, never added before.
            now: seconds of the clock; never less than in the call before.

        Errors: QueueFull naming the bound when as many wait already; ValueError for a request that
        has an arrival already or is not in state WAITING. Nothing has changed then.
        """
        # exercise 6.3
        with self._lock:
            if request.arrival is not None or request.state is not State.WAITING:
                raise ValueError(f"request {request.id} was submitted before: make a new one")
            if len(self._waiting) >= self.bound:
                raise QueueFull(f"{self.bound} requests wait already: try again later")
            request.arrival = now
            self._waiting[request] = None
            number = next(self._numbers)
            heapq.heappush(self._line, (request.priority, request.size, number, request))
            heapq.heappush(self._ends, (request.expires, number, request))

    def first(self, now: float) -> Request | None:
        """Whose turn it is at the time now; None when nobody waits. It stays in the queue."""
        # exercise 6.3
        with self._lock:
            oldest = next(iter(self._waiting), None)
            if oldest is not None and now - oldest.arrival > self.patience:
                return oldest
            return self._top(self._line)

    def remove(self, request: Request) -> bool:
        """Take a request out, wherever it stands; False when it does not wait here (any more)."""
        # exercise 6.3
        with self._lock:
            if request not in self._waiting:
                return False
            del self._waiting[request]
            self._sweep()
            return True

    def expired(self, now: float) -> list[Request]:
        """Take out all whose time is over, and give them: the earliest first, of equals by arrival.

        A request's time is over when now is its `expires` or later.
        """
        # exercise 6.3
        found = []
        with self._lock:
            while (request := self._top(self._ends)) and request.expires <= now:
                del self._waiting[request]
                found.append(request)
            self._sweep()
        return found

    def _top(self, heap: list[tuple]) -> Request | None:
        """The first in a heap that still waits; those before it have left and are dropped."""
        # exercise 6.3
        while heap and heap[0][-1] not in self._waiting:
            heapq.heappop(heap)
        return heap[0][-1] if heap else None

    def _sweep(self) -> None:
        """Drop the entries of those that have left, when they have become the most, or are all."""
        # exercise 6.3
        most = 2 * len(self._waiting) + SLACK if self._waiting else 0
        for heap in (self._line, self._ends):
            if len(heap) > most:
                heap[:] = [entry for entry in heap if entry[-1] in self._waiting]
                heapq.heapify(heap)
