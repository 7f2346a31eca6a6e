"""What a failed comparison says: the first difference, however long the values are."""

import pytest

from course.cases import Wrong, expect_equal

LONG = list(range(1000, 1100))


@pytest.mark.parametrize(
    ("got", "expected", "said"),
    [
        ([1, 2], [1, 3], "it is [1, 2], expected [1, 3]"),
        ([LONG, [2, [3]]], [LONG, [2, [4]]], "they differ first at [1][1][0]: 3 instead of 4"),
        ({"a": LONG, "b": 1}, {"a": LONG, "b": 2}, "they differ first at ['b']: 1 instead of 2"),
        ([*LONG, 7], LONG, "it has 101 parts instead of 100, the first too many: 7"),
        ([[*LONG]], [[*LONG, 8]], "at [0] it has 100 parts instead of 101, the first missing: 8"),
        ({"a": LONG, 1: 0}, {"a": LONG, 2: 0}, "it lacks [2] and has [1] too many"),
        ([1, [None]], [1, [0]], "it: at [1][0] it should be int 0, but is None"),
        (
            "a" * 200 + "b",
            "a" * 200 + "c",
            f"first at [200]: '{'a' * 20}b' instead of '{'a' * 20}c'",
        ),
        (None, 0, "it should be int 0, but is None"),
    ],
)
def test_the_first_difference_is_shown(got, expected, said: str):
    with pytest.raises(Wrong) as caught:
        expect_equal(got, expected)
    assert said in str(caught.value)


def test_values_that_look_alike_as_far_as_they_are_shown_are_not_shown_twice():
    with pytest.raises(Wrong) as caught:
        expect_equal([*LONG, 1], [*LONG, 2], "the list")
    assert (
        str(caught.value)
        == "the list is not as expected; they differ first at [100]: 1 instead of 2"
    )
