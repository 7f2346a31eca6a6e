"""The oracles of chapter 06 against tables made by hand."""

import pytest

from tests.oracles import batcher as oracle
from tests.oracles.batcher_run import Simulation


def test_a_padded_table():
    tokens, positions = oracle.padded([[5, 6, 7], [8]], [0, 4])
    assert tokens == [[5, 6, 7], [8, 0, 0]]
    assert positions == [[0, 1, 2], [4, -1, -1]]


def test_what_is_told_depends_on_every_token():
    """((1 * 31 + 8) * 31 + 9) % 10007 % 90 + 1, by hand for [1, 2]: 8 * 31 + 9 = 257."""
    assert oracle.next_token([1, 2]) == 1 + 257 % 90
    assert len({oracle.next_token([n, 2, 3]) for n in range(90)}) > 40
    ids, reason = oracle.told([1, 2], 3)
    assert (ids[0], len(ids), reason) == (78, 3, "length")
    assert oracle.told([1, 2], 3, ends=(78,)) == ([], "stop")


def test_a_static_batch_of_two_by_hand():
    """Prompts of 2 and 1 tokens, answers of 1 and 3: a rectangle of 4, then two forwards of 2."""
    forwards, useful, wasted = oracle.static_forwards([[5, 6], [7]], [[10], [20, 21, 22]])
    assert forwards == [
        [[[5, 6], [7]], [[0, 1], [0]]],
        [[[6], [20]], [[1], [1]]],
        [[[6], [21]], [[1], [2]]],
    ]
    assert (useful, wasted) == (3 + 1 + 1, 1 + 1 + 1)


def test_a_line_of_four_by_hand():
    line = oracle.Line(4, 5.0)
    for name, priority, size, now in (("a", 0, 9, 0.0), ("b", 0, 3, 1.0), ("c", -1, 50, 2.0)):
        wish = {"priority": priority, "size": size, "deadline": None, "admit_by": None}
        assert line.add(name, wish, now)
    assert [line.first(now) for now in (2.0, 5.0, 5.5)] == ["c", "c", "a"]
    assert line.remove("c")
    assert not line.remove("c")
    assert [line.first(now) for now in (5.0, 5.5)] == ["b", "a"]
    assert line.add("d", wish | {"deadline": 9.0, "admit_by": 3.0}, 2.5)
    assert (line.expired(2.9), line.expired(3.0), line.names()) == ([], ["d"], ["a", "b"])


@pytest.mark.parametrize(
    ("budget", "prefills", "places"),
    [
        (4, [["long", 1], ["short", 1]], 4),  # 2 decodes leave 2: one place for each of two
        (20, [["long", 6], ["short", 2], ["middle", 6]], 20),  # 18 left: 3 times 6
        (74, [["long", 24], ["short", 2], ["middle", 24]], 74),
        (200, [["long", 66], ["short", 2], ["middle", 30]], 200),
        (2000, [["long", 500], ["short", 2], ["middle", 30]], 1502),
    ],
)
def test_a_plan_by_hand(budget, prefills, places):
    running = [
        {"name": "x", "state": "decode", "row": 3, "remaining": 1},
        {"name": "long", "state": "prefill", "row": 0, "remaining": 500},
        {"name": "middle", "state": "prefill", "row": 1, "remaining": 30},
        {"name": "y", "state": "decode", "row": 2, "remaining": 1},
        {"name": "short", "state": "prefill", "row": 4, "remaining": 2},
    ]
    assert oracle.plan(running, budget) == ([["y", 1], ["x", 1]], prefills, places)


def test_three_requests_on_two_rows_by_hand():
    """Answers of 2, 5 and 3 tokens: the third takes row 0 when the first is over."""
    simulation = Simulation(2, 64)
    for name, count in (("a", 2), ("b", 5), ("c", 3)):
        wish = {"prompt": [1, 2], "max_tokens": count, "priority": ord(name)}
        assert simulation.submit(name, wish | {"deadline": None, "admit_by": None}, 0.0)
    steps = []
    while not simulation.idle:
        step = simulation.step(0.0)
        steps.append([step["decode"], step["prefill"], step["counts"], sorted(step["over"])])
    assert steps == [
        [[], {0: 2, 1: 2}, [4, 2, 1], []],
        [[0, 1], {}, [2, 1, 1], ["a"]],
        [[1], {0: 2}, [3, 2, 0], []],
        [[0, 1], {}, [2, 2, 0], []],
        [[0, 1], {}, [2, 0, 0], ["b", "c"]],
    ]
