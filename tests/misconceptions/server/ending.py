"""Wrong versions of 7.8 health and Lifecycle."""

import asyncio
from contextlib import contextmanager

from course.misconceptions import misconception
from solutions.api_error import ApiError
from solutions.lifecycle import Phase


@misconception("7.8", "health")
def i_am_here_so_all_is_well(phase, is_alive, step_seconds, stall_seconds):
    """You say 200 because the process can answer. It is the engine that must be asked for: when its
    thread is dead or hangs, every new request is sent into nothing.
    """
    return (200 if phase == Phase.READY else 503), str(phase)


@misconception("7.8", "health")
def healthy_while_draining(phase, is_alive, step_seconds, stall_seconds):
    """You say 200 while the service drains. The load balancer goes on sending requests, and each of
    them is refused. Health is about what comes now.
    """
    if phase == Phase.STOPPED:
        return 503, str(phase)
    if not is_alive and phase != Phase.WARMING:
        return 503, "dead"
    if step_seconds is not None and step_seconds > stall_seconds:
        return 503, "stalled"
    return (503 if phase == Phase.WARMING else 200), str(phase)


@misconception("7.8", "Lifecycle._drain")
async def a_fixed_pause(self, seconds, end_all, grace):
    """You sleep for the whole drain limit. With nobody inside, a restart takes half a minute for
    nothing. Wait for the last to leave.
    """
    await asyncio.sleep(seconds)
    by_themselves = not self.inside
    if not by_themselves:
        end_all()
        await self._emptied(grace)
    self.phase = Phase.STOPPED
    return by_themselves


@misconception("7.8", "Lifecycle._drain")
async def drained_without_a_limit(self, seconds, end_all, grace):
    """You wait until the last has left, however long that takes. One client that never leaves, and
    the process is killed from outside, with everybody in it.
    """
    while self.inside:
        self._empty.clear()
        await self._empty.wait()
    self.phase = Phase.STOPPED
    return True


@misconception("7.8", "Lifecycle.request")
@contextmanager
def let_in_while_draining(self):
    """You let requests in while the service drains. It never gets empty, and those who came late
    are torn off at the end.
    """
    if self.phase not in (Phase.READY, Phase.DRAINING):
        raise ApiError(503, f"the server is {self.phase}: try again", None, str(self.phase), 1)
    self.inside += 1
    try:
        yield
    finally:
        self.inside -= 1
        if not self.inside:
            self._empty.set()


@misconception("7.8", "Lifecycle._emptied")
async def empty_once_is_empty_now(self, seconds):
    """You believe an event that was set when nobody was inside, some time ago. Look now, and clear
    it before you wait.
    """
    try:
        await asyncio.wait_for(self._empty.wait(), seconds)
    except TimeoutError:
        return not self.inside
    return True
