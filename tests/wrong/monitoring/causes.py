"""8.7 increase, quantile_between, diagnose."""

from tests.parts import part


def rule(m, cause, holds, number=0) -> None:
    """Another condition in a part of a rule."""
    names, _ = m._RULES[cause][number]
    m._RULES[cause][number] = (names, holds)


def diagnosed(m, change) -> None:
    """change(findings, now, usual) takes the place of a diagnosis."""
    right = m.diagnose
    m.diagnose = lambda now, usual=None: change(right(now, usual), now, usual)


@part("8.7")
def restart_of_one_series(m):
    """Only the series that fell began anew."""

    def increase(earlier, later, name):
        before = earlier.get(name, {})
        return {
            key: value if value < before.get(key, 0.0) else value - before.get(key, 0.0)
            for key, value in later.get(name, {}).items()
        }

    m.increase = increase


@part("8.7")
def restart_seen_everywhere(m):
    """A restart in any name counts for all."""
    right = m.increase

    def increase(earlier, later, name):
        fell = any(
            value < earlier.get(other, {}).get(key, 0.0)
            for other, values in later.items()
            for key, value in values.items()
        )
        return right({} if fell else earlier, later, name)

    m.increase = increase


@part("8.7")
def what_has_gone_falls(m):
    """Series that are not there any more fall below 0."""
    right = m.increase

    def increase(earlier, later, name):
        gone = {k: -v for k, v in earlier.get(name, {}).items() if k not in later.get(name, {})}
        return right(earlier, later, name) | gone

    m.increase = increase


@part("8.7")
def unchanged_left_out(m):
    """What did not grow is left out."""
    right = m.increase
    m.increase = lambda *args: {key: value for key, value in right(*args).items() if value}


@part("8.7")
def nothing_raises(m):
    """A name that is not there raises."""
    right = m.increase

    def increase(earlier, later, name):
        _ = later[name]
        return right(earlier, later, name)

    m.increase = increase


@part("8.7")
def in_order_of_the_page(m):
    """Buckets are taken in the order in which they stand."""

    def between(earlier, later, name, q):
        grown = m.increase(earlier, later, f"{name}_bucket")
        pairs = [(float(bound), count) for bound, count in grown.items()]
        return m.histogram_quantile(q, pairs) if pairs else None

    m.quantile_between = between


@part("8.7")
def no_quantile_is_zero(m):
    """Nothing counted is 0 seconds."""
    right = m.quantile_between
    m.quantile_between = lambda *args: right(*args) or 0.0


@part("8.7")
def reversed_order(m):
    """Causes in the other order."""
    diagnosed(m, lambda found, now, usual: found[::-1])


@part("8.7")
def sorted_by_name(m):
    """Causes by their name."""
    diagnosed(m, lambda found, now, usual: sorted(found, key=lambda one: one.cause))


@part("8.7")
def without_numbers(m):
    """The evidence has no numbers."""

    def change(found, now, usual):
        return [
            m.Finding(f.cause, f.evidence.translate(str.maketrans("", "", "0123456789")), f.step)
            for f in found
        ]

    diagnosed(m, change)


@part("8.7")
def one_step_for_all(m):
    """The next step is always the same."""
    diagnosed(
        m, lambda found, *_: [m.Finding(f.cause, f.evidence, m.NEXT["stuck_engine"]) for f in found]
    )


@part("8.7")
def healthy_is_a_finding(m):
    """A healthy service is a finding too."""
    diagnosed(m, lambda found, *_: found or [m.Finding("healthy", "nothing", "nothing")])


@part("8.7")
def none_is_healthy(m):
    """None when all is well."""
    diagnosed(m, lambda found, *_: found or None)


@part("8.7")
def three_at_most(m):
    """No more than three causes."""
    diagnosed(m, lambda found, *_: found[:2])


@part("8.7")
def idle_is_stuck(m):
    """A service that nobody uses is stuck."""
    rule(m, "stuck_engine", lambda now, _: now["steps"] == 0)


@part("8.7")
def stuck_only_while_running(m):
    """Only who runs can be stuck."""
    rule(m, "stuck_engine", lambda now, _: now["steps"] == 0 and now["running"] > 0)


@part("8.7")
def stuck_only_while_waiting(m):
    """Only who waits can be stuck."""
    rule(m, "stuck_engine", lambda now, _: now["steps"] == 0 and now["waiting"] > 0)


@part("8.7")
def any_growth_leaks(m):
    """Any growth is a leak."""
    rule(m, "memory_leak", lambda now, _: now["memory"] > now["memory_before"])


@part("8.7")
def pauses_in_seconds(m):
    """A second in the collector, whatever the time."""
    rule(m, "collector_pauses", lambda now, _: now["paused"] >= 1)


@part("8.7")
def pauses_above(m):
    """More than a twentieth, not as much."""
    rule(m, "collector_pauses", lambda now, _: now["paused"] > 0.05 * now["seconds"])


@part("8.7")
def garbled_without_the_usual(m):
    """Answers that end by length are garbled, whatever is usual."""
    rule(
        m,
        "garbled_output",
        lambda now, _: now["stop"] + now["length"] >= 10 and m._by_length(now) >= 0.9,
        1,
    )


@part("8.7")
def garbled_of_few(m):
    """Few answers are enough."""

    def holds(now, usual):
        return m._by_length(now) >= 0.9 and m._by_length(usual) <= 0.5

    rule(m, "garbled_output", holds, 1)


@part("8.7")
def garbled_only_by_nan(m):
    """Only NaN is garbled."""
    del m._RULES["garbled_output"][1]


@part("8.7")
def garbled_twice(m):
    """The later part of a rule is told."""
    m._RULES["queue_storm"].reverse()


@part("8.7")
def huge_however_harmless(m):
    """A long prompt is found though nobody suffers."""
    rule(m, "huge_request", lambda now, usual: m._grown(now, usual, "longest_prompt", 4))


@part("8.7")
def huge_in_itself(m):
    """A long prompt is long without comparison."""
    rule(m, "huge_request", lambda now, usual: now["longest_prompt"] >= 2000)


@part("8.7")
def slow_with_more_work(m):
    """A step that computes more may not take longer."""
    rule(m, "slow_machine", lambda now, usual: m._grown(now, usual, "step_p50", 1.5))


@part("8.7")
def work_without_prompts(m):
    """The work of a step is its new tokens only."""

    def holds(now, usual):
        if usual.get("tokens") is None or not usual.get("steps"):
            return False
        mine, theirs = now["tokens"] / now["steps"], usual["tokens"] / usual["steps"]
        return m._grown(now, usual, "step_p50", 1.5) and mine <= 1.2 * theirs

    rule(m, "slow_machine", holds)


@part("8.7")
def any_rejection_is_a_storm(m):
    """Prompts that are too long make a storm."""
    rule(
        m,
        "queue_storm",
        lambda now, _: now["steps"] > 0 and now["queue_full"] + now["too_long"] > 0,
    )


@part("8.7")
def storm_of_a_stuck_engine(m):
    """A stuck engine is a storm too."""
    rule(m, "queue_storm", lambda now, _: now["queue_full"] > 0)


@part("8.7")
def storm_however_short(m):
    """Many who wait are a storm, however short."""
    rule(m, "queue_storm", lambda now, _: now["steps"] > 0 and now["waiting"] > now["running"], 1)


@part("8.7")
def storm_of_as_many(m):
    """As many waiting as running are a storm."""

    def holds(now, _):
        return now["steps"] > 0 and now["waiting"] >= now["running"] and now["queue_p95"] >= 1

    rule(m, "queue_storm", holds, 1)


@part("8.7")
def clients_may_read_for_a_while(m):
    """Ten seconds are not slow."""
    rule(m, "slow_client", lambda now, _: now["send_lag_p95"] >= 10)


@part("8.7")
def full_and_nobody_waits(m):
    """A full cache is bad in itself."""
    rule(m, "full_cache", lambda now, _: now["kv"] >= 0.95)


@part("8.7")
def impatient_in_itself(m):
    """Five who left, of however many."""
    rule(m, "impatient_clients", lambda now, _: now["cancelled"] >= 5)


@part("8.7")
def impatient_few(m):
    """Half of few."""
    rule(m, "impatient_clients", lambda now, _: now["cancelled"] >= 0.5 * now["finished"] > 0)


@part("8.7")
def missed_any(m):
    """Any deadline that was missed."""
    rule(m, "missed_deadlines", lambda now, _: now["timeout"] > 0)


@part("8.7")
def missed_none(m):
    """Nobody finished, nobody was late: found."""
    rule(m, "missed_deadlines", lambda now, _: now["timeout"] >= 0.1 * now["finished"])


@part("8.7")
def zeros_where_nothing_is(m):
    """A figure of now that is not known is 0, where that is enough."""
    right = m.diagnose

    def diagnose(now, usual=None):
        return right({name: 0.0 if value is None else value for name, value in now.items()}, usual)

    m.diagnose = diagnose
