"""What a run of the load generator sends, and when: all of it from a seed, before the run begins.

Requests arrive as people do, one independent of the other: the gaps between them are exponential
(a Poisson process). At another rate the same seed gives the same arrivals, closer together or
farther apart; in another repetition the same arrivals and lengths with other words, so that no
cache of prompts can help.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from course.words import counted

MOST = 100_000  # requests in a run, and tokens in one of them
_COMMON = """
the of and to in a is that it for was on are with as his they at be this from have or by one
had not but what all were when we there can an your which their said if do will each about
how up out them then she many some so these would other into has more her two like him see
time could no make than first been its who now people my made over did down only way find use
may water long little very after words called just where most know
"""
WORDS = _COMMON.split()  # one token each in most vocabularies, the space before it included


@dataclass(frozen=True)
class Lengths:
    """How many tokens: lognormal around a median, cut at both ends.

    The longest few hold much of the work, as in real traffic: with sigma 1, and uncut, the longest
    tenth of all lengths holds 39 % of the tokens (the normal distribution at sigma - 1.2816).
    sigma 0 is always the median.
    """

    median: int
    sigma: float
    shortest: int
    longest: int

    def draw(self, rng: random.Random) -> int:
        """One length."""
        drawn = self.median * rng.lognormvariate(0, self.sigma)
        return round(min(max(drawn, self.shortest), self.longest))

    def __str__(self) -> str:
        if not self.sigma:
            return counted(self.median, "token")
        return (
            f"lognormal, median {self.median}, sigma {self.sigma:g}, "
            f"cut to {self.shortest} to {self.longest} tokens"
        )


PROMPTS = Lengths(32, 1.0, 4, 512)
ANSWERS = Lengths(16, 1.0, 2, 128)


@dataclass(frozen=True)
class Planned:
    """One request: when it is due, in seconds from the start, its words, and the longest answer."""

    at: float
    prompt: str
    max_tokens: int


def read_lengths(text: str) -> Lengths:
    """`N`, or `MEDIAN:SIGMA:SHORTEST:LONGEST`. Errors: ValueError, with what is wrong."""
    if re.fullmatch(r"[0-9]{1,6}", text, re.ASCII):
        return _checked(Lengths(int(text), 0.0, int(text), int(text)))
    number = r"([0-9]{1,6})"
    found = re.fullmatch(rf"{number}:([0-9]{{1,2}}(?:\.[0-9]{{1,4}})?):{number}:{number}", text)
    if not found:
        raise ValueError(
            f"{text[:40]!r} is not a length: write N, or MEDIAN:SIGMA:SHORTEST:LONGEST, "
            "such as 32:1:4:512"
        )
    median, sigma, shortest, longest = found.groups()
    return _checked(Lengths(int(median), float(sigma), int(shortest), int(longest)))


def _checked(lengths: Lengths) -> Lengths:
    if not 1 <= lengths.shortest <= lengths.median <= lengths.longest <= MOST:
        raise ValueError(
            f"lengths must be in the order 1, shortest, median, longest, {MOST}: got "
            f"{lengths.shortest}, {lengths.median}, {lengths.longest}"
        )
    if lengths.sigma > 4:
        raise ValueError(f"a sigma of {lengths.sigma:g} is all tail: take one up to 4")
    return lengths


def arrivals(rate: float, rng: random.Random) -> Iterator[float]:
    """The times of a Poisson process without end, in seconds: rate is requests a second."""
    at = 0.0
    while True:
        at += rng.expovariate(1.0) / rate
        yield at


def times(
    rate: float, seed: int, requests: int | None = None, seconds: float | None = None
) -> list[float]:
    """When requests go out: this many of them, or those of so many seconds.

    Errors: ValueError when there is none, or more than MOST.
    """
    due = arrivals(rate, random.Random(f"arrivals {seed}"))
    if seconds is not None:
        due = takewhile(lambda at: at <= seconds, due)
    found = list(islice(due, MOST + 1 if requests is None else min(requests, MOST + 1)))
    if not found:
        raise ValueError(
            f"no request arrives in {seconds:g} s at {rate:g} a second: take more seconds"
        )
    if len(found) > MOST:
        raise ValueError(f"more than {MOST} requests in one run: take fewer, or a lower rate")
    return found


def plan(
    due: Sequence[float], seed: int, prompts: Lengths, answers: Lengths, repetition: int = 0
) -> list[Planned]:
    """The requests of one run. Lengths depend on the seed only, words on the repetition too."""
    sizes = random.Random(f"lengths {seed}")
    found = []
    for number, at in enumerate(due):
        tokens, most = prompts.draw(sizes), answers.draw(sizes)
        words = random.Random(f"words {seed} {repetition} {number}")
        found.append(Planned(at, text(tokens, words), most))
    return found


def text(tokens: int, rng: random.Random) -> str:
    """So many words; about as many tokens. What they say is of no interest, only how many."""
    return " ".join(rng.choices(WORDS, k=tokens))
