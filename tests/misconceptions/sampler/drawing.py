"""Wrong versions of 5.4 new_generator, distributions, pick and sample."""

import torch

from course.misconceptions import misconception
from solutions.sampling import (
    apply_temperature,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalize,
    seen_tokens,
    softmax,
)


@misconception("5.4", "new_generator")
def generator_with_the_usual_seed(seed):
    """Without a seed you return a new torch.Generator() as it is. It begins with the same seed
    every time, so that all unseeded requests write the same: call its seed().
    """
    generator = torch.Generator()
    if seed is not None:
        generator.manual_seed(seed)
    return generator


@misconception("5.4", "new_generator")
def generator_seeded_from_the_global_one(seed):
    """Without a seed you draw one from torch's own generator. That moves it, and after the same
    torch.manual_seed all requests are the same again: ask the operating system, with seed().
    """
    if seed is None:
        seed = int(torch.randint(2**31, ()))
    return torch.Generator().manual_seed(seed)


@misconception("5.4", "new_generator")
def generator_for_all(seed):
    """You return torch's own generator for every request. Each request then moves the draws of all
    others: make a new one for each.
    """
    if seed is not None:
        torch.default_generator.manual_seed(seed)
    return torch.default_generator


def column(states, name):
    """[B] float32: one parameter of every row."""
    return torch.tensor([getattr(state.params, name) for state in states], dtype=torch.float32)


def whole(states, name):
    """[B] int64: one parameter of every row."""
    return torch.tensor([getattr(state.params, name) for state in states])


def penalized(logits, states):
    """The logits after the penalties of every row."""
    names = "repetition_penalty", "presence_penalty", "frequency_penalty"
    columns = [column(states, name) for name in names]
    return penalize(logits, *seen_tokens([state.counts for state in states]), *columns)


@misconception("5.4", "distributions")
def temperature_after_the_filters(logits, states):
    """You apply the temperature after the filters. Top-p and min-p have to see the probabilities
    that the temperature has made: temperature first.
    """
    from tests.misconceptions.sampler import drawing as own

    kept = own.penalized(logits, states)
    kept = keep_top_k(kept, own.whole(states, "top_k"))
    kept = keep_top_p(kept, own.column(states, "top_p"))
    kept = keep_min_p(kept, own.column(states, "min_p"))
    return softmax(apply_temperature(kept, own.column(states, "temperature")))


@misconception("5.4", "distributions")
def top_p_before_top_k(logits, states):
    """You apply top-p before top-k. Top-k comes first, and top-p looks at what it left, shared out
    anew.
    """
    from tests.misconceptions.sampler import drawing as own

    kept = apply_temperature(own.penalized(logits, states), own.column(states, "temperature"))
    kept = keep_top_p(kept, own.column(states, "top_p"))
    kept = keep_top_k(kept, own.whole(states, "top_k"))
    return softmax(keep_min_p(kept, own.column(states, "min_p")))


@misconception("5.4", "distributions")
def no_penalties(logits, states):
    """Your distributions know no penalties. They come first: seen_tokens gives penalize the rows,
    ids and counts from the states.
    """
    from tests.misconceptions.sampler import drawing as own

    kept = apply_temperature(logits, own.column(states, "temperature"))
    kept = keep_top_k(kept, own.whole(states, "top_k"))
    kept = keep_top_p(kept, own.column(states, "top_p"))
    return softmax(keep_min_p(kept, own.column(states, "min_p")))


@misconception("5.4", "distributions")
def params_of_the_first_row(logits, states):
    """You use the params of the first request for the whole batch. Every row has its own: make one
    tensor of each parameter, with a value a row.
    """
    from tests.misconceptions.sampler import drawing as own

    kept = own.penalized(logits, states)
    states = [states[0]] * len(states)
    kept = apply_temperature(kept, own.column(states, "temperature"))
    kept = keep_top_k(kept, own.whole(states, "top_k"))
    kept = keep_top_p(kept, own.column(states, "top_p"))
    return softmax(keep_min_p(kept, own.column(states, "min_p")))


@misconception("5.4", "distributions")
def logits_instead_of_probabilities(logits, states):
    """You return logits. A distribution is what softmax makes of them: 0 or more, a sum of 1."""
    from tests.misconceptions.sampler import drawing as own

    kept = apply_temperature(own.penalized(logits, states), own.column(states, "temperature"))
    kept = keep_top_k(kept, own.whole(states, "top_k"))
    kept = keep_top_p(kept, own.column(states, "top_p"))
    return keep_min_p(kept, own.column(states, "min_p"))


@misconception("5.4", "pick")
def pick_the_end_before(probabilities, uniform):
    """A number that equals a sum picks the token before it in your code, so that 0 picks token 0
    even where its probability is 0. The beginning of a stretch belongs to it: searchsorted with
    right=True.
    """
    ends = probabilities.double().cumsum(-1)
    return torch.searchsorted(ends, uniform.double()[:, None] * ends[:, -1:])[:, 0]


@misconception("5.4", "pick")
def pick_past_the_end(probabilities, uniform):
    """You compare the number with the sums as they are. Rounding may leave the last sum below the
    number, and then you pick a token that does not exist, or cannot come: scale the number by the
    sum.
    """
    ends = probabilities.double().cumsum(-1)
    return torch.searchsorted(ends, uniform.double()[:, None], right=True)[:, 0]


@misconception("5.4", "pick")
def pick_the_last_of_all(probabilities, uniform):
    """Where the number is beyond the last sum, you pick the last token of the vocabulary. Its
    probability may be 0; and the number should count as a share of the sum.
    """
    ends = probabilities.double().cumsum(-1)
    found = torch.searchsorted(ends, uniform.double()[:, None], right=True)[:, 0]
    return found.clamp(max=probabilities.shape[-1] - 1)


@misconception("5.4", "pick")
def pick_by_nearness(probabilities, uniform):
    """You pick the token whose sum is nearest to the number. A number belongs to the stretch in
    which it lies: the first token whose sum is above it.
    """
    ends = probabilities.double().cumsum(-1)
    return (ends - uniform.double()[:, None]).abs().argmin(-1)


@misconception("5.4", "pick")
def pick_the_most_probable(probabilities, uniform):
    """You pick the most probable token whatever the number is. That is greedy: then no parameter
    but the penalties would matter.
    """
    return probabilities.argmax(-1)


@misconception("5.4", "sample")
def sampled_by_torch(logits, states):
    """You draw with torch's own generator. Then a seed has no effect, and a request's tokens depend
    on who shares the batch: take one number from each state's generator.
    """
    if len(states) != len(logits):
        raise ValueError(f"{len(logits)} rows, {len(states)} states")
    return torch.multinomial(distributions(logits, states), 1)[:, 0]  # noqa: F821


@misconception("5.4", "sample")
def one_number_for_all_rows(logits, states):
    """You take one random number, from the first request's generator, for all rows. Each row needs
    a number of its own, from its own generator.
    """
    if len(states) != len(logits):
        raise ValueError(f"{len(logits)} rows, {len(states)} states")
    number = torch.rand(1, dtype=torch.float64, generator=states[0].generator)
    return pick(distributions(logits, states), number.expand(len(states)))  # noqa: F821


@misconception("5.4", "sample")
def generator_of_the_first_row(logits, states):
    """You draw the numbers of all rows from the first request's generator. What a request draws
    then depends on who stands in the first row: take one number from each state's own.
    """
    if len(states) != len(logits):
        raise ValueError(f"{len(logits)} rows, {len(states)} states")
    numbers = torch.rand(len(states), dtype=torch.float64, generator=states[0].generator)
    return pick(distributions(logits, states), numbers)  # noqa: F821


@misconception("5.4", "sample")
def greedy_rows_draw_too(logits, states):
    """Your greedy rows take a random number, too. It changes nothing now, but a request that is
    greedy needs none: draw for the other rows only.
    """
    if len(states) != len(logits):
        raise ValueError(f"{len(logits)} rows, {len(states)} states")
    numbers = [torch.rand((), dtype=torch.float64, generator=s.generator) for s in states]
    return pick(distributions(logits, states), torch.stack(numbers))  # noqa: F821


@misconception("5.4", "sample")
def greedy_without_penalties(logits, states):
    """Your greedy rows take the argmax of the model's own logits. Penalties count at temperature 0,
    too: argmax of the penalized logits.
    """
    if len(states) != len(logits):
        raise ValueError(f"{len(logits)} rows, {len(states)} states")
    ids = logits.argmax(-1)
    rows = [row for row, state in enumerate(states) if not state.params.is_greedy]
    if rows:
        some = [states[row] for row in rows]
        numbers = [torch.rand((), dtype=torch.float64, generator=s.generator) for s in some]
        ids[rows] = pick(distributions(logits[rows], some), torch.stack(numbers))  # noqa: F821
    return ids


@misconception("5.4", "sample")
def states_not_counted(logits, states):
    """You do not compare the number of states with the number of rows. A batcher that has lost a
    request would give its tokens to another: a ValueError that names both.
    """
    ids = logits.argmax(-1)
    drawn = zip(range(len(logits)), states, strict=False)
    for row, state in drawn:
        shares = distributions(logits[row : row + 1], [state])  # noqa: F821
        if state.params.is_greedy:
            ids[row] = shares[0].argmax()
        else:
            number = torch.rand(1, dtype=torch.float64, generator=state.generator)
            ids[row] = pick(shares, number)[0]  # noqa: F821
    return ids


@misconception("5.4", "sample")
def sample_adds_the_token(logits, states):
    """You add the sampled token to the states. Who keeps the token does that (a token may be thrown
    away): in your code it counts twice.
    """
    if len(states) != len(logits):
        raise ValueError(f"{len(logits)} rows, {len(states)} states")
    rows = [row for row, state in enumerate(states) if not state.params.is_greedy]
    ids = distributions(logits, states).argmax(-1)  # noqa: F821
    if rows:
        some = [states[row] for row in rows]
        numbers = [torch.rand((), dtype=torch.float64, generator=s.generator) for s in some]
        ids[rows] = pick(distributions(logits[rows], some), torch.stack(numbers))  # noqa: F821
    for state, token in zip(states, ids.tolist(), strict=True):
        state.add(token)
    return ids
