"""8.6 PauseWatch, tamed."""

from course.cases import case, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.grading.monitoring.making import expect_near


def scripted(learner, calls: list, readings: list, heard: bool = True) -> dict:
    """A PauseWatch on a clock that reads these: see pauses_scripted."""
    return drive(learner, "pauses_scripted", calls, readings, heard)


def run(generation: int) -> list:
    """The two calls of one collection."""
    return [["start", generation], ["stop", generation]]


@case("8.6")
def pauses_by_hand(learner, rng):
    """Three collections: of generation 0 twice, of 2 once."""
    calls = [*run(0), *run(2), *run(0)]
    found = scripted(learner, calls, [1.0, 1.5, 10.0, 14.0, 20.0, 20.25])
    expected = {
        "seconds": [0.75, 0.0, 4.0],
        "runs": [2, 0, 1],
        "longest": [0.5, 0.0, 4.0],
        "pauses": [[0, 0.5], [2, 4.0], [0, 0.25]],
        "reads": 6,
    }
    expect_near(found, expected, "what was measured")


@case("8.6")
def pauses_of_many(learner, rng):
    """Random collections: sums, counts and the longest of each generation."""
    calls, readings, pauses, now = [], [], [], 0.0
    for _ in range(40):
        generation, taken = rng.randrange(3), rng.uniform(0.001, 0.5)
        now += rng.uniform(0, 9)
        readings += [now, now + taken]
        now += taken
        calls += run(generation)
        pauses.append([generation, taken])
    found = scripted(learner, calls, readings)
    by = [[taken for one, taken in pauses if one == generation] for generation in range(3)]
    expected = {
        "seconds": [sum(times) for times in by],
        "runs": [len(times) for times in by],
        "longest": [max(times, default=0.0) for times in by],
        "pauses": pauses,
        "reads": 80,
    }
    expect_near(found, expected, "what was measured")


@case("8.6")
def pauses_without_a_start(learner, rng):
    """A stop of a run that had begun before is no pause, and nor is a second stop."""
    calls = [["stop", 2], *run(1), ["stop", 1], *run(0)]
    found = scripted(learner, calls, [5.0, 6.0, 7.0, 7.5, 9.0, 9.0, 9.0])
    expected = {"seconds": [0.5, 1.0, 0.0], "runs": [1, 1, 0], "longest": [0.5, 1.0, 0.0]}
    expect_near({name: found[name] for name in expected}, expected, "what was measured")
    expect_near(found["pauses"], [[1, 1.0], [0, 0.5]], "what on_pause heard")


@case("8.6")
def pauses_at_zero(learner, rng):
    """A clock may begin at 0.0, which is a moment like any other; nobody needs to listen."""
    found = scripted(learner, run(1), [0.0, 2.0], heard=False)
    expect_near([found["seconds"], found["runs"]], [[0.0, 2.0, 0.0], [0, 1, 0]], "[seconds, runs]")


@case("8.6")
def pauses_of_real_collections(learner, rng):
    """Around a block: collections in it are measured, those before and after are not; who else
    listens goes on listening.
    """
    for fails in (False, True):
        found = drive(learner, "pauses_joined", fails)
        expected = {
            "runs": [2, 0, 1],
            "took": [True, False, True],
            "same": True,
            "inside": 1,
            "raised": "it went through" if fails else "nothing was raised",
            "as_before": True,
            "seen": 10,
        }
        expect_equal(found, expected, "what happened")


@case("8.6")
def tamed_in_the_block(learner, rng):
    """Garbage is collected, what lives is frozen, the thresholds are those that were asked for, and
    the collector is neither switched on nor off.
    """
    thresholds = [rng.randrange(10_000, 90_000), rng.randrange(5, 50), rng.randrange(5, 50)]
    for given, expected in ((thresholds, thresholds), (None, [50_000, 20, 100])):
        found = drive(learner, "tamed_told", given, False)
        expect_equal(found.get("inside"), [expected, True], "[thresholds, whether much is frozen]")
        expect_equal(found.get("garbage"), False, "whether garbage is still there")
        expect_equal(found.get("frozen"), True, "whether what lives is frozen")
        expect_equal(found.get("enabled"), False, "whether the collector is on")


@case("8.6")
def tamed_afterwards(learner, rng):
    """After the block all is as before, also when it raised; the exception goes through."""
    for fails in (False, True):
        found = drive(learner, "tamed_told", None, fails)
        expect_equal(found["after"], [[701, 11, 12], False], "[thresholds, frozen] after the block")
        raised = "it went through" if fails else "nothing was raised"
        expect_equal(found["raised"], raised, "the exception in the block")


@case("8.6")
def tamed_when_entered(learner, rng):
    """Making it does nothing yet: what lives when the block is entered is what counts."""
    found = drive(learner, "tamed_told", [800, 9, 9], False)
    expect_equal(found["before"], [[701, 11, 12], False], "[thresholds, frozen] before the block")
