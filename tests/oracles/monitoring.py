"""Chapter 08, calculated otherwise: exact fractions, brute force, numeric integration."""

import math
import re
import time
from decimal import Decimal
from fractions import Fraction

import numpy as np

# --- 8.1 ---


def nearest_rank(values: list, percent: float) -> float:
    """The smallest value that at least percent of the values do not exceed, by counting."""
    share = Fraction(str(percent)) / 100
    fitting = [v for v in values if Fraction(sum(w <= v for w in values), len(values)) >= share]
    return min(fitting)


# --- 8.2 ---


def round_bounds(low: str, high: str, steps: tuple) -> list[float]:
    """Every step times a power of ten between low and high, in decimal arithmetic."""
    powers = [Decimal(10) ** exponent for exponent in range(-9, 10)]
    products = {Decimal(str(step)) * power for step in steps for power in powers}
    return [float(p) for p in sorted(products) if Decimal(low) <= p <= Decimal(high)]


def counts_upto(bounds: list, values: list) -> list[list]:
    """[bound, how many values are at most that], the last bound infinity."""
    return [[bound, sum(v <= bound for v in values)] for bound in [*bounds, math.inf]]


def interpolated(q: float, buckets: list) -> float:
    """The rank on the piecewise linear curve of the cumulative counts."""
    bounds = [0.0, *(bound for bound, _ in buckets[:-1])]
    counts = [0.0, *(count for _, count in buckets[:-1])]
    rank = q * buckets[-1][1]
    if rank > counts[-1]:
        return bounds[-1]
    place = next(i for i, count in enumerate(counts) if count >= rank and i)
    share = (rank - counts[place - 1]) / (counts[place] - counts[place - 1])
    return bounds[place - 1] + share * (bounds[place] - bounds[place - 1])


# --- 8.3 ---

SERIES = re.compile(r"(?P<name>[a-z0-9_]+)\{(?P<labels>.*)\} (?P<value>\S+)")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def exposed(text: str) -> dict:
    """{name: {labels as "a=b,c=d" sorted: value}} of an exposition; comments are left out."""
    found: dict = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = SERIES.fullmatch(line)
            labels = ",".join(sorted(f"{k}={v}" for k, v in LABEL.findall(match["labels"])))
            found.setdefault(match["name"], {})[labels] = float(match["value"])
    return found


def types_of(text: str) -> dict:
    """{name: type} of an exposition."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, flags=re.MULTILINE))


# --- 8.5 ---


def utc(now: float) -> str:
    """Seconds since 1970 in words, by way of whole milliseconds."""
    seconds, milliseconds = divmod(round(1000 * now), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z"


# --- 8.7 ---


def causes(now: dict, usual: dict | None = None) -> dict[str, list[str]]:
    """{cause: the figures in the part of its rule that holds}, written down rule by rule."""
    found: dict[str, list[str]] = {}
    usual = usual or {}

    def rule(cause: str, names: str, condition) -> None:
        asked = names.split()
        if cause in found or any(now.get(name) is None for name in asked):
            return
        try:
            holds = condition()
        except (TypeError, KeyError, ZeroDivisionError):  # a usual figure that is not known
            holds = False
        if holds:
            found[cause] = asked

    n, u = now, usual
    rule(
        "stuck_engine",
        "steps running waiting",
        lambda: n["steps"] == 0 < n["running"] + n["waiting"],
    )
    rule("memory_leak", "memory memory_before", lambda: n["memory"] >= 1.1 * n["memory_before"])
    rule("collector_pauses", "paused seconds", lambda: n["paused"] >= 0.05 * n["seconds"])
    rule("garbled_output", "not_finite", lambda: n["not_finite"] > 0)
    rule(
        "garbled_output",
        "stop length",
        lambda: (
            n["stop"] + n["length"] >= 10
            and n["length"] / (n["stop"] + n["length"]) >= 0.9
            and u["length"] / (u["stop"] + u["length"]) <= 0.5
        ),
    )
    rule("out_of_memory", "memory_errors", lambda: n["memory_errors"] > 0)
    rule("failing_requests", "other_errors", lambda: n["other_errors"] > 0)
    rule(
        "huge_request",
        "longest_prompt inter_token_p95",
        lambda: (
            n["longest_prompt"] >= 4 * u["longest_prompt"]
            and n["inter_token_p95"] >= 1.5 * u["inter_token_p95"]
        ),
    )
    rule(
        "slow_machine",
        "step_p50 tokens prompt_tokens steps",
        lambda: (
            n["step_p50"] >= 1.5 * u["step_p50"]
            and (n["tokens"] + n["prompt_tokens"]) / n["steps"]
            <= 1.2 * (u["tokens"] + u["prompt_tokens"]) / u["steps"]
        ),
    )
    rule("slow_client", "send_lag_p95", lambda: n["send_lag_p95"] >= 1)
    rule("queue_storm", "steps queue_full", lambda: n["steps"] > 0 and n["queue_full"] > 0)
    rule(
        "queue_storm",
        "steps waiting running queue_p95",
        lambda: n["steps"] > 0 and n["waiting"] > n["running"] and n["queue_p95"] >= 1,
    )
    rule("full_cache", "kv waiting", lambda: n["kv"] >= 0.95 and n["waiting"] > 0)
    rule(
        "impatient_clients",
        "cancelled finished",
        lambda: n["cancelled"] >= 5 and n["cancelled"] >= 0.5 * n["finished"],
    )
    rule(
        "missed_deadlines",
        "timeout finished",
        lambda: n["timeout"] > 0 and n["timeout"] >= 0.1 * n["finished"],
    )
    return found


# --- 8.8 ---


def tail(t: float, freedom: int) -> float:
    """The chance of Student's t above t: its density, integrated."""
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    angles = np.linspace(math.atan(t / math.sqrt(freedom)), math.pi / 2, 8_001)
    density = np.cos(angles) ** (freedom - 1)  # t = sqrt(freedom) tan(angle)
    whole = np.linspace(-math.pi / 2, math.pi / 2, 8_001)
    return float(
        np.trapezoid(density, angles) / np.trapezoid(np.cos(whole) ** (freedom - 1), whole)
    )


def compare(before: dict, after: dict, tolerance=0.05, level=0.05, count=1) -> tuple:
    """(change, verdict) of a figure, by numpy."""
    share = before["unit"] == "ratio"
    a, b = np.array(before["values"], float), np.array(after["values"], float)
    if not share and min(a.min(), b.min()) <= 0:
        return None, "unclear"
    if not share:
        a, b = np.log(a), np.log(b)
    if before["better"] == "higher":
        a, b = -a, -b
    d = b.mean() - a.mean()
    change = float(d if share else np.exp(d) - 1)
    if min(len(a), len(b)) < 2:
        return change, "unclear"
    beyond = d - (0.01 if share else np.log(1 + tolerance))
    freedom = len(a) + len(b) - 2
    pooled = (a.var() * len(a) + b.var() * len(b)) / freedom
    noise = math.sqrt(pooled * (1 / len(a) + 1 / len(b)))
    t = beyond / noise if noise else (math.inf if beyond > 0 else -math.inf)
    if tail(t, freedom) <= level / count:
        return change, "worse"
    return change, "fine" if tail(-t, freedom) <= level else "unclear"
