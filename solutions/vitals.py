"""Chapter 08: two expositions, some time apart, as the few figures that a diagnosis needs."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from solutions.histogram import histogram_quantile

Samples = dict[str, dict[str, float]]


def read_exposition(text: str) -> Samples:
    """The values of an exposition, by name and by the value of their other label.

    Returns:
        {"llm_requests_total": {"stop": 3.0, ...}, "llm_requests_running": {"": 2.0},
        "llm_step_seconds_bucket": {"0.001": 0.0, ..., "+Inf": 9.0}, ...}: every series of ours has
        at most one label besides model_name. Those of several models are added up.
    """
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            others = [value for label, value in sample.labels.items() if label != "model_name"]
            values, key = samples.setdefault(sample.name, {}), ",".join(others)
            values[key] = values.get(key, 0.0) + sample.value
    return samples


def increase(earlier: Samples, later: Samples, name: str) -> dict[str, float]:
    """How much each series of a counter has grown between two expositions.

    Args:
        earlier, later: of read_exposition.
        name: of the counter, or of a part of a histogram, such as "llm_step_seconds_bucket".

    Returns:
        by the value of the other label, as in later. What was not there earlier was 0. When any
        series of the name is smaller than it was, the process has begun anew, and they have all
        grown from 0. Empty when later has no such name.
    """
    # exercise 8.7
    before, now = earlier.get(name, {}), later.get(name, {})
    if any(value < before.get(key, 0.0) for key, value in now.items()):
        before = {}
    return {key: value - before.get(key, 0.0) for key, value in now.items()}


def quantile_between(earlier: Samples, later: Samples, name: str, q: float) -> float | None:
    """The estimated quantile of what a histogram has counted between two expositions.

    Args:
        name: of the histogram, such as "llm_step_seconds".
        q: above 0 and up to 1.

    Returns:
        histogram_quantile of the growth of its buckets; None where nothing was counted, and for a
        histogram that is not there.
    """
    # exercise 8.7
    grown = increase(earlier, later, f"{name}_bucket")
    if not grown:
        return None
    return histogram_quantile(q, sorted((float(bound), count) for bound, count in grown.items()))


def figures(earlier: Samples, later: Samples, seconds: float) -> dict[str, float | None]:
    """What has happened between two expositions that were taken some seconds apart.

    Returns:
        "seconds"; "steps", "tokens", "prompt_tokens": how many; "finished": how many requests, and
        as "stop", "length", "cancelled", "timeout", "error" how many of them; "queue_full",
        "too_long", "draining": how many were rejected; "not_finite", "memory_errors",
        "other_errors": faults in steps; "paused": seconds in the garbage collector; "running",
        "waiting", "kv": as they are at the end; "memory", "memory_before": bytes of all kinds, at
        the end and at the beginning; "longest_prompt": the bound of the highest bucket that got a
        prompt; and "first_token_p50", "first_token_p95", "inter_token_p50", "inter_token_p95",
        "queue_p95", "send_lag_p95", "step_p50", "step_p95": seconds. None where nothing was
        counted.
    """

    def total(name: str) -> float:
        return sum(increase(earlier, later, name).values())

    def quantile(name: str, q: float) -> float | None:
        return quantile_between(earlier, later, name, q)

    finished = increase(earlier, later, "llm_requests_total")
    rejected = increase(earlier, later, "llm_requests_rejected_total")
    faults = increase(earlier, later, "llm_step_errors_total")
    return {
        "seconds": seconds,
        "steps": total("llm_step_seconds_count"),
        "tokens": total("llm_generation_tokens_total"),
        "prompt_tokens": total("llm_prompt_tokens_total"),
        "finished": sum(finished.values()),
        **{
            name: finished.get(name, 0.0)
            for name in ("stop", "length", "cancelled", "timeout", "error")
        },
        **{name: rejected.get(name, 0.0) for name in ("queue_full", "too_long", "draining")},
        "not_finite": faults.get("not_finite", 0.0),
        "memory_errors": faults.get("memory", 0.0),
        "other_errors": faults.get("other", 0.0),
        "paused": total("llm_gc_pause_seconds_sum"),
        "running": gauge(later, "llm_requests_running"),
        "waiting": gauge(later, "llm_requests_waiting"),
        "kv": gauge(later, "llm_kv_cache_usage_ratio"),
        "memory": gauge(later, "llm_memory_bytes"),
        "memory_before": gauge(earlier, "llm_memory_bytes"),
        "longest_prompt": _longest(increase(earlier, later, "llm_request_prompt_tokens_bucket")),
        "first_token_p50": quantile("llm_time_to_first_token_seconds", 0.5),
        "first_token_p95": quantile("llm_time_to_first_token_seconds", 0.95),
        "inter_token_p50": quantile("llm_inter_token_latency_seconds", 0.5),
        "inter_token_p95": quantile("llm_inter_token_latency_seconds", 0.95),
        "queue_p95": quantile("llm_request_queue_seconds", 0.95),
        "send_lag_p95": quantile("llm_send_lag_seconds", 0.95),
        "step_p50": quantile("llm_step_seconds", 0.5),
        "step_p95": quantile("llm_step_seconds", 0.95),
    }


def gauge(samples: Samples, name: str) -> float | None:
    """The value of a gauge, of all its series together; None when it is not there."""
    found = samples.get(name)
    return sum(found.values()) if found else None


def _longest(grown: Mapping[str, float]) -> float | None:
    """The bound of the highest bucket in which something was counted."""
    total = max(grown.values(), default=0.0)
    bounds = [float(bound) for bound, count in grown.items() if total and count >= total]
    return min(bounds, default=None)
