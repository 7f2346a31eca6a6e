"""8.3 Metrics."""

import prometheus_client

from tests.parts import part
from tests.wrong.monitoring.times import method


def without_label(m, name, value=None) -> None:
    """Something is not counted."""

    def change(right, self, called, amount, label=None):
        if called != name or (value is not None and label != value):
            right(self, called, amount, label)

    method(m, "Metrics", "_count", change)


def scaled(m, name, factor) -> None:
    """A histogram gets other values."""

    def change(right, self, called, value):
        right(self, called, value * factor if called == name and value is not None else value)

    method(m, "Metrics", "_observe", change)


@part("8.3")
def milliseconds(m):
    """The first token in milliseconds."""
    scaled(m, "llm_time_to_first_token_seconds", 1000)


@part("8.3")
def queue_in_milliseconds(m):
    """The queue in milliseconds."""
    scaled(m, "llm_request_queue_seconds", 1000)


@part("8.3")
def steps_in_milliseconds(m):
    """Steps in milliseconds."""
    scaled(m, "llm_step_seconds", 1000)


@part("8.3")
def pauses_as_steps(m):
    """Pauses are counted as steps."""

    def change(right, self, seconds):
        self._observe("llm_step_seconds", seconds)
        right(self, seconds)

    method(m, "Metrics", "pause", change)


@part("8.3")
def lag_of_the_known_only(m):
    """The lag is only counted while the request is known."""

    def change(right, self, event):
        if not isinstance(event, m.Sent) or event.id in self._timings._known:
            right(self, event)

    method(m, "Metrics", "watch", change)


@part("8.3")
def pauses_lost(m):
    """Pauses are not counted."""
    method(m, "Metrics", "pause", lambda right, self, seconds: None)


@part("8.3")
def generation_not_counted_for_strangers(m):
    """A Token of an unknown request is not counted."""

    def change(right, self, timeline):
        if timeline is not None:
            right(self, timeline)

    method(m, "Metrics", "_token", change)


@part("8.3")
def strangers_end_unseen(m):
    """Finished of an unknown request is not counted."""

    def change(right, self, event):
        if not isinstance(event, m.Finished) or event.id in self._timings._known:
            right(self, event)
        elif event.reason not in m.REASONS:
            raise ValueError(event.reason)

    method(m, "Metrics", "watch", change)


@part("8.3")
def prompts_at_arrival(m):
    """A prompt is counted when it arrives, whoever reads it."""

    def change(right, self, event):
        if isinstance(event, m.Arrived):
            self._count("llm_prompt_tokens_total", event.prompt_tokens)
        right(self, event)

    method(m, "Metrics", "watch", change)
    method(m, "Metrics", "_admitted", lambda right, self, event, timeline: None)


@part("8.3")
def times_at_the_end(m):
    """The queue time is counted when the request is over."""

    def admitted(right, self, event, timeline):
        if timeline and timeline.admitted == event.at:
            self._observe("llm_request_prompt_tokens", timeline.request.prompt_tokens)
            self._count("llm_prompt_tokens_total", timeline.request.prompt_tokens)

    def watch(right, self, event):
        line = self._timings._known.get(getattr(event, "id", None))
        right(self, event)
        if isinstance(event, m.Finished) and line:
            self._observe("llm_request_queue_seconds", line.queue)

    method(m, "Metrics", "_admitted", admitted)
    method(m, "Metrics", "watch", watch)


@part("8.3")
def gap_of_the_first_token(m):
    """The first token counts as a gap of 0 too."""

    def change(right, self, timeline):
        if timeline and timeline.gap is None:
            self._observe("llm_inter_token_latency_seconds", 0.0)
        right(self, timeline)

    method(m, "Metrics", "_token", change)


@part("8.3")
def kv_in_percent(m):
    """The ratio in percent."""

    def change(right, self, name, amount, value=None):
        right(self, name, amount * 100 if "kv" in name else amount, value)

    method(m, "Metrics", "_set", change)


@part("8.3")
def kv_of_the_fullest(m):
    """The ratio is that of the fullest step."""

    def change(right, self, event):
        kept = max(getattr(self, "kept", 0.0), event.kv_used / event.kv_total)
        right(self, event)
        self.kept = kept
        self._set("llm_kv_cache_usage_ratio", kept)

    method(m, "Metrics", "_stepped", change)


@part("8.3")
def one_error_a_step(m):
    """A step with two errors counts one."""

    def change(right, self, event):
        import dataclasses

        right(self, dataclasses.replace(event, errors=event.errors[:1]))

    method(m, "Metrics", "_stepped", change)


@part("8.3")
def device_memory_is_other(m):
    """torch's OutOfMemoryError is "other"."""
    m.FAULTS = {name: fault for name, fault in m.FAULTS.items() if not name.startswith("Out")}


@part("8.3")
def running_of_the_step(m):
    """running and waiting are those of the newest Stepped, where there was one."""

    def stepped(right, self, event):
        right(self, event)
        self.told = event.running, event.waiting

    def exposition(right, self):
        kept = self._timings.count
        self._timings.count = lambda: getattr(self, "told", None) or kept()
        try:
            return right(self)
        finally:
            del self._timings.count

    method(m, "Metrics", "_stepped", stepped)
    method(m, "Metrics", "exposition", exposition)


@part("8.3")
def swapped(m):
    """running is waiting, and waiting is running."""
    names = {"llm_requests_running": "llm_requests_waiting"}
    names |= {b: a for a, b in names.items()}
    method(
        m,
        "Metrics",
        "_set",
        lambda right, self, name, *rest: right(self, names.get(name, name), *rest),
    )


@part("8.3")
def memory_read_once(m):
    """Memory is read at the first exposition."""

    def change(right, self):
        held = self.__dict__.setdefault("held", dict(self._memory()))
        self._memory = lambda: held
        return right(self)

    method(m, "Metrics", "exposition", change)


@part("8.3")
def first_kind_only(m):
    """Only the first kind of memory is told."""

    def change(right, self):
        memory, self._memory = self._memory, lambda: dict(list(memory().items())[:1])
        try:
            return right(self)
        finally:
            self._memory = memory

    method(m, "Metrics", "exposition", change)


@part("8.3")
def as_text(m):
    """The exposition is a str."""
    method(m, "Metrics", "exposition", lambda right, self: right(self).decode())


@part("8.3")
def openmetrics(m):
    """The exposition is in another format."""
    from prometheus_client.openmetrics.exposition import generate_latest

    def change(right, self):
        right(self)
        return generate_latest(self.registry)

    method(m, "Metrics", "exposition", change)


@part("8.3")
def one_registry_for_all(m):
    """All Metrics are one, whatever their model."""
    kept = {}
    right = m.Metrics.__init__

    def init(self, model_name, memory=m.memory_bytes):
        right(self, model_name, memory)
        self.__dict__.update({**vars(self), **kept})
        kept.update({"_counters": self._counters, "_histograms": self._histograms})

    m.Metrics.__init__ = init


@part("8.3")
def buckets_of_the_library(m):
    """The buckets are those that prometheus_client has."""
    bounds = prometheus_client.Histogram.DEFAULT_BUCKETS[:-1]
    m.HISTOGRAMS = {name: (bounds, help) for name, (_, help) in m.HISTOGRAMS.items()}


@part("8.3")
def model_forgotten(m):
    """The label is there, and always the same."""
    method(m, "Metrics", "__init__", lambda right, self, name, *rest: right(self, "model", *rest))


@part("8.3")
def counted_before_it_is_refused(m):
    """An unknown reason is counted, and then refused."""

    def change(right, self, event):
        if isinstance(event, m.Rejected) and event.reason not in m.REJECTIONS:
            self._count("llm_requests_rejected_total", 1, "queue_full")
        right(self, event)

    method(m, "Metrics", "watch", change)


@part("8.3")
def refused_end_is_forgotten(m):
    """A Finished that is refused ends the request."""

    def change(right, self, event):
        if isinstance(event, m.Finished) and event.reason not in m.REASONS:
            self._timings.watch(event)
        right(self, event)

    method(m, "Metrics", "watch", change)


@part("8.3")
def too_long_not_counted(m):
    """Prompts that are too long are no rejections."""
    without_label(m, "llm_requests_rejected_total", "too_long")


@part("8.3")
def cancelled_not_counted(m):
    """Requests that were cancelled are not counted."""
    without_label(m, "llm_requests_total", "cancelled")
