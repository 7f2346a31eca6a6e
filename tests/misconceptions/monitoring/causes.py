"""Wrong versions of 8.7."""

import math

from course.misconceptions import misconception
from solutions.diagnose import _RULES, NEXT, Finding, _evidence
from solutions.histogram import histogram_quantile


@misconception("8.7", "increase")
def negative_after_a_restart(earlier, later, name):
    """You subtract even when the counter fell. A counter never falls: the process began anew, and
    what it shows now is all that it has counted since.
    """
    before = earlier.get(name, {})
    return {key: value - before.get(key, 0.0) for key, value in later.get(name, {}).items()}


@misconception("8.7", "increase")
def only_what_was_there(earlier, later, name):
    """You leave out series that were not there earlier. The first error of a kind makes its series:
    what was not there was 0.
    """
    before, now = earlier.get(name, {}), later.get(name, {})
    if any(value < before.get(key, 0.0) for key, value in now.items()):
        return dict(now)
    return {key: value - before[key] for key, value in now.items() if key in before}


@misconception("8.7", "quantile_between")
def quantile_since_the_start(earlier, later, name, q):
    """You take the quantile of the later exposition. That is one of all time since the start, in
    which the last ten seconds hardly count: subtract the earlier one.
    """
    found = later.get(f"{name}_bucket")
    if not found:
        return None
    return histogram_quantile(q, sorted((float(bound), count) for bound, count in found.items()))


@misconception("8.7", "quantile_between")
def bounds_sorted_as_text(earlier, later, name, q):
    """You sort the bounds as text, where "10.0" comes before "2.0" and "+Inf" before all: make
    numbers of them first.
    """
    before = earlier.get(f"{name}_bucket", {})
    grown = {key: v - before.get(key, 0.0) for key, v in later.get(f"{name}_bucket", {}).items()}
    if not grown:
        return None
    finite = sorted((key, count) for key, count in grown.items() if key != "+Inf")
    buckets = [(float(key), count) for key, count in finite]
    return histogram_quantile(q, [*buckets, (math.inf, grown.get("+Inf", 0.0))])


@misconception("8.7", "diagnose")
def first_cause_only(now, usual=None):
    """You stop at the first cause. Several things can be wrong at once, and what comes first in the
    table may be the smaller one: tell all of them.
    """
    usual = usual or {}
    for cause in NEXT:
        evidence = _evidence(cause, now, usual)
        if evidence:
            return [Finding(cause, evidence, NEXT[cause])]
    return []


@misconception("8.7", "_grown")
def usual_is_zero(now, usual, name, times):
    """You count what is usual as 0 where it is not known. Any number is many times that, and every
    service without a healthy time to compare with is ill: such a rule does not hold.
    """
    return now[name] >= times * (usual.get(name) or 0.0)


@misconception("8.7", "_evidence")
def unknown_now_is_zero(cause, now, usual):
    """You count a figure that is not known now as 0. Then 0 bytes are as much as 1.1 times 0 bytes,
    and a service that nobody has measured leaks: a rule without its figures does not hold.
    """
    for names, holds in _RULES[cause]:
        known = {name: now.get(name) or 0.0 for name in names}
        if holds(known, usual):
            return ", ".join(f"{name} {value:g}" for name, value in known.items())
    return None


@misconception("8.7", "diagnose")
def unknown_is_zero(now, usual=None):
    """You count a figure that is not known as 0. Then any number is many times the usual, and a
    service that was never measured is ill: a rule without its figures does not hold.
    """
    now = {name: value or 0.0 for name, value in now.items()}
    usual = {name: value or 0.0 for name, value in (usual or dict.fromkeys(now)).items()}
    found = ((cause, _evidence(cause, now, usual)) for cause in NEXT if cause in _RULES)
    return [Finding(cause, evidence, NEXT[cause]) for cause, evidence in found if evidence]
