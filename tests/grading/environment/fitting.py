"""1.7 plan_memory: numbers small enough to be checked in the head."""

from course.cases import Wrong, case, describe, expect_equal, expect_raises
from course.wire import Record

GB = 10**9


def expect_plan(learner, numbers: tuple, *words: tuple[str, ...]) -> None:
    """The plan fits when there are no words; else one reason for each, with these words in it."""
    plan = learner.plan_memory(*numbers)
    if not isinstance(plan, Record):
        raise Wrong(f"it should be a MemoryPlan, but is {describe(plan)}")
    expect_equal(plan.fits, not words, "fits")
    if not isinstance(plan.reasons, tuple) or len(plan.reasons) != len(words):
        raise Wrong(f"reasons is {describe(plan.reasons)}, expected a tuple of {len(words)}")
    for reason, wanted in zip(plan.reasons, words, strict=True):
        for word in wanted:
            if not isinstance(reason, str) or word not in reason:
                shown = reason[:300] if isinstance(reason, str) else describe(reason)
                raise Wrong(f"the reason {shown!r} does not contain {word!r}")


@case("1.7")
def plan_that_fits(learner, rng):
    """On the CPU: a file of 4 GB, 4 GB of weights and 2 GB of cache fit in 16 GB of RAM."""
    expect_plan(learner, (4 * GB, 4 * GB, 2 * GB, 16 * GB))
    expect_plan(learner, (4 * GB, 4 * GB, 2 * GB, 16 * GB, 8 * GB))


@case("1.7")
def plan_at_the_limits(learner, rng):
    """Exactly twice the file and exactly 80 % fit; one byte more does not."""
    file = 5 * rng.randrange(10**8, 10**9)
    weights = 8 * file // 5
    expect_plan(learner, (file, weights, 0, 2 * file))
    expect_plan(learner, (file, weights, 1, 2 * file), ("cache",))
    expect_plan(learner, (file, 10, 0, 2 * file))
    expect_plan(learner, (file, 10, 0, 2 * file - 1), ("file",))
    expect_plan(learner, (file, weights - 1, 1, 2 * file, 2 * file))
    expect_plan(learner, (file, weights, 1, 3 * file, 2 * file), ("cache",))


@case("1.7")
def plan_loading_needs_twice_the_file(learner, rng):
    """Too little RAM to load: the reason names twice the file and what there is."""
    expect_plan(learner, (3 * GB, GB, 0, 5_250_000_000), ("file", "6.00 GB", "5.25 GB"))
    expect_plan(learner, (3 * GB, GB, 0, 5_250_000_000, 80 * GB), ("file", "6.00 GB", "5.25 GB"))


@case("1.7")
def plan_running_needs_headroom(learner, rng):
    """Weights and cache together against 80 % of the device, or of the RAM without one."""
    expect_plan(learner, (GB, 5 * GB, 4 * GB, 11 * GB), ("cache", "9.00 GB", "8.80 GB"))
    expect_plan(learner, (GB, 5 * GB, 4 * GB, 64 * GB, 11 * GB), ("cache", "9.00 GB", "8.80 GB"))
    expect_plan(learner, (GB, 5 * GB, 4 * GB, 3 * GB, 12 * GB))


@case("1.7")
def plan_names_every_reason(learner, rng):
    """Both rules broken: two reasons, the one about loading first."""
    numbers = (10 * GB, 20 * GB, GB, 16 * GB, 24 * GB)
    expect_plan(
        learner, numbers, ("file", "20.00 GB", "16.00 GB"), ("cache", "21.00 GB", "19.20 GB")
    )


@case("1.7")
def plan_with_a_full_device(learner, rng):
    """A device with no memory left is a device, not the RAM; negative numbers are refused."""
    expect_plan(learner, (GB, GB, 0, 64 * GB, 0), ("cache", "1.00 GB", "0.00 GB"))
    for place in range(5):
        numbers = [GB] * 5
        numbers[place] = -1
        with expect_raises("ValueError", naming=["-1"]):
            learner.plan_memory(*numbers)
