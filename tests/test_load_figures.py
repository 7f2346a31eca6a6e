"""From what happened to the figures: percentiles against numpy, the rest by hand."""

import random

import numpy as np
import pytest

from course.load_figures import (
    ANSWERED,
    FIGURES,
    REJECTED,
    Outcome,
    distrust,
    errors_by_kind,
    figures,
    percentile,
    throughput,
)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100, 1001])
@pytest.mark.parametrize("percent", [0, 1, 50, 90, 95, 99, 99.9, 100])
def test_percentiles_are_those_of_numpy(count, percent):
    rng = random.Random(count)
    values = [rng.lognormvariate(0, 2) for _ in range(count)]
    kept = list(values)
    assert percentile(values, percent) == pytest.approx(np.percentile(values, percent), rel=1e-12)
    assert values == kept


def test_a_percentile_of_nothing_is_none():
    assert percentile([], 95) is None


def test_by_hand():
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([10.0, 20.0], 95) == 19.5


def answered(sent: float, *pieces: float, end: float, **more) -> Outcome:
    """An outcome that went well."""
    return Outcome(sent, sent, end, list(pieces), ANSWERED, **more)


MIXED = [
    answered(0.0, 0.1, 0.2, 0.4, end=0.5, tokens=3, prompt_tokens=7),
    answered(1.0, 1.3, 1.4, end=2.0, tokens=4, prompt_tokens=7),
    answered(1.5, end=1.7, tokens=0, prompt_tokens=1),  # the end token came first
    Outcome(2.0, 2.0, 2.001, kind=REJECTED, retry_after=3.0),
    Outcome(2.5, 2.5, 4.0, [2.6, 2.7], kind="status 500"),
    Outcome(3.0, 3.0),  # on its way when somebody pressed Ctrl-C
]


def test_every_figure_by_hand():
    found = figures(MIXED)
    assert list(found) == list(FIGURES)
    first, gaps, e2e = [0.1, 0.3], [0.1, 0.2, 0.1], [0.5, 1.0, 0.2]
    for name, values in (("first_token", first), ("inter_token", gaps), ("e2e", e2e)):
        for key in (k for k in FIGURES if k.startswith(name)):
            expected = np.percentile(values, int(key.rpartition("_p")[2]))
            assert found[key] == pytest.approx(expected), key
    assert found["throughput"] == pytest.approx((3 + 4 + 0 + 2) / 4.0)
    assert found["rejected"] == 1 / 5
    assert found["errors"] == 1 / 5


def test_nothing_measured_is_none_and_not_zero():
    assert set(figures([]).values()) == {None}
    refused = [Outcome(0.0, 0.0, 0.1, kind=REJECTED)]
    found = figures(refused)
    assert found["first_token_p50"] is None
    assert (found["rejected"], found["errors"], found["throughput"]) == (1.0, 0.0, 0.0)


def test_without_streaming_only_the_whole_is_measured():
    found = figures([answered(0.0, end=2.0, tokens=10)])
    assert (found["first_token_p95"], found["inter_token_p95"]) == (None, None)
    assert (found["e2e_p95"], found["throughput"]) == (2.0, 5.0)


def test_pieces_count_where_the_server_does_not():
    assert throughput([answered(0.0, 0.5, 1.0, end=2.0)]) == 1.0


def test_errors_by_kind():
    assert errors_by_kind([*MIXED, Outcome(0, kind="a"), Outcome(0, kind="a")]) == {
        "a": 2,
        "status 500": 1,
    }


def late(seconds: float) -> list[Outcome]:
    """Twenty answers with a first token after 100 ms, sent so much after their time."""
    return [Outcome(n, n + seconds, n + 1, [n + seconds + 0.1], ANSWERED) for n in range(20)]


def test_a_generator_that_was_late_or_busy_is_not_to_be_trusted():
    assert distrust(late(0.0), 0.1) is None
    assert distrust(late(0.009), 0.1) is None
    assert "late, by 11.0 ms at p95 where 100.0 ms were measured" in distrust(late(0.011), 0.1)
    assert "used 85% of a core" in distrust(late(0.0), 0.85)
    assert distrust([], 0.0) is None
