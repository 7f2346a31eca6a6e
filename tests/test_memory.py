"""tests/scenarios/memory.py: bytes counted where it is known how many there are."""

import numpy as np
import torch

from tests.scenarios.memory import peak_of

MB = 1_000_000


def about(got: int, expected: int) -> bool:
    return abs(got - expected) < MB // 10


def test_what_is_returned_counts():
    value, peak = peak_of(lambda: torch.zeros(MB))
    assert value.nbytes == 4 * MB
    assert peak.torch == 4 * MB
    assert about(peak.python, 0)


def test_two_at_once_or_one_after_the_other():
    def one_after_the_other():
        for _ in range(5):
            torch.zeros(MB)

    assert peak_of(one_after_the_other)[1].torch == 4 * MB
    assert peak_of(lambda: (torch.zeros(MB), torch.zeros(MB)))[1].torch == 8 * MB
    assert peak_of(lambda: torch.zeros(MB).double())[1].torch == 12 * MB


def test_numpy_and_bytes():
    assert about(peak_of(lambda: np.zeros(MB, np.float32))[1].python, 4 * MB)
    assert about(peak_of(lambda: bytes(3 * MB))[1].python, 3 * MB)
    assert about(peak_of(lambda: torch.from_numpy(np.zeros(MB, np.int8)))[1].total, MB)


def test_what_was_there_before_does_not_count():
    kept = torch.zeros(MB)
    assert peak_of(lambda: kept.view(10, -1))[1].torch == 0


def test_an_exception_is_let_through_and_the_next_call_counts_again():
    for _ in range(2):
        try:
            peak_of(lambda: torch.zeros(MB) @ torch.zeros(3))
        except RuntimeError:
            continue
        raise AssertionError("nothing raised")
    assert peak_of(lambda: torch.ones(MB))[1].torch == 4 * MB
