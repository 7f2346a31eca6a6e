"""6.5 plan_step and compute."""

from functools import lru_cache

from course.cases import case, expect_equal
from tests.grading.batcher.static import ids_of
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.grading.forward_pass.tolerances import close
from tests.oracles import batcher as oracle
from tests.oracles import forward_pass as model_oracle
from tests.reference.arrays import tiny_config, tiny_weights


def decoding(name: str, row: int, prompt: int = 4, output: int = 2) -> dict:
    """A request that decodes."""
    stand = {"name": name, "state": "decode", "row": row, "prompt": [1] * prompt}
    return stand | {"output": [2] * output, "computed": prompt + output - 1, "remaining": 1}


def reading(name: str, row: int, remaining: int, computed: int = 0) -> dict:
    """A request whose prompt is being computed."""
    stand = {"name": name, "state": "prefill", "row": row, "prompt": [1] * (remaining + computed)}
    return stand | {"output": [], "computed": computed, "remaining": remaining}


def expect_plans(learner, *calls) -> None:
    """(running, budget) through plan_step and the oracle."""
    asked = [{"running": running, "budget": budget} for running, budget in calls]
    for (running, budget), found in zip(calls, drive(learner, "plans", asked), strict=True):
        shown = [f"{r['name']} {r['state']} row {r['row']} rest {r['remaining']}" for r in running]
        expected = list(oracle.plan(running, budget))
        what = (
            f"[decodes, prefills, places] with {budget} places for {', '.join(shown) or 'nobody'}"
        )
        expect_equal(found, expected, what)


@case("6.5")
def plan_of_decodes(learner, rng):
    """Everybody who decodes gets one token, in the order of their rows; with nobody the plan is
    empty.
    """
    rows = rng.sample(range(20), 5)
    running = [decoding(f"r{row}", row, rng.randrange(1, 9), rng.randrange(1, 9)) for row in rows]
    expect_plans(learner, (running, 5), (running, 100), (running[:1], 1), ([], 1), ([], 0))


@case("6.5")
def plan_of_one_prompt(learner, rng):
    """A prompt gets what remains of it, or the places that the decodes leave, if that is less."""
    others = [decoding("a", 3), decoding("b", 0)]
    rest = rng.randrange(20, 30)
    for computed in (0, 7):
        prompt = reading("p", 1, rest, computed)
        calls = [([prompt, *others], budget) for budget in (3, 4, rest + 1, rest + 2, rest + 3, 99)]
        expect_plans(learner, *calls)


@case("6.5")
def plan_for_the_first_and_the_short(learner, rng):
    """The prompt that was admitted first gets on in every step, however long it is; beside it the
    shortest come first, of equals the one that was admitted first, whatever their rows.
    """
    long, short = reading("long", 9, 3000), [reading(f"s{row}", row, 37) for row in (5, 2, 7, 0)]
    running = [long, decoding("d", 4), reading("b", 1, 90), *short]
    expect_plans(learner, *[(running, budget) for budget in (8, 33, 76, 150, 190, 224, 500, 641)])
    expect_plans(learner, ([*short, long], 513), ([short[0], long, *short[1:]], 200))


@case("6.5")
def plan_counts_padding(learner, rng):
    """Short prompts beside a long one would be padded to its length: the rectangle, padding
    included, has no more places than are left, and nobody behind one that does not fit gets any.
    """
    running = [reading("a", 0, 10), reading("b", 1, 40), reading("c", 2, 2), reading("d", 3, 2)]
    calls = [(running, budget) for budget in (4, 10, 19, 20, 29, 30, 40, 60, 79, 80, 120, 159, 160)]
    expect_plans(learner, *calls)
    expect_plans(learner, ([decoding("e", 4), *running[2:]], 5), ([*running[2:], running[1]], 11))


@case("6.5")
def plan_of_random_crowds(learner, rng):
    """Any crowd and any number of places."""
    calls = []
    for _ in range(40):
        running = []
        for row in rng.sample(range(12), rng.randrange(1, 9)):
            name = f"r{row}"
            some = reading(name, row, rng.randrange(1, 40), rng.randrange(20))
            running.append(rng.choice([some, decoding(name, row)]))
        calls.append((running, len(running) + rng.choice([0, 1, 5, 20, 60, 300])))
    expect_plans(learner, *calls)


@case("6.5")
def plan_refuses_a_crowd(learner, rng):
    """More requests than places is a ValueError that names both numbers."""
    budget = rng.randrange(10, 15)
    prompts = [reading(f"r{n}", n, 5) for n in range(budget + 1)]
    decodes = [decoding(f"r{n}", n) for n in range(budget + 1)]
    for running in (prompts, decodes, [*prompts[:3], *decodes[3:]]):
        call = {"running": running, "budget": budget, "fails": [budget + 1, budget]}
        (found,) = drive(learner, "plans", [call])
        expect_failure(found, "ValueError", f"plan_step of {budget + 1} with {budget} places")


def prompts_of(rng, *sizes) -> list[dict]:
    """Requests that begin, one for each size of prompt, in rows 0, 1, ..."""
    made = [reading(f"r{row}", row, size) for row, size in enumerate(sizes)]
    return [one | {"prompt": ids_of(rng, one["remaining"])} for one in made]


@case("6.5")
def compute_one_forward(learner, rng):
    """All chunks are one forward: each request's next tokens, at their positions, in its row; then
    `computed` has grown, and those with nothing remaining come back with their logits, in order.
    """
    stands = prompts_of(rng, 5, 3, 7)
    a, b, c = (stand["prompt"] for stand in stands)
    forwards = [[["r2", 4], ["r0", 2]], [["r0", 3], ["r1", 3], ["r2", 1]], [["r2", 2]]]
    found = drive(learner, "computes", stands, forwards, {})
    told = [
        [[2, 0], [c[:4], a[:2]], [[0, 1, 2, 3], [0, 1]]],
        [[0, 1, 2], [a[2:], b, c[4:5]], [[2, 3, 4], [0, 1, 2], [4]]],
        [[2], [c[5:]], [[5, 6]]],
    ]
    got = [event[1:4] for event in found["events"]]
    expect_equal(got, told, "[rows, tokens, positions] of the forwards")
    expect_equal(found["computed"], [[2, 0, 4], [5, 3, 5], [5, 3, 7]], "computed of r0, r1, r2")
    said = [oracle.next_token(prompt) for prompt in (a, b, c)]
    answers = [
        [[], None],
        [["r0", "r1"], [[2, oracle.VOCABULARY], said[:2]]],
        [["r2"], [[1, oracle.VOCABULARY], said[2:]]],
    ]
    expect_equal(found["answers"], answers, "the complete ones, and their most probable tokens")


@case("6.5")
def compute_decodes(learner, rng):
    """A decode is a chunk of one: the newest token of the answer, behind what the cache holds."""
    stands = prompts_of(rng, 4, 2)
    first, other = (stand["prompt"] for stand in stands)
    stands.append(stands[0] | {"name": "later", "state": "decode", "output": [17], "computed": 4})
    forwards = [[["r0", 4]], [["later", 1], ["r1", 2]]]
    found = drive(learner, "computes", stands, forwards, {})
    told = [[0], [first], [[0, 1, 2, 3]]], [[0, 1], [[17], other], [[4], [0, 1]]]
    got = [event[1:4] for event in found["events"]]
    expect_equal(got, list(map(list, told)), "[rows, tokens, positions] of the forwards")
    said = [oracle.next_token([*first, 17]), oracle.next_token(other)]
    expect_equal(found["answers"][1][1][1], said, "the most probable tokens after the second")


@case("6.5")
def compute_on_a_device(learner, rng):
    """All that the forward is given is on the model's device."""
    found = drive(learner, "compute_on_meta")
    expect_equal(found, ["meta"] * 3, "the devices of tokens, positions and rows, model on meta")


@case("6.5")
def compute_nothing(learner, rng):
    """Without chunks there is no forward, and nobody is complete."""
    found = drive(learner, "computes", prompts_of(rng, 3), [[]], {})
    expect_equal([found["answers"], found["events"]], [[[[], None]], []], "[answers, forwards]")


@case("6.5")
def compute_fails(learner, rng):
    """What the forward raises goes on to the caller, and no request has changed; the next forward
    computes the same again.
    """
    stands = prompts_of(rng, 4, 3)
    chunks = [["r0", 4], ["r1", 2]]
    for error in ("ArithmeticError", "KeyboardInterrupt"):
        found = drive(learner, "computes", stands, [chunks, chunks], {1: error})
        expect_failure(found["answers"][0], error, "compute with a forward that fails")
        expect_equal(found["computed"], [[0, 0], [4, 2]], "computed after each call")
        expect_equal(found["events"][1][1:], found["events"][0][1:], "the second forward")


@lru_cache(128)
def last_logits(ids: tuple[int, ...]):
    """The oracle's logits after a sequence, tied model."""
    return model_oracle.logits(tiny_config("tied"), tiny_weights("tied"), list(ids))[-1]


@case("6.5")
def compute_with_a_real_model(learner, rng):
    """Prompts in random chunks through a tiny Llama: the logits of each prompt as a whole."""
    prompts = [ids_of(rng, rng.randrange(1, 14), 0, 101) for _ in range(3)]
    left, forwards = {n: len(prompt) for n, prompt in enumerate(prompts)}, []
    while left:
        chosen = rng.sample(sorted(left), rng.randrange(1, len(left) + 1))
        forwards.append([[n, rng.randrange(1, left[n] + 1)] for n in chosen])
        for n, count in forwards[-1]:
            left[n] -= count
            if not left[n]:
                del left[n]
    found = drive(learner, "compute_llama", "tied", prompts, forwards)
    expect_equal(sorted(n for n, _ in found), [0, 1, 2], "the prompts that were complete")
    for n, got in found:
        close(got, last_logits(tuple(prompts[n])), "logits", what=f"after prompt {n} it")
