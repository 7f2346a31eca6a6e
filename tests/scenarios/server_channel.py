"""Chapter 07 beside the code under test: the channel, and who listens to a request.

Every scenario takes the module under test first and returns plain data.
"""

import asyncio
import gc
import sys
import threading
import weakref

from solutions.detokenizer import Detokenizer
from solutions.request import Request, State
from solutions.sampler import TokenLogProbs
from solutions.sampling_params import SamplingParams
from solutions.stopping import StopMatcher
from tests.scenarios.helpers import Unusable, in_words, told
from tests.scenarios.server_loop import GUARD, run, settle

WORDS = {  # token id -> bytes; 5 and 6 are halves of é, 7 begins a character of four bytes
    0: b"",
    1: b"one",
    2: b" two",
    3: b" three",
    4: b"\n",
    5: b"\xc3",
    6: b"\xa9",
    7: b"\xf0\x9f",
    8: b"END",
    9: b"EN",
    10: b"D of",
}


def _told(piece) -> list:
    """A piece as plain data."""
    try:
        tokens = [one.token for one in piece.logprobs]
        return [piece.index, piece.text, tokens, piece.finish_reason, list(piece.offsets)]
    except AttributeError:
        raise Unusable(f"a Piece is needed, not {in_words(piece)}") from None


def _taken(found) -> list:
    if not isinstance(found, list):
        raise Unusable(f"get should return a list of pieces, not {in_words(found)}")
    return [_told(piece) for piece in found]


def _piece(module, index, text, tokens=(), reason=None, offsets=()):
    logprobs = [TokenLogProbs(token, -1.0, {}) for token in tokens]
    return module.Piece(index, text, logprobs, reason, list(offsets))


@told
def channel_script(module, script: list) -> dict:
    """A channel driven by a script, on a loop.

    Steps: ["put", index, text, tokens, reason, offsets], ["get"], ["ask"] (a reader that stays),
    ["leave"] (cancels that reader), ["settle"], ["tick"] (one turn of the loop).

    Returns:
        "got": what each get, and the reader that stays, was given, or "waits" for a get that would
        wait; "calls": how often the loop had been called after each step.
    """
    return run(lambda loop: _channel_script(module, loop, script))


async def _channel_script(module, loop, script: list) -> dict:
    calls, got, counts = [], [], []

    def call_soon(function, *args):
        calls.append(function)
        return loop.call_soon_threadsafe(function, *args)

    channel, reader = module.Channel(call_soon), None
    for name, *args in script:
        if name == "put":
            channel.put(_piece(module, *args))
        elif name == "ask":
            reader = asyncio.ensure_future(channel.get())
            await settle()
        elif name == "leave" and reader is None:
            pass  # it was given something and has left by itself
        elif name == "leave":
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            reader = None if reader.cancelled() else reader
        elif name in ("settle", "tick"):
            await settle(20 if name == "settle" else 1)
        else:
            got.append(await _get(channel))
        if reader is not None and reader.done():
            got.append(["reader", _taken(reader.result())])
            reader = None
        counts.append(len(calls))
    if reader is not None:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    return {"got": got, "calls": counts}


async def _get(channel):
    try:
        return _taken(await asyncio.wait_for(channel.get(), 1.0))
    except TimeoutError:
        return "waits"


@told
def channel_closed_loop(module, texts: list) -> dict:
    """put when call_soon raises RuntimeError: whether it was called, how many pieces are kept."""
    tried, marks = [], []

    def call_soon(function, *args):
        tried.append(function)
        raise RuntimeError("Event loop is closed")

    channel = module.Channel(call_soon)
    for text in texts:
        piece = module.Piece(0, text)
        marks.append(weakref.ref(piece))
        channel.put(piece)
    del piece
    gc.collect()
    return {"tried": len(tried) > 0, "kept": sum(mark() is not None for mark in marks)}


@told
def channel_unread(module, counts: list) -> list:
    """How many pieces are alive when so many of each answer were put and nobody read; the texts."""
    return run(lambda loop: _channel_unread(module, loop, counts))


async def _channel_unread(module, loop, counts: list) -> list:
    channel, marks = module.Channel(loop.call_soon_threadsafe), []
    for index, count in enumerate(counts):
        for number in range(count):
            piece = module.Piece(index, f"{number},")
            marks.append(weakref.ref(piece))
            channel.put(piece)
    del piece
    gc.collect()
    alive = sum(mark() is not None for mark in marks)
    return [alive, [piece.text for piece in await channel.get()]]


@told
def channel_from_threads(module, counts: list) -> bool:
    """Threads that put numbers for an answer each, and a reader: whether its texts, joined, have
    them all, in order. Nothing more is told: what goes wrong is never twice the same.
    """
    return run(lambda loop: _channel_from_threads(module, loop, counts), GUARD)


async def _channel_from_threads(module, loop, counts: list) -> bool:
    channel = module.Channel(loop.call_soon_threadsafe)

    def write(index, count):
        for number in range(count):
            reason = "stop" if number == count - 1 else None
            channel.put(module.Piece(index, f"{number},", [], reason))

    threads = [threading.Thread(target=write, args=pair, daemon=True) for pair in enumerate(counts)]
    texts, over, kept = [""] * len(counts), 0, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that they really come between each other
    try:
        for thread in threads:
            thread.start()
        while over < len(counts):
            for piece in await channel.get():
                texts[piece.index] += piece.text
                over += piece.finish_reason is not None
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(kept)
    return texts == ["".join(f"{number}," for number in range(count)) for count in counts]


class _Out:
    """In the place of a channel: keeps every piece, as it is when it comes."""

    def __init__(self):
        self.pieces: list = []

    def put(self, piece):
        self.pieces.append(_told(piece))
        # It belongs to the channel now, which may do with it as it likes.
        piece.text, piece.logprobs, piece.offsets = "used after put", [], []


@told
def listens(module, setting: dict) -> dict:
    """A request that gets tokens one by one, then is over, with a listener.

    setting: "tokens", "stops", "logprobs" (of the params), "reason" it is over with, "index",
    "strip" of the detokenizer.

    Returns:
        "pieces" that were put, after each token how many; "said": what on_token returned;
        "whole": the piece that listen returned, "before" and "after" the end.
    """
    out = _Out()
    params = SamplingParams(logprobs=setting["logprobs"], stop=setting["stops"])
    request = Request([1, 2], params)
    stream = Detokenizer(WORDS.__getitem__, setting.get("strip", False))
    index = setting["index"]
    whole = module.listen(request, index, out, stream, StopMatcher(setting["stops"]))
    if request.on_token is None or request.on_finish is None:
        raise Unusable("listen should set on_token and on_finish of the request")
    request.state, said, counts = State.DECODE, [], []
    for token in setting["tokens"]:
        note = TokenLogProbs(token, -float(token), {}) if setting["logprobs"] is not None else None
        request.add(token, note)
        said.append(request.on_token(token) is True)
        counts.append(len(out.pieces))
        if said[-1]:
            break
    before = _told(whole)
    request.finish("stop" if said and said[-1] else setting["reason"])
    request.on_finish(request)
    return {
        "pieces": out.pieces,
        "counts": counts,
        "said": said,
        "whole": [before, _told(whole)],
    }
