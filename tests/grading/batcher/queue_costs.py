"""6.3 WaitingQueue: memory and comparisons."""

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive


@case("6.3")
def queue_forgets(learner, rng):
    """Requests that have left are let go, also when nobody ever comes to the front: of those no
    more are kept than twice as many as wait, plus 64.
    """
    for way in ("remove", "expired"):
        waiting, alive = drive(learner, "queue_memory", 400, way)
        expect_equal(waiting, 3, "how many wait")
        if alive > 3 + 2 * 3 + 64:
            raise Wrong(
                f"3 of 400 requests wait, the others left ({way}), and {alive} are still in "
                "memory: they must be let go"
            )


@case("6.3")
def queue_costs_little(learner, rng):
    """With 2,000 waiting, a call looks at no more than 120 priorities and times (a heap needs a few
    dozen): it does not look at everybody.
    """
    few, firsts = drive(learner, "queue_comparisons", 2000, 10, 120)
    wanted = [["add", 10], ["first", 10], ["remove", 10]]
    expect_equal(few, wanted, "of 10 rounds of each call, those with 120 looks at most")
    order = sorted(range(2010), key=lambda n: (n * 7919 % 10_007, 5 + n % 7, n))
    there, expected = set(range(2000)), []
    for number in range(2000, 2010):
        there.add(number)
        expected.append(next(n for n in order if n in there))
        there.discard(expected[-1])
    expect_equal(firsts, expected, "who was first each time")
