"""Chapter 07: the one thread on which the model computes."""

import threading
import time
from collections.abc import Callable

from solutions.batcher import Batcher, Step
from solutions.ending import end
from solutions.request import Request


class EngineDead(RuntimeError):
    """The thread has ended, by a fault or because it was asked to: nothing runs any more."""


class EngineThread:
    """Calls `step` of a batcher again and again, on a thread of its own, while there is work.

    With nothing to do it sleeps until somebody submits. A step may take a second; whoever waits
    for connections must not wait for it, so the model never runs on the event loop.

    Every request that submit has taken ends, once, whatever happens: by a step, or when the thread
    ends. Also one that is being submitted in the moment in which the thread dies.

    Args:
        batcher: from start on, only its submit and cancel are called by anybody else.
        on_step: called on the thread after each step, with its Step and the seconds it took.
        clock: gives seconds that never go backwards.

    Attributes:
        error: the exception that ended the thread; None as long as there was none.
        began: when the step that is being computed began, a time of the clock; None between steps.
            With it others can tell that a step hangs.
    """

    def __init__(
        self,
        batcher: Batcher,
        on_step: Callable[[Step, float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.error: BaseException | None = None
        self.began: float | None = None
        self._batcher, self._on_step, self._clock = batcher, on_step, clock
        self._wake = threading.Event()
        self._lock = threading.Lock()  # of _live and _over; held for moments only
        self._live: set[Request] = set()  # submitted, and not over yet
        self._over = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def is_alive(self) -> bool:
        """It was started, and will compute what is submitted."""
        return self._thread.is_alive() and not self._over

    def start(self) -> None:
        """Begin. Once."""
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Submit to the batcher, and wake the thread. From any thread; it never waits for a step.

        Errors: EngineDead when the thread has ended, naming the error if there was one; what
        Batcher.submit raises. The request's on_finish is not called then.
        """
        # exercise 7.3
        with self._lock:
            if self._over:
                raise EngineDead(f"the engine has ended: {self.error!r}")
            self._batcher.submit(request)
            self._live.add(request)
        self._wake.set()

    def cancel(self, request: Request) -> None:
        """End a request, "cancelled", at the beginning of the next step, wherever it stands.

        From any thread, at once. It wakes the thread, also for one that is over: otherwise that
        would be held until another comes.
        """
        # exercise 7.3
        self._batcher.cancel(request)
        self._wake.set()

    def stop(self, timeout: float | None = None) -> bool:
        """Let the thread end after the step it is in; who is not over then ends, "cancelled".

        From now on it is not alive, and submit raises EngineDead. Wherever the thread sleeps, it
        hears of it at once.

        Returns:
            whether it has ended within timeout seconds (None: however long it takes). A thread
            that was not started has; its requests end all the same.
        """
        # exercise 7.3
        with self._lock:
            self._over = True
        self._wake.set()
        if self._thread.ident is None:
            self._close(None)
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """The thread: sleep while the batcher is idle, step while it is not.

        Whatever step or on_step raises that gets here, a SystemExit included, is no fault of one
        request: the batcher cannot be trusted any more. So it is the end of the thread: error is
        set, it is not alive any more, and then every request that was submitted and is not over
        ends, "error", with it (with a RuntimeError that names it, when it is no Exception). Nobody
        waits for ever.
        """
        # exercise 7.3
        try:
            while not self._over:
                self._wake.wait()
                self._wake.clear()
                while not self._over and not self._batcher.idle:
                    self._step()
        except BaseException as error:
            self._close(error)
        else:
            self._close(None)

    def _step(self) -> None:
        """One step; whoever is over after it is forgotten."""
        # exercise 7.3
        began = self.began = self._clock()
        step = self._batcher.step()
        self.began = None
        with self._lock:
            self._live = {request for request in self._live if request.finish_reason is None}
        if self._on_step is not None:
            self._on_step(step, self._clock() - began)

    def _close(self, error: BaseException | None) -> None:
        """No more requests; those that are left end."""
        # exercise 7.3
        with self._lock:
            self._over, self.error, self.began = True, error, None
            left, self._live = self._live, set()
        if error is not None and not isinstance(error, Exception):
            error = RuntimeError(f"the engine was ended by {error!r}")
        for request in left:
            if request.finish_reason is None:
                end(request, "cancelled" if error is None else "error", error)
