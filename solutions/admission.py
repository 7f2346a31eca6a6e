"""Chapter 06: who may run, so that nobody who runs can be left without memory."""

import heapq

from solutions.kv_cache import CacheFull, KVCache
from solutions.request import Request, State
from solutions.waiting import WaitingQueue


class Room:
    """The rows and tokens of a KV cache that requests may hold at the same time.

    A request takes room for all that it may grow to, before it begins. So no request that runs can
    ever find the cache full, and none has to be thrown out again.

    Args:
        cache: nobody else uses it.
        rows: how many requests may hold room; they get rows 0 to rows - 1.
        budget: how many tokens of room they may hold together.

    Attributes:
        cache, rows, budget: as given.

    Errors: ValueError when rows is not 1 to cache.rows, or budget not 1 to cache.total_tokens,
    naming the value and the cache's.
    """

    def __init__(self, cache: KVCache, rows: int, budget: int):
        if not 1 <= rows <= cache.rows:
            raise ValueError(f"rows must be 1 to the {cache.rows} of the cache, not {rows}")
        if not 1 <= budget <= cache.total_tokens:
            raise ValueError(
                f"budget must be 1 to the {cache.total_tokens} tokens of the cache, not {budget}"
            )
        self.cache, self.rows, self.budget = cache, rows, budget
        self._free = list(range(rows))  # a heap

    @property
    def free_rows(self) -> list[int]:
        """The rows that nobody holds, the lowest first."""
        # exercise 6.4
        return sorted(self._free)

    def take(self, request: Request) -> bool:
        """Give a request a row and reserve request.size tokens in it, if there are both.

        It is the lowest free row: rows that follow each other are read from the cache without a
        copy.

        Returns:
            True, and request.row is set. False when no row is free, when the cache's used_tokens
            and the request's size together are more than the budget, or when the cache raises
            CacheFull: nothing has changed then.

        Errors: what else the cache raises goes on to the caller. Nothing has changed then either.
        """
        # exercise 6.4
        if not self._free or self.cache.used_tokens + request.size > self.budget:
            return False
        try:
            self.cache.reserve(self._free[0], request.size)
        except CacheFull:
            return False
        request.row = heapq.heappop(self._free)
        return True

    def give_back(self, request: Request) -> None:
        """Free a request's row and what it had reserved; nothing to do where it holds none."""
        # exercise 6.4
        if request.row is not None:
            self.cache.free(request.row)
            heapq.heappush(self._free, request.row)
            request.row = None


def admit(waiting: WaitingQueue, room: Room, now: float) -> list[Request]:
    """Let in whoever's turn it is, as long as there is room.

    Nobody overtakes the first in line. Those of its priority behind it are no smaller, so they
    would not fit either; a small one of lower priority that slipped by would make it wait longer;
    and to a promoted one it is the promise that its turn comes.

    Args:
        waiting: whose turn it is, it says.
        room: takes them in.
        now: seconds of the clock.

    Returns:
        those admitted, in order: out of the queue, with their room, in state PREFILL, and with
        now as the time at which they were admitted.
    """
    # exercise 6.4
    admitted = []
    while (request := waiting.first(now)) is not None and room.take(request):
        waiting.remove(request)
        request.move(State.PREFILL)
        request.admitted = now
        admitted.append(request)
    return admitted
