"""6.7 violations."""

import itertools

from course.cases import Wrong, case, expect_equal
from tests.grading.batcher.chunks import decoding, reading
from tests.grading.forward_pass.driving import drive
from tests.scenarios.helpers import names_number


def waiting(name: str, **changes) -> dict:
    """A request that waits."""
    stand = {"name": name, "state": "waiting", "row": None, "prompt": [1, 2], "output": []}
    return stand | {"computed": 0} | changes


def crowd(rng) -> tuple[list, list]:
    """Two that run in rows 0 to 3, and two that wait; their names are numbers above 100."""
    rows = rng.sample(range(4), 2)
    running = [decoding("r101", rows[0]), reading("r102", rows[1], rng.randrange(2, 9))]
    return running, [waiting("r103"), waiting("r104")]


def expect_found(learner, running, waits, changes: dict, *sentences) -> None:
    """As many sentences as expected, each with all that it should name."""
    found = drive(learner, "books", running, waits, changes)
    expect_equal(len(found), len(sentences), f"the number of sentences ({found})")
    for order in itertools.permutations(found):
        if all(map(names_all, order, sentences)):
            return
    wanted = "; ".join(" and ".join(map(str, names)) for names in sentences)
    raise Wrong(f"the sentences are {found}, but they should name: {wanted}")


def names_all(text: str, names: list) -> bool:
    """Whether all the names stand in a sentence."""
    return all(names_number(text, name) for name in names)


def size_of(stand: dict) -> int:
    """Tokens that it may grow to: 50 are wanted, and the limit may be less."""
    return len(stand["prompt"]) + stand.get("limit", 50)


@case("6.7")
def books_that_balance(learner, rng):
    """All is well: nothing is said, with somebody, with nobody, and with every row held; nor about
    a limit that was clamped, or about two requests that have the same id.
    """
    expect_found(learner, [], [], {})
    expect_found(learner, *crowd(rng), {})
    expect_found(learner, [decoding(f"r{n}", n) for n in range(4)], [waiting("r9")], {})
    expect_found(learner, [], [], {"rows": 1})
    expect_found(learner, [decoding("r7", 5)], [], {"rows": 9})
    running, waits = crowd(rng)
    running[0]["limit"] = 7  # less than was wished for
    expect_found(learner, running, waits, {"used": sum(map(size_of, running))})
    twins = [decoding("r1", 0) | {"id": "twin"}, decoding("r2", 1) | {"id": "twin"}]
    expect_found(learner, twins, [waiting("r3") | {"id": "twin"}], {})


@case("6.7")
def books_of_tokens(learner, rng):
    """Used and free that are not the total; and reserved tokens that nobody needs, or too few."""
    running, waits = crowd(rng)
    needed = sum(map(size_of, running))
    off = rng.randrange(3, 40)
    expect_found(
        learner, running, waits, {"free": 400 - needed + off}, [needed, 400, 400 - needed + off]
    )
    for used in (needed + off, needed - 1, 0):
        expect_found(learner, running, waits, {"used": used}, [used, needed])
    expect_found(learner, [], [], {"used": off}, [off, 0])
    both = {"used": needed + 2, "free": 400 - needed - 1}
    expect_found(
        learner, running, waits, both, [needed + 2, 400 - needed - 1, 400], [needed + 2, needed]
    )


@case("6.7")
def books_of_rows(learner, rng):
    """A row that is neither free nor held, both at once, or free twice."""
    running, waits = crowd(rng)
    held = [stand["row"] for stand in running]
    free = [row for row in range(4) if row not in held]
    expect_found(learner, running, waits, {"free_rows": free[1:]}, [free[0]])
    expect_found(learner, running, waits, {"free_rows": [*free, held[1]]}, [held[1]])
    expect_found(learner, running, waits, {"free_rows": [*free, free[1]]}, [free[1]])
    expect_found(learner, running, waits, {"free_rows": [*free, held[0], held[0]]}, [held[0]])
    expect_found(learner, running, waits, {"free_rows": []}, [free[0]], [free[1]])
    expect_found(learner, [], [], {"free_rows": [3, 1]}, [0], [2])


@case("6.7")
def books_of_holders(learner, rng):
    """A running request that has another row than it is kept under, or none."""
    running, waits = crowd(rng)
    for row in (None, 17):
        key = running[0]["row"]
        wrong = [running[0] | {"row": row, "key": key}, running[1]]
        expect_found(learner, wrong, waits, {}, ["r101", key])


@case("6.7")
def books_of_states(learner, rng):
    """Who runs must be in PREFILL or DECODE, who waits in WAITING and without a row."""
    running, waits = crowd(rng)
    for state in ("waiting", "finished"):
        expect_found(learner, [running[0] | {"state": state}, running[1]], waits, {}, ["r101"])
    for state in ("prefill", "decode", "finished"):
        expect_found(learner, running, [waits[0], waiting("r105", state=state)], {}, ["r105"])
    expect_found(learner, running, [waiting("r106", row=0), *waits], {}, ["r106"])
    expect_found(learner, running, [waiting("r106", row=7, state="decode")], {}, ["r106"])


@case("6.7")
def books_of_doubles(learner, rng):
    """A request that is there more than once, running or waiting."""
    running, waits = crowd(rng)
    expect_found(learner, running, [*waits, waits[0]], {}, ["r103"])
    expect_found(learner, running, [*waits, *waits, waits[1]], {}, ["r103"], ["r104"])
    expect_found(learner, running, [running[1], *waits], {}, ["r102"], ["r102"])
    twice = running[0] | {"key": running[1]["row"]}
    expect_found(learner, [running[0], twice], waits, {}, ["r101", running[1]["row"]], ["r101"])


@case("6.7")
def books_name_everything(learner, rng):
    """All violations at once."""
    running, waits = crowd(rng)
    held = [stand["row"] for stand in running]
    free = [row for row in range(4) if row not in held]
    wrong = [running[0] | {"row": None, "key": held[0]}, running[1] | {"state": "finished"}]
    needed = sum(map(size_of, running))
    changes = {"used": needed + 5, "free_rows": [free[0], held[0]]}
    expected = [[needed + 5, needed], [free[1]], [held[0]], ["r101", held[0]], ["r102"], ["r103"]]
    expect_found(learner, wrong, [*waits, waits[0]], changes, *expected)
