"""Wrong versions of 7.6 ResultStore."""

from course.misconceptions import misconception
from solutions.results import RUNNING, Kept


@misconception("7.6", "ResultStore._sweep")
def only_dropped_when_asked_for(self):
    """You drop a result when somebody asks for it and finds it too old. Most are never asked for:
    they stay for ever, and the process dies of them.
    """
    return None


@misconception("7.6", "ResultStore.keep")
def counted_only(self, id, status, body):
    """You bound the number of results and not their bytes. A thousand answers of a megabyte are a
    gigabyte.
    """
    self._running.discard(id)
    if id in self._kept:
        self._drop(id)
    self._sweep()
    self._kept[id] = Kept(status, body, self.clock() + self.seconds)
    self._bytes += len(body)
    while len(self._kept) > self.most:
        self._drop(next(iter(self._kept)))


@misconception("7.6", "ResultStore.keep")
def old_bytes_not_taken_off(self, id, status, body):
    """When a result of the same id is replaced, you add the new bytes and leave the old ones in the
    sum. It only grows, and in the end nothing fits any more.
    """
    self._running.discard(id)
    self._sweep()
    if len(body) > self.size:
        return
    self._kept.pop(id, None)
    self._kept[id] = Kept(status, body, self.clock() + self.seconds)
    self._bytes += len(body)
    while self._kept and (len(self._kept) > self.most or self._bytes > self.size):
        self._drop(next(iter(self._kept)))


@misconception("7.6", "ResultStore.get")
def fetched_once(self, id):
    """You take a result out when it is fetched. A client whose connection broke in that moment has
    lost it for good; that is what it is kept for.
    """
    self._sweep()
    if id in self._running:
        return RUNNING
    found = self._kept.get(id)
    if found is not None:
        self._drop(id)
    return found


@misconception("7.6", "ResultStore._sweep")
def a_moment_too_long(self):
    """You drop a result when the clock is past `until`. At `until` itself it is over already."""
    now = self.clock()
    while self._kept and (oldest := next(iter(self._kept.items())))[1].until < now:
        self._drop(oldest[0])
