"""8.3 Metrics."""

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.grading.monitoring.making import (
    admitted,
    arrived,
    expect_near,
    finished,
    rejected,
    sent,
    stepped,
    token,
)
from tests.oracles import monitoring as oracle

TYPES = {
    "llm_time_to_first_token_seconds": "histogram",
    "llm_inter_token_latency_seconds": "histogram",
    "llm_e2e_request_latency_seconds": "histogram",
    "llm_request_queue_seconds": "histogram",
    "llm_request_prompt_tokens": "histogram",
    "llm_send_lag_seconds": "histogram",
    "llm_step_seconds": "histogram",
    "llm_gc_pause_seconds": "histogram",
    "llm_prompt_tokens_total": "counter",
    "llm_generation_tokens_total": "counter",
    "llm_requests_total": "counter",
    "llm_requests_rejected_total": "counter",
    "llm_step_errors_total": "counter",
    "llm_requests_running": "gauge",
    "llm_requests_waiting": "gauge",
    "llm_kv_cache_usage_ratio": "gauge",
    "llm_memory_bytes": "gauge",
}
VALUES = {
    "llm_requests_total": ("finish_reason", ("stop", "length", "cancelled", "timeout", "error")),
    "llm_requests_rejected_total": ("reason", ("queue_full", "too_long", "draining")),
    "llm_step_errors_total": ("fault", ("not_finite", "memory", "other")),
    "llm_memory_bytes": ("kind", ("process_resident", "device_allocated")),
}
FIRST = "llm_time_to_first_token_seconds"
BETWEEN = "llm_inter_token_latency_seconds"


class Exposed:
    """One exposition, read."""

    def __init__(self, text, model: str):
        if not isinstance(text, str):
            raise Wrong("exposition should return bytes of UTF-8")
        self.text, self.model, self.series = text, model, oracle.exposed(text)

    def value(self, name: str, label: str = "") -> float:
        """The value of a series; label is "finish_reason=stop" or "" for none."""
        labels = ",".join(sorted(filter(None, [label, f"model_name={self.model}"])))
        found = self.series.get(name, {}).get(labels)
        if found is None:
            raise Wrong(f"the exposition has no {name}{{{labels}}}")
        return found

    def times(self, name: str) -> list[float]:
        """[count, sum] of a histogram."""
        return [self.value(f"{name}_count"), self.value(f"{name}_sum")]


def expositions(learner, steps: list, model: str = "small") -> list[Exposed]:
    """Every exposition of a session: see metrics_session."""
    found = drive(learner, "metrics_session", model, steps)
    return [
        Exposed(text, model) for step, text in zip(steps, found, strict=True) if step == ["expose"]
    ]


def exposed(learner, events: list) -> Exposed:
    """The exposition after these events."""
    return expositions(learner, [*events, ["expose"]])[-1]


@case("8.3")
def metrics_of_the_tables(learner, rng):
    """Every name of the tables is exposed, with its type; no name beside them."""
    types = oracle.types_of(exposed(learner, []).text)
    types = {name: kind for name, kind in types.items() if not name.endswith("_created")}
    expect_equal(dict(sorted(types.items())), dict(sorted(TYPES.items())), "the types by name")


@case("8.3")
def metrics_from_the_start(learner, rng):
    """Before anything happened every series is there, with every value of its label, at 0; only
    the memory is what it is.
    """
    page = exposed(learner, [])
    for name, kind in TYPES.items():
        if kind == "histogram":
            expect_near(page.times(name), [0.0, 0.0], f"[count, sum] of {name}")
            continue
        label, values = VALUES.get(name, ("", ("",)))
        for value in values:
            found = page.value(name, f"{label}={value}" if label else "")
            held = 1.0 if value == "process_resident" else 0.0
            expect_near(found, held, f"{name} {value}".strip())


@case("8.3")
def metrics_have_one_model_name(learner, rng):
    """Every series has the label model_name, and no label that is not in the tables, whatever the
    events hold.
    """
    model = rng.choice(["small", 'a "quoted" name', "Größe"])
    events = [arrived("secret-id", 0.0, fingerprint="feed"), admitted("secret-id", 1.0)]
    events += [token("secret-id", 2.0), finished("secret-id", 3.0, "error", 1, "OddError")]
    events += [stepped(3.0, errors=["OddError"]), rejected(4.0)]
    page = expositions(learner, [*events, ["expose"]], model)[0]
    allowed = {label for label, _ in VALUES.values()} | {"model_name", "le"}
    for name, series in page.series.items():
        for labels in series:
            names = {pair.partition("=")[0] for pair in labels.split(",")}
            if "model_name" not in names or names - allowed:
                raise Wrong(f"{name} has the labels {labels}")
            if name == "llm_step_errors_total" and "OddError" in labels:
                raise Wrong(f"{name} has a value of its label that is not in its list: {labels}")
    for secret in ("secret-id", "feed"):
        if secret in page.text:
            raise Wrong(f"the exposition names {secret}: a label must not come from a request")


@case("8.3")
def metrics_of_one_request(learner, rng):
    """One request from arrival to end: four histograms, and the counters of tokens."""
    start = rng.uniform(0, 50)
    queue, first, gap, end = (rng.uniform(0.1, 3) for _ in range(4))
    at = start + queue + first
    events = [arrived("a", start, prompt_tokens=41), admitted("a", start + queue)]
    events += [token("a", at), token("a", at + gap), token("a", at + 2 * gap)]
    events += [finished("a", at + 2 * gap + end, "length", 3)]
    page = exposed(learner, events)
    for name, expected in (
        ("llm_request_queue_seconds", [1.0, queue]),
        (FIRST, [1.0, queue + first]),
        (BETWEEN, [2.0, 2 * gap]),
        ("llm_e2e_request_latency_seconds", [1.0, queue + first + 2 * gap + end]),
        ("llm_request_prompt_tokens", [1.0, 41.0]),
    ):
        expect_near(page.times(name), expected, f"[count, sum] of {name}")
    expect_near(page.value("llm_prompt_tokens_total"), 41.0, "llm_prompt_tokens_total")
    expect_near(page.value("llm_generation_tokens_total"), 3.0, "llm_generation_tokens_total")
    expect_near(page.value("llm_requests_total", "finish_reason=length"), 1.0, "length")
    expect_near(page.value("llm_requests_total", "finish_reason=stop"), 0.0, "stop")


@case("8.3")
def metrics_count_as_it_happens(learner, rng):
    """A time is counted when its event comes, not when the request is over."""
    steps = [arrived("a", 0.0, prompt_tokens=5), ["expose"], admitted("a", 1.0), ["expose"]]
    steps += [token("a", 2.0), ["expose"], token("a", 3.0), ["expose"]]
    pages = expositions(learner, steps)
    names = ("llm_request_queue_seconds", FIRST, BETWEEN)
    found = [[page.value(f"{name}_count") for name in names] for page in pages]
    expected = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    expect_near(found, expected, "counts of queue, first token and inter-token after each event")
    read = [page.value("llm_prompt_tokens_total") for page in pages]
    expect_near(read, [0.0, 5.0, 5.0, 5.0], "llm_prompt_tokens_total after each event")


@case("8.3")
def metrics_have_good_buckets(learner, rng):
    """The buckets of each histogram end at the bounds that the tables name."""
    fine, coarse = (1, 1.5, 2, 3, 5, 7), (1, 2, 5)
    bounds = oracle.round_bounds
    page = exposed(learner, [])
    for name, expected in (
        (FIRST, [*bounds("0.001", "0.7", fine), *bounds("1", "500", coarse)]),
        (BETWEEN, [*bounds("0.001", "0.7", fine), *bounds("1", "50", coarse)]),
        ("llm_step_seconds", [*bounds("0.001", "0.7", fine), *bounds("1", "50", coarse)]),
        ("llm_request_queue_seconds", bounds("0.001", "500", coarse)),
        ("llm_send_lag_seconds", bounds("0.001", "500", coarse)),
        (
            "llm_e2e_request_latency_seconds",
            [
                *bounds("0.01", "0.5", coarse),
                *bounds("1", "70", fine),
                *bounds("100", "1000", coarse),
            ],
        ),
        ("llm_request_prompt_tokens", bounds("1", "200000", coarse)),
        ("llm_gc_pause_seconds", bounds("0.0001", "10", coarse)),
    ):
        labels = page.series.get(f"{name}_bucket", {})
        ends = {pair[3:] for one in labels for pair in one.split(",") if pair.startswith("le=")}
        found = sorted(float(end) for end in ends if end != "+Inf")
        expect_equal(found, expected, f"the buckets of {name}")


@case("8.3")
def metrics_by_reason(learner, rng):
    """Ends and rejections are counted by reason, of unknown requests too; times are not."""
    reasons = [rng.choice(VALUES["llm_requests_total"][1]) for _ in range(12)]
    turned = [rng.choice(VALUES["llm_requests_rejected_total"][1]) for _ in range(9)]
    events = [finished(f"r{n}", 1.0, reason) for n, reason in enumerate(reasons)]
    page = exposed(learner, [*events, *(rejected(2.0, reason) for reason in turned)])
    for name, happened in (
        ("llm_requests_total", reasons),
        ("llm_requests_rejected_total", turned),
    ):
        label, values = VALUES[name]
        for value in values:
            found = page.value(name, f"{label}={value}")
            expect_near(found, float(happened.count(value)), f"{name} {value}")
    expect_near(page.times("llm_e2e_request_latency_seconds"), [0.0, 0.0], "e2e of the unknown")


@case("8.3")
def metrics_of_unknown_tokens(learner, rng):
    """A Token of a request that nobody knows is counted, without a time; an Admitted is not."""
    page = exposed(learner, [token("x", 1.0), token("x", 2.0), admitted("x", 3.0)])
    expect_near(page.value("llm_generation_tokens_total"), 2.0, "llm_generation_tokens_total")
    for name in (FIRST, BETWEEN, "llm_request_queue_seconds", "llm_request_prompt_tokens"):
        expect_near(page.times(name), [0.0, 0.0], f"[count, sum] of {name}")


@case("8.3")
def metrics_of_one_moment(learner, rng):
    """0 seconds are a time that is counted; so is the end of a request that never got a token."""
    at = rng.choice([0.0, 5.0])
    events = [arrived("a", at), admitted("a", at), token("a", at), token("a", at)]
    events += [finished("a", at), arrived("b", at), finished("b", at + 3.0, "timeout")]
    page = exposed(learner, [*events, sent("a", at, 0.0), stepped(at, 0.0), ["pause", 0.0]])
    for name, expected in (
        ("llm_request_queue_seconds", [1.0, 0.0]),
        (FIRST, [1.0, 0.0]),
        (BETWEEN, [1.0, 0.0]),
        ("llm_e2e_request_latency_seconds", [2.0, 3.0]),
        ("llm_send_lag_seconds", [1.0, 0.0]),
        ("llm_step_seconds", [1.0, 0.0]),
        ("llm_gc_pause_seconds", [1.0, 0.0]),
    ):
        expect_near(page.times(name), expected, f"[count, sum] of {name}")


@case("8.3")
def metrics_of_another_admission(learner, rng):
    """A request that is admitted again counts once."""
    events = [arrived("a", 0.0, prompt_tokens=9), admitted("a", 1.0), token("a", 2.0)]
    page = exposed(learner, [*events, admitted("a", 6.0), token("a", 7.0)])
    expect_near(page.times("llm_request_queue_seconds"), [1.0, 1.0], "[count, sum] of the queue")
    expect_near(page.value("llm_prompt_tokens_total"), 9.0, "llm_prompt_tokens_total")
    expect_near(page.times("llm_request_prompt_tokens"), [1.0, 9.0], "[count, sum] of prompts")


@case("8.3")
def metrics_of_refused_reasons(learner, rng):
    """A reason that is not in its list is a ValueError that names it; nothing is counted, and no
    new series is made.
    """
    begin = [arrived("a", 0.0), admitted("a", 0.5)]
    wrong = [["fails", ["eos"], finished("a", 1.0, "eos")]]
    wrong += [
        ["fails", ["full"], rejected(1.0, "full")],
        ["fails", ["stop"], rejected(1.0, "stop")],
    ]
    steps = [*begin, ["expose"], *wrong, ["expose"]]
    found = drive(learner, "metrics_session", "small", steps)
    for answer in found[3:6]:
        expect_failure(answer, "ValueError", "watch of an unknown reason")
    expect_equal(found[6], found[2], "the exposition after it")


@case("8.3")
def metrics_of_steps(learner, rng):
    """Steps: how long, how many faults of which kind, how full the cache is now."""
    seconds = [rng.uniform(0.01, 0.2) for _ in range(3)]
    errors = [["FloatingPointError", "KeyError", "KeyError"], []]
    errors += [["OutOfMemoryError", "MemoryError"]]
    used = [rng.randrange(1, 400) for _ in range(3)]
    events = [
        stepped(9.0, s, u, 400, errors=e) for s, u, e in zip(seconds, used, errors, strict=True)
    ]
    page = exposed(learner, events)
    expect_near(page.times("llm_step_seconds"), [3.0, sum(seconds)], "[count, sum] of steps")
    expect_near(page.value("llm_kv_cache_usage_ratio"), used[-1] / 400, "the ratio")
    for fault, count in (("not_finite", 1.0), ("memory", 2.0), ("other", 2.0)):
        expect_near(page.value("llm_step_errors_total", f"fault={fault}"), count, fault)


@case("8.3")
def metrics_of_slow_clients(learner, rng):
    """The lag of each Sent, whose request is over and forgotten."""
    lags = [rng.uniform(0.0, 9.0) for _ in range(3)]
    events = [arrived("a", 0.0), finished("a", 1.0), sent("a", 5.0, lags[0])]
    page = exposed(learner, [*events, sent("b", 6.0, lags[1]), sent("c", 7.0, lags[2])])
    expect_near(page.times("llm_send_lag_seconds"), [3.0, sum(lags)], "[count, sum] of the lag")
    expect_near(page.value("llm_requests_running"), 0.0, "llm_requests_running")


@case("8.3")
def metrics_of_a_stuck_engine(learner, rng):
    """Without a single step, running and waiting tell who is there; a Stepped does not set them."""
    count = rng.randrange(3, 9)
    steps = [arrived(f"r{n}", float(n)) for n in range(count)]
    steps += [admitted("r0", 20.0), ["expose"], stepped(21.0, running=77, waiting=88), ["expose"]]
    steps += [finished("r0", 22.0), finished("r1", 22.0, "timeout"), ["expose"]]
    expected = [[1.0, count - 1.0]] * 2 + [[0.0, count - 2.0]]
    found = [
        [page.value("llm_requests_running"), page.value("llm_requests_waiting")]
        for page in expositions(learner, steps)
    ]
    expect_near(found, expected, "[running, waiting]")


@case("8.3")
def metrics_of_memory(learner, rng):
    """Memory is read at each exposition, by kind."""
    first, second = (
        {"process_resident": rng.randrange(10**9), "device_allocated": rng.randrange(10**9)}
        for _ in range(2)
    )
    pages = expositions(learner, [["memory", first], ["expose"], ["memory", second], ["expose"]])
    for page, held in zip(pages, (first, second), strict=True):
        for kind, count in held.items():
            expect_near(page.value("llm_memory_bytes", f"kind={kind}"), float(count), kind)


@case("8.3")
def metrics_of_pauses(learner, rng):
    """What pause is told, and nothing else, is in llm_gc_pause_seconds."""
    pauses = [rng.uniform(0.0001, 0.3) for _ in range(4)]
    page = exposed(learner, [["pause", seconds] for seconds in pauses])
    expect_near(page.times("llm_gc_pause_seconds"), [4.0, sum(pauses)], "[count, sum] of pauses")
    expect_near(page.times("llm_step_seconds"), [0.0, 0.0], "[count, sum] of steps")


@case("8.3")
def metrics_stand_alone(learner, rng):
    """Two Metrics in one process share nothing, and the registry of the whole process holds none of
    their names.
    """
    one, other, common = drive(learner, "metrics_pair", rejected(1.0))
    label = "reason=queue_full"
    expect_near(Exposed(one, "one").value("llm_requests_rejected_total", label), 1.0, "the one")
    expect_near(
        Exposed(other, "other").value("llm_requests_rejected_total", label), 0.0, "the other"
    )
    ours = [name for name in common if name.startswith("llm_")]
    expect_equal(ours, [], "our names in prometheus_client.REGISTRY")
