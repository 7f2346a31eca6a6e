"""How much memory a call needs at its highest, counted in bytes and not in pages or seconds.

torch's profiler tells of every allocation that tensors make; tracemalloc counts what Python and
numpy allocate. A mapped file is in neither: its pages belong to the system, which may drop them.
"""

import os
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler talks on stderr otherwise

from torch.profiler import ProfilerActivity, profile


class Peak(NamedTuple):
    """The most bytes alive at once during a call, beyond those alive before it."""

    torch: int
    python: int  # with numpy

    @property
    def total(self) -> int:
        """Both: never less than there was, and more only if they were highest at two moments."""
        return self.torch + self.python


def peak_of(call: Callable[[], Any]) -> tuple[Any, Peak]:
    """What a call returns, and the peak of its memory, the result included.

    On the CPU only. What was alive before and is freed meanwhile makes room for as much. The first
    use in a process takes a second: the profiler looks for devices.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        value, python = python_peak_of(call)  # within: tracemalloc makes the profiler start slowly
    return value, Peak(_highest(profiler), python)


def python_peak_of(call: Callable[[], Any]) -> tuple[Any, int]:
    """What a call returns, and the peak of what Python and numpy allocate for it; no tensors."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        value = call()
        return value, max(tracemalloc.get_traced_memory()[1] - before, 0)
    finally:
        tracemalloc.stop()


def _highest(profiler: profile) -> int:
    """The largest sum of the allocations (and frees, which are negative) up to any moment."""
    events = profiler.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    alive = highest = 0
    for _, change in changes:
        alive += change
        highest = max(highest, alive)
    return highest
