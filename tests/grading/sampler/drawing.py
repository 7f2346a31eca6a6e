"""5.4 new_generator and distributions."""

import itertools
import math

import torch
from safetensors.torch import load_file

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.grading.sampler.checks import BF16, EDGE, F16, HIDDEN, close, logits_of, rows_of
from tests.oracles import sampler as oracle
from tests.reference.arrays import read_json
from tests.reference.record import FOLDER

# --- new_generator ---


@case("5.4")
def generators_of_seeds(learner, rng):
    """The same seed gives the same numbers, another seed others; any integer of 64 bits is one."""
    one = rng.randrange(10, 2**8)
    seeds = [0, 1, -1, 2**63 - 2, -(2**63) + 5, *(one + 2**bits for bits in (3, 8, 16, 24, 31))]
    numbers = drive(learner, "generators", seeds * 2, 4)["numbers"]
    expect_equal(numbers[len(seeds) :], numbers[: len(seeds)], "the numbers of the same seeds")
    different = len({tuple(row) for row in numbers})
    expect_equal(different, len(seeds), f"the count of different series from {len(seeds)} seeds")


@case("5.4")
def generators_without_a_seed(learner, rng):
    """Without a seed every generator gives other numbers, whatever was seeded before (torch, numpy,
    random), and other ones than torch.Generator() begins with, or the next start of the program.
    """
    found = drive(learner, "unseeded_generators", 5)
    if found["series"] < 5:
        same = ", the one that every new torch.Generator() begins with" if found["usual"] else ""
        raise Wrong(
            f"5 unseeded generators gave {found['series']} different series{same}; each was made "
            "after the same torch.manual_seed, random.seed and numpy.random.seed"
        )
    if found["usual"]:
        raise Wrong("an unseeded generator gave the series that torch.Generator() begins with")
    if found["counted"]:
        raise Wrong(
            "the seeds of 5 unseeded generators are all small numbers, as if counted: they come "
            "again after the next start of the program"
        )


@case("5.4")
def generators_of_their_own(learner, rng):
    """Neither making generators nor using them moves torch's own generator; they are on the CPU."""
    found = drive(learner, "generators", [5, None, 7], 2)
    expect_equal(found["moved"], False, "whether torch's own generator moved")
    expect_equal(found["device"], ["cpu"] * 3, "the devices of the generators")


# --- distributions ---


def is_clear(logits: list[float], prompt: list, output: list, wish: dict) -> bool:
    """Whether rounding decides nothing: every filter keeps the same when its edge moves."""

    def kept(change: float) -> list:
        moved = dict(wish)
        for name in ("top_p", "min_p"):
            if 0 < wish.get(name, 0) < 1:
                moved[name] = min(wish[name] * change, 1 - 1e-9)
        return [share > 0 for share in oracle.distribution(logits, prompt, output, moved)]

    return kept(1) == kept(1 + EDGE) == kept(1 - EDGE)


def clear_wish(rng, logits: list[float], prompt: list, output: list, *names: str, **more) -> dict:
    """Random values for some fields of SamplingParams, beside given ones."""
    draws = {
        "temperature": lambda: rng.uniform(0.3, 2.0),
        "top_k": lambda: rng.randrange(1, len(logits)),
        "top_p": lambda: rng.uniform(0.1, 0.98),
        "min_p": lambda: 10 ** rng.uniform(-3, -0.2),
        "repetition_penalty": lambda: rng.uniform(0.6, 1.8),
        "presence_penalty": lambda: rng.uniform(-2, 2),
        "frequency_penalty": lambda: rng.uniform(-1, 1),
    }
    while True:
        wish = {name: draws[name]() for name in names} | more
        if is_clear(logits, prompt, output, wish):
            return wish


def distributed(learner, logits, wishes, prompts=None, outputs=None, what="it") -> None:
    """distributions, compared with the oracle."""
    prompts, outputs = prompts or [[]] * len(wishes), outputs or [[]] * len(wishes)
    told = zip(rows_of(logits), prompts, outputs, wishes, strict=True)
    expected = [oracle.distribution(*one) for one in told]
    close(drive(learner, "distributions", logits, wishes, prompts, outputs), expected, what)


NAMES = "temperature", "top_k", "top_p", "min_p"
PENALTIES = "repetition_penalty", "presence_penalty", "frequency_penalty"


@case("5.4")
def distribution_as_the_model_has_it(learner, rng):
    """With the default params it is the softmax of the logits, in any dtype."""
    for dtype in (torch.float32, F16, BF16):
        for rows in (1, 4):
            distributed(learner, logits_of(rng, rows, 30, dtype), [{}] * rows)


@case("5.4")
def distribution_of_one_wish(learner, rng):
    """Each parameter does what it is for, alone in its row and alone in the batch."""
    prompt, output = [1, 2, 3, 3], [3, 5, 5, 5]
    for name in (*NAMES, *PENALTIES):
        logits = logits_of(rng, 1, 25)
        wish = clear_wish(rng, rows_of(logits)[0], prompt, output, name)
        distributed(learner, logits, [wish], [prompt], [output], f"with {name} it")


@case("5.4")
def distribution_of_different_rows(learner, rng):
    """Rows with different wishes share a batch: filters on some, penalties on some, all on one."""
    wanted = [
        [],
        [*NAMES, *PENALTIES],
        ["top_p"],
        ["temperature"],
        [*PENALTIES],
        ["top_k", "min_p"],
    ]
    rng.shuffle(wanted)
    prompts = [[rng.randrange(40) for _ in range(5)] for _ in wanted]
    outputs = [[rng.randrange(40) for _ in range(rng.randrange(6))] * 2 for _ in wanted]
    logits = logits_of(rng, len(wanted), 40)
    told = zip(rows_of(logits), prompts, outputs, wanted, strict=True)
    wishes = [clear_wish(rng, row, p, o, *names) for row, p, o, names in told]
    distributed(learner, logits, wishes, prompts, outputs)


@case("5.4")
def distribution_of_two_wishes(learner, rng):
    """Every two parameters go together, each pair in a row of its own, cold rows and hot ones."""
    others = [name for name in (*NAMES, *PENALTIES) if name != "temperature"]
    told = [(pair, {}) for pair in itertools.combinations(others, 2)]
    for name in others:
        told += [((name,), {"temperature": rng.uniform(*heat)}) for heat in ((0.3, 0.9), (1.1, 2))]
    rng.shuffle(told)
    prompt, output = [1, 2, 3, 3], [3, 5, 5, 5]
    logits = logits_of(rng, len(told), 25)
    pairs = zip(rows_of(logits), told, strict=True)
    wishes = [clear_wish(rng, row, prompt, output, *names, **heat) for row, (names, heat) in pairs]
    distributed(learner, logits, wishes, [prompt] * len(told), [output] * len(told))


@case("5.4")
def distribution_temperature_before_top_p(learner, rng):
    """Top-p sees the probabilities after the temperature: a hot row keeps more tokens, a cold one
    fewer.
    """
    for heat in (0.4, 1.8):
        logits = logits_of(rng, 2, 30) / 2
        wishes = []
        for row in rows_of(logits):
            wish = {"temperature": heat}
            while "top_p" not in wish or not is_clear(row, [], [], wish):
                wish["top_p"] = rng.uniform(0.5, 0.9)
            wishes.append(wish)
        distributed(learner, logits, wishes, what=f"at temperature {heat} it")


@case("5.4")
def distribution_top_p_of_what_top_k_left(learner, rng):
    """Top-p shares out anew what top-k left: of 0.4, 0.3, 0.2, 0.1, top-k 3 leaves 0.44, 0.33 and
    0.22, so that top-p 0.75 keeps two, which become 4/7 and 3/7.
    """
    logits = torch.tensor([[math.log(share) for share in (0.3, 0.1, 0.4, 0.2)]])
    got = drive(learner, "distributions", logits, [{"top_k": 3, "top_p": 0.75}], [[]], [[]])
    close(got, [[3 / 7, 0.0, 4 / 7, 0.0]])


@case("5.4")
def distribution_penalties_before_filters(learner, rng):
    """Penalties come first: they decide which tokens the filters see, and which one is greedy."""
    logits = torch.tensor([[3.0, 2.9, 0.5, 0.0]] * 3)
    wishes = [
        {"repetition_penalty": 2.0, "top_k": 1},
        {"frequency_penalty": 1.0, "temperature": 0},
        {"presence_penalty": 1.5, "top_p": 0.3, "temperature": 0.5},
    ]
    outputs = [[0], [0, 0, 1], [0, 1]]
    distributed(learner, logits, wishes, [[]] * 3, outputs)


@case("5.4")
def distribution_of_greedy_rows(learner, rng):
    """At temperature 0 one token has it all, the lowest id of equals, whatever the filters say."""
    logits = logits_of(rng, 4, 20).round()
    wishes = [{"temperature": 0, **more} for more in ({}, {"top_k": 5}, {"top_p": 0.01})]
    distributed(learner, logits, [*wishes, {"temperature": 0.7}])
    distributed(learner, logits[:1], [{"temperature": 0, "min_p": 1.0, "top_k": 3}])


@case("5.4")
def distribution_of_hidden(learner, rng):
    """What the model hides stays hidden."""
    for dtype in (torch.float32, F16, BF16):
        logits = logits_of(rng, 3, 20, dtype)
        logits[:, rng.sample(range(20), 9)] = HIDDEN
        rows = rows_of(logits)
        wishes = [{}, clear_wish(rng, rows[1], [], [], "top_p", "top_k"), {"temperature": 0}]
        distributed(learner, logits, wishes)


@case("5.4")
def distribution_at_every_edge(learner, rng):
    """Values at the ends of their ranges: off, or as strict as can be."""
    logits = logits_of(rng, 8, 12)
    wishes = [
        {"top_k": -1, "top_p": 1.0, "min_p": 0.0},
        {"top_k": 2**31 - 1},
        {"top_p": 1e-300},
        {"min_p": 1.0},
        {"temperature": 1e-300},
        {"temperature": 2.0},
        {"top_k": 1, "temperature": 2.0},
        {"temperature": 1e-30, "top_p": 0.9, "min_p": 0.1},
    ]
    greedy = {"temperature": 0}  # what a temperature is that is next to nothing
    told = [*wishes[:4], greedy, *wishes[5:7], greedy]
    pairs = zip(rows_of(logits), told, strict=True)
    expected = [oracle.distribution(row, [], [], wish) for row, wish in pairs]
    close(drive(learner, "distributions", logits, wishes, [[]] * 8, [[]] * 8), expected)


@case("5.4")
def distribution_as_in_transformers(learner, rng):
    """The settings in tests/reference come out as from Hugging Face's logits processors."""
    arrays = load_file(FOLDER / "sampler.safetensors")
    seen = arrays["seen"].tolist()
    wishes = read_json("sampler.json")["settings"]
    expected = arrays["hidden"].softmax(-1).tolist()
    cut = rng.randrange(13)
    prompts, outputs = [row[:cut] for row in seen], [row[cut:] for row in seen]
    got = drive(learner, "distributions", arrays["logits"], wishes, prompts, outputs)
    close(got, expected)
