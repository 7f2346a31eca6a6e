"""Chapter 05's generators and states, driven beside the code under test.

Every function takes the module under test first and returns plain data. An exception that a case
does not expect is let through: it then names the line that raised it. `wishes` are the fields of
SamplingParams, one dict a row.

Where draws are compared with each other, only how they compare is returned: then two programs that
make the same mistake return the same, though they draw other tokens.
"""

import random

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.scenarios.helpers import Unusable, attempt, call_unchanged, in_words, told


@told
def on_views(module, name: str, logits, *args):
    """A function on logits that lie apart in memory, in two ways; [one, other]."""
    rows, vocabulary = logits.shape
    wide = torch.full((rows + 1, 2 * vocabulary), 1e4, dtype=logits.dtype)
    wide[1:, ::2] = logits
    turned = logits.T.contiguous().T
    function = getattr(module, name)
    return [
        call_unchanged(name, lambda logits: function(logits, *args), logits=view)
        for view in (wide[1:, ::2], turned)
    ]


# --- 5.4 ---


def _states(module, wishes: list, prompts=None, outputs=None) -> list:
    """A SamplingState for each row, after the tokens of its output.

    Rows without a seed get one, so that a run can be repeated; for those that must not, there is
    `unseeded_draws`.
    """
    states = []
    for row, wish in enumerate(wishes):
        params = module.SamplingParams(**{"seed": row, **wish})
        states.append(module.SamplingState(params, prompts[row] if prompts else ()))
        for token in outputs[row] if outputs else ():
            states[-1].add(token)
    return states


def _numbers(generator, count: int) -> list[float]:
    if not isinstance(generator, torch.Generator):
        raise Unusable(f"new_generator should return a torch.Generator, not {in_words(generator)}")
    return torch.rand(count, dtype=torch.float64, generator=generator).tolist()


@told
def generators(module, seeds: list, count: int) -> dict:
    """Numbers of a generator of each seed, all made before the first is used; whether torch's own
    generator moved; and the numbers that it gives afterwards."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    made = [module.new_generator(seed) for seed in seeds]
    numbers = [_numbers(generator, count) for generator in made]
    moved = not torch.equal(before, torch.get_rng_state())
    return {"numbers": numbers, "moved": moved, "device": [str(g.device) for g in made]}


@told
def unseeded_generators(module, count: int) -> dict:
    """So many unseeded generators, each made after the same seeds of torch, numpy and random: how
    many different series they give, whether torch.Generator() begins like one of them, and whether
    their seeds are all small, as from a counter. (The numbers would be others in every run.)"""
    made = []
    for _ in range(count):
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        made.append(module.new_generator(None))
    series = {tuple(_numbers(generator, 3)) for generator in made}
    return {
        "series": len(series),
        "usual": tuple(_numbers(torch.Generator(), 3)) in series,
        "counted": all(abs(generator.initial_seed()) < 10_000 for generator in made),
    }


@told
def distributions(module, logits, wishes: list, prompts: list, outputs: list):
    """distributions(logits, states)."""
    states = _states(module, wishes, prompts, outputs)
    return call_unchanged(
        "distributions", lambda logits: module.distributions(logits, states), logits=logits
    )


def _ids(found, rows: int) -> list[int]:
    """What sample returned, if it is int64 [B]."""
    right = isinstance(found, torch.Tensor) and found.dtype == torch.int64
    if not right or list(found.shape) != [rows]:
        raise Unusable(f"sample should return int64 [{rows}], but returned {in_words(found)}")
    return found.tolist()


@told
def sampled(module, logits, wishes: list, prompts: list, outputs: list, steps: int, kept: bool):
    """[the ids of each step] of sample on the same logits; kept tokens are added to the states."""
    torch.manual_seed(7)
    states, found = _states(module, wishes, prompts, outputs), []
    for _ in range(steps):
        ids = call_unchanged("sample", lambda logits: module.sample(logits, states), logits=logits)
        found.append(_ids(ids, len(logits)))
        if kept:
            for state, token in zip(states, found[-1], strict=True):
                state.add(token)
    return found


@told
def unseeded_draws(module, logits, runs: int, steps: int) -> list[int]:
    """How many of the unseeded requests of so many runs draw different tokens, [same, all]; each
    run has a request a row and follows the same torch.manual_seed."""
    series = []
    for _ in range(runs):
        torch.manual_seed(7)
        states = _states(module, [{"seed": None}] * len(logits))
        ids = [_ids(module.sample(logits, states), len(logits)) for _ in range(steps)]
        series += zip(*ids, strict=True)
    return [len(set(series)), len(series)]


@told
def sampled_of_views(module, logits, wishes: list) -> list:
    """[distributions, ids] of sample for logits that lie apart in memory, in two ways."""
    wide = torch.full((2 * len(logits), logits.shape[1] + 3), 1e4, dtype=logits.dtype)
    wide[::2, 3:] = logits
    found = []
    for view in (wide[::2, 3:], logits.T.contiguous().T):
        shares = call_unchanged(
            "distributions",
            lambda logits: module.distributions(logits, _states(module, wishes)),
            logits=view,
        )
        found.append([shares, _ids(module.sample(view, _states(module, wishes)), len(view))])
    return found


@told
def seeded_draws(module, logits, seeds: list, steps: int) -> dict:
    """Three requests, the third with the seed of the first: which of the others draw what the first
    does, and how many different tokens the first draws (more than 4 count as 4)."""
    torch.manual_seed(7)
    states = _states(module, [{"seed": seed} for seed in [*seeds, seeds[0]]])
    ids = [_ids(module.sample(logits, states), len(logits)) for _ in range(steps)]
    first, second, third = zip(*ids, strict=True)
    return {
        "same seed": third == first,
        "other seed": second == first,
        "tokens": min(len(set(first)), 4),
    }


@told
def other_in_company(module, logits, wishes: list, steps: int, groups: list) -> list[int]:
    """The requests that draw otherwise in company than alone.

    A group is a list of request numbers, in the order of their rows: each is one call of sample.
    """
    alone = [[request] for request in range(len(wishes)) for _ in range(steps)]
    pairs = zip(
        _in_groups(module, logits, wishes, alone),
        _in_groups(module, logits, wishes, groups),
        strict=True,
    )
    return [request for request, (one, other) in enumerate(pairs) if one != other]


def _in_groups(module, logits, wishes: list, groups: list) -> list[list[int]]:
    """The ids of each request, when each step samples one of the groups."""
    states, found = _states(module, wishes), [[] for _ in wishes]
    for group in groups:
        ids = module.sample(logits[group], [states[request] for request in group])
        for request, token in zip(group, _ids(ids, len(group)), strict=True):
            found[request].append(token)
    return found


class _Sorts(TorchDispatchMode):
    """Counts the numbers that torch puts in order, by sort and by topk."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ in ("sort", "argsort", "msort", "topk", "kthvalue"):
            ordered = found[0] if isinstance(found, tuple) else found
            self.numbers += ordered.numel()
        return found


@told
def numbers_sorted(module, logits, wishes: list) -> int:
    """How many numbers distributions puts in order."""
    states = _states(module, wishes)
    with _Sorts() as counted:
        module.distributions(logits, states)
    return counted.numbers


@told
def side_effects(module, logits, wishes: list, output: list) -> dict:
    """What one call of sample did to the states: how many numbers each generator gave, which counts
    changed; and whether it moved torch's own generator."""
    prompts, outputs = [[1, 2]] * len(wishes), [output] * len(wishes)
    states = _states(module, wishes, prompts, outputs)
    before = [state.generator.get_state() for state in states]
    counts = [_counted(state) for state in states]
    everyone = torch.get_rng_state()
    module.sample(logits, states)
    pairs = zip(before, states, strict=True)
    return {
        "numbers": [_given(old, state.generator.get_state()) for old, state in pairs],
        "counted": [old != _counted(state) for old, state in zip(counts, states, strict=True)],
        "global": not torch.equal(everyone, torch.get_rng_state()),
    }


def _given(before, after) -> str:
    """How many numbers a generator gave between two of its states: "none", "one" or "more"."""
    if torch.equal(before, after):
        return "none"
    for kind in (torch.float64, torch.float32):
        generator = torch.Generator()
        generator.set_state(before)
        torch.rand((), dtype=kind, generator=generator)
        if torch.equal(generator.get_state(), after):
            return "one"
    return "more"


def _counted(state) -> list:
    return (
        [] if state.counts is None else [state.counts.ids.tolist(), state.counts.written.tolist()]
    )


def sample_of_other_size(module, rows: int, states: int, names: list) -> dict:
    """sample with more or fewer states than rows."""
    made = _states(module, [{"seed": 1}] * states)
    return attempt(lambda: module.sample(torch.zeros(rows, 6), made), names)
