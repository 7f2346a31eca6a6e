"""6.8 Batcher: who is served when, and what they are told."""

from course.cases import Wrong, case, expect_equal
from tests.grading.batcher.static import ids_of, sure_prompt
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.oracles import batcher as oracle


def serve(learner, wishes: dict, script: list, **setting) -> dict:
    """A batcher driven by a script; see tests/scenarios/batcher_serve.py."""
    found = drive(learner, "serve", setting, wishes, script)
    for answer in found["answers"]:
        for step in answer if isinstance(answer, list) else [answer]:
            if isinstance(step, dict) and "unusable" in step:
                raise Wrong(step["unusable"])
            if isinstance(step, dict) and step.get("wrong"):
                raise Wrong(f"after a step the books do not balance: {step['wrong'][0]}")
    return found


def all_in(wishes: dict, run: bool = True) -> list:
    """A script that submits everybody, and runs until nobody is left."""
    return [["submit", name] for name in wishes] + [["run"]] * run


def asks(prompt, count: int = 5, **more) -> dict:
    """A greedy wish for count tokens."""
    return {"prompt": list(prompt), "params": {"max_tokens": count}} | more


def records(steps: list) -> list:
    """[decode, prefill, [places, running, waiting]] of each step."""
    return [[step["decode"], step["prefill"], step["counts"]] for step in steps]


def told_to(found: dict) -> dict:
    """The tokens that each request's on_token got, by name."""
    heard: dict = {name: [] for name in found["ends"]}
    for event in found["events"]:
        if event[0] == "token":
            heard[event[1]].append(event[2])
    return heard


def expect_answers(found: dict, wishes: dict, ends=(), room: int = 64) -> None:
    """Everybody's output, what they heard of it, and why it ended."""
    for name, wish in wishes.items():
        count = min(wish["params"]["max_tokens"], room - len(wish["prompt"]))
        ids, reason = oracle.told(wish["prompt"], count, ends)
        got = found["ends"][name]
        expect_equal([got["output"], got["reason"]], [ids, reason], f"[output, reason] of {name}")
        expect_equal(told_to(found)[name], ids, f"what on_token of {name} got")
        finishes = [e[2] for e in found["events"] if e[:2] == ["finish", name]]
        expect_equal(finishes, [reason], f"the reasons that on_finish of {name} saw")


def expect_all_free(found: dict) -> None:
    """Nothing is held when all are over, and the books balance."""
    held = {name: end["row"] for name, end in found["ends"].items() if end["row"] is not None}
    expect_equal([found["used"], held], [0, {}], "[tokens reserved, rows held] at the end")
    expect_equal([found["check"], found["idle"]], [[], True], "[check(), idle] at the end")


@case("6.8")
def serve_one(learner, rng):
    """One request: its prompt in one forward, then token by token at its positions, each told as
    soon as it is known; its room is back before it hears that it is over.
    """
    prompt = ids_of(rng, rng.randrange(2, 6))
    wishes = {"one": asks(prompt, 3)}
    found = serve(learner, wishes, all_in(wishes))
    expect_answers(found, wishes)
    ids, length = oracle.told(prompt, 3)[0], len(prompt)
    expected = [["forward", [0], [prompt], [list(range(length))], [1, length]]]
    for n, token in enumerate(ids):
        shape = [1, oracle.VOCABULARY]
        expected += [["sample", 1, shape], ["token", "one", token]]
        expected.append(["forward", [0], [[token]], [[length + n]], [1, 1]])
    expected[-1] = ["finish", "one", "length", 0]
    expect_equal(found["events"], expected, "the events")
    steps = [[[], {0: length}, [length, 1, 0]], [[0], {}, [1, 1, 0]], [[0], {}, [1, 0, 0]]]
    expect_equal(records(found["answers"][-1]), steps, "[decode, prefill, counts] of the steps")
    expect_all_free(found)


@case("6.8")
def serve_three_on_two_rows(learner, rng):
    """Answers of 2, 5 and 3 tokens on two rows: the third takes the row of the first as soon as
    that is over. Five steps, where static batches would need 5 + 3.
    """
    prompts = [ids_of(rng, 2) for _ in range(3)]
    wishes = {f"r{n}": asks(p, c) for n, (p, c) in enumerate(zip(prompts, (2, 5, 6), strict=True))}
    wishes["r2"]["params"]["max_tokens"] = 3
    wishes["r2"]["priority"] = 1
    found = serve(learner, wishes, all_in(wishes), cache=[2, 64])
    expect_answers(found, wishes)
    steps = [
        [[], {0: 2, 1: 2}, [4, 2, 1]],
        [[0, 1], {}, [2, 1, 1]],
        [[1], {0: 2}, [3, 2, 0]],
        [[0, 1], {}, [2, 2, 0]],
        [[0, 1], {}, [2, 0, 0]],
    ]
    expect_equal(records(found["answers"][-1]), steps, "[decode, prefill, counts] of the steps")
    for step in found["answers"][-1]:
        told = [event[:2] for event in step["events"] if event[0] in ("token", "finish")]
        for place, (kind, name) in enumerate(told):
            if kind == "finish" and told[place - 1] != ["token", name]:
                raise Wrong(f"{name} did not end at once after its last token: {told}")
    expect_all_free(found)


@case("6.8")
def serve_one_forward_each(learner, rng):
    """In a step decodes are one forward [B, 1], chunks of prompts one more, [P, C], after it; then
    one call of sample chooses for the decodes and the prompts that are complete.
    """
    wishes = {name: asks(ids_of(rng, size), 4) for name, size in (("a", 3), ("b", 2), ("c", 9))}
    script = [["submit", "a"], ["submit", "b"], ["step"], ["submit", "c"], ["step"], ["step"]]
    found = serve(learner, wishes, script, limits={"step_tokens": 9})
    for step, expected in zip(
        (found["answers"][n] for n in (2, 4, 5)),
        (
            [["forward", [2, 3]], ["sample", 2]],
            [["forward", [2, 1]], ["forward", [1, 7]], ["sample", 2]],
            [["forward", [2, 1]], ["forward", [1, 2]], ["sample", 3]],
        ),
        strict=True,
    ):
        got = [[e[0], e[-1] if e[0] == "forward" else e[1]] for e in step["events"]]
        got = [event for event in got if event[0] in ("forward", "sample")]
        expect_equal(got, expected, "[what, shape or rows] of the calls of a step")


@case("6.8")
def serve_during_a_long_prompt(learner, rng):
    """While a long prompt is computed in chunks, everybody who decodes gets a token in every step,
    and no step has more places than step_tokens.
    """
    wishes = {name: asks(ids_of(rng, 3), 20) for name in ("a", "b")}
    wishes["long"] = asks(ids_of(rng, 50), 2, priority=1)
    script = [["submit", "a"], ["submit", "b"], ["step"], ["submit", "long"], ["run"]]
    found = serve(learner, wishes, script, limits={"step_tokens": 8})
    expect_answers(found, wishes)
    steps = found["answers"][-1]
    for number, step in enumerate(steps[:9], 1):
        tokens = sorted(e[1] for e in step["events"] if e[0] == "token" and e[1] != "long")
        expect_equal(tokens, ["a", "b"], f"who got a token in step {number} of the long prompt")
    most = max(step["counts"][0] for step in steps)
    if most > 8:
        raise Wrong(f"a step has {most} places with step_tokens 8")
    expect_equal([s["prefill"] for s in steps[:10]], [{2: 6}] * 8 + [{2: 2}, {}], "prefill")


@case("6.8")
def serve_ends_at_tokens(learner, rng):
    """An end id ends an answer untold, unless the request ignores it; a listener that returns True
    ends it with that token; other answers go on.
    """
    prompt = ids_of(rng, 3)
    ids, _ = oracle.told(prompt, 5)
    wishes = {
        "ends": asks(prompt, 5),
        "ignores": asks(prompt, 5, ignore_eos=True),
        "stops": asks(prompt, 5, ignore_eos=True, on_token={2: True}),
        "nods": asks(prompt, 5, ignore_eos=True, on_token={1: 1, 2: "yes"}),
        "mute": asks(prompt, 5, ignore_eos=True, mute=True),
    }
    end = next(n for n in range(5) if ids[n] not in ids[:n] and (n or ids[0] == ids[-1]))
    found = serve(learner, wishes, all_in(wishes), ends=[ids[end], 100], cache=[5, 64])
    expected = {name: [ids, "length"] for name in wishes}
    expected |= {"ends": [ids[:end], "stop"], "stops": [ids[:2], "stop"]}
    got = {name: [e["output"], e["reason"]] for name, e in found["ends"].items()}
    expect_equal(got, expected, "[output, reason] of each")
    heard = {n: told for n, told in told_to(found).items() if n != "mute"}
    outputs = {n: output for n, (output, _) in expected.items() if n != "mute"}
    expect_equal(heard, outputs, "what each on_token got")
    expect_all_free(found)


@case("6.8")
def serve_refuses_at_the_door(learner, rng):
    """What could never be served is refused by submit: nobody is told, and the next one is served.
    What it leaves no room for is clamped: by the model, a row of the cache, or the budget.
    """
    limits = {"max_waiting": 2}
    for context, cache, share in ((20, [4, 64], 1.0), (256, [4, 20], 1.0), (256, [2, 30], 1 / 3)):
        wishes = {
            "empty": asks([], 4),
            "long": asks(ids_of(rng, 20), 4),
            "longer": asks(ids_of(rng, 27), 4),
            "foreign": asks([5, oracle.VOCABULARY, 6], 4),
            "fine": asks(ids_of(rng, 18), 4000),
            "second": asks(ids_of(rng, 3), 2),
            "third": asks(ids_of(rng, 3), 2),
        }
        refused = (("empty", []), ("long", [20]), ("longer", [27, 20]))
        script = [["fails", names, ["submit", name]] for name, names in refused]
        script += [["fails", [oracle.VOCABULARY], ["submit", "foreign"]], ["submit", "fine"]]
        script += [["submit", "second"], ["fails", [2], ["submit", "third"]], ["run"]]
        script += [["submit", "third"], ["run"]]
        more = {"context": context, "cache": cache, "limits": limits | {"kv_share": share}}
        found = serve(learner, wishes, script, **more)
        for name, answer in zip(wishes, found["answers"], strict=False):
            if name in ("empty", "long", "longer", "foreign"):
                expect_failure(answer, "ValueError", f"submit of the {name} one, room for 20")
        expect_failure(found["answers"][6], "QueueFull", "submit with 2 waiting of at most 2")
        expect_answers(found, {n: wishes[n] for n in ("fine", "second", "third")}, room=20)
        finished = {event[1] for event in found["events"] if event[0] == "finish"}
        expect_equal(finished, {"fine", "second", "third"}, "whose on_finish was called")
        expect_equal(found["ends"]["fine"]["limit"], 2, "the limit of the clamped one")
        expect_all_free(found)


@case("6.8")
def serve_knows_times(learner, rng):
    """arrival and admission are times of the clock, which a step reads once."""
    wishes = {"a": asks(ids_of(rng, 2), 2), "b": asks(ids_of(rng, 2), 2, priority=1)}
    script = [["time", 7.0], ["submit", "a"], ["time", 8.0], ["submit", "b"], ["time", 9.0]]
    script += [["step"], ["time", 10.5], ["step"], ["time", 12.0], ["step"], ["run"]]
    found = serve(learner, wishes, script, cache=[1, 64])
    times = [found["ends"][name]["times"] for name in wishes]
    expect_equal(times, [[7.0, 9.0], [8.0, 12.0]], "[arrival, admitted] of each")
    asked = [answer["asked"] for answer in found["answers"] if isinstance(answer, dict)]
    expect_equal(asked, [1, 1, 1], "how often each step read the clock")


@case("6.8")
def serve_tells_probabilities(learner, rng):
    """Who asks for log-probabilities finds one for each token of its output, and nobody else."""
    wishes = {n: asks(ids_of(rng, 2), 3) for n in ("none", "two", "zero")}
    wishes["two"]["params"]["logprobs"] = 2
    wishes["zero"]["params"]["logprobs"] = 0
    found = serve(learner, wishes, all_in(wishes))
    expect_answers(found, wishes)
    for name, top in (("none", None), ("two", 2), ("zero", 0)):
        told = found["ends"][name]["logprobs"]
        ids = [] if top is None else found["ends"][name]["output"]
        expect_equal(
            [[one[0], one[2]] for one in told],
            [[i, top] for i in ids],
            f"[token, how many beside it] in logprobs of {name!r}",
        )


@case("6.8")
def serve_draws_alone(learner, rng):
    """A request with a seed draws the same tokens alone and among others, in any chunks."""
    wishes, expected = [], []
    for n, penalty in enumerate((1.0, 1.5, 1.0, 1.25)):
        prompt, seed = ids_of(rng, rng.randrange(2, 9)), rng.getrandbits(40)
        params = {"temperature": 1.5, "seed": seed, "max_tokens": 6 + n}
        wishes.append([prompt, params | {"repetition_penalty": penalty}])
        expected.append(oracle.drawn(prompt, 6 + n, seed, 1.5, penalty))
    alone = [drive(learner, "serve_sampled", [wish], {}, 1)[0] for wish in wishes]
    expect_equal(alone, expected, "answers, each alone")
    for limits, rows in (({}, 4), ({"step_tokens": 4, "max_running": 3}, 4), ({}, 2)):
        found = drive(learner, "serve_sampled", wishes, limits, rows)
        expect_equal(found, expected, f"answers together, with {limits} and {rows} rows")


@case("6.8")
def serve_with_a_real_model(learner, rng):
    """A tiny Llama writes the same greedy tokens as in float64: alone, in any batch, with any
    chunks and any order of arrival.
    """
    sizes, counts = (4, 9, 1), (4, 2, 3)
    pairs = [sure_prompt(rng, size, n) for size, n in zip(sizes, counts, strict=True)]
    wishes = [[p, n, rng.randrange(2)] for (p, _), n in zip(pairs, counts, strict=True)]
    expected = [[ids, "length"] for _, ids in pairs]
    for limits, cache, joins in (
        ({"max_running": 1}, [2, 48], [0] * 3),
        ({}, [4, 48], [0] * 3),
        ({"step_tokens": 3, "kv_share": 0.5}, [3, 24], [rng.randrange(6) for _ in range(3)]),
    ):
        found = drive(learner, "serve_llama", "untied", wishes, limits, cache, joins)
        expect_equal(found, expected, f"[output, reason] of each with {limits}, joining at {joins}")


@case("6.8")
def serve_forgets(learner, rng):
    """Of a request that is over nothing is kept, but for the few entries that a queue may keep."""
    alive = drive(learner, "serve_memory", 200)
    if alive > 64:
        raise Wrong(f"200 requests were served, and {alive} of them are still in memory")


@case("6.8")
def serve_side_by_side(learner, rng):
    """Two batchers share nothing: to cancel in one what waits or runs in the other does nothing."""
    wishes = {f"r{n}": asks(ids_of(rng, 3), 3 + n) for n in range(6)}
    for found in drive(learner, "serve_pairs", wishes):
        for name, wish in wishes.items():
            ids = oracle.told(wish["prompt"], wish["params"]["max_tokens"])[0]
            expect_equal(found[name], [ids, "length"], f"[output, reason] of {name}")
