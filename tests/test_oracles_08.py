"""The oracles of chapter 08 beside published figures and other programs."""

import math
import statistics

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from solutions.metrics import Metrics
from solutions.upgrade_gate import student_tail
from tests.oracles import monitoring as oracle

# One-sided critical values of Student's t, as every table prints them: (freedom, chance, t).
TABLE = [
    (2, 0.05, 2.920),
    (3, 0.05, 2.353),
    (4, 0.05, 2.132),
    (4, 0.005, 4.604),
    (5, 0.025, 2.571),
    (8, 0.01, 2.896),
    (10, 0.05, 1.812),
    (30, 0.05, 1.697),
]


@pytest.mark.parametrize(("freedom", "chance", "t"), TABLE)
def test_the_tail_of_student(freedom, chance, t):
    for tail in (oracle.tail, student_tail):
        assert tail(t, freedom) == pytest.approx(chance, rel=2e-3)
        assert tail(-t, freedom) == pytest.approx(1 - chance, rel=1e-3)


def test_the_tail_of_student_with_one_degree_of_freedom():
    """Cauchy's distribution, which has a formula: 6.314 is its 95th percentile."""
    for t in (-3.0, 0.0, 0.5, 6.314):
        assert student_tail(t, 1) == pytest.approx(0.5 - math.atan(t) / math.pi, abs=1e-12)
    assert student_tail(math.inf, 3) == pytest.approx(0.0, abs=1e-12)
    assert student_tail(-math.inf, 4) == pytest.approx(1.0, abs=1e-12)


def test_nearest_rank_is_the_inverse_of_the_distribution():
    values = [float(v) for v in np.random.default_rng(1).permutation(40)]
    for percent in (2.5, 10, 50, 95, 100):
        expected = np.percentile(values, percent, method="inverted_cdf")
        assert oracle.nearest_rank(values, percent) == expected
    assert oracle.nearest_rank([4.0, 1.0, 3.0, 2.0], 50) == statistics.median_low([1, 2, 3, 4])


def test_the_quantile_of_prometheus():
    """Of 10 values 7 are up to 1 and all up to 2: the 9th is two thirds into the second bucket."""
    buckets = [[1.0, 7], [2.0, 10], [math.inf, 10]]
    assert oracle.interpolated(0.9, buckets) == pytest.approx(1 + 2 / 3)
    assert oracle.interpolated(0.35, buckets) == pytest.approx(0.5)


def test_round_bounds_are_round():
    assert oracle.round_bounds("0.1", "2", (1, 3)) == [0.1, 0.3, 1.0]


def test_the_reader_of_expositions_reads_what_the_library_reads():
    text = Metrics('a "b" \\ c', lambda: {"process_resident": 3}).exposition().decode()
    found = oracle.exposed(text)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values = found[sample.name].values()
            assert sample.value in values
    assert sum(map(len, found.values())) == sum(
        len(family.samples) for family in text_string_to_metric_families(text)
    )


def test_comparing_by_hand():
    """Two runs of 1.0 and 1.2 with d = ln 1.2, one with noise: t worked out on paper."""
    before = {"unit": "ratio", "better": "lower", "values": [0.1, 0.3]}
    after = {"unit": "ratio", "better": "lower", "values": [0.2, 0.4]}
    # d = 0.1, margin 0.01, s^2 = (0.02 + 0.02) / 2, noise = sqrt(0.02): t = 0.636, p = 0.295
    assert oracle.compare(before, after, level=0.29) == (pytest.approx(0.1), "unclear")
    assert oracle.compare(before, after, level=0.30) == (pytest.approx(0.1), "worse")


def test_causes_by_hand():
    assert oracle.causes({"steps": 0, "running": 0, "waiting": 2}) == {
        "stuck_engine": ["steps", "running", "waiting"]
    }
    assert oracle.causes({"kv": 1.0, "waiting": None}) == {}
