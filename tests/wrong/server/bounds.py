"""7.5 to 7.8: bounds, streams and the end."""

import asyncio

from tests.parts import part
from tests.wrong.server.threads import method


@part("7.5")
def rounded_down(m):
    """The wait is rounded to the nearest second."""

    def wait(right, self, ahead, now):
        times = list(self._times)
        if len(times) < 2:
            return 1
        mean = (times[-1] - times[0]) / (len(times) - 1)
        if now - times[-1] > mean:
            mean = (now - times[0]) / len(times)
        return min(max(1, round(ahead * mean)), 60)

    method(m, "Pace", "wait", wait)


@part("7.5")
def all_departures_count(m):
    """Every departure since the start counts."""

    def note(right, self, now):
        self._times = [*self._times, now]

    method(m, "Pace", "note", note)


@part("7.5")
def one_place_for_all(m):
    """A request holds one place, for however many answers."""
    right = m.Door.enter
    m.Door.enter = lambda self, places=1: right(self, 1 if places <= self.bound else places)


@part("7.5")
def retry_when_it_cannot_help(m):
    """A request that can never come in is told to come again."""
    right = m.Door.enter

    def enter(self, places=1):
        if places > self.bound:
            said = f"{places} answers, {self.bound} places"
            raise m.ApiError(503, said, None, "queue_full", 1)
        return right(self, places)

    m.Door.enter = enter


@part("7.5")
def admitted_at_zero(m):
    """admitted is looked at for its truth: a request that was admitted at 0.0 counts as waiting."""
    right = m.failure

    def failure(request, retry_after):
        if request.finish_reason == "timeout" and not request.admitted:
            return m.ApiError(503, "it waited too long", None, "queue_timeout", retry_after)
        return right(request, retry_after)

    m.failure = failure


@part("7.6")
def time_from_the_last_look(m):
    """A result that is fetched is kept for longer."""

    def get(right, self, id):
        found = right(self, id)
        if isinstance(found, m.Kept):
            self._kept[id] = m.Kept(found.status, found.body, self.clock() + self.seconds)
        return found

    method(m, "ResultStore", "get", get)


@part("7.6")
def running_ones_expire(m):
    """A request that takes longer than results are kept is forgotten."""

    def begin(right, self, id):
        right(self, id)
        self.began = getattr(self, "began", {}) | {id: self.clock()}

    def get(right, self, id):
        if self.clock() - getattr(self, "began", {}).get(id, self.clock()) > self.seconds:
            self._running.discard(id)
        return right(self, id)

    method(m, "ResultStore", "begin", begin)
    method(m, "ResultStore", "get", get)


@part("7.6")
def giants_drive_out(m):
    """A result that is too large takes all others with it."""

    def keep(right, self, id, status, body):
        if len(body) > self.size:
            while self._kept:
                self._drop(next(iter(self._kept)))
        right(self, id, status, body)

    method(m, "ResultStore", "keep", keep)


@part("7.7")
def done_after_an_error(m):
    """[DONE] follows an error."""
    right = m.stream

    async def stream(job, quiet):
        failed = False
        async for event in right(job, quiet):
            failed = failed or b'"error"' in event
            yield event
        if failed:
            yield m.encode_event(None)

    m.stream = stream


@part("7.7")
def quiet_only_once(m):
    """It says once that it is alive, and then waits in silence."""
    right = m.stream

    async def stream(job, quiet):
        said = False
        events = right(job, quiet)
        try:
            async for event in events:
                if event != m.KEEP_ALIVE or not said:
                    yield event
                said = said or event == m.KEEP_ALIVE
        finally:
            await events.aclose()

    m.stream = stream


@part("7.7")
def all_pieces_first(m):
    """A stream that gives everything when all is over."""
    right = m.stream

    async def stream(job, quiet):
        events = [event async for event in right(job, 1e6)]
        for event in events:
            yield event

    m.stream = stream


@part("7.7")
def gone_without_waiting(m):
    """ClientGone is raised while the work is still tidying up."""

    async def while_connected(work, receive):
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(m._disconnected(receive))
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise m.ClientGone
        finally:
            task.cancel()
            watch.cancel()

    m.while_connected = while_connected


@part("7.7")
def work_wins_when_both_are_there(m):
    """The connection is looked at first, and a client that left with its answer ready is gone;
    otherwise everything is right but the cancelling of the caller, which is swallowed.
    """
    right = m.while_connected

    async def while_connected(work, receive):
        try:
            return await right(work, receive)
        except asyncio.CancelledError:
            raise m.ClientGone from None

    m.while_connected = while_connected


@part("7.8")
def at_the_limit_it_hangs(m):
    """A step that takes exactly as long as it may counts as hung."""
    right = m.health

    def health(phase, is_alive, step_seconds, stall_seconds):
        if step_seconds == stall_seconds:
            step_seconds += 1
        return right(phase, is_alive, step_seconds, stall_seconds)

    m.health = health


@part("7.8")
def ready_again(m):
    """ready makes it ready in whatever phase."""

    def ready(right, self):
        self.phase = m.Phase.READY

    method(m, "Lifecycle", "ready", ready)


@part("7.8")
def every_drain_drains(m):
    """A second drain begins anew."""

    async def drain(self, seconds, end_all, grace=5.0):
        self.phase = m.Phase.DRAINING
        return await self._drain(seconds, end_all, grace)

    m.Lifecycle.drain = drain


@part("7.8")
def graceless(m):
    """After end_all nobody is waited for."""
    right = m.Lifecycle._drain

    async def drain(self, seconds, end_all, grace):
        return await right(self, seconds, end_all, 0.0)

    m.Lifecycle._drain = drain
