"""6.4 Room and admit."""

import heapq

from tests.parts import part


def method(m, name, change) -> None:
    """change(right, self, request) takes the place of a method of Room."""
    right = getattr(m.Room, name)

    def changed(self, request):
        return change(right, self, request)

    setattr(m.Room, name, changed)


@part("6.4")
def rows_of_the_cache(m):
    """All rows of the cache are given out, whatever `rows` says."""
    right = m.Room.__init__

    def init(self, cache, rows, budget):
        right(self, cache, rows, budget)
        self._free = list(range(cache.rows))

    m.Room.__init__ = init


@part("6.4")
def no_budget(m):
    """The budget is all of the cache."""

    def change(right, self, request):
        kept, self.budget = self.budget, self.cache.total_tokens
        try:
            return right(self, request)
        finally:
            self.budget = kept

    method(m, "take", change)


@part("6.4")
def budget_by_its_own_count(m):
    """What is used is counted here, not asked of the cache."""
    right = m.Room.__init__

    def init(self, *args):
        right(self, *args)
        self.sizes = {}

    def take(self, request):
        if not self._free or sum(self.sizes.values()) + request.size > self.budget:
            return False
        try:
            self.cache.reserve(self._free[0], request.size)
        except m.CacheFull:
            return False
        request.row = heapq.heappop(self._free)
        self.sizes[request.row] = request.size
        return True

    def give_back(self, request, free=m.Room.give_back):
        self.sizes.pop(request.row, None)
        free(self, request)

    m.Room.__init__, m.Room.take, m.Room.give_back = init, take, give_back


@part("6.4")
def row_lost_when_full(m):
    """A row is taken from the heap before the cache is asked, and not put back."""

    def change(right, self, request):
        found = right(self, request)
        if not found and self._free and self.cache.used_tokens + request.size <= self.budget:
            heapq.heappop(self._free)
        return found

    method(m, "take", change)


@part("6.4")
def row_set_when_full(m):
    """The request has a row although it was not taken."""

    def change(right, self, request):
        row = self._free[0] if self._free else None
        found = right(self, request)
        if not found:
            request.row = row
        return found

    method(m, "take", change)


@part("6.4")
def refused_by_an_error(m):
    """No room is an error."""

    def change(right, self, request):
        if not right(self, request):
            raise m.CacheFull("no room")
        return True

    method(m, "take", change)


@part("6.4")
def take_gives_the_row(m):
    """take returns the row, which may be 0."""

    def change(right, self, request):
        return request.row if right(self, request) else False

    method(m, "take", change)


@part("6.4")
def tokens_stay_reserved(m):
    """give_back puts the row back, and not the tokens."""

    def give_back(self, request):
        if request.row is not None:
            heapq.heappush(self._free, request.row)
            request.row = None

    m.Room.give_back = give_back


@part("6.4")
def row_stays_taken(m):
    """give_back frees the tokens, and not the row."""

    def give_back(self, request):
        if request.row is not None:
            self.cache.free(request.row)
            request.row = None

    m.Room.give_back = give_back


@part("6.4")
def row_remembered(m):
    """The request keeps its row, and gives it back again."""

    def give_back(self, request):
        if request.row is not None:
            self.cache.free(request.row)
            heapq.heappush(self._free, request.row)

    m.Room.give_back = give_back


@part("6.4")
def no_row_is_row_0(m):
    """Who holds nothing gives row 0 back."""

    def give_back(self, request):
        self.cache.free(request.row or 0)
        if (request.row or 0) not in self._free:
            heapq.heappush(self._free, request.row or 0)
        request.row = None

    m.Room.give_back = give_back


@part("6.4")
def rows_in_the_order_of_their_return(m):
    """Free rows are a queue."""

    def take(self, request, right=m.Room.take):
        kept = list(self._free)
        found = right(self, request)
        if found:
            row = kept[0]
            self.cache.free(request.row)
            self.cache.reserve(row, request.size)
            request.row, self._free = row, kept[1:]
        return found

    def give_back(self, request):
        if request.row is not None:
            self.cache.free(request.row)
            self._free.append(request.row)
            request.row = None

    m.Room.take, m.Room.give_back = take, give_back


@part("6.4")
def free_rows_in_heap_order(m):
    """free_rows is not sorted."""
    m.Room.free_rows = property(lambda self: self._free[:1] + sorted(self._free[1:], reverse=True))


def admitting(m, change) -> None:
    """change(found, waiting, room, now) of what admit gives."""
    right = m.admit

    def admit(waiting, room, now):
        return change(right(waiting, room, now), waiting, room, now)

    m.admit = admit


@part("6.4")
def one_at_a_time(m):
    """Only one request is admitted."""

    def admit(waiting, room, now):
        request = waiting.first(now)
        if request is None or not room.take(request):
            return []
        waiting.remove(request)
        request.move(m.State.PREFILL)
        request.admitted = now
        return [request]

    m.admit = admit


@part("6.4")
def admitted_at_their_arrival(m):
    """admitted is the time of the arrival."""

    def change(found, waiting, room, now):
        for request in found:
            request.admitted = request.arrival
        return found

    admitting(m, change)


@part("6.4")
def admitted_and_waiting(m):
    """The state stays WAITING."""

    def change(found, *rest):
        for request in found:
            request.state = m.State.WAITING
        return found

    admitting(m, change)


@part("6.4")
def admitted_backwards(m):
    """The last admitted comes first."""
    admitting(m, lambda found, *rest: found[::-1])


@part("6.4")
def nobody_is_promoted_at_the_door(m):
    """The queue is asked for the time 0."""
    right = m.admit

    class Timeless:
        def __init__(self, queue):
            self.remove = queue.remove
            self.first = lambda now: queue.first(0.0)

    def admit(waiting, room, now):
        return right(Timeless(waiting), room, now)

    m.admit = admit


@part("6.4")
def big_ones_go_back(m):
    """Who does not fit is sent to the end of the queue."""

    def admit(waiting, room, now):
        admitted, later = [], []
        while (request := waiting.first(now)) is not None:
            waiting.remove(request)
            if room.take(request):
                request.move(m.State.PREFILL)
                request.admitted = now
                admitted.append(request)
            else:
                later.append(request)
        for request in later:
            request.arrival = None
            waiting.add(request, now)
        return admitted

    m.admit = admit


@part("6.4")
def smaller_of_the_same_moment(m):
    """When the first does not fit, the second is tried, and nobody else."""

    def admit(waiting, room, now, right=m.admit):
        found = right(waiting, room, now)
        request = waiting.first(now)
        others = sorted((r for r in waiting if r is not request), key=lambda r: r.size)
        if others and room.take(others[0]):
            waiting.remove(others[0])
            others[0].move(m.State.PREFILL)
            others[0].admitted = now
            found.append(others[0])
        return found

    m.admit = admit
