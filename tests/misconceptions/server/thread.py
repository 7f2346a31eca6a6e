"""Wrong versions of 7.3 EngineThread."""

from course.misconceptions import misconception
from solutions.ending import end


@misconception("7.3", "EngineThread._run")
def spins(self):
    """With nothing to do your loop goes round and round. It takes a whole core from the model, and
    holds Python's lock when the event loop needs it. Wait for an Event that submit sets.
    """
    try:
        while not self._over:
            if not self._batcher.idle:
                self._step()
    except BaseException as error:
        self._close(error)
    else:
        self._close(None)


@misconception("7.3", "EngineThread._run")
def dies_in_silence(self):
    """An exception in a thread is printed, and that is all: the thread is gone, and everybody who
    waits for a token waits for ever. Catch it, keep it, and end all requests with it.
    """
    try:
        while not self._over:
            self._wake.wait()
            self._wake.clear()
            while not self._over and not self._batcher.idle:
                self._step()
    except BaseException as error:
        self.error, self._over = error, True
    else:
        self._close(None)


@misconception("7.3", "EngineThread._run")
def cleared_too_late(self):
    """You clear the event after you have seen that nobody is there. A request that comes between
    the look and the clear is wiped out with it: it waits until the next one comes. Clear first,
    then look.
    """
    try:
        while not self._over:
            self._wake.wait()
            while not self._over and not self._batcher.idle:
                self._step()
            self._wake.clear()
    except BaseException as error:
        self._close(error)
    else:
        self._close(None)


@misconception("7.3", "EngineThread._step")
def locked_while_it_computes(self):
    """You hold the lock while a step is computed. submit needs it too: the event loop stands still
    for as long as the model takes, and nobody gets a 503 in time.
    """
    with self._lock:
        began = self.began = self._clock()
        step = self._batcher.step()
        self.began = None
        self._live = {request for request in self._live if request.finish_reason is None}
    if self._on_step is not None:
        self._on_step(step, self._clock() - began)


@misconception("7.3", "EngineThread._close")
def ends_whom_the_batcher_knows(self, error):
    """You end those who are in the batcher's lists. But a step that was torn up may have taken a
    request out of one list and not got to the next. Keep your own set of those who are not over.
    """
    with self._lock:
        self._over, self.error, self.began = True, error, None
    if error is not None and not isinstance(error, Exception):
        error = RuntimeError(f"the engine was ended by {error!r}")
    for request in getattr(self._batcher, "here", None) or self._live:
        if request.finish_reason is None:
            end(request, "cancelled" if error is None else "error", error)


@misconception("7.3", "EngineThread.submit")
def taken_by_the_dead(self, request):
    """You do not look whether the thread is still there. After its end a request that is submitted
    waits in a queue that nobody will ever look at again.
    """
    with self._lock:
        self._batcher.submit(request)
        self._live.add(request)
    self._wake.set()
