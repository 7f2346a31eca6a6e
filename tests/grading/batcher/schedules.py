"""6.8 Batcher: any schedule, step by step beside a simulation."""

from course.cases import case, expect_equal
from tests.grading.batcher.serving import asks, expect_all_free, serve
from tests.grading.batcher.static import ids_of
from tests.oracles.batcher_run import Simulation

CACHE = (4, 64)  # rows, tokens in each


@case("6.8")
def serve_any_schedule(learner, rng):
    """Random arrivals, lengths, priorities, cancels and deadlines: step by step what a simulation
    says, and all memory is free at the end.
    """
    for _ in range(2):
        limits = {"max_running": rng.choice([None, 2, 3]), "max_waiting": rng.choice([4, 50])}
        limits |= {"step_tokens": rng.choice([4, 9, 40]), "kv_share": rng.choice([0.4, 1.0])}
        limits["patience"] = rng.choice([1.0, 5.0])
        ends = [1 + rng.randrange(90) for _ in range(4)]
        script, expected, wishes = random_script(rng, limits, ends)
        found = serve(learner, wishes, script, limits=limits, ends=ends, cache=list(CACHE))
        steps = [a for a in found["answers"] if isinstance(a, dict) and "decode" in a]
        for number, (got, want) in enumerate(zip(steps, expected, strict=True), 1):
            expect_step(got, want, number)
        expect_all_free(found)


def expect_step(got: dict, want: dict, number: int) -> None:
    """One step is as the simulation says."""
    what = f"of step {number}"
    for key in ("decode", "prefill", "counts"):
        expect_equal(got[key], want[key], f"{key} {what}")
    tokens = {e[1]: e[2] for e in got["events"] if e[0] == "token"}
    expect_equal(tokens, want["tokens"], f"the tokens, by request, {what}")
    over = {e[1]: e[2] for e in got["events"] if e[0] == "finish"}
    expect_equal(over, want["over"], f"the reasons of those that ended, by request, {what}")


def random_script(rng, limits: dict, ends: list) -> tuple[list, list, dict]:
    """A script, the simulation's record of each of its steps, and the wishes."""
    simulation = Simulation(
        *CACHE,
        limits["max_running"],
        limits["max_waiting"],
        limits["step_tokens"],
        limits["kv_share"],
        limits["patience"],
        ends=ends,
    )
    script, expected, wishes, now = [], [], {}, 100.0
    while len(wishes) < 20 or not simulation.idle:
        now += rng.choice([0.0, 0.25, 0.25, 1.0])
        script.append(["time", now])
        for _ in range(rng.randrange(3) if len(wishes) < 20 else 0):
            name = f"r{len(wishes)}"
            times = [rng.choice([None, None, now + rng.uniform(0, 12)]) for _ in range(2)]
            wish = asks(ids_of(rng, rng.randrange(1, 24)), rng.randrange(1, 12))
            wish |= {"priority": rng.randrange(3), "deadline": times[0], "admit_by": times[1]}
            wishes[name] = wish
            step = ["submit", name]
            went = simulation.submit(name, wish | wish["params"], now)
            script.append(step if went else ["fails", [limits["max_waiting"]], step])
        if rng.random() < 0.2 and wishes:
            name = rng.choice(sorted(wishes))
            simulation.cancel(name)
            script.append(["cancel", name])
        expected.append(simulation.step(now))
        script.append(["step"])
    return script, expected, wishes
