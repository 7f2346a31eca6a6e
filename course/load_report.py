"""What a person reads after a run: a table of percentiles, and how far it is to be trusted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from course.load_figures import (
    ANSWERED,
    PERCENTS,
    REJECTED,
    UNFINISHED,
    Outcome,
    distrust,
    errors_by_kind,
    figures,
    percentile,
    samples,
)
from course.words import counted


@dataclass
class Round:
    """One repetition at one rate.

    Args:
        rate: requests a second.
        outcomes: of those that were sent.
        whole: all was sent and has ended.
        busy: processor seconds that the generator itself used, a second.
    """

    rate: float
    outcomes: list[Outcome] = field(default_factory=list)
    whole: bool = False
    busy: float = 0.0


def report(rounds: Sequence[Round]) -> str:
    """All rates, one after the other."""
    by_rate: dict[float, list[Round]] = {}
    for made in rounds:
        by_rate.setdefault(made.rate, []).append(made)
    return "\n\n".join(_rate(rate, made) for rate, made in by_rate.items())


def _rate(rate: float, rounds: list[Round]) -> str:
    """A headline, the percentiles of all repetitions together, and counts."""
    outcomes = [o for made in rounds for o in made.outcomes]
    times = f"{len(rounds)} times" if len(rounds) > 1 else "once"
    lines = [
        f"{rate:g} requests/s, {times}: {_counts(outcomes)}",
        *table(outcomes),
        f"{'throughput':12}{_throughput(rounds)}",
        f"{'lengths':12}{_lengths(outcomes)}",
        f"{'generator':12}{_generator(rounds)}",
    ]
    if said := few(outcomes):
        lines.append(said)
    warnings = dict.fromkeys(distrust(made.outcomes, made.busy) for made in rounds)
    return "\n".join(lines + [f"NOT TO BE TRUSTED: {said}" for said in warnings if said])


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Rows of percentiles in milliseconds; no row for what was not measured."""
    found = samples(outcomes)
    rows = {
        "first token": found.first_token,
        "inter-token": found.inter_token,
        "end to end": found.e2e,
    }
    measured = {name: values for name, values in rows.items() if values}
    head = f"{'ms':12}" + "".join(f"{f'p{percent}':>10}" for percent in PERCENTS)
    return [head if measured else "no answer to measure"] + [
        f"{name:12}" + "".join(f"{percentile(values, p) * 1e3:10.1f}" for p in PERCENTS)
        for name, values in measured.items()
    ]


def _counts(outcomes: Sequence[Outcome]) -> str:
    """How many requests ended in which way."""
    kinds = [o.kind for o in outcomes]
    words = [f"{kinds.count(ANSWERED)} of {len(outcomes)} answered"]
    if refused := [o for o in outcomes if o.kind == REJECTED]:
        words.append(f"{len(refused)} rejected ({_retry_after(refused)})")
    words += [f"{n} failed ({kind})" for kind, n in errors_by_kind(outcomes).items()]
    if unfinished := kinds.count(UNFINISHED):
        words.append(f"{unfinished} not finished")
    return ", ".join(words)


def _retry_after(refused: Sequence[Outcome]) -> str:
    seen = [o.retry_after for o in refused if o.retry_after is not None]
    if len(seen) < len(refused):
        return f"{len(refused) - len(seen)} without Retry-After"
    return f"Retry-After {min(seen):g} to {max(seen):g} s"


def _throughput(rounds: Sequence[Round]) -> str:
    """Of each repetition: their spread is the noise."""
    found = [figures(made.outcomes)["throughput"] for made in rounds]
    return ", ".join("-" if value is None else f"{value:.1f}" for value in found) + " tokens/s"


def _mean_tokens(values: Sequence[int]) -> str:
    return counted(round(sum(values) / len(values)), "token")


def _lengths(outcomes: Sequence[Outcome]) -> str:
    """What was really sent and came back, as the server counted it."""
    answered = [o for o in outcomes if o.kind == ANSWERED]
    known = [o for o in answered if o.tokens is not None]
    if not known:
        return "the server does not count tokens; pieces of text are counted instead"
    said = " and ".join(
        f"{name} of {_mean_tokens(values)} (mean; longest {max(values)})"
        for name, values in (
            ("prompts", [o.prompt_tokens for o in known]),
            ("answers", [o.tokens for o in known]),
        )
    )
    joined = sum(max(0, o.tokens - len(o.pieces)) for o in known if o.pieces)
    total = sum(o.tokens for o in known if o.pieces)
    if total and joined > 0.05 * total:
        said += f"; {joined / total:.0%} of the tokens came without a text of their own"
    return said


def _generator(rounds: Sequence[Round]) -> str:
    late = [o.late * 1e3 for made in rounds for o in made.outcomes if not math.isnan(o.sent)]
    if not late:
        return "sent nothing"
    return (
        f"late by {percentile(late, 50):.1f} ms (p50), {percentile(late, 95):.1f} ms (p95), "
        f"{max(late):.1f} ms (most); used {max(made.busy for made in rounds):.0%} of a core"
    )


def few(outcomes: Sequence[Outcome]) -> str | None:
    """A word about tails that a few requests cannot show."""
    answered = sum(o.kind == ANSWERED for o in outcomes)
    if not 0 < answered < 100:
        return None
    of = counted(answered, "answer")
    return f"p99 of {of} is little more than the slowest one: take more requests"
