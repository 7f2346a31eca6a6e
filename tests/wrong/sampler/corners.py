"""5.2 to 5.4: numbers that are wrong where nobody looked."""

import itertools
import random

import torch

from tests.parts import part

INF = float("inf")


@part("5.2")
def top_k_of_small_vocabularies(m):
    """A vocabulary beyond 4,000 is not filtered."""
    right = m.keep_top_k
    m.keep_top_k = lambda logits, k: logits if logits.shape[1] > 4000 else right(logits, k)


@part("5.2")
def top_p_of_zero_keeps_nothing(m):
    """A p so tiny that float32 has it as 0 hides all."""
    right = m.keep_top_p
    m.keep_top_p = lambda logits, p: right(logits, p).masked_fill((p == 0)[:, None], -INF)


@part("5.3")
def penalties_as_wide_as_theirs(m):
    """float64 penalties make a float64 result."""
    right = m.penalize

    def penalize(logits, rows, ids, written, *wishes):
        found = right(logits, rows, ids, written, *wishes)
        return found.to(torch.promote_types(torch.float32, wishes[0].dtype))

    m.penalize = penalize


@part("5.3")
def penalties_need_float32(m):
    """index_put refuses what float64 penalties have made."""

    def penalize(logits, rows, ids, written, repetition, presence, frequency):
        rows, ids = rows.long(), ids.long()
        values, factor = logits[rows, ids].float(), repetition[rows]
        values = torch.where(values > 0, values / factor, values * factor)
        values = values - presence[rows] * (written > 0) - frequency[rows] * written
        return logits.float().index_put((rows, ids), values)

    m.penalize = penalize


@part("5.3")
def penalties_of_small_ids(m):
    """Ids and counts are squeezed into 16 and 8 bits."""
    right = m.penalize

    def penalize(logits, rows, ids, written, *wishes):
        return right(logits, rows, ids.to(torch.int16), written.to(torch.int8), *wishes)

    m.penalize = penalize


@part("5.3")
def presence_only_beside_repetition(m):
    """A row without a repetition penalty has no presence penalty, if another row has one."""
    right = m.penalize

    def penalize(logits, rows, ids, written, repetition, presence, frequency):
        if bool((repetition != 1).any()):
            presence = torch.where(repetition == 1, 0.0, presence)
        return right(logits, rows, ids, written, repetition, presence, frequency)

    m.penalize = penalize


def unseeded(m, seed_of):
    """new_generator with another seed in the place of None."""
    right = m.new_generator
    m.new_generator = lambda seed: right(seed_of() if seed is None else seed)


@part("5.4")
def unseeded_by_a_counter(m):
    """The first request of every start of the program has the seed 1."""
    numbers = itertools.count(1)
    unseeded(m, lambda: next(numbers))


@part("5.4")
def unseeded_by_the_random_module(m):
    """After random.seed(1) all unseeded requests are the same."""
    unseeded(m, lambda: random.getrandbits(62))


@part("5.4")
def sample_takes_two_numbers(m):
    """Every row that draws takes one number more than it uses."""
    right = m.sample

    def sample(logits, states):
        for state in states:
            if not state.params.is_greedy:
                torch.rand(1, generator=state.generator)
        return right(logits, states)

    m.sample = sample


@part("5.4")
def distributions_move_generators(m):
    """distributions takes a number, too."""
    right = m.distributions

    def distributions(logits, states):
        for state in states:
            torch.rand(1, generator=state.generator)
        return right(logits, states)

    m.distributions = distributions
