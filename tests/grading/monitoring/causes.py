"""8.7 increase, quantile_between, diagnose."""

from course.cases import case, expect_equal
from tests.grading.monitoring.diagnosing import expect_causes, healthy
from tests.grading.monitoring.making import expect_near
from tests.oracles import monitoring as oracle

# --- increase ---


@case("8.7")
def increase_by_hand(learner, rng):
    """By the value of the label; what was not there earlier was 0; other names do not matter."""
    earlier = {"a": {"stop": 3.0, "length": 1.0}, "b": {"": 9.0}}
    later = {"b": {"": 1.0}, "c": {"": 4.0}}
    later["a"] = {"stop": 8.0, "length": 1.0, "error": 2.0, "timeout": 0.0}
    expected = {"stop": 5.0, "length": 0.0, "error": 2.0, "timeout": 0.0}
    expect_near(learner.increase(earlier, later, "a"), expected, "the increase of a")
    expect_near(learner.increase(earlier, later, "c"), {"": 4.0}, "the increase of c")
    expect_near(learner.increase(earlier, later, "d"), {}, "the increase of what is not there")
    expect_near(learner.increase({"d": {"": 4.0}}, {}, "d"), {}, "the increase of what has gone")


@case("8.7")
def increase_after_a_restart(learner, rng):
    """A counter that fell began anew, and so did all series of that name."""
    low, high = rng.randrange(1, 5), rng.randrange(10, 20)
    earlier = {"a": {"stop": float(high), "length": 2.0}, "b": {"": 3.0}}
    later = {"a": {"stop": float(low), "length": 7.0}, "b": {"": 5.0}}
    expected = {"stop": float(low), "length": 7.0}
    expect_near(learner.increase(earlier, later, "a"), expected, "the increase after a restart")
    expect_near(learner.increase(earlier, later, "b"), {"": 2.0}, "the increase of another name")


def buckets(bounds: list, counts: list) -> dict:
    """Cumulative buckets as an exposition has them, in any order."""
    names = [*(str(bound) for bound in bounds), "+Inf"]
    return dict(zip(names, map(float, counts), strict=True))


@case("8.7")
def quantile_of_the_time_between(learner, rng):
    """Only what came between the two expositions counts, in the order of the bounds, which are
    text: "10.0" comes before "2.0" there.
    """
    bounds = [0.5, 2.0, 10.0, 20.0]
    old = [rng.randrange(50) for _ in range(5)]
    new = [rng.randrange(1, 50) for _ in range(5)]
    before = [float(sum(old[: n + 1])) for n in range(5)]
    after = [float(sum(old[: n + 1]) + sum(new[: n + 1])) for n in range(5)]
    mixed = list(buckets(bounds, after).items())
    rng.shuffle(mixed)
    earlier = {"x_bucket": dict(sorted(buckets(bounds, before).items()))}
    grown = [[b, float(sum(new[: n + 1]))] for n, b in enumerate([*bounds, float("inf")])]
    for q in (0.1, 0.5, 0.95):
        found = learner.quantile_between(earlier, {"x_bucket": dict(mixed)}, "x", q)
        expect_near(found, oracle.interpolated(q, grown), f"quantile {q} between")


@case("8.7")
def quantile_after_a_restart(learner, rng):
    """When the process began anew, the later exposition is all that was counted."""
    old = buckets([0.5, 2.0], [rng.randrange(50, 90)] * 3)
    new = buckets([0.5, 2.0], [1, 5, 9])
    found = learner.quantile_between({"x_bucket": old}, {"x_bucket": new}, "x", 0.5)
    expected = oracle.interpolated(0.5, [[0.5, 1.0], [2.0, 5.0], [float("inf"), 9.0]])
    expect_near(found, expected, "quantile 0.5 after a restart")


@case("8.7")
def quantile_of_no_time(learner, rng):
    """Nothing was counted in between, or there is no such histogram: None."""
    same = {"x_bucket": buckets([0.5, 2.0], [1, 4, 4])}
    expect_equal(learner.quantile_between(same, same, "x", 0.5), None, "a quantile of nothing")
    expect_equal(learner.quantile_between(same, same, "y", 0.5), None, "a quantile of y")
    expect_equal(learner.quantile_between({}, {}, "x", 0.5), None, "a quantile of no exposition")


# --- diagnose ---


@case("8.7")
def nothing_is_wrong(learner, rng):
    """A healthy service, a service that nobody uses, and one of which nothing is known."""
    expect_causes(learner, healthy(rng), healthy(rng))
    expect_causes(learner, healthy(rng), None)
    idle = dict.fromkeys(healthy(rng), 0.0) | {"seconds": 10.0, "memory": 5.0}
    nothing = ("longest_prompt", "inter_token_p95", "step_p50", "queue_p95", "send_lag_p95")
    idle |= {"memory_before": 5.0, **dict.fromkeys(nothing)}
    expect_causes(learner, idle, healthy(rng))
    expect_causes(learner, dict.fromkeys(healthy(rng)), healthy(rng))
    expect_causes(learner, healthy(rng), dict.fromkeys(healthy(rng)))
    expect_causes(learner, {}, {})


@case("8.7")
def one_thing_is_wrong(learner, rng):
    """Each cause alone, far beyond its rule."""
    usual = healthy(rng)
    for cause, changes in (
        ("stuck_engine", {"steps": 0, "tokens": 0}),
        ("memory_leak", {"memory": 1.5e9}),
        ("collector_pauses", {"paused": 2.0}),
        ("garbled_output", {"not_finite": 4.0}),
        ("garbled_output", {"stop": 0.0, "length": 23.0}),
        ("out_of_memory", {"memory_errors": 1.0}),
        ("failing_requests", {"other_errors": 2.0}),
        ("huge_request", {"longest_prompt": 5000.0, "inter_token_p95": 0.9}),
        ("slow_machine", {"step_p50": 0.2}),
        ("slow_client", {"send_lag_p95": 30.0}),
        ("queue_storm", {"queue_full": 7.0}),
        ("queue_storm", {"waiting": 20.0, "queue_p95": 6.0}),
        ("full_cache", {"kv": 0.99}),
        ("impatient_clients", {"cancelled": 20.0}),
        ("missed_deadlines", {"timeout": 12.0}),
    ):
        expect_causes(learner, healthy(rng, **changes), usual, cause)


@case("8.7")
def several_things_are_wrong(learner, rng):
    """All that holds is found, in the order of the table."""
    changes = {"queue_full": 3.0, "waiting": 64.0, "timeout": 9.0, "paused": 5.0, "kv": 1.0}
    changes["queue_p95"] = 7.0  # both parts of its rule hold: the first is told
    expect_causes(
        learner,
        healthy(rng, **changes),
        healthy(rng),
        "collector_pauses",
        "queue_storm",
        "full_cache",
        "missed_deadlines",
    )
    stuck = healthy(rng, steps=0, waiting=64.0, queue_full=9.0, queue_p95=None, step_p50=None)
    expect_causes(learner, stuck, healthy(rng), "stuck_engine")
    errors = healthy(rng, not_finite=1.0, memory_errors=1.0, other_errors=1.0)
    expect_causes(
        learner, errors, healthy(rng), "garbled_output", "out_of_memory", "failing_requests"
    )


@case("8.7")
def only_compared_with_the_usual(learner, rng):
    """What is only wrong in comparison is not found without usual, nor when only that figure of it
    is missing.
    """
    for names, changes in (
        (("longest_prompt",), {"longest_prompt": 5000.0, "inter_token_p95": 0.9}),
        (("inter_token_p95",), {"longest_prompt": 5000.0, "inter_token_p95": 0.9}),
        (("step_p50",), {"step_p50": 0.2}),
        (("steps",), {"step_p50": 0.2}),
        (("tokens",), {"step_p50": 0.2}),
        (("stop", "length"), {"stop": 0.0, "length": 23.0}),
    ):
        now = healthy(rng, **changes)
        expect_causes(learner, now, None)
        expect_causes(learner, now, healthy(rng, **dict.fromkeys(names)))
    nobody = healthy(rng, stop=0.0, length=0.0, steps=0)
    expect_causes(learner, healthy(rng, stop=0.0, length=23.0, step_p50=0.2), nobody)


@case("8.7")
def exactly_at_the_edge(learner, rng):
    """ "At least" includes the value itself, "above" does not."""
    base = {"steps": 100, "tokens": 300, "prompt_tokens": 200}
    usual = healthy(rng, **base, step_p50=0.25, inter_token_p95=0.5, stop=5.0, length=5.0)
    for changes, causes in (
        ({"paused": 0.5}, ["collector_pauses"]),
        ({"paused": 0.4999}, []),
        ({"memory": 1.1e9 + 1}, ["memory_leak"]),
        ({"memory": 1.0999e9}, []),
        ({"kv": 0.95}, ["full_cache"]),
        ({"kv": 0.9499}, []),
        ({"kv": 1.0, "waiting": 0.0}, []),
        ({"stop": 1.0, "length": 9.0}, ["garbled_output"]),
        ({"stop": 1.0, "length": 8.0}, []),
        ({"stop": 0.0, "length": 9.0}, []),
        ({"longest_prompt": 400.0, "inter_token_p95": 0.75}, ["huge_request"]),
        ({"longest_prompt": 399.0, "inter_token_p95": 0.75}, []),
        ({"longest_prompt": 400.0, "inter_token_p95": 0.7499}, []),
        ({**base, "step_p50": 0.375}, ["slow_machine"]),
        ({**base, "step_p50": 0.3749}, []),
        ({**base, "step_p50": 0.375, "tokens": 401}, []),
        ({**base, "step_p50": 0.375, "prompt_tokens": 301}, []),
        ({**base, "step_p50": 0.375, "tokens": 399}, ["slow_machine"]),
        ({"waiting": 4.0, "running": 3.0, "queue_p95": 1.0}, ["queue_storm"]),
        ({"waiting": 4.0, "running": 3.0, "queue_p95": 0.999}, []),
        ({"waiting": 4.0, "running": 4.0, "queue_p95": 9.0}, []),
        ({"send_lag_p95": 1.0}, ["slow_client"]),
        ({"send_lag_p95": 0.999}, []),
        ({"cancelled": 12.0}, ["impatient_clients"]),
        ({"cancelled": 11.0}, []),
        ({"cancelled": 4.0, "finished": 4.0}, []),
        ({"cancelled": 5.0, "finished": 5.0}, ["impatient_clients"]),
        ({"timeout": 2.0, "finished": 20.0}, ["missed_deadlines"]),
        ({"timeout": 1.0, "finished": 20.0}, []),
        ({"timeout": 0.0, "finished": 0.0}, []),
        ({"steps": 0, "running": 0.0, "waiting": 0.0}, []),
        ({"steps": 0, "running": 0.0, "waiting": 1.0}, ["stuck_engine"]),
        ({"steps": 0, "running": 1.0, "waiting": 0.0}, ["stuck_engine"]),
    ):
        expect_causes(learner, healthy(rng, **changes), usual, *causes)
    for length, causes in ((6.0, []), (5.0, ["garbled_output"])):
        usual = healthy(rng, stop=5.0, length=length)
        expect_causes(learner, healthy(rng, stop=0.0, length=20.0), usual, *causes)


@case("8.7")
def evidence_is_what_is_there(learner, rng):
    """A rule that lacks one of its figures does not hold, whatever the others say."""
    for missing, changes in (
        ("running", {"steps": 0}),
        ("memory_before", {"memory": 9e9}),
        ("seconds", {"paused": 9.0}),
        ("queue_p95", {"waiting": 90.0}),
        ("waiting", {"kv": 1.0}),
        ("finished", {"cancelled": 9.0, "timeout": 9.0}),
        ("stop", {"length": 90.0}),
        ("inter_token_p95", {"longest_prompt": 1e5}),
        ("prompt_tokens", {"step_p50": 9.0}),
    ):
        expect_causes(learner, healthy(rng, **changes, **{missing: None}), healthy(rng))


@case("8.7")
def figures_of_any_kind(learner, rng):
    """Random figures and random usual ones, against the rules written down otherwise."""
    for _ in range(60):
        now, usual = healthy(rng), healthy(rng)
        for figures, least in ((now, 0.0), (usual, 0.1)):  # times a usual 0 is left open
            for name in rng.sample(sorted(figures), 6):
                factor = rng.choice([least, 0.3, 1.3, 5.0, 30.0, None])
                figures[name] = None if factor is None else figures[name] * factor
        expect_causes(learner, now, usual, *oracle.causes(now, usual))
