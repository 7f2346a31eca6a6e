"""6.3 WaitingQueue: memory, the order after it was cleared up, and comparisons."""

from course.cases import Wrong, case, expect_equal
from tests.grading.batcher.queue import Script, served, wish
from tests.grading.forward_pass.driving import drive


@case("6.3")
def queue_forgets(learner, rng):
    """Requests that have left are let go, also when nobody ever comes to the front: of those no
    more are kept than twice as many as wait, plus 64.
    """
    removed, expired = [[397, 1, None, "remove"]], [[397, 1, 50.0, "expired"]]
    # The first would have been next and late to expire, the second the reverse.
    both = [[72, -1, 90.0, "remove"], [72, 1, 50.0, "expired"]]
    for stay, groups in ((3, removed), (3, expired), (20, both)):
        waiting, alive = drive(learner, "queue_memory", stay, groups)
        expect_equal(waiting, stay, "how many wait")
        if alive > stay + 2 * stay + 64:
            left = " and ".join(f"{count} left ({way})" for count, _, _, way in groups)
            raise Wrong(
                f"{stay} requests wait, {left}, and {alive} are still in memory: they must be let "
                "go, and no more kept than twice as many as wait, plus 64"
            )


@case("6.3")
def queue_after_most_have_left(learner, rng):
    """When most have left, in any order, the others still come in theirs: by turn, by deadline."""
    wishes = []
    for n in range(120):
        size, priority = rng.randrange(2, 40), rng.randrange(-3, 4)
        wishes.append(wish(f"r{n}", size, priority, rng.uniform(10, 90)))
    script = Script((120, 500.0), wishes=wishes)
    for one in wishes:
        script.add(one["name"], 0.0)
    for one in rng.sample(wishes, 80):
        script.ask("remove", one["name"])
    script.ask("expired", 50.0)
    served(script, 50.0)
    script.run(learner)


@case("6.3")
def queue_costs_little(learner, rng):
    """With 2,000 waiting, a call looks at no more than 120 priorities and times (a heap needs a few
    dozen): it does not look at everybody. Nor does every removal, on average, though things must
    be put in order from time to time.
    """
    few, firsts, all_over = drive(learner, "queue_comparisons", 2000, 10, 120)
    wanted = [["add", 10], ["first", 10], ["remove", 10]]
    expect_equal(few, wanted, "of 10 rounds of each call, those with 120 looks at most")
    order = sorted(range(2010), key=lambda n: (n * 7919 % 10_007, 5 + n % 7, n))
    there, expected = set(range(2000)), []
    for number in range(2000, 2010):
        there.add(number)
        expected.append(next(n for n in order if n in there))
        there.discard(expected[-1])
    expect_equal(firsts, expected, "who was first each time")
    if all_over > 200 * 60:
        raise Wrong(
            f"to remove 200 of 2,000, wherever they stood, took {all_over:,} looks at priorities "
            "and times, and the logarithm of 2,000 is 11: put things in order less often"
        )
