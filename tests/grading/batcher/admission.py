"""6.4 Room and admit."""

from course.cases import case, expect_equal
from tests.grading.batcher.queue import wish
from tests.grading.forward_pass.driving import drive, expect_failure


def rooms(learner, wishes, steps, cache=(4, 40), rows=None, budget=None, page=None, patience=5.0):
    """[answer, free rows, used tokens, rows held, who waits] after each step; see room_session."""
    setting = {"cache": list(cache), "page": page, "rows": rows or cache[0], "patience": patience}
    setting["budget"] = budget or cache[0] * cache[1]
    return drive(learner, "room_session", setting, {w["name"]: w for w in wishes}, steps)


def stands(found: list, expected: list, what: str = "[answer, free rows, used tokens, rows held]"):
    """The first four of each answer."""
    for number, (got, want) in enumerate(zip(found, expected, strict=True), 1):
        expect_equal(got[:4], want, f"{what} after step {number}")


@case("6.4")
def room_takes_and_gives_back(learner, rng):
    """take reserves all that a request may grow to in the lowest free row; give_back frees it."""
    a, b, c = (rng.randrange(4, 30) for _ in range(3))
    wishes = [wish("a", a), wish("b", b), wish("c", c), wish("d", 10)]
    steps = [["take", "a"], ["take", "b"], ["take", "c"], ["give_back", "b"], ["give_back", "a"]]
    found = rooms(learner, wishes, [*steps, ["take", "d"], ["give_back", "c"]])
    stands(
        found,
        [
            [True, [1, 2, 3], a, {"a": 0}],
            [True, [2, 3], a + b, {"a": 0, "b": 1}],
            [True, [3], a + b + c, {"a": 0, "b": 1, "c": 2}],
            [None, [1, 3], a + c, {"a": 0, "c": 2}],
            [None, [0, 1, 3], c, {"c": 2}],
            [True, [1, 3], c + 10, {"c": 2, "d": 0}],
            [None, [1, 2, 3], 10, {"d": 0}],
        ],
    )


@case("6.4")
def room_has_so_many_rows(learner, rng):
    """No more requests than rows, which may be fewer than the cache has; a refusal changes
    nothing.
    """
    for rows in (2, 4):
        wishes = [wish(f"r{n}", 4) for n in range(5)]
        found = rooms(learner, wishes, [["take", f"r{n}"] for n in range(5)], rows=rows)
        for n, got in enumerate(found):
            held = {f"r{m}": m for m in range(min(n + 1, rows))}
            free = list(range(len(held), rows))
            expect_equal(
                got[:4], [n < rows, free, 4 * len(held), held], f"after take number {n + 1}"
            )


@case("6.4")
def room_keeps_to_the_budget(learner, rng):
    """Together they may hold the budget, to the last token, and not one more."""
    half = rng.randrange(8, 16)
    wishes = [wish("a", half), wish("b", half), wish("c", half + 1), wish("d", 4)]
    steps = [["take", "a"], ["take", "c"], ["take", "b"], ["take", "d"], ["give_back", "a"]]
    found = rooms(learner, wishes, [*steps, ["take", "c"], ["take", "d"]], budget=2 * half)
    both = {"a": 0, "b": 1}
    stands(
        found,
        [
            [True, [1, 2, 3], half, {"a": 0}],
            [False, [1, 2, 3], half, {"a": 0}],
            [True, [2, 3], 2 * half, both],
            [False, [2, 3], 2 * half, both],
            [None, [0, 2, 3], half, {"b": 1}],
            [False, [0, 2, 3], half, {"b": 1}],
            [True, [2, 3], half + 4, {"b": 1, "d": 0}],
        ],
    )


@case("6.4")
def room_asks_the_cache(learner, rng):
    """What is used, the cache says: one that reserves whole pages uses more than was asked for.
    When it raises CacheFull, the request is not taken and nothing has changed.
    """
    wishes = [wish("a", 5), wish("b", 24), wish("c", 23), wish("d", 4)]
    steps = [["take", "a"], ["take", "b"], ["take", "c"], ["give_back", "c"]]
    steps += [["full", True], ["take", "d"], ["full", False], ["take", "d"]]
    found = rooms(learner, wishes, steps, budget=31, page=8)
    one = {"a": 0}
    stands(
        found,
        [
            [True, [1, 2, 3], 8, one],
            [False, [1, 2, 3], 8, one],
            [True, [2, 3], 32, {"a": 0, "c": 1}],
            [None, [1, 2, 3], 8, one],
            [None, [1, 2, 3], 8, one],
            [False, [1, 2, 3], 8, one],
            [None, [1, 2, 3], 8, one],
            [True, [2, 3], 16, {"a": 0, "d": 1}],
        ],
    )


@case("6.4")
def room_hides_no_other_fault(learner, rng):
    """What the cache raises besides CacheFull is no answer to "is there room?": it goes on to the
    caller, and nothing has changed.
    """
    steps = [["full", "ArithmeticError"], ["fails", ["take", "a"]], ["full", False], ["take", "a"]]
    found = rooms(learner, [wish("a", 9)], steps, page=1)
    expect_failure(found[1][0], "ArithmeticError", "take with a cache that raises ArithmeticError")
    expect_equal(found[1][1:4], [[0, 1, 2, 3], 0, {}], "[free rows, used tokens, rows held] then")
    expect_equal(found[3][:4], [True, [1, 2, 3], 9, {"a": 0}], "the same once it is mended")


@case("6.4")
def room_given_back_once(learner, rng):
    """A request that holds nothing has nothing to give back; a row is not free twice."""
    wishes = [wish("a", 9), wish("b", 7)]
    steps = [["give_back", "b"], ["take", "a"], ["give_back", "b"], ["give_back", "a"]]
    found = rooms(learner, wishes, [*steps, ["give_back", "a"], ["take", "b"], ["give_back", "a"]])
    everything = [0, 1, 2, 3]
    stands(
        found,
        [
            [None, everything, 0, {}],
            [True, [1, 2, 3], 9, {"a": 0}],
            [None, [1, 2, 3], 9, {"a": 0}],
            [None, everything, 0, {}],
            [None, everything, 0, {}],
            [True, [1, 2, 3], 7, {"b": 0}],
            [None, [1, 2, 3], 7, {"b": 0}],
        ],
    )


def waiting(*names_and_times) -> list:
    """Steps that add requests to the queue."""
    return [["add", name, now] for name, now in names_and_times]


@case("6.4")
def admit_by_turn(learner, rng):
    """Who is let in leaves the queue, has a row and its tokens, is in PREFILL and knows when it was
    admitted; all are let in that there is room for.
    """
    wishes = [wish("long", 30), wish("short", 6), wish("middle", 12), wish("first", 20, -1)]
    steps = waiting(("long", 1.0), ("short", 1.5), ("middle", 2.0), ("first", 2.5))
    found = rooms(learner, wishes, [*steps, ["admit", 3.0], ["admit", 3.5]], rows=3)
    order = ("first", "short", "middle")
    entered = [[name, "prefill", row, 3.0] for row, name in enumerate(order)]
    held = {name: row for row, name in enumerate(order)}
    expect_equal(found[-2], [entered, [], 38, held, ["long"]], "admit(3.0) and what it left")
    expect_equal(found[-1], [[], [], 38, held, ["long"]], "admit(3.5) with no free row")


@case("6.4")
def admit_nobody(learner, rng):
    """With nobody waiting nobody is admitted."""
    expect_equal(rooms(learner, [], [["admit", 0.0]])[0][0], [], "admit with an empty queue")


@case("6.4")
def admit_does_not_overtake(learner, rng):
    """Nobody overtakes the first in line: a small one of lower priority waits, although it would
    fit, until the first has its room.
    """
    wishes = [wish("running", 30), wish("big", 30, -1), wish("small", 4, 5), wish("second", 6)]
    steps = [*waiting(("running", 0.0)), ["admit", 0.0]]
    steps += waiting(("small", 0.5), ("big", 1.0), ("second", 1.5))
    steps += [["admit", 2.0], ["give_back", "running"], ["admit", 3.0]]
    found = rooms(learner, wishes, steps, budget=40)
    held = [{"running": 0}, {"big": 0, "second": 1, "small": 2}]
    waits = ["small", "big", "second"]
    expect_equal(found[-3], [[], [1, 2, 3], 30, held[0], waits], "admit(2.0) and what it left")
    names = [[name, "prefill", row, 3.0] for row, name in enumerate(held[1])]
    expect_equal(found[-1], [names, [3], 40, held[1], []], "admit(3.0) and what it left")


@case("6.4")
def admit_keeps_the_door_for_a_promoted_one(learner, rng):
    """A long request that has waited too long holds the door: shorter ones that came later wait."""
    wishes = [wish("running", 30), wish("long", 36), wish("short", 4), wish("shorter", 3, -9)]
    steps = [*waiting(("running", 0.0)), ["admit", 0.0], *waiting(("long", 1.0))]
    steps += [["admit", 4.0], *waiting(("short", 5.0)), ["admit", 5.5], *waiting(("shorter", 6.25))]
    steps += [["admit", 6.5], ["give_back", "running"], ["admit", 7.0]]
    found = rooms(learner, wishes, steps, budget=40)
    names = [[answer[0] for answer in found[n][0]] for n in (1, 3, 5, 7, 9)]
    wanted = [["running"], [], ["short"], [], ["long"]]
    expect_equal(names, wanted, "who was admitted at 0, 4, 5.5, 6.5 and 7")


@case("6.4")
def admit_follows_the_queue(learner, rng):
    """Whose turn it is, the queue decides, at the time that it is told. Whether it is too late is
    not looked at here: whoever ends the late ones must find them.
    """
    wishes = [wish("old", 20, deadline=2.0), wish("new", 5, admit_by=3.5)]
    for patience, first in ((2.0, "old"), (9.0, "new")):
        steps = [*waiting(("old", 0.0), ("new", 3.0)), ["admit", 4.0]]
        found = rooms(learner, wishes, steps, rows=1, patience=patience)
        expect_equal(found[-1][0], [[first, "prefill", 0, 4.0]], f"admit with patience {patience}")
