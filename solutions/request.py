"""Chapter 06: a request, from the moment it waits to the moment it is over."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from solutions.sampler import SamplingState, TokenLogProbs
from solutions.sampling_params import SamplingParams


class State(StrEnum):
    """Where a request stands."""

    WAITING = "waiting"  # for a row and room in the cache
    PREFILL = "prefill"  # it has them; its prompt is being computed
    DECODE = "decode"  # it has its first token, and gets another at every step
    FINISHED = "finished"  # it is over, and will never change again


# What may follow what. A request can end in every state; it never goes back.
FOLLOWS = {
    State.WAITING: (State.PREFILL, State.FINISHED),
    State.PREFILL: (State.DECODE, State.FINISHED),
    State.DECODE: (State.FINISHED,),
    State.FINISHED: (),
}
REASONS = ("stop", "length", "cancelled", "timeout", "error")


@dataclass(eq=False)
class Request:
    """What somebody wants from the model, and how far it has come.

    The first block of fields is the wish; the second is kept up by the batcher. All times are
    seconds of the batcher's clock.

    Args:
        prompt: token ids; a copy is kept.
        params: how its tokens are chosen, and how many there may be.
        priority: the lower goes first; 0 is normal.
        deadline: the time from which it is over, "timeout", however far it has come.
        admit_by: the time from which it is over, "timeout", should it still be waiting.
        ignore_eos: an end id is a token like any other.
        on_token: called with each new token (an int); when it returns True (and nothing else
            counts as that), the answer ends there, "stop".
        on_finish: called with the request, once, when it is over and has given its room back.
        id: its name in messages; two requests may have the same.

    Attributes:
        state: a State.
        arrival: when it joined the waiting queue; None before.
        admitted: when it left it for a row in the cache; None before.
        limit: tokens that its answer may have.
        row: its row in the cache; None without one.
        computed: how many of its tokens, prompt and answer, the cache holds.
        output: the tokens of the answer.
        logprobs: of each of them, where params.logprobs asks for it; otherwise empty.
        sampling: what the sampler remembers of it; None while it waits and when it is over.
        finish_reason: one of REASONS; None until it is over.
        error: the exception that ended it, if one did.
    """

    prompt: Sequence[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    priority: int = 0
    deadline: float | None = None
    admit_by: float | None = None
    ignore_eos: bool = False
    on_token: Callable[[int], bool | None] | None = None
    on_finish: Callable[["Request"], None] | None = None
    id: int | str = field(default_factory=itertools.count(1).__next__)

    state: State = field(default=State.WAITING, init=False)
    arrival: float | None = field(default=None, init=False)
    admitted: float | None = field(default=None, init=False)
    limit: int = field(default=0, init=False)
    row: int | None = field(default=None, init=False)
    computed: int = field(default=0, init=False)
    output: list[int] = field(default_factory=list, init=False)
    logprobs: list[TokenLogProbs] = field(default_factory=list, init=False)
    sampling: SamplingState | None = field(default=None, init=False)
    finish_reason: str | None = field(default=None, init=False)
    error: Exception | None = field(default=None, init=False)

    def __post_init__(self):
        self.prompt, self.limit = list(self.prompt), self.params.max_tokens

    def fit(self, context: int, vocabulary: int) -> None:
        """Refuse what could never be computed, and clamp the answer to the room that is left.

        Afterwards limit is what params.max_tokens asks for, or what the prompt leaves of the
        context where that is less: too large a wish is not an error, the answer ends, "length",
        when the context is full.

        Args:
            context: tokens that prompt and answer together may have.
            vocabulary: how many token ids there are, from 0.

        Errors: ValueError for an empty prompt; for a prompt that leaves no room for one token,
        naming its length and the context; for an id that is not an int of the vocabulary (True is
        none), naming the first such id; and for a request that has an arrival or is not in state
        WAITING: it was submitted before. Nothing has changed then.
        """
        # exercise 6.2
        if self.arrival is not None or self.state is not State.WAITING:
            raise ValueError(f"request {self.id} was submitted before: make a new one")
        length = len(self.prompt)
        if not length:
            raise ValueError("the prompt is empty: give at least one token id")
        if length >= context:
            raise ValueError(
                f"the prompt has {length} tokens and there is room for {context}, "
                "answer included: shorten it"
            )
        for token in self.prompt:
            if type(token) is not int or not 0 <= token < vocabulary:
                raise ValueError(f"token id {token!r} is not in the vocabulary of {vocabulary}")
        self.limit = min(self.params.max_tokens, context - length)

    @property
    def size(self) -> int:
        """Tokens that prompt and answer may grow to: the room that it needs in the cache."""
        # exercise 6.2
        return len(self.prompt) + self.limit

    @property
    def remaining(self) -> int:
        """Tokens that it has and the cache does not: the rest of its prompt, then its newest."""
        # exercise 6.2
        return len(self.prompt) + len(self.output) - self.computed

    @property
    def expires(self) -> float:
        """The time from which it is over, "timeout": infinite when there is none.

        While it waits, the deadline or admit_by, whichever is earlier; later, only the deadline.
        """
        # exercise 6.2
        end = math.inf if self.deadline is None else self.deadline
        if self.state is State.WAITING and self.admit_by is not None:
            return min(end, self.admit_by)
        return end

    def upcoming(self, count: int) -> list[int]:
        """What the next forward should compute: the first of the remaining tokens, at most count.

        A decode step asks for one token, so it must not cost more where the answer is long.
        """
        # exercise 6.2
        part = self.prompt[self.computed : self.computed + count]
        start = max(self.computed - len(self.prompt), 0)
        return [*part, *self.output[start : start + count - len(part)]]

    def move(self, state: State) -> None:
        """Go to the next state.

        Errors: RuntimeError, naming both states, when FOLLOWS does not allow it. Nothing has
        changed then.
        """
        # exercise 6.2
        if state not in FOLLOWS[self.state]:
            raise RuntimeError(f"request {self.id} cannot go from {self.state} to {state}")
        self.state = state

    def add(self, token: int, told: TokenLogProbs | None = None) -> None:
        """The answer has one more token; the sampler's memory, if there is one, hears of it too.

        Args:
            token: joins output.
            told: joins logprobs, unless it is None.

        Errors: RuntimeError naming the state when it is not DECODE. Nothing has changed then.
        """
        # exercise 6.2
        if self.state is not State.DECODE:
            raise RuntimeError(f"request {self.id} is in state {self.state}: it gets no token")
        self.output.append(token)
        if told is not None:
            self.logprobs.append(told)
        if self.sampling is not None:
            self.sampling.add(token)

    def finish(self, reason: str, error: Exception | None = None) -> None:
        """It is over: the state FINISHED, the reason, the error; the sampler's memory is let go.

        Errors: ValueError naming a reason that is not one of REASONS; RuntimeError, naming both
        states, when it was over before. Nothing has changed then.
        """
        # exercise 6.2
        if reason not in REASONS:
            raise ValueError(f"finish reason {reason!r} is not one of {', '.join(REASONS)}")
        self.move(State.FINISHED)
        self.finish_reason, self.error, self.sampling = reason, error, None
