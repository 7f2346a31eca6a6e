"""1.2 time_call and 1.3 bandwidth, read_through: by a clock that only the timed call moves."""

import statistics

from course.cases import Wrong, case, describe, expect_equal, expect_raises
from tests.grading.loader.files import new_folder


def close(got, expected: float, what: str) -> None:
    """Equal but for the rounding of a difference of two clock readings."""
    if not isinstance(got, float) or not abs(got - expected) <= 1e-9 * abs(expected) + 1e-9:
        raise Wrong(f"{what} is {describe(got)}, expected {describe(expected)}")


def expect_runs(found: dict, seconds: list[float], warmup: int) -> None:
    """The durations, and the order of clock and call."""
    if found["runs"] is None:
        raise Wrong(f"time_call returned {found['returned']}, expected a Timing")
    if not isinstance(found["runs"], tuple):
        raise Wrong(f"runs should be a tuple, but is {describe(found['runs'])}")
    expect_equal(found["log"].count("call"), warmup + len(seconds), "the number of calls")
    expect_equal(len(found["runs"]), len(seconds), "the number of timed runs")
    for i, (got, expected) in enumerate(zip(found["runs"], seconds, strict=True)):
        close(got, expected, f"run {i}")
    order = ["call"] * warmup + ["clock", "call", "clock"] * len(seconds)
    expect_equal(found["log"], order, "the order of calls and clock readings")


def counts(warmup: int, repeats: int) -> dict:
    """The two counts, by name."""
    return {"warmup": warmup, "repeats": repeats}


@case("1.2")
def timing_runs_in_order(learner, rng):
    """Every timed run is there with its own duration, in the order in which they were taken."""
    seconds = [rng.randrange(1, 1000) / 8 for _ in range(6)]
    expect_runs(learner.scenario("time_call_with", seconds, counts(0, 6)), seconds, 0)


@case("1.2")
def timing_warms_up(learner, rng):
    """Warm-up runs come first and are not timed: the clock is not even read."""
    seconds = [rng.randrange(1, 1000) / 8 for _ in range(5)]
    found = learner.scenario("time_call_with", [500.0, 70.0, *seconds], counts(2, 5))
    expect_runs(found, seconds, 2)


@case("1.2")
def timing_by_default(learner, rng):
    """By default one warm-up run and five timed ones."""
    seconds = [rng.randrange(1, 1000) / 8 for _ in range(5)]
    expect_runs(learner.scenario("time_call_with", [90.0, *seconds], {}), seconds, 1)


@case("1.2")
def timing_once(learner, rng):
    """A single run is allowed where one is asked for."""
    expect_runs(learner.scenario("time_call_with", [2.5], counts(0, 1)), [2.5], 0)


@case("1.2")
def timing_refuses_counts(learner, rng):
    """Repeats under 1 and warm-up under 0 are refused before anything is called."""
    for warmup, repeats in ((0, 0), (1, -2), (-1, 3)):
        found = learner.scenario("calls_before_the_error", "time_call", warmup, repeats)
        if found[0] == "no error":
            raise Wrong(f"warmup {warmup} and repeats {repeats} raised no ValueError")
        expect_equal(
            found[1:], [], f"what ran before warmup {warmup}, repeats {repeats} was refused"
        )


@case("1.2")
def timing_lets_errors_through(learner, rng):
    """What the call raises comes out of time_call, be it in a warm-up or in a timed run."""
    for which, run in enumerate(("the warm-up", "the first timed run", "the second timed run")):
        found = learner.scenario("error_in_the_call", which)
        expect_equal(found, "'from the call'", f"the exception out of {run}")


@case("1.2")
def timing_median(learner, rng):
    """The run in the middle of the sorted ones; of an even number, the mean of the two there."""
    for count in (1, 2, 5, 6):
        runs = [rng.randrange(1, 10**6) / 2**14 for _ in range(count)]
        found = learner.scenario("Timing_of", runs)
        ordered = sorted(runs)
        expected = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
        close(found["median"], expected, f"the median of {runs}")
        expect_equal(found["runs"], runs, "runs after median was asked for")


@case("1.2")
def timing_spread(learner, rng):
    """Slowest minus fastest, over the median; 0.0 when nothing took any time."""
    for runs, expected in (([2.0, 4.0, 3.0], 2 / 3), ([1.0, 9.0, 4.0, 6.0], 1.6), ([7.0], 0.0)):
        close(learner.scenario("Timing_of", runs)["spread"], expected, f"the spread of {runs}")
    close(learner.scenario("Timing_of", [0.0, 0.0])["spread"], 0.0, "the spread of two zeros")
    close(
        learner.scenario("Timing_of", [0.0, 0.0, 5.0])["spread"], 0.0, "spread, the median being 0"
    )


@case("1.3")
def bandwidth_by_the_median(learner, rng):
    """Bytes over the median of the timed runs: neither the mean nor the best nor the first."""
    for count in (5, 4, 1):
        seconds = [rng.randrange(1, 1000) / 8 for _ in range(count - 1)] + [4000.0]
        rng.shuffle(seconds)
        nbytes = rng.randrange(1, 10**9)
        warmup = count % 3  # 2, 1 and 1: not always the default
        found = learner.scenario(
            "bandwidth_with", [9e5] * warmup + seconds, nbytes, counts(warmup, count)
        )
        close(found["value"], nbytes / statistics.median(seconds), "bytes a second")
        expect_equal(found["calls"], count + warmup, "the number of calls")


@case("1.3")
def bandwidth_refuses_nothing(learner, rng):
    """No bytes are refused before anything is called; a median of no time at all, after."""
    for nbytes in (0, -5):
        found = learner.scenario("calls_before_the_error", "bandwidth", nbytes)
        if found[0] == "no error":
            raise Wrong(f"{nbytes} bytes raised no ValueError")
        expect_equal(found[1:], [], f"what ran before {nbytes} bytes were refused")
    for still in ([0.0, 0.0, 0.0], [0.0, 4.0, 0.0]):
        with expect_raises("ValueError"):
            learner.scenario("bandwidth_with", [1.0, *still], 10, counts(1, 3))
    found = learner.scenario("bandwidth_with", [1.0, 4.0, 0.0, 4.0], 1, counts(1, 3))
    close(found["value"], 0.25, "bytes a second, where one run of three took no time")
    found = learner.scenario("bandwidth_with", [1.0, 0.25, 0.25, 0.25], 10, counts(1, 3))
    close(found["value"], 40.0, "bytes a second, where runs took a quarter of one")


@case("1.3")
def reading_counts_every_byte(learner, rng):
    """All bytes are read, whether or not the chunk divides the file; an empty file has none."""
    size = rng.randrange(10_000, 20_000)
    for length, chunk in (
        (size, 1000),
        (size, 4096),
        (size, 10**6),
        (8192, 4096),
        (0, 10),
        (300, 1),
    ):
        found = learner.scenario("read_through_with", length, chunk)
        expect_equal(found["total"], length, f"bytes of a file of {length} in chunks of {chunk}")
        expect_equal(found["opened"], True, "whether the file was opened at all")
        expect_equal(found["read"], True, "whether all of the file was read")


@case("1.3")
def reading_in_one_buffer(learner, rng):
    """The memory needed is about one chunk, whatever the size of the file."""
    found = learner.scenario("read_through_with", 8_000_000, 100_000)
    expect_equal(found["total"], 8_000_000, "bytes read")
    if found["chunks"] > 4:  # some ways of reading hold two pieces and a buffer of their own
        raise Wrong(f"reading a file of 80 chunks took the memory of {found['chunks']}")
    if found["chunks"] < 1 and not found["mapped"]:
        raise Wrong("the buffer was smaller than the chunk that was asked for")


@case("1.3")
def reading_refuses(learner, rng):
    """A chunk under 1 is a ValueError; what the system says of no file, or a folder, stays."""
    path = new_folder(rng) / "file"
    path.write_bytes(b"12345")
    for chunk in (0, -1):
        with expect_raises("ValueError"):
            learner.read_through(str(path), chunk)
    with expect_raises("FileNotFoundError"):
        learner.read_through(f"{path}.no")
    with expect_raises("IsADirectoryError", "PermissionError"):  # the latter on Windows
        learner.read_through(str(path.parent))
