"""5.3 penalize."""

import torch
from safetensors.torch import load_file

from course.cases import case, expect_tensor, short
from tests.grading.forward_pass.driving import drive
from tests.grading.sampler.checks import BF16, F16, HIDDEN, close, logits_of, rows_of
from tests.oracles import sampler as oracle
from tests.reference.arrays import read_json
from tests.reference.record import FOLDER

I64 = torch.int64
F32, F64 = torch.float32, torch.float64


def entries(rng, prompts: list, outputs: list, kinds=(I64, I64, I64)) -> list[torch.Tensor]:
    """(rows, ids, written) of these tokens, in any order, each of its integer dtype."""
    found = [
        (row, token, output.count(token))
        for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
        for token in {*prompt, *output}
    ]
    rng.shuffle(found)
    parts = zip(*found, strict=True) if found else ((), (), ())
    return [torch.tensor(part, dtype=kind) for part, kind in zip(parts, kinds, strict=True)]


def penalized(
    learner, rng, logits, prompts, outputs, wishes, what="it", kinds=(I64, I64, I64, F32)
) -> None:
    """penalize, compared with the oracle; wishes: (repetition, presence, frequency) of each row."""
    told = zip(rows_of(logits), prompts, outputs, wishes, strict=True)
    expected = [oracle.penalize(row, p, o, *wish) for row, p, o, wish in told]
    columns = [torch.tensor(column, dtype=kinds[3]) for column in zip(*wishes, strict=True)]
    got = learner.penalize(logits, *entries(rng, prompts, outputs, kinds[:3]), *columns)
    close(got, expected, what, size=10.0)


def tokens(rng, vocabulary: int, most: int) -> list[int]:
    """Up to so many ids, some of them more than once."""
    few = [rng.randrange(vocabulary) for _ in range(max(1, most // 2))]
    return [rng.choice(few) for _ in range(rng.randrange(most + 1))]


@case("5.3")
def penalties_by_hand(learner, rng):
    """Logits 2 and -2 with a repetition penalty of 2 become 1 and -4; then 0.5 is taken once and
    0.25 for each of three times.
    """
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0, 3.0]])
    rows, ids, written = torch.tensor([[0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 3, 1]])
    wish = torch.tensor([2.0]), torch.tensor([0.5]), torch.tensor([0.25])
    got = learner.penalize(logits, rows, ids, written, *wish)
    close(got, [[1.0, -4.0, -0.25, -4.75, 3.0]])


@case("5.3")
def repetition_counts_prompt_and_answer(learner, rng):
    """The repetition penalty hits tokens of the prompt as well as of the answer, each once, however
    often it came.
    """
    logits = logits_of(rng, 3, 20)
    prompts, outputs = [tokens(rng, 20, 8) for _ in range(3)], [[4, 4, 4, 5], [6], []]
    for factor in (1.3, 0.6, 2.0):
        penalized(learner, rng, logits, prompts, outputs, [(factor, 0.0, 0.0)] * 3)


@case("5.3")
def presence_and_frequency_count_the_answer(learner, rng):
    """Presence and frequency leave alone what only the prompt has."""
    logits = logits_of(rng, 2, 15)
    prompts, outputs = [[1, 2, 3, 3], [0, 5]], [[3, 4, 4], []]
    for wish in ((1.0, 0.7, 0.0), (1.0, 0.0, 0.4), (1.0, -1.5, -0.3)):
        penalized(learner, rng, logits, prompts, outputs, [wish] * 2)


@case("5.3")
def frequency_counts_every_time(learner, rng):
    """Frequency is taken as often as a token was written, presence once."""
    logits, output = logits_of(rng, 1, 10), [3] * rng.randrange(260, 300) + [4] * 2 + [9]
    for wish in ((1.0, 0.0, 0.1), (1.0, 0.9, 0.0), (1.0, 2.0, 2.0)):
        penalized(learner, rng, logits, [[]], [output], [wish])


@case("5.3")
def penalties_of_each_row(learner, rng):
    """Each row has its own tokens and its own penalties; a row without any is as it was."""
    for rows, vocabulary in ((1, 12), (4, 30), (6, 6), (2, 49152)):
        prompts = [tokens(rng, vocabulary, 12) for _ in range(rows)]
        outputs = [tokens(rng, vocabulary, 12) for _ in range(rows)]
        prompts[-1], outputs[-1] = [], [0, vocabulary - 1, 0]
        wishes = [
            (rng.uniform(0.5, 2), rng.uniform(-2, 2), rng.uniform(-2, 2)) for _ in range(rows)
        ]
        penalized(learner, rng, logits_of(rng, rows, vocabulary), prompts, outputs, wishes)


@case("5.3")
def repetition_comes_first(learner, rng):
    """First the repetition penalty, by the sign of the model's own logit, then the others."""
    logits = torch.tensor([[0.5, -0.5, 0.0, 4.0]])
    for wish in ((2.0, 1.0, 0.0), (2.0, -1.0, 0.0), (3.0, 0.0, 1.5), (0.5, 2.0, -2.0)):
        penalized(learner, rng, logits, [[]], [[0, 1, 2, 3, 3]], [wish])


@case("5.3")
def penalties_without_tokens(learner, rng):
    """Without any token nothing changes, but the dtype to float32."""
    logits = logits_of(rng, 3, 8, rng.choice([F16, BF16]))
    penalized(learner, rng, logits, [[]] * 3, [[]] * 3, [(1.5, 1.0, 1.0)] * 3)
    prompts, outputs = [[], [2], []], [[], [2, 3], []]
    penalized(learner, rng, logits.float(), prompts, outputs, [(1.5, 1.0, 1.0)] * 3)


@case("5.3")
def penalties_that_are_off(learner, rng):
    """1, 0 and 0 change nothing, beside a row where they are on."""
    logits = logits_of(rng, 4, 8)
    found = [[1, 2, 3]] * 4, [[2, 2, 5]] * 4
    some = [(1.0, 0.0, 0.0), (1.2, 0.3, 0.1), (1.0, 0.5, 0.2), (1.3, 0.0, 0.0)]
    penalized(learner, rng, logits, *found, some)
    penalized(learner, rng, logits, *found, [(1.0, 0.0, 0.0)] * 4)


@case("5.3")
def penalties_of_hidden(learner, rng):
    """A logit of -inf stays -inf, and 0 stays 0 under the repetition penalty."""
    logits = logits_of(rng, 2, 9, rng.choice([F16, BF16, torch.float32]))
    logits[:, [1, 4]], logits[:, 2] = HIDDEN, 0.0
    found = [[1, 2, 3]] * 2, [[4, 4, 5]] * 2
    penalized(learner, rng, logits, *found, [(1.5, 1.0, 0.5), (0.5, -1.0, -0.5)])


@case("5.3")
def penalties_in_float32(learner, rng):
    """Half-precision logits are widened before they are penalized, all of them."""
    for dtype in (F16, BF16):
        logits = logits_of(rng, 2, 50, dtype)
        prompts, outputs = [list(range(25))] * 2, [[30, 31, 31]] * 2
        penalized(learner, rng, logits, prompts, outputs, [(1.1, 0.01, 0.003), (3.0, 0.7, 0.1)])


@case("5.3")
def penalties_of_any_dtype(learner, rng):
    """rows, ids and written may be of any integer dtype, the penalties of any float dtype; the
    result is float32.
    """
    found = [[1, 2, 3]] * 2, [[2, 2, 5]] * 2
    for kind in (torch.int32, torch.int16, torch.uint8):
        for kinds in ((kind, I64, I64), (I64, kind, I64), (I64, I64, kind), (kind, kind, kind)):
            what = f"with rows, ids and written of {', '.join(map(short, kinds))} it"
            logits = logits_of(rng, 2, 8)
            wishes = [(1.2, 0.3, 0.1), (0.8, -0.3, 0.2)]
            penalized(learner, rng, logits, *found, wishes, what, (*kinds, F32))
    for kind in (F64, F16):
        wishes = [(1.25, 0.5, 0.125), (0.75, -0.5, 0.25)]  # float16 has them exactly
        what = f"with penalties of {short(kind)} it"
        penalized(learner, rng, logits, *found, wishes, what, (I64, I64, I64, kind))


@case("5.3")
def penalties_elsewhere_nothing(learner, rng):
    """What is not listed comes back exactly as it was, and logits itself is not changed."""
    logits = logits_of(rng, 3, 40)
    rows, ids, written = entries(rng, [[1, 2], [], [3]], [[4], [5, 5], []])
    wish = torch.tensor([1.7] * 3), torch.tensor([1.0] * 3), torch.tensor([0.5] * 3)
    got = learner.penalize(logits, rows, ids, written, *wish)
    others = torch.ones(3, 40, dtype=torch.bool)
    others[rows.long(), ids.long()] = False
    expect_tensor(got[others], logits[others], atol=0, what="what is not listed")


@case("5.3")
def penalties_of_views(learner, rng):
    """It does not matter how the logits lie in memory, and they are not changed."""
    logits, prompts, outputs = logits_of(rng, 2, 12), [[1, 2], [3]], [[4, 4], [11]]
    wishes = [(1.4, 0.5, 0.2), (0.8, 0.1, 0.9)]
    told = zip(rows_of(logits), prompts, outputs, wishes, strict=True)
    expected = [oracle.penalize(row, p, o, *wish) for row, p, o, wish in told]
    columns = [torch.tensor(column) for column in zip(*wishes, strict=True)]
    rest = [*entries(rng, prompts, outputs), *columns]
    for got in drive(learner, "on_views", "penalize", logits, *rest):
        close(got, expected, "of a view it", size=10.0)


@case("5.3")
def repetition_as_in_transformers(learner, rng):
    """The repetition penalty comes out as from Hugging Face's logits processor."""
    arrays = load_file(FOLDER / "sampler.safetensors")
    settings = read_json("sampler.json")["settings"]
    for row, wish in enumerate(settings):
        if list(wish) != ["repetition_penalty"]:
            continue
        seen, zero = arrays["seen"][row].tolist(), torch.zeros(1)
        factor = torch.tensor([wish["repetition_penalty"]])
        listed = entries(rng, [seen[:6]], [seen[6:]])
        got = learner.penalize(arrays["logits"][row : row + 1], *listed, factor, zero, zero)
        close(got, [arrays["hidden"][row].tolist()], size=10.0)
