"""6.3 WaitingQueue."""

import heapq

from tests.parts import part


def method(m, name, change) -> None:
    """change(right, self, *args) takes the place of a method of WaitingQueue."""
    right = getattr(m.WaitingQueue, name)

    def changed(self, *args):
        return change(right, self, *args)

    setattr(m.WaitingQueue, name, changed)


@part("6.3")
def one_more_than_the_bound(m):
    """The bound is one too high."""

    def change(right, self, request, now):
        self.bound += 1
        try:
            right(self, request, now)
        finally:
            self.bound -= 1

    method(m, "add", change)


@part("6.3")
def refused_with_an_arrival(m):
    """A request that was refused has an arrival, and cannot be added again."""

    def change(right, self, request, now):
        try:
            right(self, request, now)
        finally:
            request.arrival = now if request.arrival is None else request.arrival

    method(m, "add", change)


@part("6.3")
def no_arrival(m):
    """The arrival is kept elsewhere, and the request has none."""

    class Hidden(float):
        pass

    def change(right, self, request, now):
        right(self, request, Hidden(now - 1e-3))

    method(m, "add", change)


@part("6.3")
def added_twice(m):
    """A request that left may come again."""

    def change(right, self, request, now):
        if request not in self._waiting and request.state == "waiting":
            request.arrival = None
        right(self, request, now)

    method(m, "add", change)


@part("6.3")
def added_when_it_is_over(m):
    """A request that is over may wait."""

    def change(right, self, request, now):
        kept, request.state = request.state, m.State.WAITING
        try:
            right(self, request, now)
        finally:
            request.state = kept

    method(m, "add", change)


@part("6.3")
def bound_unnamed(m):
    """QueueFull does not say how many may wait."""

    def change(right, self, *args):
        try:
            right(self, *args)
        except m.QueueFull:
            raise m.QueueFull("too many") from None

    method(m, "add", change)


@part("6.3")
def higher_number_first(m):
    """The higher priority number goes first."""

    def change(right, self, request, now):
        kept, request.priority = request.priority, -request.priority
        try:
            right(self, request, now)
        finally:
            request.priority = kept

    method(m, "add", change)


@part("6.3")
def negative_is_normal(m):
    """Priorities under 0 count as 0."""

    def change(right, self, request, now):
        kept, request.priority = request.priority, max(request.priority, 0)
        try:
            right(self, request, now)
        finally:
            request.priority = kept

    method(m, "add", change)


@part("6.3")
def size_before_priority(m):
    """The size counts more than the priority."""

    def change(right, self, request, now):
        right(self, request, now)
        self._line = [(r.size, r.priority, n, r) for n, r in ((e[2], e[3]) for e in self._line)]
        heapq.heapify(self._line)

    method(m, "add", change)


@part("6.3")
def last_of_equals_first(m):
    """Of equal size whoever came last goes first."""

    def change(right, self, request, now):
        right(self, request, now)
        self._line = [(e[0], e[1], -abs(e[2]), e[3]) for e in self._line]
        heapq.heapify(self._line)

    method(m, "add", change)


@part("6.3")
def first_takes_out(m):
    """first removes whom it names."""

    def change(right, self, now):
        found = right(self, now)
        if found is not None:
            self.remove(found)
        return found

    method(m, "first", change)


@part("6.3")
def promoted_after_five_seconds_always(m):
    """patience is not looked at."""

    def change(right, self, now):
        kept, self.patience = self.patience, 5.0
        try:
            return right(self, now)
        finally:
            self.patience = kept

    method(m, "first", change)


@part("6.3")
def promoted_within_the_priority(m):
    """A promoted request goes first among those of its priority only."""

    def change(right, self, now):
        found = right(self, now)
        best = self._top(self._line)
        return best if best is not None and best.priority < found.priority else found

    method(m, "first", change)


@part("6.3")
def remove_says_nothing(m):
    """remove returns None."""

    def change(right, self, request):
        right(self, request)

    method(m, "remove", change)


@part("6.3")
def remove_always_says_yes(m):
    """remove returns True for whoever it is."""

    def change(right, self, request):
        right(self, request)
        return True

    method(m, "remove", change)


@part("6.3")
def removed_only_from_the_front(m):
    """Only who is first in line can be removed."""

    def change(right, self, request):
        return right(self, request) if self._top(self._line) is request else False

    method(m, "remove", change)


@part("6.3")
def expired_after_the_moment(m):
    """The very moment does not count."""
    method(m, "expired", lambda right, self, now: right(self, now - 1e-9))


@part("6.3")
def expired_stay(m):
    """expired names them, and they stay."""

    def change(right, self, now):
        return sorted(
            (r for r in self._waiting if r.expires <= now), key=lambda r: (r.expires, r.arrival)
        )

    method(m, "expired", change)


@part("6.3")
def one_expired_at_a_time(m):
    """Only the first of the expired is given."""

    def change(right, self, now):
        request = self._top(self._ends)
        if request is None or request.expires > now:
            return []
        del self._waiting[request]
        return [request]

    method(m, "expired", change)


@part("6.3")
def expired_by_arrival(m):
    """The expired come in the order of their arrival."""

    def change(right, self, now):
        return sorted(right(self, now), key=lambda r: r.arrival)

    method(m, "expired", change)


@part("6.3")
def expired_equals_reversed(m):
    """Of those that expire at the same time the last comes first."""

    def change(right, self, now):
        found = right(self, now)
        found.reverse()
        return sorted(found, key=lambda r: r.expires)

    method(m, "expired", change)


@part("6.3")
def expired_by_deadline_only(m):
    """admit_by is not looked at."""

    def change(right, self, now):
        found = [r for r in self._waiting if r.deadline is not None and r.deadline <= now]
        for request in found:
            del self._waiting[request]
        return sorted(found, key=lambda r: r.deadline)

    method(m, "expired", change)


@part("6.3")
def listed_by_turn(m):
    """An iteration goes by turn, not by arrival."""

    def change(right, self):
        return iter(sorted(self._waiting, key=lambda r: (r.priority, r.size)))

    method(m, "__iter__", change)


@part("6.3")
def listed_as_it_is(m):
    """An iteration walks the queue itself."""
    method(m, "__iter__", lambda right, self: iter(self._waiting))


@part("6.3")
def the_gone_are_counted(m):
    """len counts who has left."""
    method(m, "__len__", lambda right, self: len(self._line))


@part("6.3")
def one_queue_for_all(m):
    """All queues share one heap of deadlines."""
    shared = []
    right = m.WaitingQueue.__init__

    def init(self, *args):
        right(self, *args)
        self._ends = shared

    m.WaitingQueue.__init__ = init


class NoLock:
    """Holds nobody up."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


@part("6.3")
def no_lock(m):
    """Nothing keeps two threads apart."""
    right = m.WaitingQueue.__init__

    def init(self, *args):
        right(self, *args)
        self._lock = NoLock()

    m.WaitingQueue.__init__ = init

    def add(self, request, now):
        if request.arrival is not None or request.state != "waiting":
            raise ValueError("submitted before")
        if len(self._waiting) >= self.bound:
            raise m.QueueFull(f"{self.bound} wait")
        number = next(self._numbers)
        heapq.heappush(self._line, (request.priority, request.size, number, request))
        if request.expires < float("inf"):
            heapq.heappush(self._ends, (request.expires, number, request))
        self._waiting[request] = None
        request.arrival = now

    m.WaitingQueue.add = add


@part("6.3")
def deadlines_kept(m):
    """The heap of deadlines is never swept."""

    def sweep(self):
        if len(self._line) > 2 * len(self._waiting) + m.SLACK:
            self._line[:] = [entry for entry in self._line if entry[-1] in self._waiting]
            heapq.heapify(self._line)

    m.WaitingQueue._sweep = sweep

    def keep(self, request, now, right=m.WaitingQueue.add):
        right(self, request, now)
        if request.expires == float("inf"):
            heapq.heappush(self._ends, (request.expires, next(self._numbers), request))

    m.WaitingQueue.add = keep


@part("6.3")
def swept_when_it_expires_only(m):
    """remove does not sweep."""

    def remove(self, request):
        with self._lock:
            return self._waiting.pop(request, 0) is None

    m.WaitingQueue.remove = remove


@part("6.3")
def sorted_at_every_add(m):
    """The line is sorted anew for each."""

    def change(right, self, request, now):
        right(self, request, now)
        self._line.reverse()
        self._line.sort(key=lambda entry: entry[:3])

    method(m, "add", change)
