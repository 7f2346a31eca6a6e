"""7.3 and 7.4: the thread and the channel."""

import threading

from tests.parts import part


def method(m, kind, name, change) -> None:
    """change(right, self, *args) takes the place of a method."""
    right = getattr(getattr(m, kind), name)

    def changed(self, *args):
        return change(right, self, *args)

    setattr(getattr(m, kind), name, changed)


@part("7.3")
def a_thread_for_each_request(m):
    """Every submit starts a thread that computes until nobody is there."""

    def submit(right, self, request):
        self._batcher.submit(request)
        self._live.add(request)

        def work():
            while not self._batcher.idle:
                self._step()

        threading.Thread(target=work, daemon=True).start()

    method(m, "EngineThread", "submit", submit)


@part("7.3")
def looks_now_and_then(m):
    """It waits, but only for a moment, and looks again."""

    def run(right, self):
        while not self._over:
            self._wake.wait(0.01)
            self._wake.clear()
            while not self._over and not self._batcher.idle:
                self._step()
        self._close(None)

    method(m, "EngineThread", "_run", run)


@part("7.3")
def told_twice(m):
    """At the end on_finish of everybody is called who was ever here."""

    def step(right, self):
        before = set(self._live)
        right(self)
        self._live |= before

    def close(right, self, error):
        left = set(self._live)
        right(self, error)
        for request in left:
            request.on_finish(request)

    method(m, "EngineThread", "_step", step)
    method(m, "EngineThread", "_close", close)


@part("7.3")
def refused_and_kept(m):
    """A request is noted before the batcher has taken it."""

    def submit(right, self, request):
        self._live.add(request)
        right(self, request)

    method(m, "EngineThread", "submit", submit)


@part("7.3")
def began_is_never_over(m):
    """began stays at the last step."""

    def step(right, self):
        began = self._clock()
        right(self)
        self.began = began

    method(m, "EngineThread", "_step", step)


@part("7.3")
def only_exceptions_are_faults(m):
    """Ctrl-C goes on to whoever started the thread, which is nobody."""

    def run(right, self):
        try:
            while not self._over:
                self._wake.wait()
                self._wake.clear()
                while not self._over and not self._batcher.idle:
                    self._step()
        except Exception as error:
            self._close(error)
        except BaseException as error:
            self.error, self._over = error, True
        else:
            self._close(None)

    method(m, "EngineThread", "_run", run)


@part("7.3")
def stops_without_waiting(m):
    """stop says yes at once."""

    def stop(right, self, timeout=None):
        right(self, 0.0)
        return True

    method(m, "EngineThread", "stop", stop)


@part("7.4")
def order_of_indices(m):
    """get gives the pieces by index."""

    async def get(self):
        await self._filled.wait()
        return sorted(self._take(), key=lambda piece: piece.index)

    m.Channel.get = get


@part("7.4")
def taken_before_the_wait(m):
    """What is there is taken before it waits: whoever is cancelled then takes it with him."""
    right = m.Channel.get

    async def get(self):
        pieces = self._take()
        if pieces:
            return pieces
        try:
            return await right(self)
        finally:
            self._take()

    m.Channel.get = get


@part("7.4")
def stop_for_every_reason(m):
    """A stop string at the very end makes "stop" of a timeout, too."""
    right = m.listen

    def listen(request, index, channel, stream, matcher):
        whole = right(request, index, channel, stream, matcher)
        over = request.on_finish

        def on_finish(request):
            kept = request.finish_reason
            if matcher.add(stream.flush()) == "" and matcher.found:
                request.finish_reason = "stop"
            over(request)
            request.finish_reason = kept

        request.on_finish = on_finish
        return whole

    m.listen = listen


@part("7.4")
def a_piece_for_every_token(m):
    """Tokens without text make empty pieces."""
    right = m.listen

    def listen(request, index, channel, stream, matcher):
        whole = right(request, index, channel, stream, matcher)
        hear = request.on_token

        def on_token(token):
            before = whole.text
            found = hear(token)
            if whole.text == before:
                channel.put(m.Piece(index))
            return found

        request.on_token = on_token
        return whole

    m.listen = listen


@part("7.3")
def woken_before_it_is_there(m):
    """The thread is woken, and then the request is submitted: it may have looked in between."""

    def submit(right, self, request):
        self._wake.set()
        self._batcher.submit(request)
        with self._lock:
            self._live.add(request)

    method(m, "EngineThread", "submit", submit)


@part("7.3")
def stopped_in_its_sleep(m):
    """stop does not wake the thread."""

    def stop(right, self, timeout=None):
        kept, self._wake.set = self._wake.set, lambda: None
        try:
            return right(self, timeout)
        finally:
            self._wake.set = kept

    method(m, "EngineThread", "stop", stop)


@part("7.3")
def looked_and_then_submitted(m):
    """Whether the thread is over is looked at without the lock."""

    def submit(right, self, request):
        if self._over:
            raise m.EngineDead(f"it has ended: {self.error!r}")
        self._batcher.submit(request)
        self._live.add(request)
        self._wake.set()

    method(m, "EngineThread", "submit", submit)


@part("7.3")
def the_error_at_last(m):
    """error is set when all have heard of their end."""

    def run(right, self):
        seen = self._close

        def late(error):
            for request in list(self._live):
                over = request.on_finish
                request.on_finish = lambda r, over=over: (setattr(self, "error", None), over(r))
            seen(error)
            self.error = error

        self._close = late
        right(self)

    method(m, "EngineThread", "_run", run)


@part("7.3")
def at_once_means_for_ever(m):
    """stop without a timeout does not wait."""

    def stop(right, self, timeout=0.0):
        return right(self, timeout)

    method(m, "EngineThread", "stop", stop)


@part("7.3")
def opens_again(m):
    """A thread that was stopped before it was started takes requests."""

    def stop(right, self, timeout=None):
        found = right(self, timeout)
        if self._thread.ident is None:
            self._over = False
        return found

    method(m, "EngineThread", "stop", stop)
