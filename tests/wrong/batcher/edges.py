"""6.2 to 6.6: the rarer side of a promise."""

import heapq

import torch

from tests.parts import part


@part("6.2")
def over_and_never_late(m):
    """A request that is over does not expire."""
    right = m.Request.expires.fget

    def expires(self):
        return float("inf") if self.state == "finished" else right(self)

    m.Request.expires = property(expires)


@part("6.2")
def no_more_than_the_limit(m):
    """add drops a token in silence when the limit is reached."""
    right = m.Request.add

    def add(self, token, told=None):
        if len(self.output) < self.limit:
            right(self, token, told)

    m.Request.add = add


@part("6.2")
def nothing_is_everything(m):
    """upcoming(0) gives all that remains."""
    right = m.Request.upcoming
    m.Request.upcoming = lambda self, count: right(self, count or 10**9)


@part("6.2")
def never_nothing_remaining(m):
    """At least one token always remains."""
    right = m.Request.remaining.fget
    m.Request.remaining = property(lambda self: max(1, right(self)))


def after(m, name: str, change) -> None:
    """change(request, *args) follows a method of Request."""
    right = getattr(m.Request, name)

    def changed(self, *args):
        right(self, *args)
        change(self, *args)

    setattr(m.Request, name, changed)


@part("6.2")
def finished_without_a_row(m):
    """finish forgets the row, so that nobody can give it back."""
    after(m, "finish", lambda request, *_: setattr(request, "row", None))


@part("6.2")
def failed_without_output(m):
    """What was written before an error is thrown away."""

    def change(request, reason, error=None):
        request.output = [] if reason == "error" else request.output

    after(m, "finish", change)


@part("6.2")
def computed_anew(m):
    """A move counts what the cache holds from 0 again."""
    after(m, "move", lambda request, state: setattr(request, "computed", 0))


@part("6.3")
def looks_for_the_promoted(m):
    """Everybody's arrival is looked at in each call."""
    right = m.WaitingQueue.first

    def first(self, now):
        for request in list(self):
            if now - request.arrival > self.patience:
                return request
        return right(self, now)

    m.WaitingQueue.first = first


@part("6.3")
def short_by_the_wish(m):
    """The order is by what was wished for, not by the limit."""
    right = m.WaitingQueue.add

    def add(self, request, now):
        kept, request.limit = request.limit, request.params.max_tokens
        try:
            right(self, request, now)
        finally:
            request.limit = kept

    m.WaitingQueue.add = add


@part("6.3")
def found_by_id(m):
    """remove takes out the first who has the same id."""
    right = m.WaitingQueue.remove

    def remove(self, request):
        twins = [other for other in self if other.id == request.id]
        return right(self, twins[0] if twins else request)

    m.WaitingQueue.remove = remove


@part("6.4")
def any_fault_is_no_room(m):
    """Whatever the cache raises counts as full."""

    def take(self, request):
        if not self._free or self.cache.used_tokens + request.size > self.budget:
            return False
        try:
            self.cache.reserve(self._free[0], request.size)
        except Exception:
            return False
        request.row = heapq.heappop(self._free)
        return True

    m.Room.take = take


@part("6.4")
def row_lost_by_a_fault(m):
    """A row is taken first, and only put back for CacheFull."""

    def take(self, request):
        if not self._free or self.cache.used_tokens + request.size > self.budget:
            return False
        row = heapq.heappop(self._free)
        try:
            self.cache.reserve(row, request.size)
        except m.CacheFull:
            heapq.heappush(self._free, row)
            return False
        request.row = row
        return True

    m.Room.take = take


@part("6.4")
def admitted_before_there_is_room(m):
    """The time of admission is noted for whoever is first, let in or not."""
    right = m.admit

    def admit(waiting, room, now):
        found = right(waiting, room, now)
        first = waiting.first(now)
        if first is not None:
            first.admitted = now
        return found

    m.admit = admit


@part("6.4")
def late_ones_dropped(m):
    """admit takes the late ones out, and nobody hears of them."""
    right = m.admit

    def admit(waiting, room, now):
        waiting.expired(now)
        return right(waiting, room, now)

    m.admit = admit


@part("6.5")
def rows_on_the_cpu(m):
    """The rows are made where torch makes tensors by default."""

    def compute(model, cache, chunks):
        if not chunks:
            return [], None
        requests = [request for request, _ in chunks]
        ids = [request.upcoming(count) for request, count in chunks]
        tokens, positions = m.pad(ids, [r.computed for r in requests], model.device)
        rows = torch.tensor([request.row for request in requests])
        logits = model.forward(tokens, positions, cache, rows)
        for request, count in chunks:
            request.computed += count
        return m._complete(requests, logits)

    m.compute = compute


@part("6.6")
def told_again_after_a_fault(m):
    """on_finish is called a second time when it raised."""

    def end(request, reason, error=None):
        request.finish(reason, error)
        problem = None
        for _ in range(2):
            try:
                if request.on_finish is not None:
                    request.on_finish(request)
                return None
            except Exception as raised:
                problem = raised
        return problem

    m.end = end


@part("6.6")
def no_length_before_the_wish(m):
    """A limit that was clamped does not end the answer."""
    right = m.emit

    def emit(request, token, end_ids, told=None):
        reason = right(request, token, end_ids, told)
        early = len(request.output) < request.params.max_tokens
        return None if reason == "length" and early else reason

    m.emit = emit


@part("6.6")
def what_the_listener_says(m):
    """end returns what on_finish returns."""

    def end(request, reason, error=None):
        request.finish(reason, error)
        try:
            return request.on_finish and request.on_finish(request)
        except Exception as problem:
            return problem

    m.end = end
