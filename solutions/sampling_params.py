"""Chapter 05: what a request may ask of the sampler, checked once, at the door."""

import math
from dataclasses import dataclass, fields

MAX_STOPS = 4
MAX_STOP_LENGTH = 256  # characters
MAX_LOGPROBS = 20

# field -> (kind, smallest, largest, in words); conventions of the OpenAI API and of vLLM
RANGES = {
    "temperature": (float, 0.0, 2.0, "from 0 (greedy) to 2"),
    "top_k": (int, -1, 2**31 - 1, "at least 1, or 0 or -1 for off"),
    "top_p": (float, math.ulp(0.0), 1.0, "above 0, up to 1 (off)"),
    "min_p": (float, 0.0, 1.0, "from 0 (off) to 1"),
    "repetition_penalty": (float, 1e-6, 1e6, "above 0, from 0.000001 to 1000000; 1 is off"),
    "presence_penalty": (float, -2.0, 2.0, "from -2 to 2; 0 is off"),
    "frequency_penalty": (float, -2.0, 2.0, "from -2 to 2; 0 is off"),
    "seed": (int, -(2**63), 2**63 - 1, "from -2**63 to 2**63 - 1"),
    "max_tokens": (int, 1, math.inf, "at least 1"),
    "logprobs": (int, 0, MAX_LOGPROBS, f"from 0 to {MAX_LOGPROBS}"),
}
KINDS = {float: ((int, float), "a number"), int: ((int,), "a whole number")}


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of one request are chosen, and when it is over.

    The order in which they work is that of the peers: penalties, temperature, top-k, then top-p
    on what is left, then min-p. None for a field means its default, as null does in JSON.

    Args:
        temperature: 0 is greedy; below 1 sharper, above 1 flatter than the model's own.
        top_k: only the k most probable tokens; 0 or -1 is off.
        top_p: only the fewest tokens whose probabilities add up to p; 1 is off.
        min_p: only tokens with at least p times the largest probability; 0 is off.
        repetition_penalty: for tokens of prompt and answer; above 1 they become less likely.
        presence_penalty: taken from the logit of every token of the answer, once.
        frequency_penalty: taken from it as often as the token occurs in the answer.
        seed: the same seed gives the same draws; without one, every request differs.
        max_tokens: an answer has no more.
        stop: up to 4 texts of 1 to 256 characters that end the answer and are cut from it; one
            alone may be given as a str.
        logprobs: report the log-probability of each token and of this many others; None for none.

    Errors: ValueError naming the field, its value and what it may be.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    logprobs: int | None = None

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            value = field.default if value is None else _checked(field.name, value)
            object.__setattr__(self, field.name, value)  # the only place where it may change

    @property
    def is_greedy(self) -> bool:
        """No draw: the most probable token, whatever the filters say."""
        return self.temperature == 0

    @property
    def has_penalties(self) -> bool:
        """The sampler needs to know which tokens there were."""
        penalties = self.repetition_penalty, self.presence_penalty, self.frequency_penalty
        return penalties != (1.0, 0.0, 0.0)


def _checked(name: str, value):
    """The value of a field in its own type; ValueError when it is not what it may be."""
    if name == "stop":
        return _checked_stops(value)
    kind, smallest, largest, words = RANGES[name]
    kinds, noun = KINDS[kind]
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise ValueError(f"{name} must be {noun}, {words}; got {_shown(value)}")
    if not smallest <= value <= largest:
        raise ValueError(f"{name} must be {words}; got {_shown(value)}")
    return kind(value)


def _checked_stops(value) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else value
    if not isinstance(stops, list | tuple) or len(stops) > MAX_STOPS:
        raise ValueError(f"stop must be a text or up to {MAX_STOPS} texts; got {_shown(value)}")
    for stop in stops:
        if not isinstance(stop, str) or not 1 <= len(stop) <= MAX_STOP_LENGTH:
            raise ValueError(
                f"stop must hold texts of 1 to {MAX_STOP_LENGTH} characters; got {_shown(stop)}"
            )
    return tuple(stops)


def _shown(value) -> str:
    """A value as it was given, cut where it has no end."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
