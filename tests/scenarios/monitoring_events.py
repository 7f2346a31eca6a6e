"""Chapter 08 beside the code under test: what watchers make of events.

An event travels as a dict: {"kind": "Token", "id": "a", "at": 2.0}. Every scenario takes the module
under test first and returns plain data.
"""

import gc
import tracemalloc

import prometheus_client

from solutions import events
from tests.scenarios.helpers import Unusable, attempt, in_words, told


def event_of(spec: dict):
    """The event that a dict describes."""
    fields = {name: value for name, value in spec.items() if name != "kind"}
    if "errors" in fields:
        fields["errors"] = tuple(fields["errors"])
    return getattr(events, spec["kind"])(**fields)


# --- 8.1 ---


def timeline_of(timeline) -> dict:
    """All that a timeline answers."""
    return {
        "queue": timeline.queue,
        "first_token": timeline.first_token,
        "gap": timeline.gap,
        "inter_token": list(timeline.inter_token),
        "e2e": timeline.e2e,
        "tokens_per_second": timeline.tokens_per_second,
    }


@told
def timeline_session(module, request: dict, specs: list) -> list:
    """What a timeline answers at first and after each event."""
    timeline = module.Timeline(event_of(request))
    found = [timeline_of(timeline)]
    for spec in specs:
        timeline.note(event_of(spec))
        found.append(timeline_of(timeline))
    return found


@told
def timeline_pair(module, request: dict, spec: dict) -> list:
    """Two timelines of the same request, of which one gets an event."""
    first, second = module.Timeline(event_of(request)), module.Timeline(event_of(request))
    first.note(event_of(spec))
    return [timeline_of(first), timeline_of(second)]


@told
def gap_bytes(module, request: dict, count: int) -> list:
    """[gap of an answer of so many tokens, whether it took less than a byte a token]."""
    timeline = module.Timeline(event_of(request))
    for number in range(count):
        timeline.note(events.Token(request["id"], float(number)))
    _ = timeline.gap
    gc.collect()
    tracemalloc.start()
    found = timeline.gap
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return [found, peak < count]


@told
def timings_session(module, limit: int | None, steps: list) -> list:
    """What Timings gives for each step.

    A step is an event, which gives {"request": its id, "tokens", "admitted", "ended"} of the
    timeline, or None; "count"; or "forgotten".
    """
    timings = module.Timings() if limit is None else module.Timings(limit)
    return [_timings_step(timings, step) for step in steps]


def _timings_step(timings, step):
    if step == "count":
        found = timings.count()
        if not isinstance(found, list | tuple) or len(found) != 2:
            raise Unusable(f"count should return (running, waiting), not {in_words(found)}")
        return list(found)
    if step == "forgotten":
        return timings.forgotten
    timeline = timings.watch(event_of(step))
    if timeline is None:
        return None
    try:
        return {
            "request": timeline.request.id,
            "arrived": timeline.request.at,
            "tokens": list(timeline.tokens),
            "admitted": timeline.admitted,
            "ended": timeline.end is not None,
        }
    except AttributeError:
        raise Unusable(
            f"watch should return a Timeline or None, but returned {in_words(timeline)}"
        ) from None


# --- 8.2 ---


@told
def histogram_session(module, bounds: list, steps: list) -> list:
    """Where a histogram stands after each step: [what the step gave, count, sum, cumulative].

    Steps: ["observe", value]; ["merge", bounds, values]: another histogram; ["fails", names, step].
    """
    histogram = module.Histogram(bounds)
    return [
        [
            _histogram_step(module, histogram, *step),
            histogram.count,
            histogram.sum,
            [list(pair) for pair in histogram.cumulative()],
        ]
        for step in steps
    ]


def _histogram_step(module, histogram, name, *args):
    if name == "fails":
        return attempt(lambda: _histogram_step(module, histogram, *args[1]), args[0])
    if name == "observe":
        histogram.observe(*args)
    if name == "merge":
        other = module.Histogram(args[0])
        for value in args[1]:
            other.observe(value)
        histogram.merge(other)
        held = [other.count, other.sum]
        other.observe(0.0)  # is its own affair
        return held
    return None


@told
def histogram_refused(module, bounds: list) -> dict:
    """What Histogram did with bounds that it should refuse."""
    return attempt(lambda: module.Histogram(bounds), [])


@told
def histogram_bytes(module, bounds: list, count: int) -> bool:
    """Whether so many values made the histogram larger by less than a byte each."""
    histogram = module.Histogram(bounds)
    histogram.observe(0.5)
    gc.collect()
    tracemalloc.start()
    for number in range(count):
        histogram.observe(number / count)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept < count


# --- 8.3 ---


@told
def metrics_session(module, model: str, steps: list) -> list:
    """What Metrics gives for each step: None for an event, the text for ["expose"].

    Steps: an event; ["pause", seconds]; ["memory", {kind: bytes}] for the next expositions;
    ["expose"]; ["fails", names, event].
    """
    held = {"process_resident": 1, "device_allocated": 0}
    metrics = module.Metrics(model, lambda: dict(held))
    return [_metrics_step(metrics, held, step) for step in steps]


def _metrics_step(metrics, held, step):
    if isinstance(step, dict):
        metrics.watch(event_of(step))
        return None
    name, *args = step
    if name == "fails":
        return attempt(lambda: metrics.watch(event_of(args[1])), args[0])
    if name == "pause":
        return metrics.pause(*args)
    if name == "memory":
        return held.update(args[0])
    text = metrics.exposition()
    if not isinstance(text, bytes):
        raise Unusable(f"exposition should return bytes, not {in_words(text)}")
    return text.decode("utf-8")


@told
def metrics_pair(module, event: dict) -> list:
    """The expositions of two Metrics, of which one got an event; what the global registry holds."""
    one, other = module.Metrics("one", dict), module.Metrics("other", dict)
    one.watch(event_of(event))
    common = [family.name for family in prometheus_client.REGISTRY.collect()]
    return [one.exposition().decode(), other.exposition().decode(), common]


# --- 8.5 ---


@told
def window_session(module, now: float, limit: int | None, steps: list) -> list:
    """What each step gives: None for an event, the sum for ["take", now].

    The memory is 100 bytes and 20 at first, and 10 more each time it is asked for.
    """
    held = {"process_resident": 90, "device_allocated": 20}

    def memory():
        held["process_resident"] += 10
        return dict(held)

    given = {} if limit is None else {"limit": limit}
    window = module.Window(now, memory=memory, **given)
    found = []
    for step in steps:
        if isinstance(step, dict):
            window.watch(event_of(step))
            found.append(None)
        else:
            found.append(dict(window.take(step[1])))
    return found
