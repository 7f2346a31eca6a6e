"""Wrong versions of 8.3 Metrics."""

import prometheus_client

from course.misconceptions import misconception
from solutions.events import Admitted, Finished, Rejected, Sent, Stepped, Token
from solutions.metrics import COUNTERS, GAUGES, HISTOGRAMS, REJECTIONS
from solutions.request import REASONS
from solutions.request_timing import Timings


@misconception("8.3", "Metrics._token")
def every_token_is_a_first(self, timeline):
    """You put the time since arrival of every token into the histogram of the first token. Long
    answers then look like long waits: later tokens belong to the inter-token latency.
    """
    self._count("llm_generation_tokens_total", 1)
    if timeline:
        self._observe("llm_time_to_first_token_seconds", timeline.tokens[-1] - timeline.request.at)
        self._observe("llm_inter_token_latency_seconds", timeline.gap)


@misconception("8.3", "Metrics._admitted")
def every_admission_counts(self, event, timeline):
    """You count a request at each of its admissions. One that had to go back to the queue would be
    two requests, with twice the prompt: only the first Admitted of a timeline counts.
    """
    if timeline:
        self._observe("llm_request_queue_seconds", timeline.queue)
        self._observe("llm_request_prompt_tokens", timeline.request.prompt_tokens)
        self._count("llm_prompt_tokens_total", timeline.request.prompt_tokens)


@misconception("8.3", "Metrics._stepped")
def faults_by_class(self, event):
    """You use the class of the exception as the value of a label. Every library brings classes of
    its own, and each new value is one more series that is kept for ever: sort them into FAULTS.
    """
    self._observe("llm_step_seconds", event.seconds)
    self._set("llm_kv_cache_usage_ratio", event.kv_used / event.kv_total)
    for error in event.errors:
        self._count("llm_step_errors_total", 1, error)


@misconception("8.3", "Metrics.watch")
def any_reason_is_counted(self, event):
    """You count whatever reason comes. A typing error in the service makes a series that no
    dashboard knows, and nobody hears of it: refuse what is not in the list.
    """
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
        case Stepped():
            self._stepped(event)


@misconception("8.3", "Metrics.__init__")
def series_when_they_come(self, model_name, memory=dict):
    """Your series with a second label appear when their first event comes. Until then there is
    nothing, and the first rejection of the day is no increase: make each value's series at 0.
    """
    prometheus_client.disable_created_metrics()
    self.registry = prometheus_client.CollectorRegistry()
    self._model, self._memory, self._timings = model_name, memory, Timings()
    self._histograms = {}
    for name, (bounds, help) in HISTOGRAMS.items():
        family = self._new(prometheus_client.Histogram, name, help, buckets=bounds)
        self._histograms[name] = family.labels(model_name)
    kind = prometheus_client.Counter
    self._counters = {
        n: self._new(kind, n, help, label) for n, (label, _, help) in COUNTERS.items()
    }
    for name, (label, _, _) in COUNTERS.items():
        if label is None:
            self._count(name, 0)
    kind = prometheus_client.Gauge
    self._gauges = {n: self._new(kind, n, help, label) for n, (label, help) in GAUGES.items()}
    self._set("llm_kv_cache_usage_ratio", 0)


@misconception("8.3", "Metrics.watch")
def running_of_the_last_step(self, event):
    """You take running and waiting from Stepped. An engine that is stuck makes no step: the gauges
    stay what they were, while the queue grows. Ask Timings.count at each exposition.
    """
    known = {Finished: REASONS, Rejected: REJECTIONS}.get(type(event))
    if known and event.reason not in known:
        raise ValueError(f"reason {event.reason!r} is not one of {', '.join(known)}")
    counts = getattr(self, "counts", (0, 0))
    self.counts = (event.running, event.waiting) if isinstance(event, Stepped) else counts
    timeline = self._timings.watch(event)
    self._timings.count = lambda: self.counts
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
