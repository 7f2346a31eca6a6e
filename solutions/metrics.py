"""Chapter 08: events counted for Prometheus, under the names that dashboards expect."""

from collections.abc import Callable, Mapping

import prometheus_client
import psutil
import torch

from solutions.events import Admitted, Event, Finished, Rejected, Sent, Stepped, Token
from solutions.histogram import (
    E2E_BOUNDS,
    FIRST_TOKEN_BOUNDS,
    INTER_TOKEN_BOUNDS,
    QUEUE_BOUNDS,
)
from solutions.request import REASONS
from solutions.request_timing import Timeline, Timings

PROMPT_BOUNDS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100_000, 200_000,
)  # fmt: skip
PAUSE_BOUNDS = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10,
)  # fmt: skip
REJECTIONS = ("queue_full", "too_long", "draining")
FAULTS = {  # class of an exception: how it is counted; any other class is "other"
    "FloatingPointError": "not_finite",  # the model gave NaN
    "MemoryError": "memory",
    "OutOfMemoryError": "memory",  # torch's, of a device
}
HISTOGRAMS = {  # name: bounds of its buckets, what it means
    "llm_time_to_first_token_seconds": (FIRST_TOKEN_BOUNDS, "From arrival to the first token"),
    "llm_inter_token_latency_seconds": (INTER_TOKEN_BOUNDS, "Between one token and the next"),
    "llm_e2e_request_latency_seconds": (E2E_BOUNDS, "From arrival to the end"),
    "llm_request_queue_seconds": (QUEUE_BOUNDS, "From arrival to admission"),
    "llm_request_prompt_tokens": (PROMPT_BOUNDS, "Tokens in the prompt of an admitted request"),
    "llm_send_lag_seconds": (QUEUE_BOUNDS, "From a stream's end until its client has taken all"),
    "llm_step_seconds": (INTER_TOKEN_BOUNDS, "One step of the batch"),
    "llm_gc_pause_seconds": (PAUSE_BOUNDS, "One run of the garbage collector"),
}
COUNTERS = {  # name: its other label, if it has one, and the values of that; what it means
    "llm_prompt_tokens_total": (None, (), "Tokens in the prompts of admitted requests"),
    "llm_generation_tokens_total": (None, (), "Tokens in answers"),
    "llm_requests_total": ("finish_reason", REASONS, "Requests that are over"),
    "llm_requests_rejected_total": ("reason", REJECTIONS, "Requests that were turned away"),
    "llm_step_errors_total": ("fault", ("not_finite", "memory", "other"), "Exceptions in steps"),
}
GAUGES = {  # name: its other label, if it has one; what it means
    "llm_requests_running": (None, "Requests that were admitted and are not over"),
    "llm_requests_waiting": (None, "Requests that wait for admission"),
    "llm_kv_cache_usage_ratio": (None, "Reserved tokens over all that there is room for"),
    "llm_memory_bytes": ("kind", "Memory that is held"),
}


def memory_bytes() -> dict[str, int]:
    """What this process holds in memory, and what torch has taken of the device's, in bytes."""
    device = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
    return {"process_resident": psutil.Process().memory_info().rss, "device_allocated": device}


class Metrics:
    """A watcher that counts, and shows its counts in Prometheus' text format.

    Counters and histograms only grow: rates and quantiles are the reader's to make, over whatever
    time they like. The series are those of HISTOGRAMS, COUNTERS and GAUGES, each with the label
    model_name, kept in a registry of its own. Every series is there from the start, at 0, with all
    values of its other label: a rate needs a value before the first event. A label never gets
    another value, because each is a new series that Prometheus keeps.

    | name | what is counted, and when |
    |---|---|
    | llm_time_to_first_token_seconds | Timeline.first_token, at the first Token |
    | llm_inter_token_latency_seconds | Timeline.gap, at each later Token |
    | llm_e2e_request_latency_seconds | Timeline.e2e, at Finished |
    | llm_request_queue_seconds | Timeline.queue, at the first Admitted |
    | llm_request_prompt_tokens | prompt_tokens, at the first Admitted |
    | llm_prompt_tokens_total | prompt_tokens, at the first Admitted |
    | llm_generation_tokens_total | 1 at each Token |
    | llm_requests_total | 1 at Finished, by reason |
    | llm_requests_rejected_total | 1 at Rejected, by reason |
    | llm_send_lag_seconds | lag of Sent |
    | llm_step_seconds | seconds of Stepped |
    | llm_step_errors_total | 1 for each error of a Stepped, by FAULTS |
    | llm_gc_pause_seconds | what pause is told |
    | llm_requests_running, llm_requests_waiting | Timings.count, at each exposition |
    | llm_kv_cache_usage_ratio | kv_used / kv_total of the newest Stepped |
    | llm_memory_bytes | memory() by kind, at each exposition |

    Why running and waiting are not those of Stepped: an engine that is stuck makes no step, and
    would look idle for ever.

    Args:
        model_name: the label.
        memory: gives bytes by kind.
    """

    def __init__(self, model_name: str, memory: Callable[[], Mapping[str, int]] = memory_bytes):
        # exercise 8.3
        prometheus_client.disable_created_metrics()  # a series more each: when it was made
        self.registry = prometheus_client.CollectorRegistry()  # the global one has others in it
        self._model, self._memory, self._timings = model_name, memory, Timings()
        self._histograms = {
            name: self._new(prometheus_client.Histogram, name, help, buckets=bounds).labels(
                self._model
            )
            for name, (bounds, help) in HISTOGRAMS.items()
        }
        self._counters = {
            name: self._new(prometheus_client.Counter, name, help, label)
            for name, (label, _, help) in COUNTERS.items()
        }
        for name, (label, values, _) in COUNTERS.items():
            for value in values if label else [None]:
                self._count(name, 0, value)
        self._gauges = {
            name: self._new(prometheus_client.Gauge, name, help, label)
            for name, (label, help) in GAUGES.items()
        }
        self._set("llm_kv_cache_usage_ratio", 0)

    def watch(self, event: Event) -> None:
        """Count an event.

        Of a request that nobody knows, Token and Finished are counted, but no times. (Sent comes
        when its request is forgotten already, and brings its own.)

        Errors: ValueError for a reason that is not one of REASONS, or of REJECTIONS, naming it.
        Nothing has been counted then.
        """
        # exercise 8.3
        known = {Finished: REASONS, Rejected: REJECTIONS}.get(type(event))
        if known and event.reason not in known:
            raise ValueError(f"reason {event.reason!r} is not one of {', '.join(known)}")
        timeline = self._timings.watch(event)
        match event:
            case Admitted():
                self._admitted(event, timeline)
            case Token():
                self._token(timeline)
            case Finished():
                self._count("llm_requests_total", 1, event.reason)
                self._observe("llm_e2e_request_latency_seconds", timeline and timeline.e2e)
            case Rejected():
                self._count("llm_requests_rejected_total", 1, event.reason)
            case Sent():
                self._observe("llm_send_lag_seconds", event.lag)
            case Stepped():
                self._stepped(event)

    def pause(self, seconds: float) -> None:
        """Count a run of the garbage collector."""
        # exercise 8.3
        self._observe("llm_gc_pause_seconds", seconds)

    def exposition(self) -> bytes:
        """All series in Prometheus' text format 0.0.4, UTF-8."""
        # exercise 8.3
        running, waiting = self._timings.count()
        self._set("llm_requests_running", running)
        self._set("llm_requests_waiting", waiting)
        for kind, held in self._memory().items():
            self._set("llm_memory_bytes", held, kind)
        return prometheus_client.generate_latest(self.registry)

    def _admitted(self, event: Admitted, timeline: Timeline | None) -> None:
        """Of its request, the first Admitted."""
        # exercise 8.3
        if timeline and timeline.admitted == event.at:  # the first time
            tokens = timeline.request.prompt_tokens
            self._observe("llm_request_queue_seconds", timeline.queue)
            self._observe("llm_request_prompt_tokens", tokens)
            self._count("llm_prompt_tokens_total", tokens)

    def _token(self, timeline: Timeline | None) -> None:
        """The first token of a request, or a later one."""
        # exercise 8.3
        self._count("llm_generation_tokens_total", 1)
        if timeline and timeline.gap is None:
            self._observe("llm_time_to_first_token_seconds", timeline.first_token)
        elif timeline:
            self._observe("llm_inter_token_latency_seconds", timeline.gap)

    def _stepped(self, event: Stepped) -> None:
        """How long it took, what it met, and how full the cache is."""
        # exercise 8.3
        self._observe("llm_step_seconds", event.seconds)
        self._set("llm_kv_cache_usage_ratio", event.kv_used / event.kv_total)
        for error in event.errors:
            self._count("llm_step_errors_total", 1, FAULTS.get(error, "other"))

    def _new(self, kind, name: str, help: str, label: str | None = None, **settings):
        """A metric of prometheus_client in our registry."""
        labels = ["model_name", label] if label else ["model_name"]
        return kind(name, help, labels, registry=self.registry, **settings)

    def _observe(self, name: str, value: float | None) -> None:
        """Count a value into a histogram; None is no value."""
        if value is not None:
            self._histograms[name].observe(value)

    def _count(self, name: str, amount: int, value: str | None = None) -> None:
        """Add to a counter; value is that of its other label."""
        labels = [self._model] if value is None else [self._model, value]
        self._counters[name].labels(*labels).inc(amount)

    def _set(self, name: str, amount: float, value: str | None = None) -> None:
        """Set a gauge; value is that of its other label."""
        labels = [self._model] if value is None else [self._model, value]
        self._gauges[name].labels(*labels).set(amount)
