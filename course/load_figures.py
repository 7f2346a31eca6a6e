"""From what happened to each request to the figures of a run. Pure: numbers in, numbers out."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

ANSWERED, REJECTED, UNFINISHED, NO_SERVER = "answered", "rejected", "unfinished", "no connection"
TRUSTED = 0.1  # of the median of what is measured: how late the generator may be
PERCENTS = (50, 90, 95, 99)

FIGURES = {  # name: unit, which way is better
    "first_token_p50": ("s", "lower"),
    "first_token_p95": ("s", "lower"),
    "first_token_p99": ("s", "lower"),
    "inter_token_p50": ("s", "lower"),
    "inter_token_p95": ("s", "lower"),
    "inter_token_p99": ("s", "lower"),
    "e2e_p50": ("s", "lower"),
    "e2e_p95": ("s", "lower"),
    "throughput": ("tokens/s", "higher"),
    "rejected": ("ratio", "lower"),
    "errors": ("ratio", "lower"),
}


@dataclass
class Outcome:
    """What became of one request. Seconds since the run began.

    Args:
        planned: when it was due.
        sent: when it went out.
        ended: when its answer was whole, or it was clear that there is none.
        pieces: when each piece of text came in; none without streaming.
        kind: ANSWERED, REJECTED (503 or 429), UNFINISHED, or in words what went wrong.
        retry_after: what a rejection said, in seconds.
        prompt_tokens, tokens: as the server counted them; None where it did not.
    """

    planned: float
    sent: float = math.nan
    ended: float = math.nan
    pieces: list[float] = field(default_factory=list)
    kind: str = UNFINISHED
    retry_after: float | None = None
    prompt_tokens: int | None = None
    tokens: int | None = None
    finish_reason: str | None = None

    @property
    def late(self) -> float:
        """How long after its time it went out: the generator's own fault."""
        return self.sent - self.planned

    @property
    def first_token(self) -> float | None:
        """From sending to the first text."""
        return self.pieces[0] - self.sent if self.pieces else None

    @property
    def gaps(self) -> list[float]:
        """Between one piece of text and the next."""
        return [b - a for a, b in pairwise(self.pieces)]

    @property
    def e2e(self) -> float:
        """From sending to the end."""
        return self.ended - self.sent

    @property
    def made(self) -> int:
        """Tokens of the answer; pieces of text where the server did not count."""
        return len(self.pieces) if self.tokens is None else self.tokens


@dataclass(frozen=True)
class Samples:
    """The latencies of all answered requests, in seconds."""

    first_token: list[float]
    inter_token: list[float]
    e2e: list[float]


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value that so many percent lie at or below, between two neighbours in proportion.

    None of nothing. Source: Hyndman and Fan, Sample Quantiles (1996), definition 7.
    """
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below, part = int(place), place % 1
    if not part:
        return ordered[below]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * part


def samples(outcomes: Sequence[Outcome]) -> Samples:
    """Of those that were answered: who was refused would make the service look fast."""
    answered = [o for o in outcomes if o.kind == ANSWERED]
    return Samples(
        [o.first_token for o in answered if o.pieces],
        [gap for o in answered for gap in o.gaps],
        [o.e2e for o in answered],
    )


def figures(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """Every figure of one run by name; None where nothing was measured."""
    ended, found = [o for o in outcomes if o.kind != UNFINISHED], samples(outcomes)
    named = {
        f"{name}_p{percent}": percentile(getattr(found, name), percent)
        for name in ("first_token", "inter_token", "e2e")
        for percent in PERCENTS
    }
    refused = sum(o.kind == REJECTED for o in ended)
    wrong = sum(o.kind not in (ANSWERED, REJECTED) for o in ended)
    named |= {
        "throughput": throughput(outcomes),
        "rejected": refused / len(ended) if ended else None,
        "errors": wrong / len(ended) if ended else None,
    }
    return {name: named[name] for name in FIGURES}


def throughput(outcomes: Sequence[Outcome]) -> float | None:
    """Tokens a second that came out, from the first request sent to the last one ended.

    While the service keeps up this is what was asked for; it is what the service can do only when
    more is asked for.
    """
    ended = [o for o in outcomes if o.kind != UNFINISHED]
    if not ended:
        return None
    seconds = max(o.ended for o in ended) - min(o.sent for o in ended)
    return sum(o.made for o in ended) / seconds if seconds > 0 else None


def errors_by_kind(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """What went wrong and how often, the most frequent first."""
    kinds = Counter(o.kind for o in outcomes)
    fine = (ANSWERED, REJECTED, UNFINISHED)
    return {kind: n for kind, n in kinds.most_common() if kind not in fine}


def distrust(outcomes: Sequence[Outcome], busy: float) -> str | None:
    """Why the numbers are not to be trusted, for which the generator itself is to blame; or None.

    busy: processor seconds of the generator, a second. Python uses one core, and near all of it
    answers lie unread: their times are then the generator's.
    """
    late = percentile([o.late for o in outcomes if not math.isnan(o.sent)], 95)
    found = samples(outcomes)
    measured = percentile(found.first_token or found.e2e, 50)
    if late is not None and measured is not None and late > TRUSTED * measured:
        return (
            f"the generator itself was late, by {late * 1e3:.1f} ms at p95 where "
            f"{measured * 1e3:.1f} ms were measured: give it a core of its own, or a lower rate"
        )
    if busy > 0.7:
        return (
            f"the generator itself used {busy:.0%} of a core: what it reads late counts as "
            "latency of the server; take a lower rate"
        )
    return None
