"""What a request may ask of the sampler: ranges, defaults, and messages that say which."""

import dataclasses
import math

import pytest

from solutions.sampling_params import MAX_STOP_LENGTH, SamplingParams

EDGES = {
    "temperature": ([0, 0.0, 1e-9, 1, 2, 2.0], [-1e-9, 2.0001, -1, math.nan, math.inf, "1", True]),
    "top_k": ([-1, 0, 1, 50, 2**31 - 1], [-2, 2**31, 1.0, "5", False, math.nan]),
    "top_p": ([1, 1.0, 0.5, 1e-9, 5e-324], [0, 0.0, -0.1, 1.01, math.nan, "0.5", True]),
    "min_p": ([0, 0.5, 1, 1.0], [-0.1, 1.1, math.nan, [], True]),
    "repetition_penalty": ([1, 0.5, 1e-6, 1e6], [0, -1, math.inf, math.nan, 1e-7, 1e7]),
    "presence_penalty": ([-2, 0, 2, 0.5], [-2.1, 2.1, math.nan, "0"]),
    "frequency_penalty": ([-2, 0, 2, 0.5], [-2.1, 2.1, math.nan, {}]),
    "seed": ([0, 1, -1, 2**63 - 1, -(2**63)], [2**63, -(2**63) - 1, 1.5, "1", True]),
    "max_tokens": ([1, 2, 10**12], [0, -1, 1.0, math.inf, "9", True]),
    "logprobs": ([0, 5, 20], [-1, 21, 2.0, True]),
    "stop": (
        [(), [], "a", ["a"], ("a", "b"), ["a"] * 4, ["x" * MAX_STOP_LENGTH], ["\n"]],
        ["", [""], ["a"] * 5, ["x" * (MAX_STOP_LENGTH + 1)], [1], 5, {"a": 1}, b"a", [b"a"]],
    ),
}
RIGHT = [(name, value) for name, (right, _) in EDGES.items() for value in right]
WRONG = [(name, value) for name, (_, wrong) in EDGES.items() for value in wrong]


def test_every_field_has_its_edges_here():
    assert {field.name for field in dataclasses.fields(SamplingParams)} == set(EDGES)


@pytest.mark.parametrize(("name", "value"), RIGHT)
def test_what_is_allowed(name, value):
    found = getattr(SamplingParams(**{name: value}), name)
    if name == "stop":
        value = (value,) if isinstance(value, str) else tuple(value)
    assert found == value
    kind = {"stop": tuple}.get(name, int if name in ("top_k", "seed", "max_tokens") else None)
    assert kind is None or type(found) is kind


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_what_is_refused_names_field_and_value(name, value):
    with pytest.raises(ValueError, match=f"^{name} must (be|hold)") as caught:
        SamplingParams(**{name: value})
    assert "; got " in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", EDGES)
def test_none_is_the_default(name):
    assert SamplingParams(**{name: None}) == SamplingParams()


def test_integers_become_floats_where_a_float_belongs():
    assert type(SamplingParams(temperature=1).temperature) is float
    assert type(SamplingParams(top_p=1).top_p) is float


def test_it_cannot_be_changed_and_can_be_compared_and_hashed():
    one, two = SamplingParams(stop=["a"]), SamplingParams(stop=("a",))
    assert one == two
    assert hash(one) == hash(two)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.temperature = 0.5


def test_an_unknown_field_is_an_error():
    with pytest.raises(TypeError, match="top_q"):
        SamplingParams(top_q=1)


def test_what_a_row_needs():
    assert SamplingParams(temperature=0).is_greedy
    assert not SamplingParams(temperature=1e-9).is_greedy
    assert not SamplingParams().has_penalties
    for name, value in (("repetition", 1.1), ("presence", 0.1), ("frequency", -0.1)):
        assert SamplingParams(**{f"{name}_penalty": value}).has_penalties
