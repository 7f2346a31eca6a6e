"""5.4: draws that are nearly right."""

import dataclasses

import torch

from tests.parts import part

INF = float("inf")


def changed(state, **values):
    """A state with other params, and the same generator and counts."""
    other = object.__new__(type(state))
    vars(other).update(vars(state))
    other.params = dataclasses.replace(state.params, **values)
    return other


def through(m, change):
    """distributions of states that have been changed."""
    right = m.distributions
    m.distributions = lambda logits, states: right(logits, [change(s) for s in states])


@part("5.4")
def min_p_left_out(m):
    """min-p is not used."""
    through(m, lambda state: changed(state, min_p=0.0))


@part("5.4")
def top_k_left_out_below_temperature_one(m):
    """Cold rows have no top-k."""
    through(m, lambda s: changed(s, top_k=0) if 0 < s.params.temperature < 1 else s)


@part("5.4")
def min_p_before_top_p(m):
    """min-p works before the others."""
    right = m.distributions

    def distributions(logits, states):
        heat = torch.tensor([s.params.temperature for s in states])
        p = torch.tensor([s.params.min_p for s in states])
        kept = m.keep_min_p(m.apply_temperature(logits, heat), p)
        logits = logits.float().masked_fill(kept == -INF, -INF)
        return right(logits, [changed(s, min_p=0.0) for s in states])

    m.distributions = distributions


@part("5.4")
def penalties_for_rows_that_have_none(m):
    """A row without penalties moves those behind it: rows are counted among the penalized."""
    right = m.seen_tokens

    def seen_tokens(counts):
        rows, ids, written = right([c for c in counts if c is not None])
        return rows, ids, written

    m.seen_tokens = seen_tokens


@part("5.4")
def greedy_is_nearly_one(m):
    """A greedy row leaves a little to the others."""
    right = m.distributions

    def distributions(logits, states):
        shares = right(logits, states)
        cold = torch.tensor([s.params.is_greedy for s in states])[:, None]
        return torch.where(cold, 0.999 * shares + 0.001 / shares.shape[-1], shares)

    m.distributions = distributions


@part("5.4")
def distributions_in_the_dtype_of_the_logits(m):
    """16 bits come back as 16 bits."""
    right = m.distributions
    m.distributions = lambda logits, states: right(logits, states).to(logits.dtype)


@part("5.4")
def filters_before_penalties(m):
    """The penalties see what the filters left."""
    right = m.distributions

    def distributions(logits, states):
        plain = [
            changed(s, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)
            for s in states
        ]
        for state in plain:
            state.counts = None
        left = right(
            logits, [changed(s, temperature=max(s.params.temperature, 1e-3)) for s in plain]
        )
        return right(logits.float().masked_fill(left == 0, -INF), states)

    m.distributions = distributions


@part("5.4")
def pick_in_a_float16_ladder(m):
    """The sums are rounded to 16 bits."""

    def pick(probabilities, uniform):
        ends = probabilities.cumsum(-1).half().double()
        goal = uniform.double()[:, None] * ends[:, -1:]
        found = torch.searchsorted(ends, goal, right=True)
        return torch.minimum(found, torch.searchsorted(ends, ends[:, -1:].contiguous()))[:, 0]

    m.pick = pick


@part("5.4")
def pick_int32(m):
    """int32 ids."""
    right = m.pick
    m.pick = lambda probabilities, uniform: right(probabilities, uniform).int()


@part("5.4")
def pick_by_rank(m):
    """The ladder goes from the most probable down."""
    right = m.pick

    def pick(probabilities, uniform):
        ordered, ids = probabilities.sort(dim=-1, descending=True, stable=True)
        return ids.gather(-1, right(ordered, uniform)[:, None])[:, 0]

    m.pick = pick


@part("5.4")
def pick_from_the_top(m):
    """One less the number."""
    right = m.pick
    m.pick = lambda probabilities, uniform: right(
        probabilities, (1 - uniform).clamp(max=1 - 2**-53)
    )


@part("5.4")
def pick_unscaled_but_safe(m):
    """The number is no share of the sum, but the last possible token is the limit."""

    def pick(probabilities, uniform):
        ends = probabilities.double().cumsum(-1)
        found = torch.searchsorted(ends, uniform.double()[:, None], right=True)
        return torch.minimum(found, torch.searchsorted(ends, ends[:, -1:].contiguous()))[:, 0]

    m.pick = pick


@part("5.4")
def pick_with_the_numbers_of_row_zero(m):
    """All rows use the first number."""
    right = m.pick
    m.pick = lambda probabilities, uniform: right(probabilities, uniform[:1].expand(len(uniform)))


@part("5.4")
def seeds_without_a_sign(m):
    """A negative seed is its absolute value."""
    right = m.new_generator
    m.new_generator = lambda seed: right(seed if seed is None else abs(seed) % 2**63)


@part("5.4")
def seed_zero_is_none(m):
    """Seed 0 counts as no seed."""
    right = m.new_generator
    m.new_generator = lambda seed: right(seed or None)


@part("5.4")
def seeds_of_a_byte(m):
    """Only the lowest 8 bits count."""
    right = m.new_generator
    m.new_generator = lambda seed: right(seed if seed is None else seed & 255)


@part("5.4")
def unseeded_from_the_clock(m):
    """Without a seed, the second of the clock."""
    import time

    right = m.new_generator
    m.new_generator = lambda seed: right(int(time.time()) if seed is None else seed)


@part("5.4")
def generators_kept_by_seed(m):
    """Two requests with the same seed share one generator."""
    right, made = m.new_generator, {}

    def new_generator(seed):
        return right(None) if seed is None else made.setdefault(seed, right(seed))

    m.new_generator = new_generator


@part("5.4")
def sample_seeds_again(m):
    """Each call seeds the generator anew: a request draws the same number for ever."""
    right = m.sample

    def sample(logits, states):
        for state in states:
            if state.params.seed is not None:
                state.generator.manual_seed(state.params.seed)
        return right(logits, states)

    m.sample = sample


@part("5.4")
def sample_two_numbers(m):
    """A number is thrown away for each row in the batch."""
    right = m.sample

    def sample(logits, states):
        for state in states:
            if not state.params.is_greedy:
                torch.rand(len(states), generator=state.generator)
        return right(logits, states)

    m.sample = sample


@part("5.4")
def sample_numbers_in_order_of_rows(m):
    """The numbers go to the rows in the order of the seeds."""
    right = m.pick

    def pick(probabilities, uniform):
        return right(probabilities, uniform.sort().values)

    m.pick = pick


@part("5.4")
def sample_greedy_below_a_tenth(m):
    """Temperatures under 0.7 count as greedy."""
    right = m.sample

    def sample(logits, states):
        cold = [changed(s, temperature=0.0) if s.params.temperature < 0.7 else s for s in states]
        return right(logits, cold)

    m.sample = sample


@part("5.4")
def sample_of_equals_at_random(m):
    """A greedy row takes the highest of equals."""
    right = m.sample

    def sample(logits, states):
        ids = right(logits, states)
        other = logits.shape[-1] - 1 - logits.flip(-1).argmax(-1)
        plain = torch.tensor(
            [s.params.is_greedy and s.counts is None for s in states], dtype=torch.bool
        )
        return torch.where(plain, other, ids) if len(states) == len(logits) else ids

    m.sample = sample


@part("5.4")
def sample_a_list(m):
    """A list of ints."""
    right = m.sample
    m.sample = lambda logits, states: right(logits, states).tolist()


@part("5.4")
def sample_says_one_number(m):
    """The message names only the rows."""
    right = m.sample

    def sample(logits, states):
        if len(logits) != len(states):
            raise ValueError(f"{len(logits)} rows")
        return right(logits, states)

    m.sample = sample


@part("5.4")
def sample_changes_the_logits(m):
    """Filtered logits are written back."""
    right = m.sample

    def sample(logits, states):
        ids = right(logits, states)
        if any(s.params.top_k > 0 for s in states):
            logits[:, -1] = -INF
        return ids

    m.sample = sample


@part("5.4")
def sample_mixes_drawn_rows(m):
    """With greedy rows in the batch, the drawn tokens come in the wrong order."""
    right = m.sample

    def sample(logits, states):
        ids = right(logits, states)
        drawn = [row for row, s in enumerate(states) if not s.params.is_greedy]
        if len(drawn) not in (0, len(states)):
            ids[drawn] = ids[drawn].flip(0)
        return ids

    m.sample = sample
