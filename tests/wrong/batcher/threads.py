"""6.3 and 6.8: right with one thread, and wrong with two."""

import contextlib
import threading

from tests.parts import part


def unlocked(m, name: str) -> None:
    """A method of WaitingQueue runs without the lock, the others with it."""
    right = getattr(m.WaitingQueue, name)

    def changed(self, *args):
        return right(Unlocked(self), *args)

    setattr(m.WaitingQueue, name, changed)


class Unlocked:
    """A queue as its own methods see it, with a lock that keeps nobody out."""

    def __init__(self, queue):
        self._queue, self._lock = queue, contextlib.nullcontext()

    def __getattr__(self, name):
        return getattr(self._queue, name)


@part("6.3")
def first_without_the_lock(m):
    """first drops entries of the heap while another thread does the same."""
    unlocked(m, "first")


@part("6.3")
def remove_without_the_lock(m):
    """remove looks, and then deletes what may have gone."""
    unlocked(m, "remove")


@part("6.3")
def expired_without_the_lock(m):
    """expired takes out who may just have been removed."""
    unlocked(m, "expired")


@part("6.3")
def a_lock_of_each_call(m):
    """Every call has a new lock of its own."""
    right = m.WaitingQueue.__init__

    class Always:
        def __enter__(self):
            return threading.Lock().acquire()

        def __exit__(self, *_):
            return None

    def init(self, *args):
        right(self, *args)
        self._lock = Always()

    m.WaitingQueue.__init__ = init


@part("6.3")
def iterates_over_the_real_one(m):
    """__iter__ goes through those who wait one by one, while they change."""
    code = """
def walk(self):
    names = []
    for request in self._waiting:
        names.append(request)
    return iter(names)
"""
    exec(code, vars(m))
    m.WaitingQueue.__iter__ = m.walk


@part("6.3")
def looks_before_the_lock(m):
    """add looks whether there is a place, then takes the lock and adds."""
    code = """
def add(self, request, now):
    if request.arrival is not None or request.state is not State.WAITING:
        raise ValueError("submitted before")
    if len(self._waiting) >= self.bound:
        raise QueueFull(f"{self.bound} wait")
    with self._lock:
        request.arrival = now
        self._waiting[request] = None
        number = next(self._numbers)
        heapq.heappush(self._line, (request.priority, request.size, number, request))
        if request.expires < float("inf"):
            heapq.heappush(self._ends, (request.expires, number, request))
"""
    exec(code, vars(m))
    m.WaitingQueue.add = m.add


@part("6.8")
def cancelled_list_made_new(m):
    """The list of the cancelled is replaced by an empty one after it was gone through."""
    code = """
def retire(self, now):
    for request in tuple(self._cancelled):
        if self.running.get(request.row) is request or self.waiting.remove(request):
            self._end(request, "cancelled")
    self._cancelled = deque()
    late = [request for request in self.running.values() if request.expires <= now]
    for request in [*self.waiting.expired(now), *late]:
        self._end(request, "timeout")
"""
    exec(code, vars(m))
    m.Batcher._retire = m.retire


@part("6.8")
def waiting_cancelled_on_the_spot(m):
    """Who waits is ended by cancel itself, in whatever thread that is."""
    right = m.Batcher.cancel

    def cancel(self, request):
        if self.waiting.remove(request):
            self._end(request, "cancelled")
        else:
            right(self, request)

    m.Batcher.cancel = cancel
