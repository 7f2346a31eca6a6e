"""Wrong versions of 8.6."""

import gc
from contextlib import contextmanager

from course.misconceptions import misconception
from solutions.collector import CALM


@misconception("8.6", "PauseWatch.__call__")
def stop_without_start(self, phase, info):
    """You count every stop. When you join in the middle of a run you get a stop that has no start,
    and measure from the run before.
    """
    if phase == "start":
        self._began = self._clock()
    else:
        taken, generation = self._clock() - (self._began or 0.0), info["generation"]
        self.seconds[generation] += taken
        self.runs[generation] += 1
        self.longest[generation] = max(self.longest[generation], taken)
        if self._on_pause:
            self._on_pause(generation, taken)


@misconception("8.6", "PauseWatch.__exit__")
def nobody_is_left(self, *_):
    """You empty gc.callbacks. Others listen there too: take only yourself out."""
    gc.callbacks.clear()


@misconception("8.6", "tamed")
def garbage_frozen(thresholds=CALM):
    """You freeze without collecting first. What is garbage at that moment is frozen with the rest,
    and never found again.
    """

    @contextmanager
    def block():
        before = gc.get_threshold()
        gc.freeze()
        gc.set_threshold(*thresholds)
        try:
            yield
        finally:
            gc.set_threshold(*before)
            gc.unfreeze()

    return block()


@misconception("8.6", "tamed")
def not_after_an_exception(thresholds=CALM):
    """You undo it only when the block ends well. After an exception the collector stays tamed for
    the rest of the program: a finally is needed.
    """

    @contextmanager
    def block():
        before = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*thresholds)
        yield
        gc.set_threshold(*before)
        gc.unfreeze()

    return block()


@misconception("8.6", "tamed")
def switched_off(thresholds=CALM):
    """You switch the collector off. Then garbage in cycles is never freed, and a service that runs
    for weeks dies of it: let it look, less often.
    """

    @contextmanager
    def block():
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()

    return block()
