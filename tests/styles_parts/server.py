"""Chapter 07 with one part written otherwise."""

import asyncio
import threading
from contextlib import ExitStack
from typing import NamedTuple

from tests.parts import part


@part("7.1")
def refused_by_a_kind_of_its_own(m):
    """Errors are of a subclass, with more in them."""

    class Refused(m.ApiError):
        def __init__(self, *args, **named):
            super().__init__(*args, **named)
            self.headers = {}

    right = m.parse_body

    def parse_body(body, endpoint, model):
        try:
            return right(body, endpoint, model)
        except m.ApiError as e:
            raise Refused(e.status, f"Sorry: {e.message}.", e.param, e.code) from e

    m.parse_body = parse_body


@part("7.3")
def looks_at_its_start(m):
    """The thread looks for work before it sleeps for the first time, and after each stop it makes
    sure that nobody is left.
    """

    def run(self):
        problem = None
        try:
            while not self._over:
                while not self._over and not self._batcher.idle:
                    self._step()
                if not self._over:
                    self._wake.wait()
                    self._wake.clear()
        except BaseException as error:
            problem = error
        self._close(problem)

    m.EngineThread._run = run


@part("7.4")
def channel_of_the_loop(m):
    """The pieces are joined on the loop, from a list that put appends to."""

    class Channel:
        def __init__(self, call_soon):
            self.call_soon, self.lock = call_soon, threading.RLock()
            self.news, self.ready = {}, asyncio.Event()

        def put(self, piece):
            with self.lock:
                first = not self.news
                if piece.index in self.news:
                    self.news[piece.index].join(piece)
                else:
                    self.news[piece.index] = piece
            if first:
                try:
                    self.call_soon(self.ready.set)
                except RuntimeError:
                    self.news.clear()

        async def get(self):
            while not self.news:
                self.ready.clear()
                await self.ready.wait()
            with self.lock:
                pieces, self.news = [*self.news.values()], {}
                self.ready.clear()
            return pieces

    m.Channel = Channel


@part("7.5")
def places_on_a_stack(m):
    """enter decides when it is called, not when the block begins."""

    def enter(self, places=1):
        if places > self.bound:
            raise m.ApiError(400, f"{places} of {self.bound}", "n", "invalid_value")
        there = self.coming + self.waiting()
        if there + places > self.bound:
            seconds = self.pace.wait(there, self.clock())
            raise m.ApiError(503, "full", None, "queue_full", seconds)
        self.coming += places
        stack = ExitStack()
        stack.callback(lambda: setattr(self, "coming", self.coming - places))
        return stack

    m.Door.enter = enter


@part("7.3")
def one_condition(m):
    """A condition in the place of lock and event; requests in a list."""

    class EngineThread(m.EngineThread):
        def __init__(self, *args, **named):
            super().__init__(*args, **named)
            self.condition, self.news = threading.Condition(), False

        def submit(self, request):
            with self.condition:
                super().submit(request)
                self.ring()

        def cancel(self, request):
            self._batcher.cancel(request)
            with self.condition:
                self.ring()

        def ring(self):
            self.news = True
            self.condition.notify_all()

        def stop(self, timeout=None):
            with self.condition:
                self._over = True
                self.ring()
            return super().stop(timeout)

        def _run(self):
            problem = None
            try:
                while not self._over:
                    with self.condition:
                        self.condition.wait_for(lambda: self.news)
                        self.news = False
                    while not (self._over or self._batcher.idle):
                        self._step()
            except BaseException as error:
                problem = error
            self._close(problem)

    m.EngineThread = EngineThread


@part("7.7")
def waited_by_hand(m):
    """Two tasks and asyncio.wait, without a result that is taken early."""

    async def while_connected(work, receive):
        async def gone():
            while True:
                if (await receive())["type"] == "http.disconnect":
                    return

        tasks = asyncio.create_task(work), asyncio.create_task(gone())
        try:
            done, _ = await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
            if tasks[0] in done:
                return await tasks[0]
            raise m.ClientGone
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    m.while_connected = while_connected


@part("7.6")
def kept_as_named_tuples(m):
    """Kept is a named tuple, and RUNNING is compared, not looked up."""

    class Kept(NamedTuple):
        status: int
        body: bytes
        until: float

    m.Kept = Kept


@part("7.8")
def words_in_a_list(m):
    """health gives a list."""
    right = m.health
    m.health = lambda *args: [*right(*args)]
