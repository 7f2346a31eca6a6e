"""Chapter 07 beside the code under test: who is refused, and what is kept.

Every scenario takes the module under test first and returns plain data.
"""

import asyncio
import gc
from types import SimpleNamespace

from tests.scenarios.batcher_models import Clock
from tests.scenarios.helpers import Unusable, in_words, told

# --- 7.5 ---


def _error(error) -> dict:
    names = ("status", "param", "code", "retry_after")
    return {name: getattr(error, name) for name in names} | {"message": error.message}


@told
def paces(module, script: list) -> list:
    """What Paces answer: each step is [number, "note", now] or [number, "wait", ahead, now]."""
    made = [module.Pace() for _ in range(1 + max(step[0] for step in script))]
    return [getattr(made[number], name)(*args) for number, name, *args in script]


@told
def doors(module, bound: int, waits: list, script: list) -> list:
    """A Door driven by a script, and what each step gave.

    Args:
        waits: seconds that its pace answers; what the pace was asked is part of the answer.
        script: ["waiting", n] (so many wait in the queue), ["time", now], ["enter", name, places],
            ["leave", name], ["raise", name] (leave by an exception), ["cancel", name] (leave as a
            task does that is cancelled).

    Returns:
        for each step what was raised, as data, or None; and coming afterwards.
    """
    clock, queue, asked = Clock(), SimpleNamespace(length=0), []

    def wait(ahead, now):
        asked.append([ahead, now])
        return waits[len(asked) - 1]

    door = module.Door(bound, lambda: queue.length, SimpleNamespace(wait=wait), clock)
    inside: dict = {}
    return [_do(module, door, clock, queue, inside, asked, *step) for step in script]


def _do(module, door, clock, queue, inside, asked, name, *args) -> dict:
    found = {"raised": None}
    if name == "waiting":
        queue.length = args[0]
    elif name == "time":
        clock.now = args[0]
    elif name == "enter":
        before = len(asked)
        try:
            entry = door.enter(*args[1:])
            entry.__enter__()
            inside[args[0]] = entry
        except module.ApiError as error:
            found = {"raised": _error(error), "asked": asked[before:]}
    elif name in ("raise", "cancel"):
        kind = KeyError if name == "raise" else asyncio.CancelledError
        leave_by(kind("on purpose"), inside.pop(args[0]), "enter")
    else:
        inside.pop(args[0]).__exit__(None, None, None)
    return found | {"coming": door.coming}


def leave_by(error: BaseException, entry, what: str) -> None:
    """Leave a block by an exception, which must go on."""
    try:
        if entry.__exit__(type(error), error, None):
            raise Unusable(f"an exception in the block of {what} is swallowed")
    except type(error):
        pass


@told
def failures(module, ends: list) -> list:
    """What failure says of requests that are over: [reason, admitted, [error's class, text], wait].

    None, or the error as data.
    """
    found = []
    for reason, admitted, error, wait in ends:
        kinds = {e.__name__: e for e in (ValueError, FloatingPointError, RuntimeError)}
        error = error and kinds[error[0]](error[1])
        over = SimpleNamespace(finish_reason=reason, admitted=admitted, error=error, id="r")
        told = module.failure(over, wait)
        if told is not None and not isinstance(told, module.ApiError):
            raise Unusable(f"failure should return an ApiError or None, not {in_words(told)}")
        found.append(told and _error(told) | {"type": told.type} | _quoted(told.message, error))
    return found


def _quoted(message: str, error: Exception | None) -> dict:
    """What a message has of an exception: its class, a word of its text."""
    words = str(error).split() if error is not None else []
    is_told = any(len(word) > 4 and word in message for word in words)
    return {"names_class": type(error).__name__ in message, "tells_text": is_told}


# --- 7.6 ---


@told
def stores(module, settings: list, script: list) -> list:
    """ResultStores driven by a script, and what each step gave.

    Args:
        settings: [seconds, most, size] of each.
        script: [number of the store, name, ...]: "time" now (of all), "begin" id, "forget" id,
            "keep" id status text, "get" id, "len", "bytes".

    Returns:
        of get: [status, text, until], "running", or None.
    """
    clock = Clock(100.0)
    made = [module.ResultStore(*values, clock) for values in settings]
    return [_stored(module, made[number], clock, *step) for number, *step in script]


def _stored(module, store, clock, name, *args):
    if name == "time":
        clock.now = args[0]
        return None
    if name == "keep":
        return store.keep(args[0], args[1], args[2].encode())
    if name == "get":
        found = store.get(args[0])
        if found is None or isinstance(found, str):
            return found
        if not hasattr(found, "until"):
            raise Unusable(f"get should return a Kept, but returned {in_words(found)}")
        return [found.status, found.body.decode(), found.until]
    if name == "len":
        return len(store)
    return store.bytes if name == "bytes" else getattr(store, name)(*args)


@told
def store_memory(module, count: int) -> int:
    """How many of so many bodies are in memory after their time, when another was kept since."""
    there = []

    class Body(bytes):
        def __del__(self):
            there.pop()

    clock = Clock(100.0)
    store = module.ResultStore(20.0, 100, 10_000, clock)
    for number in range(count):
        there.append(number)
        store.keep(f"r{number}", 200, Body(b"xy"))
    clock.now = 150.0
    store.keep("new", 200, b"z")
    gc.collect()
    return len(there)
