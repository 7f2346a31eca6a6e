"""Chapter 07 beside the code under test: the engine's thread.

Every scenario takes the module under test first and returns plain data.
"""

import gc
import threading
import time
import weakref

from solutions.batcher import Batcher
from solutions.request import Request
from solutions.sampling_params import SamplingParams
from tests.scenarios.batcher_models import Clock, Teller, new_cache
from tests.scenarios.server_scripted import (
    BETWEEN,
    Scripted,
    close,
    engine_of,
    quickly,
    requests_of,
    threaded,
    until,
)


@threaded
def thread_serves(module, prompts: dict) -> dict:
    """Prompts through a real batcher on a Teller: outputs, and how many threads computed."""
    threads: set = set()
    model, heard = Teller([], {}), []
    model.during = lambda: threads.add(threading.get_ident())
    batcher = Batcher(model, new_cache(2, 64), clock=Clock())
    engine = engine_of(module, batcher)
    params = SamplingParams(temperature=0.0, max_tokens=5)
    made = [Request(ids, params, id=name, on_finish=heard.append) for name, ids in prompts.items()]
    engine.start()
    try:
        for request in made[:-1]:
            engine.submit(request)
        until(lambda: len(heard) == len(made) - 1, "requests that were submitted do not end")
        engine.submit(made[-1])
        until(lambda: len(heard) == len(made), "a request that came after a pause does not end")
        alive, error = engine.is_alive, engine.error
    finally:
        close(engine)
    return {
        "outputs": {r.id: [list(r.output), r.finish_reason] for r in made},
        "threads": len(threads),
        "own": threading.get_ident() in threads,
        "alive": [alive, error, engine.is_alive],
    }


@threaded
def thread_sleeps(module) -> list:
    """[how often an idle batcher was looked at in a while, at most 3; steps that it made then;
    whether it had made more than needed].
    """
    batcher, heard = Scripted(), []
    engine = engine_of(module, batcher)
    made = requests_of(["a", "b"], heard)
    engine.start()
    try:
        for request in made.values():
            engine.submit(request)
        until(lambda: len(heard) == 2, "two requests that were submitted do not end")
        time.sleep(0.05)
        looks, steps = batcher.looks, batcher.steps
        time.sleep(0.3)
        return [min(batcher.looks - looks, 3), batcher.steps - steps, steps > 4]
    finally:
        close(engine, batcher)


@threaded
def thread_wakes(module, times: int) -> int:
    """How many requests ended, each of which came just when the thread saw that nobody is there;
    and one for whose submit the batcher took its time, so that the thread could have looked before.
    """
    batcher, heard = Scripted(), []
    engine = engine_of(module, batcher)
    made = list(requests_of([f"r{n}" for n in range(times)], heard).values())

    def submit_at_next_look(number):
        def hook():
            submit_at_next_look(number + 1)
            thread = threading.Thread(target=engine.submit, args=[made[number]], daemon=True)
            thread.start()
            thread.join(0.3)  # it may have to wait until the look is over

        if number < times:
            batcher.on_look = hook

    submit_at_next_look(1)
    engine.start()
    try:
        engine.submit(made[0])
        said = "a request that came just when the thread had seen that nobody is there does not run"
        until(lambda: len(heard) == times, said)
        batcher.on_submit = lambda: time.sleep(0.05)
        late = requests_of(["late"], heard)["late"]
        engine.submit(late)
        until(
            lambda: len(heard) == times + 1,
            "a request does not run: the thread was woken too early",
        )
        return len(heard) - 1
    finally:
        close(engine, batcher)


@threaded
def thread_does_not_hold_up(module, names: list) -> dict:
    """submit, cancel, is_alive and began while a step is held: what was done, and the ends."""
    batcher, heard = Scripted([["hold"]]), []
    engine = engine_of(module, batcher)
    made = requests_of(names, heard)
    engine.start()
    try:
        engine.submit(made[names[0]])
        batcher.wait_for_hold()
        for name in names[1:]:
            said = "while a step is being computed, submit"
            quickly(lambda name=name: engine.submit(made[name]), said)
        quickly(lambda: engine.cancel(made[names[-1]]), "while a step is being computed, cancel")
        during = [engine.is_alive, engine.began is not None, len(heard)]
        batcher.released.release()
        until(lambda: len(heard) == len(names), "not all requests end when the step goes on")
        return {"during": during, "heard": sorted(heard)}
    finally:
        close(engine, batcher)


@threaded
def thread_refuses(module) -> dict:
    """A submit that the batcher refuses, by two errors: what it raised, and who heard of an end
    when the thread was stopped afterwards.
    """
    batcher, heard, raised = Scripted(), [], []
    engine = engine_of(module, batcher)
    made = requests_of(["full", "wrong", "fine"], heard)
    engine.start()
    try:
        for name, error in (("full", RuntimeError("full")), ("wrong", ValueError("empty"))):
            batcher.refuses = error
            try:
                engine.submit(made[name])
                raised.append(None)
            except NotImplementedError:
                raise
            except Exception as found:
                raised.append([type(found).__name__, str(found)])
        batcher.refuses = None
        engine.submit(made["fine"])
        until(lambda: heard, "a request does not end after another was refused")
    finally:
        close(engine, batcher)
    return {"raised": raised, "heard": heard}


@threaded
def thread_tells_steps(module) -> dict:
    """What on_step got, by a clock that goes on by 2 in each step, and began then."""
    batcher, heard, seen = Scripted([["nothing"], ["nothing"]]), [], []
    clock, step = Clock(50.0), batcher.step

    def stepping():
        seen.append(["in", engine.began])
        found = step()
        clock.now += 2.0
        return found

    def on_step(step, seconds):
        seen.append(["after", step.waiting, seconds, engine.began])

    batcher.step = stepping
    engine = engine_of(module, batcher, on_step, clock)
    for request in requests_of(["a", "b"], heard).values():
        engine.submit(request)
    engine.start()
    try:
        until(lambda: len(seen) == 8, "four steps were to be made, and on_step called after each")
        return {"seen": seen, "began": engine.began}
    finally:
        close(engine, batcher)


def _are_free(marks: list, but: int) -> bool:
    """Whether all of them but so many are gone within a few looks, each with a collection."""
    for _ in range(8):
        if sum(mark() is not None for mark in marks) <= but:
            return True
        gc.collect()
        time.sleep(BETWEEN)
    return False


@threaded
def thread_forgets(module, count: int) -> list:
    """[how many requests that are over are still held, by anybody but us, how many ended]."""
    batcher, heard = Scripted(), []
    engine = engine_of(module, batcher)
    marks: list = []
    engine.start()
    try:
        for number in range(count):
            request = Request([1], id=number, on_finish=lambda r: heard.append(r.id))
            marks.append(weakref.ref(request))
            engine.submit(request)
            until(lambda n=number: len(heard) > n, "a request does not end")
        del request
        last = Request([1], id="last", on_finish=lambda r: heard.append(r.id))
        engine.submit(last)
        until(lambda: "last" in heard, "a request does not end")
        time.sleep(5 * BETWEEN)  # it sleeps again
        engine.cancel(last)
        said = "to cancel a request that is over does not wake the thread: the batcher still has it"
        until(lambda: not batcher.cancelled, said)
        return [_are_free(marks, but=2), len(heard)]
    finally:
        close(engine, batcher)
