"""Wrong versions of 6.4 Room and admit."""

import heapq

from course.misconceptions import misconception
from solutions.kv_cache import CacheFull
from solutions.request import State


@misconception("6.4", "Room.take")
def room_for_the_prompt_only(self, request):
    """You reserve room for the prompt alone. The answer needs room too, and when all answers grow
    at once somebody finds the cache full in the middle of a sentence: reserve the size.
    """
    need = len(request.prompt)
    if not self._free or self.cache.used_tokens + need > self.budget:
        return False
    self.cache.reserve(self._free[0], need)
    request.row = heapq.heappop(self._free)
    return True


@misconception("6.4", "Room.take")
def budget_not_quite(self, request):
    """You refuse a request that would use the budget to the last token. That is still within it."""
    if not self._free or self.cache.used_tokens + request.size >= self.budget:
        return False
    try:
        self.cache.reserve(self._free[0], request.size)
    except CacheFull:
        return False
    request.row = heapq.heappop(self._free)
    return True


@misconception("6.4", "Room.take")
def highest_row_first(self, request):
    """You take the last of the free rows. Taken lowest first, the rows in use follow each other,
    and the cache can be read without a copy.
    """
    if not self._free or self.cache.used_tokens + request.size > self.budget:
        return False
    row = max(self._free)
    try:
        self.cache.reserve(row, request.size)
    except CacheFull:
        return False
    self._free.remove(row)
    heapq.heapify(self._free)
    request.row = row
    return True


@misconception("6.4", "Room.take")
def full_cache_not_caught(self, request):
    """Your take lets CacheFull out. The cache may know better than your sum: it means that there is
    no room now, so the answer is False.
    """
    if not self._free or self.cache.used_tokens + request.size > self.budget:
        return False
    self.cache.reserve(self._free[0], request.size)
    request.row = heapq.heappop(self._free)
    return True


@misconception("6.4", "admit")
def small_ones_slip_by(waiting, room, now):
    """You let smaller requests slip by when the first in line does not fit. They take the room that
    it waits for, again and again: nobody overtakes the first.
    """
    admitted = []
    first = waiting.first(now)
    line = sorted(waiting, key=lambda r: (r is not first, r.priority, r.size))
    for request in line:
        if room.take(request):
            waiting.remove(request)
            request.move(State.PREFILL)
            request.admitted = now
            admitted.append(request)
    return admitted
