"""7.6 ResultStore."""

from course.cases import case, expect_equal
from tests.grading.forward_pass.driving import drive

WIDE = [60.0, 100, 10_000]


def stored(learner, script: list, expected: list, settings: list = (WIDE,)) -> None:
    """Every step of a script gives this; steps without a store are of the first."""
    script = [step if isinstance(step[0], int) else [0, *step] for step in script]
    found = drive(learner, "stores", [list(one) for one in settings], script)
    for n, (got, want) in enumerate(zip(found, expected, strict=True)):
        before = [step[1:] for step in script[: n + 1]]
        expect_equal(got, want, f"the last of {before[-8:]}")


@case("7.6")
def store_a_result(learner, rng):
    """A request runs, then it has a result, which can be fetched more than once."""
    text = f"result {rng.randrange(1000)}"
    script = [["get", "a"], ["begin", "a"], ["get", "a"], ["get", "b"], ["len"]]
    expected = [None, None, "running", None, 0]
    script += [["keep", "a", 200, text], ["get", "a"], ["get", "a"], ["len"], ["bytes"]]
    kept = [200, text, 160.0]
    stored(learner, script, [*expected, None, kept, kept, 1, len(text)])
    script = [["keep", "b", 504, "x"], ["get", "b"], ["begin", "c"], ["forget", "c"], ["get", "c"]]
    stored(learner, script, [None, [504, "x", 160.0], None, None, None])
    stored(learner, [["forget", "nobody"], ["get", "nobody"]], [None, None])
    script = [["keep", "a", 200, "xy"], ["forget", "a"], ["get", "a"], ["len"], ["bytes"]]
    stored(learner, script, [None, None, [200, "xy", 160.0], 1, 2])  # it did not run any more
    script = [["keep", "a", 200, "xy"], ["begin", "a"], ["get", "a"]]
    stored(learner, script, [None, None, "running"])


@case("7.6")
def store_for_a_time(learner, rng):
    """A result is there until its seconds are over, counted from its end, and not a moment more."""
    seconds = float(rng.randrange(5, 50))
    script = [["begin", "a"], ["time", 110.0], ["keep", "a", 200, "x"]]
    script += [["time", 109.75 + seconds], ["get", "a"], ["len"], ["time", 110.0 + seconds]]
    expected = [None, None, None, None, [200, "x", 110.0 + seconds], 1, None]
    script += [["get", "a"], ["len"], ["bytes"]]
    stored(learner, script, [*expected, None, 0, 0], [[seconds, 100, 100]])


@case("7.6")
def store_sweeps(learner, rng):
    """What is over is gone, whoever is asked for, and when nobody is: memory comes back as soon as
    another result is kept. A request that runs is not over, however long it takes.
    """
    script, expected = [["begin", "slow"]], [None]
    for number in range(8):
        script += [["time", 100.0 + number], ["keep", f"r{number}", 200, "xy"]]
        expected += [None, None]
    script += [["time", 163.5], ["bytes"], ["len"], ["get", "r3"], ["get", "r4"], ["get", "slow"]]
    expected += [None, 8, 4, None, [200, "xy", 164.0], "running"]
    script += [["time", 1000.0], ["len"], ["bytes"], ["get", "slow"]]
    stored(learner, script, [*expected, None, 0, 0, "running"])
    left = drive(learner, "store_memory", 12)
    expect_equal(left, 0, "of 12 bodies whose time was over when another was kept, still in memory")


@case("7.6")
def store_bounded_by_number(learner, rng):
    """With one too many the oldest goes."""
    most = rng.randrange(2, 6)
    script = [["keep", f"r{n}", 200, str(n)] for n in range(most + 2)] + [["len"], ["bytes"]]
    expected = [None] * (most + 2) + [most, most]
    for number in range(most + 2):
        script.append(["get", f"r{number}"])
        expected.append([200, str(number), 160.0] if number >= 2 else None)
    stored(learner, script, expected, [[60.0, most, 1000]])


@case("7.6")
def store_bounded_by_bytes(learner, rng):
    """With too many bytes the oldest go, as many as must; bytes are those of the body, not its
    characters.
    """
    script = [["keep", "a", 200, "x" * 4], ["keep", "b", 200, "é" * 2], ["bytes"]]
    expected = [None, None, 8]
    script += [["keep", "c", 200, "x" * 3], ["bytes"], ["get", "a"], ["get", "b"]]
    expected += [None, 7, None, [200, "éé", 160.0]]
    script += [["keep", "d", 200, "x" * 10], ["len"], ["bytes"], ["get", "d"]]
    expected += [None, 1, 10, [200, "x" * 10, 160.0]]
    stored(learner, script, expected, [[60.0, 100, 10]])


@case("7.6")
def store_refuses_giants(learner, rng):
    """A body that is larger than all may be is not kept, and drives nobody out; the request is over
    all the same.
    """
    script = [["keep", "a", 200, "xx"], ["begin", "b"], ["keep", "b", 200, "x" * 11], ["get", "b"]]
    expected = [None, None, None, None]
    script += [["get", "a"], ["len"], ["bytes"]]
    stored(learner, script, [*expected, [200, "xx", 160.0], 1, 2], [[60.0, 100, 10]])
    script = [["keep", "a", 200, "xx"], ["keep", "a", 200, "x" * 11], ["get", "a"], ["bytes"]]
    stored(learner, script, [None, None, None, 0], [[60.0, 100, 10]])  # the newer one counts
    nothing = [["keep", "a", 200, "x"], ["get", "a"], ["len"], ["bytes"]]
    stored(learner, nothing, [None, None, 0, 0], [[60.0, 0, 10]])
    stored(learner, nothing, [None, None, 0, 0], [[60.0, 10, 0]])
    stored(learner, nothing, [None, None, 0, 0], [[0.0, 10, 10]])


@case("7.6")
def store_of_one_id(learner, rng):
    """Of two results of one id the newer counts, its time and its bytes, and it is the youngest."""
    script = [["keep", "a", 200, "xxxx"], ["keep", "b", 200, "y"], ["time", 110.0]]
    script += [["keep", "a", 503, "zz"], ["get", "a"], ["len"], ["bytes"]]
    expected = [None, None, None, None, [503, "zz", 170.0], 2, 3]
    script += [["keep", "c", 200, "w"], ["get", "b"], ["get", "a"], ["time", 165.0], ["get", "a"]]
    expected += [None, None, [503, "zz", 170.0], None, [503, "zz", 170.0]]
    script += [["time", 170.0], ["len"], ["bytes"]]
    stored(learner, script, [*expected, None, 0, 0], [[60.0, 2, 100]])


@case("7.6")
def store_drops_the_late_first(learner, rng):
    """Those whose time is over go before anybody is driven out."""
    script = [["keep", "a", 200, "x"], ["time", 130.0], ["keep", "b", 200, "y"], ["time", 161.0]]
    script += [["keep", "c", 200, "z"], ["get", "a"], ["get", "b"], ["get", "c"]]
    expected = [None] * 6 + [[200, "y", 190.0], [200, "z", 221.0]]
    stored(learner, script, expected, [[60.0, 2, 100]])


@case("7.6")
def store_of_its_own(learner, rng):
    """Two stores share nothing."""
    script = [[0, "keep", "a", 200, "x"], [1, "begin", "b"], [1, "get", "a"], [0, "get", "b"]]
    script += [[1, "len"], [0, "len"], [1, "bytes"], [0, "bytes"]]
    stored(learner, script, [None, None, None, None, 0, 1, 0, 1], [WIDE, WIDE])


@case("7.6")
def store_at_length(learner, rng):
    """Hundreds of calls: always what a plain list would say."""
    seconds, most, size = 20.0, 6, 60
    now, kept, script, expected = 100.0, [], [], []
    for _ in range(200):
        now += rng.choice([0.0, 0.5, 3.0])
        id, text = f"r{rng.randrange(12)}", "x" * rng.randrange(0, 25)
        script += [["time", now], ["keep", id, 200, text], ["len"], ["bytes"]]
        kept = [one for one in kept if one[0] != id and one[2] > now]
        kept.append([id, text, now + seconds])
        while len(kept) > most or sum(len(one[1]) for one in kept) > size:
            kept.pop(0)
        expected += [None, None, len(kept), sum(len(one[1]) for one in kept)]
        asked = f"r{rng.randrange(12)}"
        found = [[200, text, until] for id, text, until in kept if id == asked]
        script.append(["get", asked])
        expected.append(found[0] if found else None)
    stored(learner, script, expected, [[seconds, most, size]])
