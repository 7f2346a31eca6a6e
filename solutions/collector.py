"""Chapter 08: the garbage collector, which stops everything while it looks for garbage."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from solutions.timing import Clock

CALM = (50_000, 20, 100)  # Python's own are (700, 10, 10): a server makes many objects that live


class PauseWatch:
    """Measures every run of the collector; put it around a block, or start and stop it.

    Python calls what is in gc.callbacks with ("start", info) before a run and ("stop", info) after
    it, info["generation"] being 0, 1 or 2: the higher, the more objects are looked at.

    Args:
        clock: seconds; read once at each start, and once at each stop that ends a run.
        on_pause: called with the generation and the seconds of each run. It must make little
            garbage: it is called while the program stands still.

    Attributes:
        seconds, runs, longest: by generation, 0 to 2: how long all runs took together, how many
            they were, and how long the longest took. Their size never grows.
    """

    def __init__(
        self,
        clock: Clock = time.perf_counter,
        on_pause: Callable[[int, float], None] | None = None,
    ):
        # exercise 8.6
        self.seconds, self.runs, self.longest = [0.0] * 3, [0] * 3, [0.0] * 3
        self._clock, self._on_pause, self._began = clock, on_pause, None

    def __call__(self, phase: str, info: dict) -> None:
        """What Python calls. A stop without a start, of a run that was on already, is ignored."""
        # exercise 8.6
        if phase == "start":
            self._began = self._clock()
        elif self._began is not None:
            taken, generation = self._clock() - self._began, info["generation"]
            self._began = None
            self.seconds[generation] += taken
            self.runs[generation] += 1
            self.longest[generation] = max(self.longest[generation], taken)
            if self._on_pause:
                self._on_pause(generation, taken)

    def __enter__(self) -> "PauseWatch":
        """Join gc.callbacks, once."""
        # exercise 8.6
        if self not in gc.callbacks:
            gc.callbacks.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave gc.callbacks, and leave what others have put there; again is no error."""
        # exercise 8.6
        if self in gc.callbacks:
            gc.callbacks.remove(self)


@contextmanager
def tamed(thresholds: tuple[int, int, int] = CALM) -> Iterator[None]:
    """Let the collector look less often, and never again at what is there now.

    To be entered once the model is loaded and warm: what lives then lives until the end. It is
    collected a last time, and then frozen: moved where the collector does not look.

    Args:
        thresholds: for gc.set_threshold, inside the block.

    Afterwards, also after an exception, which goes through, the thresholds are as before, and what
    was frozen is looked at again.
    """
    # exercise 8.6
    before = gc.get_threshold()
    gc.collect()  # garbage that is frozen is never found
    gc.freeze()
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
