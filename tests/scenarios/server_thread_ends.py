"""Chapter 07 beside the code under test: faults of the engine's thread, and its end.

Every scenario takes the module under test first and returns plain data.
"""

import time

from tests.scenarios.batcher_models import ERRORS
from tests.scenarios.server_scripted import (
    BETWEEN,
    PATIENCE,
    Scripted,
    engine_of,
    quickly,
    requests_of,
    threaded,
    until,
)


@threaded
def thread_dies(module, script: list, names: list, by_listener: str | None = None) -> dict:
    """A step (or on_step) that raises: how all requests end, and what the engine says then.

    The first request is submitted alone, the others while the first step is held.
    """
    batcher, heard = Scripted([["hold"], *script]), []
    on_step = None
    if by_listener:

        def on_step(step, seconds):
            if step.waiting > 1:
                raise ERRORS[by_listener]("the listener failed on purpose")

    engine = engine_of(module, batcher, on_step)
    early = []

    def look(request):
        if request.finish_reason == "error" and (engine.error is None or engine.is_alive):
            early.append(request.id)

    made = requests_of([*names, "late"], heard, look)
    engine.start()
    engine.submit(made[names[0]])
    batcher.wait_for_hold()
    for name in names[1:]:
        engine.submit(made[name])
    batcher.released.release()
    until(lambda: engine.error is not None, "a step failed, and error is still None")
    until(lambda: len(heard) >= len(names), "a step failed, and not all requests have ended")
    until(lambda: not engine.is_alive, "a step failed, and is_alive is still True")
    late = None
    try:
        engine.submit(made["late"])
    except module.EngineDead as error:
        late = type(engine.error).__name__ in str(error)
    stopped = PATIENCE.holds(lambda: engine.stop(0.0))
    time.sleep(0.01)
    errors = {name: request.error for name, request in made.items()}
    return {
        "heard": sorted(heard),
        "error": type(engine.error).__name__,
        "same": {name: error is engine.error for name, error in errors.items() if error},
        "named": {n: type(engine.error).__name__ in repr(e) for n, e in errors.items() if e},
        "late": late,
        "late_over": made["late"].finish_reason,
        "early": early,
        "stopped": stopped,
        "began": engine.began,
    }


@threaded
def thread_stops(module, names: list) -> dict:
    """stop while a step is held: what it says at first, and when the step goes on."""
    batcher, heard = Scripted([["hold"]]), []
    engine = engine_of(module, batcher)
    made = requests_of([*names, "late"], heard)
    engine.start()
    engine.submit(made[names[0]])
    batcher.wait_for_hold()
    for name in names[1:]:
        engine.submit(made[name])
    first, alive = engine.stop(0.02), engine.is_alive
    before = sorted(heard)
    late = None
    try:
        engine.submit(made["late"])
    except module.EngineDead:
        late = True
    second = quickly(engine.stop, "stop", lambda: time.sleep(0.1) or batcher.released.release())
    return {
        "stopped": [first, second, engine.stop(0.02)],
        "alive": [alive, engine.is_alive],
        "heard": [before, sorted(heard)],
        "late": late,
        "steps": batcher.steps,
        "error": engine.error,
    }


@threaded
def thread_never_started(module) -> dict:
    """A thread that is stopped before it was started, with a request in it, and one that comes
    afterwards.
    """
    batcher, heard = Scripted(), []
    engine = engine_of(module, batcher)
    made = requests_of(["a", "late"], heard)
    before = engine.is_alive
    engine.submit(made["a"])
    found, late = quickly(lambda: engine.stop(1.0), "stop"), False
    try:
        engine.submit(made["late"])
    except module.EngineDead:
        late = True
    alive = [before, engine.is_alive]
    return {"alive": alive, "stopped": found, "heard": heard, "late": late}


@threaded
def thread_dies_meanwhile(module) -> list:
    """A request that is being submitted while the thread dies: [the end that it hears of, or
    "refused" where submit raised EngineDead], each as often as it happened.
    """
    batcher, heard, refused = Scripted([["hold"], [["raise", "RuntimeError"]]]), [], []
    engine = engine_of(module, batcher)
    made = requests_of(["first", "second"], heard)

    def die():
        batcher.released.release()
        for _ in range(10):  # it may have to wait until submit is over
            if engine.error is None:
                time.sleep(BETWEEN)

    engine.start()
    engine.submit(made["first"])
    batcher.wait_for_hold()
    batcher.on_submit = die
    try:
        engine.submit(made["second"])
    except module.EngineDead:
        refused.append("refused")
    over = lambda: refused or any(name == "second" for name, *_ in heard)  # noqa: E731
    until(over, "a request that came while the thread died neither ends nor is refused")
    until(lambda: not engine.is_alive, "a step failed, and is_alive is still True")
    time.sleep(0.02)
    return refused + [reason for name, reason, _ in heard if name == "second"]
