"""5.4 sample."""

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.grading.sampler.checks import BF16, F16, HIDDEN, close, logits_of, rows_of
from tests.oracles import sampler as oracle

# Frequencies are judged by chi-square with its one-in-a-million limit (tests/oracles/sampler.py).
# For draws as few as these the tail is a little heavier: over two million simulated runs of each
# wish, 0.5 to 4 in a million passed the limit. The seed of the run fixes the draws.


def seeds(rng, count: int) -> list[int]:
    """Different ones."""
    return rng.sample(range(2**32), count)


def sampled(learner, logits, wishes, prompts=None, outputs=None, steps=1, kept=False) -> list:
    """The ids of each step."""
    empty = [[] for _ in wishes]
    call = logits, wishes, prompts or empty, outputs or empty, steps, kept
    return drive(learner, "sampled", *call)


def expect_frequencies(ids: list[int], shares: list[float], what: str) -> None:
    """The ids are distributed as they should be, and none is impossible."""
    counts = [ids.count(token) for token in range(len(shares))]
    impossible = [i for i, share in enumerate(shares) if share == 0 and counts[i]]
    if impossible:
        raise Wrong(f"{what}: token {impossible[0]} was drawn, but its probability is 0")
    possible = sum(share > 0 for share in shares)
    statistic = oracle.chi_square(counts, shares)
    if statistic > oracle.LIMITS[possible - 1]:
        raise Wrong(
            f"{what}: tokens 0, 1, 2, ... were drawn {counts} times, expected "
            f"{[round(len(ids) * share, 1) for share in shares]}; chi-square is {statistic:.1f}, "
            f"and above {oracle.LIMITS[possible - 1]} once in a million"
        )


# Every token that can come has at least 2 %: 5 of 250 draws, as chi-square wants it.
LOGITS = [1.2, -0.3, 0.4, 0.9, -1.0, 0.1]
WISHES = [
    {},
    {"temperature": 0.75},
    {"temperature": 1.7},
    {"top_k": 3},
    {"top_p": 0.7},
    {"min_p": 0.3},
    {"temperature": 1.5, "top_k": 4, "top_p": 0.8, "presence_penalty": 0.5},
]


@case("5.4")
def sample_frequencies_over_requests(learner, rng):
    """Over 400 requests with seeds of their own, tokens come as often as they should (a right
    answer fails in about one of 300,000 runs).
    """
    wish = rng.choice(WISHES)
    order = rng.sample(range(6), 6)
    logits = logits_of(rng, 1, 6)
    logits[0] = logits.new_tensor([LOGITS[i] for i in order])
    wishes = [{**wish, "seed": seed} for seed in seeds(rng, 400)]
    [ids] = sampled(learner, logits.expand(400, 6).contiguous(), wishes)
    shares = oracle.distribution(rows_of(logits)[0], [], [], wish)
    expect_frequencies(ids, shares, f"over 400 requests with {wish}")


@case("5.4")
def sample_frequencies_over_time(learner, rng):
    """Over 250 draws of each of four requests, whose wishes differ, tokens come as often as they
    should (a right answer fails in about one of 100,000 runs).
    """
    some = [WISHES[0], WISHES[2], WISHES[3], {"temperature": 0.1}]
    wishes = [{**wish, "seed": seed} for wish, seed in zip(some, seeds(rng, 4), strict=True)]
    logits = logits_of(rng, 4, 6)
    logits[:] = logits.new_tensor(LOGITS)
    logits[3] /= 10
    steps = sampled(learner, logits, wishes, steps=250)
    for row, wish in enumerate(some):
        shares = oracle.distribution(rows_of(logits)[row], [], [], wish)
        expect_frequencies([ids[row] for ids in steps], shares, f"over 250 draws with {wish}")


@case("5.4")
def sample_greedy(learner, rng):
    """At temperature 0 it is the most probable token, the lowest id of equals, whatever the filters
    say, in any dtype.
    """
    for dtype in (F16, BF16):
        for rows in (1, 5):
            logits = logits_of(rng, rows, 40, dtype).round()
            more = [{}, {"top_k": 7}, {"top_p": 0.5}, {"min_p": 0.1}, {"seed": 3}]
            wishes = [{"temperature": 0, **more[row]} for row in range(rows)]
            expected = [oracle.ranking(row)[0] for row in rows_of(logits)]
            expect_equal(sampled(learner, logits, wishes), [expected], "the greedy ids")


@case("5.4")
def sample_greedy_with_penalties(learner, rng):
    """Greedy rows are the most probable after the penalties."""
    logits = logits_of(rng, 1, 6)
    logits[0] = logits.new_tensor([5.0, 4.9, 4.6, 4.3, 1.0, 0.0])
    wish = {"temperature": 0, "frequency_penalty": 0.5}
    steps = sampled(learner, logits, [wish], [[0, 0]], [[]], 5, kept=True)
    expect_equal([ids[0] for ids in steps], [0, 1, 2, 0, 1], "the greedy ids of five steps")
    wish = {"temperature": 0, "repetition_penalty": 1.5}
    steps = sampled(learner, logits, [wish], [[0]], [[]], 4, kept=True)
    expect_equal([ids[0] for ids in steps], [1, 2, 3, 0], "the greedy ids of four steps")


@case("5.4")
def sample_mixed_rows(learner, rng):
    """Greedy rows and others share a batch, in any order; each row gets its own token."""
    logits = logits_of(rng, 9, 3000)
    wishes = [
        {"temperature": 0} if row % 2 else {"top_k": 1, "temperature": 1.9, "seed": row}
        for row in range(9)
    ]
    rng.shuffle(wishes)
    best = [oracle.ranking(row)[0] for row in rows_of(logits)]
    expect_equal(sampled(learner, logits, wishes), [best], "the ids (each row can only be one)")


@case("5.4")
def sample_with_a_seed(learner, rng):
    """The same seed draws the same tokens, another seed others."""
    one, two = seeds(rng, 2)
    logits = logits_of(rng, 1, 800).expand(3, 800).contiguous() / 5
    found = drive(learner, "seeded_draws", logits, [one, two], 12)
    if not found["same seed"]:
        raise Wrong("two requests with the same seed, in one batch, drew different tokens")
    if found["other seed"]:
        raise Wrong("two requests with different seeds drew the same 12 tokens")
    if found["tokens"] < 4:
        raise Wrong(f"12 draws from 800 tokens gave only {found['tokens']} different ones")


@case("5.4")
def sample_without_a_seed(learner, rng):
    """Without a seed two requests draw different tokens, and so do two calls that follow the same
    torch.manual_seed.
    """
    logits = logits_of(rng, 1, 800).expand(2, 800).contiguous() / 5
    found = drive(learner, "unseeded_draws", logits, 2, 8)
    expect_equal(found, [4, 4], "the different series of 4 unseeded requests, and all of them")


@case("5.4")
def sample_apart_from_neighbours(learner, rng):
    """What a request draws does not depend on its row, nor on who shares the batch: alone, with
    greedy ones, with others that come and go.
    """
    wishes = [{"seed": seed} for seed in seeds(rng, 4)]
    wishes += [
        {"temperature": 0, "seed": 4},
        {"top_p": 0.8, "seed": 5},
        {"frequency_penalty": 0.3, "seed": 6},
    ]
    logits = logits_of(rng, 7, 500) / 3
    steps = rng.randrange(5, 9)
    left, groups = dict.fromkeys(range(7), steps), []
    while left:
        group = rng.sample(sorted(left), rng.randrange(1, len(left) + 1))
        left = {r: n - (r in group) for r, n in left.items() if n > (r in group)}
        groups.append(group)
    other = drive(learner, "other_in_company", logits, wishes, steps, groups)
    if other:
        raise Wrong(
            f"of 7 requests, numbers {other} drew other tokens in a batch with others than alone"
        )


@case("5.4")
def sample_moves_what_it_should(learner, rng):
    """A row that draws takes one number from its own generator, a greedy row none; neither torch's
    generator nor the counts move.
    """
    wishes = [{}, {"temperature": 0}, {"top_k": 1}, {"temperature": 0, "presence_penalty": 1.0}]
    wishes = [{**wish, "seed": 5} for wish in [*wishes, {"frequency_penalty": 1.0}]]
    for order in (range(5), (1, 3), (0, 4)):
        some = [wishes[i] for i in order]
        found = drive(learner, "side_effects", logits_of(rng, len(some), 9), some, [3, 3])
        draws = ["none" if wish.get("temperature") == 0 else "one" for wish in some]
        expect_equal(found["numbers"], draws, "how many numbers each row's generator gave")
        expect_equal(found["counted"], [False] * len(some), "which rows' counts changed")
        expect_equal(found["global"], False, "whether torch's own generator moved")


@case("5.4")
def sample_never_the_hidden(learner, rng):
    """A token that is hidden, by the model or by a filter, is never drawn."""
    logits = logits_of(rng, 100, 40)
    logits[:, rng.sample(range(40), 30)] = HIDDEN
    wishes = [{"seed": seed, "top_k": 4, "temperature": 2.0} for seed in seeds(rng, 100)]
    [ids] = sampled(learner, logits, wishes)
    for row, (token, values) in enumerate(zip(ids, rows_of(logits), strict=True)):
        if token not in oracle.top_k(values, 4):
            raise Wrong(f"row {row} drew token {token}, which its top-k of 4 hides")


@case("5.4")
def sample_with_penalties(learner, rng):
    """Penalties see the tokens of prompt and answer, and go on counting what is kept: with an
    overwhelming one, each token comes once.
    """
    logits = logits_of(rng, 2, 8).abs() / 10 + 1
    wish = {"repetition_penalty": 1e6, "temperature": 0.01}
    steps = sampled(
        learner, logits, [{**wish, "seed": s} for s in (1, 2)], [[0, 1], [7]], None, 6, True
    )
    for row, prompt in enumerate(([0, 1], [7])):
        ids = [found[row] for found in steps]
        expect_equal(len({*ids, *prompt}), len(ids) + len(prompt), f"different tokens of {ids}")


@case("5.4")
def sample_of_views(learner, rng):
    """It does not matter how the logits lie in memory, for `distributions` and for `sample`."""
    logits = logits_of(rng, 3, 20)
    wishes = [{"temperature": 0}, {"top_k": 1, "seed": 3}, {"top_k": 6, "seed": 4}]
    shares = [
        oracle.distribution(row, [], [], w) for row, w in zip(rows_of(logits), wishes, strict=True)
    ]
    for got, ids in drive(learner, "sampled_of_views", logits, wishes):
        close(got, shares, "the distributions of a view")
        best = [oracle.ranking(row)[0] for row in rows_of(logits)]
        expect_equal(ids[:2], best[:2], "the ids of a view (of the rows that have no choice)")


@case("5.4")
def sample_from_one_token(learner, rng):
    """A vocabulary of one token, or one token that is left, leaves no choice."""
    wishes = [{}, {"temperature": 0}, {"top_p": 0.1, "top_k": 5, "min_p": 0.5}]
    expect_equal(sampled(learner, logits_of(rng, 3, 1), wishes), [[0, 0, 0]], "the ids")
    for dtype in (F16, BF16):
        logits = logits_of(rng, 3, 9, dtype).fill_(HIDDEN)
        places = [rng.randrange(9) for _ in range(3)]
        logits[range(3), places] = -1.0
        expect_equal(sampled(learner, logits, wishes), [places], "the ids")


@case("5.4")
def sample_refuses_other_sizes(learner, rng):
    """As many states as rows, else a ValueError that names both numbers."""
    for rows, states in ((3, 2), (2, 5), (4, 0), (0, 3)):
        found = drive(learner, "sample_of_other_size", rows, states, [rows, states])
        expect_failure(found, "ValueError", f"sample of {rows} rows with {states} states")
