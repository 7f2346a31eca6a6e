"""The sampler as the batcher uses it: what a row costs, what stays with a request."""

import random

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from solutions import sampler
from solutions.sampler import SamplingState, log_probabilities, report, sample
from solutions.sampling import TokenCounts, seen_tokens, sort_marked
from solutions.sampling_params import SamplingParams


class Sorted(TorchDispatchMode):
    """Counts the numbers that are sorted, and the rows that topk looks at."""

    def __init__(self):
        super().__init__()
        self.numbers = self.rows = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name == "sort":
            self.numbers += args[0].numel()
        if name == "topk":
            self.rows += len(args[0])
        return function(*args, **(kwargs or {}))


def states(*wishes: dict) -> list[SamplingState]:
    return [SamplingState(SamplingParams(**wish), [1, 2]) for wish in wishes]


def logits(rows: int, vocabulary: int = 49152) -> torch.Tensor:
    return 3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(rows))


def test_rows_without_a_filter_do_not_pay_for_a_sort():
    with Sorted() as counted:
        sample(logits(4), states({}, {"temperature": 0}, {"min_p": 0.1}, {"presence_penalty": 1.0}))
    assert (counted.numbers, counted.rows) == (0, 0)


def test_only_the_rows_that_ask_pay_and_top_p_sorts_only_what_matters():
    with Sorted() as counted:
        sample(logits(4), states({}, {"top_k": 40}, {"top_p": 0.9}, {"temperature": 0}))
    assert counted.rows == 1
    assert 0 < counted.numbers < 49152 / 2
    with Sorted() as counted:
        sample(logits(2), states({"temperature": 0, "top_p": 0.5, "top_k": 3}, {}))
    assert (counted.numbers, counted.rows) == (0, 0)


def test_sort_marked_is_a_stable_sort_of_what_is_marked():
    rng = random.Random(3)
    for _ in range(200):
        rows, vocabulary = rng.randrange(1, 5), rng.randrange(1, 9)
        values = torch.tensor([[float(rng.randrange(4)) for _ in range(vocabulary)]] * rows)
        marked = torch.rand(rows, vocabulary, generator=torch.Generator().manual_seed(_)) < 0.5
        marked[:, rng.randrange(vocabulary)] = True
        ordered, ids = sort_marked(values, marked)
        for row in range(rows):
            chosen = [i for i in range(vocabulary) if marked[row, i]]
            chosen.sort(key=lambda i, row=row: (-float(values[row, i]), i))
            width = int(marked.sum(-1).max())
            assert ids[row].tolist() == chosen + [vocabulary] * (width - len(chosen))
            assert ordered[row, : len(chosen)].tolist() == [float(values[row, i]) for i in chosen]


def test_an_empty_batch_is_an_empty_answer():
    ids = sample(torch.zeros(0, 50), [])
    assert ids.tolist() == []
    assert ids.dtype == torch.int64
    assert report(torch.zeros(0, 50), ids, []) == []


def test_counts_follow_any_history():
    rng = random.Random(1)
    for length in (0, 1, 63, 64, 65, 500):
        prompt = [rng.randrange(80) for _ in range(length)]
        counts, output = TokenCounts(prompt), []
        for _ in range(300):
            output.append(rng.randrange(200))
            counts.add(output[-1])
        found = dict(zip(counts.ids.tolist(), counts.written.tolist(), strict=True))
        assert found == {t: output.count(t) for t in {*prompt, *output}}


def test_counts_of_several_rows_are_put_together():
    one, two = TokenCounts([5, 5, 6]), TokenCounts([])
    one.add(7)
    one.add(5)
    two.add(9)
    rows, ids, written = seen_tokens([None, one, None, two])
    assert rows.tolist() == [1, 1, 1, 3]
    assert ids.tolist() == [5, 6, 7, 9]
    assert written.tolist() == [1, 0, 1, 1]
    for empty in ([], [None, None], [TokenCounts([])]):
        assert [part.tolist() for part in seen_tokens(empty)] == [[], [], []]


def test_a_token_costs_the_same_after_a_thousand():
    """Room doubles: the table is copied a few times, not at every token."""
    counts, tables = TokenCounts([]), set()
    for token in range(5000):
        counts.add(token)
        tables.add(counts.ids.data_ptr())
    assert len(tables) <= 8


def test_a_state_without_penalties_keeps_no_history():
    state = SamplingState(SamplingParams(), range(10_000))
    state.add(5)
    assert state.counts is None


def test_a_request_goes_on_after_preemption_as_if_nothing_had_happened():
    """Its state stays with it: other rows, other company, other tensors."""
    wish = {"seed": 4, "top_p": 0.9, "frequency_penalty": 0.5}
    table = logits(12, 300)
    undisturbed, preempted = states(wish, wish)
    expected = []
    for step in range(10):
        expected.append(int(sample(table[step : step + 1], [undisturbed])))
        undisturbed.add(expected[-1])
    found = []
    for step in range(10):
        company = states({}, {"temperature": 0}, {"top_k": 3})[: step % 4]
        rows = torch.cat((table[: len(company)], table[step : step + 1]))
        found.append(int(sample(rows, [*company, preempted])[-1]))
        preempted.add(found[-1])
    assert found == expected


def test_report_gives_each_row_what_it_asked_for():
    rows = states({"logprobs": 2}, {}, {"logprobs": 0}, {"logprobs": 20})
    table = logits(4, 30)
    ids = torch.tensor([3, 4, 5, 6])
    found = report(table, ids, rows)
    values, names, tops = log_probabilities(table, ids, 20)
    assert found[1] is None
    assert [len(one.top) for one in found if one] == [2, 0, 20]
    for row, one in enumerate(found):
        if one is not None:
            assert one.token == int(ids[row])
            assert one.value == pytest.approx(float(values[row]))
            count = len(one.top)
            assert list(one.top) == names[row, :count].tolist()
            assert list(one.top.values()) == pytest.approx(tops[row, :count].tolist())


def test_extreme_penalties_stay_finite():
    """The ends of the ranges, on logits of any size: a token is drawn, nothing is NaN."""
    table = torch.tensor([[1e30, -1e30, 50.0, -50.0, 0.0, 1.0]])
    for factor in (1e-6, 1e6):
        wish = {"repetition_penalty": factor, "presence_penalty": 2, "frequency_penalty": -2}
        for temperature in (0, 1e-30, 2.0):
            [state] = states({**wish, "temperature": temperature})
            for _ in range(20):
                token = int(sample(table, [state]))
                assert 0 <= token < 6
                state.add(token)


def test_nobody_is_penalized_twice(monkeypatch):
    """Greedy rows and rows that draw, in one batch: each row's penalties are computed once."""
    counted = []

    def penalize(logits, rows, ids, *args):
        counted.append(len(ids))
        return right(logits, rows, ids, *args)

    right = sampler.penalize
    monkeypatch.setattr(sampler, "penalize", penalize)
    wish = {"presence_penalty": 1.0}
    sample(logits(4, 9), states(wish, wish | {"temperature": 0}, wish, {"temperature": 0}))
    assert sum(counted) == 3 * 2  # two tokens have been there, in each of the three
