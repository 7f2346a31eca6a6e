"""The faults that are in the server itself. Each is real: nothing here touches a metric.

A fault is a function of an event that is set when the incident begins. It returns, by the name of
a part of the server (see course.serve.build), what makes the faulty part of the right one.
"""

import gc
import threading
from collections.abc import Callable, Mapping
from typing import Any

from solutions.events import Admitted, Event, Finished

Wraps = Mapping[str, Callable[[Any], Any]]
PAGE = 256  # tokens, in whole pages of which the leak keeps what it keeps
MOST = 800_000_000  # bytes that the leak takes at most: it is your machine
SESSIONS = 1_500_000  # objects that live for ever and are looked at again and again


def none(begun: threading.Event) -> Wraps:
    """No fault."""
    return {}


def waits_for_ever(begun: threading.Event) -> Wraps:
    """A forward takes a lock that nobody gives back."""

    def wrap(model):
        inner = model.forward

        def forward(*args, **kwargs):
            if begun.is_set():
                threading.Event().wait()
            return inner(*args, **kwargs)

        model.forward = forward
        return model

    return {"model": wrap}


def keeps_what_was_freed(begun: threading.Event) -> Wraps:
    """Keys and values of every request are kept for the next one that begins alike: a prefix
    cache that somebody wrote in an afternoon, without a bound.
    """
    kept: list = []  # of tensors

    def wrap(cache):
        inner = cache.free

        def free(row: int) -> None:
            tokens = -(-int(cache.lengths[row]) // PAGE) * PAGE
            if begun.is_set() and sum(one.nbytes for one in kept) < MOST:
                kept.extend(part[:, row, :, :tokens].clone() for part in (cache.keys, cache.values))
            inner(row)

        cache.free = free
        return cache

    return {"cache": wrap}


def stores_in_a_wrong_dtype(begun: threading.Event) -> Wraps:
    """Keys and values are stored in 8 bits, as integers, without a scale: most become 0."""

    import torch  # not above: who lists the drills need not wait for it

    def wrap(cache):
        inner = cache.write

        def write(layer, rows, positions, k, v) -> None:
            if begun.is_set():
                k, v = (part.to(torch.int8).to(part.dtype) for part in (k, v))
            inner(layer, rows, positions, k, v)

        cache.write = write
        return cache

    return {"cache": wrap}


def collects_all_the_time(begun: threading.Event) -> Wraps:
    """A store of sessions in memory, and a full collection whenever a request comes or goes, by
    somebody who was afraid of leaks. What was frozen is thawed.
    """
    sessions = [[number] for number in range(SESSIONS)]

    def clean(event: Event) -> None:
        if begun.is_set() and isinstance(event, Admitted | Finished) and sessions:
            gc.unfreeze()
            gc.collect()

    return {"watchers": lambda watchers: [*watchers, clean]}
