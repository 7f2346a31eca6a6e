"""Wrong versions of 6.3 WaitingQueue."""

import heapq

from course.misconceptions import misconception
from solutions.waiting import QueueFull


@misconception("6.3", "WaitingQueue.first")
def promoted_too_early(self, now):
    """You promote a request that has waited exactly `patience` seconds. It is more than patience
    that counts.
    """
    with self._lock:
        oldest = next(iter(self._waiting), None)
        if oldest is not None and now - oldest.arrival >= self.patience:
            return oldest
        return self._top(self._line)


@misconception("6.3", "WaitingQueue.first")
def never_promoted(self, now):
    """You never promote anybody. While short requests keep coming, a long one waits for ever: who
    has waited for more than `patience` goes before all others.
    """
    with self._lock:
        return self._top(self._line)


@misconception("6.3", "WaitingQueue.first")
def promoted_by_turn(self, now):
    """Of several that have waited too long you take the shortest. Then the longest of them is still
    the last: promoted requests go in the order of their arrival.
    """
    with self._lock:
        tired = [r for r in self._waiting if now - r.arrival > self.patience]
        if tired:
            return min(tired, key=lambda r: (r.priority, r.size))
        return self._top(self._line)


@misconception("6.3", "WaitingQueue.first")
def sorted_every_time(self, now):
    """You look at everybody to find who is first. With ten thousand waiting, every step would begin
    with that: keep the order in a heap, and look at its first.
    """
    with self._lock:
        oldest = next(iter(self._waiting), None)
        if oldest is not None and now - oldest.arrival > self.patience:
            return oldest
        return min(self._waiting, key=lambda r: (r.priority, r.size), default=None)


@misconception("6.3", "WaitingQueue.add")
def short_prompts_first(self, request, now):
    """You order by the length of the prompt. What a request costs is prompt and answer together:
    its size.
    """
    with self._lock:
        if request.arrival is not None or request.state != "waiting":
            raise ValueError(f"request {request.id} was submitted before")
        if len(self._waiting) >= self.bound:
            raise QueueFull(f"{self.bound} requests wait already")
        request.arrival = now
        self._waiting[request] = None
        number = next(self._numbers)
        heapq.heappush(self._line, (request.priority, len(request.prompt), number, request))
        if request.expires < float("inf"):
            heapq.heappush(self._ends, (request.expires, number, request))


@misconception("6.3", "WaitingQueue.add")
def nothing_between_equals(self, request, now):
    """Two requests of the same priority and size stand in your heap, which then compares them with
    <: a request has none. Put a running number before it; it keeps the order of arrival, too.
    """
    with self._lock:
        if request.arrival is not None or request.state != "waiting":
            raise ValueError(f"request {request.id} was submitted before")
        if len(self._waiting) >= self.bound:
            raise QueueFull(f"{self.bound} requests wait already")
        request.arrival = now
        self._waiting[request] = None
        heapq.heappush(self._line, (request.priority, request.size, request))
        if request.expires < float("inf"):
            heapq.heappush(self._ends, (request.expires, request))


@misconception("6.3", "WaitingQueue._sweep")
def the_gone_are_kept(self):
    """What has left stays in your heap until it comes to the front. Behind somebody who waits for
    long it may never come there, and holds its memory: rebuild the heap when most of it is gone.
    """
