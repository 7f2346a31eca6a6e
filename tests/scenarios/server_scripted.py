"""A batcher that does as a script says, and how long a scenario waits for the engine's thread."""

import contextlib
import functools
import sys
import threading
import time
import weakref

from solutions.batcher import Step
from solutions.request import Request
from tests.scenarios.batcher_models import ERRORS
from tests.scenarios.helpers import Unusable, told

LOOKS = 150  # after which a scenario gives up waiting, the first time with a module
FEW = 45  # the next times: it has been seen to hang
BETWEEN = 0.01  # seconds between two looks, but for the first. A busy machine gets more time so


class Patience:
    """How long to wait for the module that is under test now."""

    def __init__(self):
        self.module, self.tried, self.made = None, weakref.WeakSet(), []

    @property
    def looks(self) -> int:
        """For one wait."""
        return FEW if self.module in self.tried else LOOKS

    def holds(self, condition) -> bool:
        """Whether condition() becomes true in time."""
        for number in range(self.looks):
            if condition():
                return True
            time.sleep(BETWEEN if number > 30 else BETWEEN / 10)
        return condition()

    def lost(self, what: str) -> Unusable:
        """It was too long."""
        self.tried.add(self.module)
        return Unusable(what)


PATIENCE = Patience()


def threaded(scenario):
    """Mark a scenario: what it says when it gives up is told, and it is patient once."""

    @told
    @functools.wraps(scenario)
    def run(module, *args):
        PATIENCE.module, kept = module, threading.excepthook
        threading.excepthook = lambda _: None  # what a thread dies of is part of the scenario
        try:
            return scenario(module, *args)
        finally:
            threading.excepthook = kept
            _end_all()

    return run


def until(holds, otherwise: str) -> None:
    """Wait until holds() is true; otherwise says what is wrong if that is never so."""
    if not PATIENCE.holds(holds):
        raise PATIENCE.lost(otherwise)


def quickly(call, what: str, meanwhile=lambda: None):
    """call() on a thread of its own, which must come back though nobody lets the engine go on.

    meanwhile is called when it has begun.
    """
    found, began = [], threading.Event()

    def run():
        began.set()
        try:
            found.append([call(), None])
        except Exception as error:
            found.append([None, error])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    began.wait()
    meanwhile()
    until(lambda: found, f"{what} does not come back")
    if found[0][1] is not None:
        raise found[0][1]
    return found[0][0]


class Scripted:
    """A batcher whose steps do as a script says, one a step; then each ends its oldest request.

    A step of the script is a list of: "hold" (wait until released), ["raise", name], "lose" (forget
    the oldest without ending it), "finish" (end the oldest, "stop"), "nothing".
    """

    def __init__(self, script=()):
        self.script, self.here, self.events = list(script), [], []
        self.cancelled: list = []
        self.entered, self.released = threading.Semaphore(0), threading.Semaphore(0)
        self.looks, self.steps, self.refuses = 0, 0, None
        self.on_look, self.on_submit = None, None  # called once, in the middle of it

    @property
    def idle(self):
        self.looks += 1
        found = not (self.here or self.cancelled)
        if found and self.on_look is not None:
            hook, self.on_look = self.on_look, None
            hook()
        return found

    def submit(self, request):
        if self.on_submit is not None:
            hook, self.on_submit = self.on_submit, None
            hook()
        if self.refuses is not None:
            raise self.refuses
        request.arrival = 0.0
        self.here.append(request)

    def cancel(self, request):
        self.cancelled.append(request)

    def step(self):
        self.steps += 1
        self.events.append(threading.get_ident())
        while self.cancelled:
            self._end(self.cancelled.pop(0), "cancelled")
        for do in self.script.pop(0) if self.script else ["finish"]:
            self._do(do)
        return Step(running=len(self.here), waiting=self.steps)

    def _do(self, do):
        if do == "hold":
            self.entered.release()
            looks = range(2 * PATIENCE.looks)  # longer than anybody waits for what is held
            if not any(self.released.acquire(timeout=BETWEEN) for _ in looks):
                raise RuntimeError("nobody let the step go on")
        elif do == "lose":
            self.here.pop(0)
        elif do == "finish" and self.here:
            self._end(self.here[0], "stop")
        elif do[0] == "raise":
            raise ERRORS[do[1]]("the step failed on purpose")

    def _end(self, request, reason):
        if request in self.here:
            self.here.remove(request)
            request.finish(reason)
            if request.on_finish:
                request.on_finish(request)

    def wait_for_hold(self):
        """Until a step of the script is held."""
        said = "the thread does not step, though something was submitted"
        until(lambda: self.entered.acquire(blocking=False), said)


def requests_of(names: list, heard: list, also=lambda request: None) -> dict:
    """Requests by name; heard gets [name, reason, error's class] of each on_finish, after also."""

    def over(request):
        error = request.error
        also(request)
        heard.append([request.id, request.finish_reason, error and type(error).__name__])

    return {name: Request([1, 2], id=name, on_finish=over) for name in names}


def engine_of(module, batcher, on_step=None, clock=time.monotonic):
    """An EngineThread, whose thread must not outlive its scenario."""
    PATIENCE.made.append([module.EngineThread(batcher, on_step, clock), batcher])
    return PATIENCE.made[-1][0]


def _end_all() -> None:
    """End all threads, however the scenario went: one that is left may take a core for ever."""
    for engine, batcher in PATIENCE.made:
        with contextlib.suppress(Exception):
            _release(batcher)
            engine.stop(0.0)
    PATIENCE.made.clear()


def _release(batcher) -> None:
    """Let everything go on that is held, or will be."""
    if isinstance(batcher, Scripted):
        for _ in range(20):
            batcher.released.release()


def close(engine, batcher=None) -> None:
    """Let everything that is held go on, and end the thread, which must end now."""
    _release(batcher)
    is_over = PATIENCE.holds(lambda: engine.stop(0.0))
    if not is_over and sys.exc_info()[0] is None:  # else that comes first
        raise PATIENCE.lost("stop does not end the thread, though no step is being computed")
