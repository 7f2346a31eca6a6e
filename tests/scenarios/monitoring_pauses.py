"""Chapter 08 beside the code under test: the garbage collector (8.6)."""

import gc
import weakref

from tests.scenarios.helpers import told


class Ticks:
    """A clock that reads what a script says, and counts."""

    def __init__(self, readings: list):
        self.readings, self.reads = list(readings), 0

    def __call__(self) -> float:
        self.reads += 1
        return self.readings.pop(0)


def watched(watch) -> dict:
    """What a PauseWatch has measured."""
    return {
        "seconds": list(watch.seconds),
        "runs": list(watch.runs),
        "longest": list(watch.longest),
    }


@told
def pauses_scripted(module, calls: list, readings: list, heard: bool) -> dict:
    """A PauseWatch that is called as Python would call it: [phase, generation] each."""
    clock, pauses = Ticks(readings), []

    def on_pause(generation, seconds):
        pauses.append([generation, seconds])

    others = list(gc.callbacks)
    try:
        watch = module.PauseWatch(clock, on_pause) if heard else module.PauseWatch(clock)
        for phase, generation in calls:
            watch(phase, {"generation": generation, "collected": 0, "uncollectable": 0})
        return watched(watch) | {"pauses": pauses, "reads": clock.reads}
    finally:
        gc.callbacks[:] = others


@told
def pauses_joined(module, fails: bool) -> dict:
    """Real collections, before, in and after a block; and who is in gc.callbacks."""
    seen: list = []

    def other(phase, info):
        seen.append(phase)

    automatic, others = gc.isenabled(), list(gc.callbacks)
    gc.disable()
    gc.callbacks.append(other)
    before = list(gc.callbacks)
    try:
        return _collect(module, fails) | {"as_before": gc.callbacks == before, "seen": len(seen)}
    finally:
        gc.callbacks[:] = others
        if automatic:
            gc.enable()


def _collect(module, fails: bool) -> dict:
    watch, answer = module.PauseWatch(), "nothing was raised"
    gc.collect(2)
    try:
        with watch as same:
            watch.__enter__()  # joined already
            inside = sum(call is watch for call in gc.callbacks)
            gc.collect(0)
            gc.collect(2)
            gc.collect(0)
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        answer = "it went through"
    watch.__exit__(None, None, None)  # left already
    gc.collect(1)
    found = watched(watch)
    return {
        "runs": found["runs"],
        "took": [taken > 0 for taken in found["seconds"]],
        "same": same is watch,
        "inside": inside,
        "raised": answer,
    }


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self):
        self.me = self


@told
def tamed_told(module, thresholds: list | None, fails: bool) -> dict:
    """What the collector does in a tamed block, and after it."""
    state = gc.get_threshold(), gc.isenabled()
    gc.unfreeze()
    gc.disable()
    gc.set_threshold(701, 11, 12)
    found: dict = {"raised": "nothing was raised"}
    try:
        _tame(module, thresholds, fails, found)
        found["after"] = [list(gc.get_threshold()), gc.get_freeze_count() > 0]
        return found
    finally:
        gc.unfreeze()
        gc.set_threshold(*state[0])
        if state[1]:
            gc.enable()


def _tame(module, thresholds, fails, found) -> None:
    knot, living = Knot(), Knot()
    gc.collect()  # both are old: a look at what is young does not find them
    garbage = weakref.ref(knot)
    del knot
    block = module.tamed() if thresholds is None else module.tamed(tuple(thresholds))
    found["before"] = [list(gc.get_threshold()), gc.get_freeze_count() > 0]
    try:
        with block:
            found["inside"] = [list(gc.get_threshold()), gc.get_freeze_count() > 1000]
            found["garbage"] = garbage() is not None
            found["frozen"] = not any(one is living for one in gc.get_objects())
            found["enabled"] = gc.isenabled()
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        found["raised"] = "it went through"
