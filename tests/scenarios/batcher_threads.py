"""Chapter 06 beside the code under test: what another thread does between two lines of a call.

Two threads that run freely meet in the wrong place once in a million times. Here the one is stopped
before each of its lines in turn, and the other runs meanwhile.
"""

import itertools
import sys
import threading
from collections.abc import Callable

from tests.scenarios.batcher_queue import queue_call, wished
from tests.scenarios.batcher_serve import Drive
from tests.scenarios.helpers import told

LINES = 60  # of a call of the queue, at most, that it is stopped at
PATIENCE = 0.002  # seconds for the other thread; one that waits for a lock goes on afterwards


def meanwhile(call: Callable, other: Callable, line: int, counts: Callable) -> bool:
    """call(), but before its line of that number other(), in a thread.

    Lines count in frames for which counts(frame) is true. Whether there were so many; both calls
    are over then.
    """
    count, threads = itertools.count(1), []

    def trace(frame, event, _):
        if not counts(frame):
            return None
        if event == "line" and next(count) == line:
            threads.append(threading.Thread(target=other, daemon=True))
            threads[0].start()
            threads[0].join(PATIENCE)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    for thread in threads:
        thread.join(10)
    return bool(threads)


def answer(call: Callable):
    """What a call gives, or the name of the exception that it raises."""
    try:
        return call()
    except Exception as error:
        if isinstance(error, NotImplementedError) and _in_main():
            raise
        return type(error).__name__


def _in_main() -> bool:
    return threading.current_thread() is threading.main_thread()


@told
def queue_from_two_threads(module, given: list, wishes: dict, setup: list, calls: list) -> list:
    """What two calls give when the second comes from another thread, in the midst of the first.

    Args:
        given: bound and patience of the queue.
        wishes: requests by name.
        setup: calls beforehand.
        calls: the two.

    Returns:
        all that happened, before whichever line the second came, each once: [what the first gave,
        what the second gave, who waits then, in which order they are served].
    """
    found = []
    for line in range(1, LINES + 1):
        queue = module.WaitingQueue(*given)
        made = {name: wished(module, wish) for name, wish in wishes.items()}
        for call in setup:
            queue_call(queue, made, *call)
        answers: list = [None, None]

        def ask(place, queue=queue, made=made, answers=answers):
            answers[place] = answer(lambda: queue_call(queue, made, *calls[place]))

        calls_of = [lambda ask=ask, place=place: ask(place) for place in (0, 1)]
        if not meanwhile(*calls_of, line, lambda frame: frame.f_globals is vars(module)):
            break
        result = [*answers, sorted(queue_call(queue, made, "names"))]
        result.append(answer(lambda queue=queue, made=made: _served(queue, made)))
        if result not in found:
            found.append(result)
    return found


def _served(queue, made: dict) -> list:
    """Everybody in the order of their turn."""
    names: list = []
    while len(names) < len(made) and (name := queue_call(queue, made, "first", 1.0)) is not None:
        names.append(name)
        queue_call(queue, made, "remove", name)
    return names


@told
def serve_between_lines(module, setting: dict, wishes: dict) -> list:
    """Of four requests the first two run, and the first is cancelled. Before a line of the next
    step another thread cancels the third, which waits, and submits the fourth.

    Returns:
        all that happened, before whichever line of a method of Batcher up to the first forward it
        did so, each once: [the reasons by name, check(), tokens reserved at the end].
    """
    found = []
    first, second, third, fourth = wishes
    for line in itertools.count(1):
        drive = Drive(module, setting, wishes)
        for step in (["submit", n] for n in (first, second, third)):
            drive.do(*step)
        drive.do("step")
        drive.do("cancel", first)
        calls, moments = drive.model.calls, []

        def other(drive=drive, moments=moments):
            moments.append(drive.model.calls)
            answer(lambda: drive.do("cancel", third))
            answer(lambda: drive.do("submit", fourth))

        def counts(frame, batcher=drive.batcher):
            names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
            return bool(names) and frame.f_locals.get(names[0]) is batcher

        meanwhile(lambda drive=drive: drive.do("step"), other, line, counts)
        if moments != [calls]:
            return found
        drive.do("run")
        reasons = {name: end["reason"] for name, end in drive.ends().items()}
        result = [reasons, list(drive.batcher.check()), int(drive.cache.used_tokens)]
        if result not in found:
            found.append(result)
