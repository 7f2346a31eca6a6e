"""Chapter 07: when the service may be asked, and how it comes to an end."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from solutions.api_error import ApiError


class Phase(StrEnum):
    """Where the service stands."""

    WARMING = "warming"  # the first request has not been through
    READY = "ready"
    DRAINING = "draining"  # nothing new; what was accepted is brought to its end
    STOPPED = "stopped"


def health(
    phase: Phase, is_alive: bool, step_seconds: float | None, stall_seconds: float
) -> tuple[int, str]:
    """Whether the engine can serve: what GET /health answers.

    The process that is asked is not the thread that computes. So "yes" must not mean "I can
    answer this", but "a request that comes now will be computed".

    Args:
        phase: of the service.
        is_alive: the engine's thread runs.
        step_seconds: how long the step that is being computed has taken so far; None between steps.
        stall_seconds: a step that takes longer has hung.

    Returns:
        the status of HTTP, and a word. The first that holds, of: 503 "stopped" in that phase; 503
        "dead" when the engine is not alive, in every phase but WARMING; 503 "stalled" when a step
        takes longer than stall_seconds; 503 and the phase while WARMING or DRAINING; 200 "ready".
    """
    # exercise 7.8
    if phase == Phase.STOPPED:
        return 503, str(phase)
    if not is_alive and phase != Phase.WARMING:
        return 503, "dead"
    if step_seconds is not None and step_seconds > stall_seconds:
        return 503, "stalled"
    return (200 if phase == Phase.READY else 503), str(phase)


class Lifecycle:
    """The phase of the service, and how many requests are inside.

    All calls come from the event loop.

    Attributes:
        phase: WARMING at first.
        inside: requests that were accepted and whose last byte is not out yet.
    """

    def __init__(self):
        self.phase = Phase.WARMING
        self.inside = 0
        self._empty = asyncio.Event()  # the last one has left
        self._drained: asyncio.Future | None = None

    def ready(self) -> None:
        """The engine is warm. Nothing happens in another phase than WARMING: who drains, drains."""
        # exercise 7.8
        if self.phase == Phase.WARMING:
            self.phase = Phase.READY

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request is inside until the end of the block, whatever happens in it.

        Errors: ApiError 503, without param, with retry_after 1 and the phase as code, in every
        phase but READY.
        """
        # exercise 7.8
        if self.phase != Phase.READY:
            raise ApiError(503, f"the server is {self.phase}: try again", None, str(self.phase), 1)
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            if not self.inside:
                self._empty.set()

    async def drain(self, seconds: float, end_all: Callable[[], None], grace: float = 5.0) -> bool:
        """Come to an end: refuse what is new, let those inside finish, then stop.

        The phase is DRAINING at once. When nobody is inside any more, it is STOPPED, and that was
        all. When somebody is still inside after so many seconds, end_all is called, once: it ends
        their requests, and they get grace seconds more to tell their clients so. Then it is
        STOPPED, whoever is inside. It never waits longer than for the last to leave.

        A second call, during the first or later, starts nothing: it waits for the end of the first,
        and returns the same. Who waits here may be cancelled; the drain goes on.

        Returns:
            whether all finished by themselves: end_all was not called.
        """
        # exercise 7.8
        if self._drained is None:
            self.phase = Phase.DRAINING
            self._drained = asyncio.ensure_future(self._drain(seconds, end_all, grace))
        return await asyncio.shield(self._drained)

    async def _drain(self, seconds: float, end_all: Callable[[], None], grace: float) -> bool:
        """What drain does, once."""
        # exercise 7.8
        by_themselves = await self._emptied(seconds)
        if not by_themselves:
            end_all()
            await self._emptied(grace)
        self.phase = Phase.STOPPED
        return by_themselves

    async def _emptied(self, seconds: float) -> bool:
        """Whether the last has left within so many seconds."""
        # exercise 7.8
        self._empty.clear()
        if not self.inside:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
