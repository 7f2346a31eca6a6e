"""An event loop whose time passes only when nothing else can happen, and then at once."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine

from tests.scenarios.helpers import Unusable

LOOK = 0.01  # real seconds of one look whether a thread has woken the loop
GUARD = 300  # looks after which it never will: a busy machine gets more time
SOON = 5  # the same, where there is no thread
TURNS = 100_000  # of a loop, after which it goes round and round for nothing


class _Jumps(selectors.DefaultSelector):
    """In the place of waiting for a timer, the loop's time jumps to it."""

    loop: "JumpingLoop"
    turns = 0

    def select(self, timeout=None):
        self.turns += 1
        if self.turns > TURNS:
            raise Unusable("it looks again and again for something that does not come")
        if timeout is None:
            for _ in range(self.loop.guard):
                if found := super().select(LOOK):
                    return found
            raise Unusable("it waits for something that will never come")
        self.loop.now += timeout
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its seconds are those that its timers ask for."""

    def __init__(self, guard: int):
        self.now, self.guard = 0.0, guard
        selector = _Jumps()
        selector.loop = self
        super().__init__(selector)
        self.problems: list = []
        self.set_exception_handler(lambda _, context: self.problems.append(context["message"]))

    def time(self) -> float:
        """Seconds, from 0."""
        return self.now


def run(make: Callable[[JumpingLoop], Coroutine], guard: int = SOON):
    """What make(loop) gives, on a loop of its own; nothing may be left running on it.

    Errors: Unusable for what a task that nobody awaited has raised, or one that is left.
    """
    loop = JumpingLoop(guard)
    try:
        asyncio.set_event_loop(loop)
        found = loop.run_until_complete(make(loop))
        for _ in range(3):
            loop.run_until_complete(asyncio.sleep(0))  # what is done but not gone yet
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        if left:
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            raise Unusable("a task was left running when everything was over")
        if loop.problems:
            raise Unusable(f"the event loop complains: {loop.problems[0]}")
        return found
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def settle(turns: int = 20) -> None:
    """Let everybody run who can, without time passing."""
    for _ in range(turns):
        await asyncio.sleep(0)
