"""Wrong versions of 6.2 Request."""

import math

from course.misconceptions import misconception
from solutions.request import REASONS, State


@misconception("6.2", "Request.move")
def any_state_follows(self, state):
    """You set any state. A request that is over could come back to life, and one that waits could
    decode without a row: look the step up in FOLLOWS first.
    """
    self.state = state


@misconception("6.2", "Request.move")
def states_only_grow(self, state):
    """You let a request skip states: from WAITING to DECODE it would have neither a row nor a
    computed prompt. Only the end may be reached from everywhere.
    """
    order = list(State)
    if order.index(state) <= order.index(self.state):
        raise RuntimeError(f"request {self.id} cannot go from {self.state} to {state}")
    self.state = state


@misconception("6.2", "Request.finish")
def ends_again(self, reason, error=None):
    """Your finish works a second time, and the later reason replaces the first. What was told to
    the listener must stay true: a request that is over never changes.
    """
    if reason not in REASONS:
        raise ValueError(f"finish reason {reason!r} is not one of {', '.join(REASONS)}")
    self.state = State.FINISHED
    self.finish_reason, self.error, self.sampling = reason, error, None


@misconception("6.2", "Request.fit")
def too_large_wishes_refused(self, context, vocabulary):
    """You refuse a request whose max_tokens is more than there is room for. People ask for a
    million and mean "as much as you have": clamp the limit; the answer then ends with "length".
    """
    if self.arrival is not None or self.state is not State.WAITING:
        raise ValueError(f"request {self.id} was submitted before")
    length = len(self.prompt)
    if not length:
        raise ValueError("the prompt is empty")
    if length + self.params.max_tokens > context:
        raise ValueError(f"{length} tokens and {self.params.max_tokens} more, room for {context}")
    for token in self.prompt:
        if type(token) is not int or not 0 <= token < vocabulary:
            raise ValueError(f"token id {token!r} is not in the vocabulary of {vocabulary}")
    self.limit = self.params.max_tokens


@misconception("6.2", "Request.fit")
def full_prompt_accepted(self, context, vocabulary):
    """You accept a prompt that is exactly as long as the context. There is no room for a single
    token then: with a limit of 0 it would never end by "length".
    """
    if self.arrival is not None or self.state is not State.WAITING:
        raise ValueError(f"request {self.id} was submitted before")
    length = len(self.prompt)
    if not length:
        raise ValueError("the prompt is empty")
    if length > context:
        raise ValueError(f"the prompt has {length} tokens and there is room for {context}")
    for token in self.prompt:
        if type(token) is not int or not 0 <= token < vocabulary:
            raise ValueError(f"token id {token!r} is not in the vocabulary of {vocabulary}")
    self.limit = min(self.params.max_tokens, context - length)


@misconception("6.2", "Request.expires")
def admit_by_for_ever(self):
    """You count admit_by after the request was admitted. It limits the wait: once there is a row,
    only the deadline counts.
    """
    times = [time for time in (self.deadline, self.admit_by) if time is not None]
    return min(times, default=math.inf)
