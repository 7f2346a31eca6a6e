"""Chapter 07 with one part written otherwise."""

import asyncio
import threading
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
