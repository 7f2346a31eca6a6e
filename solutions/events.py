"""Chapter 07: what the service tells those who watch it.

A watcher is a callable that takes one event. It is called by the engine's thread and by the event
loop, so it must be quick and safe to call from both. No event carries a text: of a prompt there is
its length and a fingerprint. All times are seconds of one clock that never goes backwards.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request was accepted: it waits for a row and room in the cache.

    Args:
        id: its name in all later events.
        at: when its HTTP request came in, before its body was read.
        prompt_tokens: how many token ids the prompt has.
        max_tokens: how many its answer may have.
        characters: length of the prompt's text; 0 when it came as ids.
        fingerprint: a keyed hash of the prompt: equal for equal prompts, of no use to anybody else.
        stream: the answer goes out token by token.
    """

    id: str
    at: float
    prompt_tokens: int
    max_tokens: int
    characters: int
    fingerprint: str
    stream: bool


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request was turned away before it waited: "queue_full", "too_long" or "draining"."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request has its row and its room: its prefill begins."""

    id: str
    at: float


@dataclass(frozen=True, slots=True)
class Token:
    """A request has one more token, which is on its way to the client."""

    id: str
    at: float


@dataclass(frozen=True, slots=True)
class Finished:
    """A request is over, and has given its room back.

    Args:
        reason: one of solutions.request.REASONS.
        tokens: how many its answer has.
        error: the class of the exception that ended it; None without one. Not its message, which
            may quote the prompt.
    """

    id: str
    at: float
    reason: str
    tokens: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """The client has taken all of a streamed answer, or has gone away.

    Args:
        lag: seconds since the request was over: large where the reader is slow.
    """

    id: str
    at: float
    lag: float


@dataclass(frozen=True, slots=True)
class Stepped:
    """The batcher has made a step.

    Args:
        at: when it was over.
        seconds: how long it took.
        running: requests that hold a row.
        waiting: requests that wait.
        kv_used: tokens of the cache that are reserved.
        kv_total: tokens that it has room for.
        errors: the classes of the exceptions met.
    """

    at: float
    seconds: float
    running: int
    waiting: int
    kv_used: int
    kv_total: int
    errors: tuple[str, ...] = ()


Event = Arrived | Rejected | Admitted | Token | Finished | Sent | Stepped
Watcher = Callable[[Event], None]
