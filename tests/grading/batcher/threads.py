"""6.3 WaitingQueue and 6.8 Batcher: another thread in the midst of a call."""

from course.cases import Wrong, case, expect_equal
from tests.grading.batcher.queue import size_of, wish
from tests.grading.batcher.serving import asks
from tests.grading.batcher.static import ids_of
from tests.grading.forward_pass.driving import drive
from tests.oracles.batcher import Line

GIVEN = [4, 5.0]  # bound and patience: a, b and c wait, so there is one place more
PAIRS = (
    (["add", "d", 0.0], ["add", "e", 0.0]),
    (["first", 1.0], ["first", 1.0]),
    (["first", 1.0], ["remove", "a"]),
    (["remove", "a"], ["remove", "a"]),
    (["remove", "b"], ["add", "d", 0.0]),
    (["expired", 50.0], ["remove", "a"]),
    (["expired", 50.0], ["expired", 50.0]),
    (["names"], ["add", "d", 0.0]),
    (["names"], ["remove", "b"]),
)


def line_of(wishes: dict, setup: list) -> Line:
    """The oracle's queue after these calls."""
    line = Line(*GIVEN)
    for call in setup:
        asked(line, wishes, *call)
    return line


def asked(line: Line, wishes: dict, name: str, *args):
    """One call of the oracle, answered as the queue should."""
    if name == "add":
        wanted = wishes[args[0]]
        return (
            None if line.add(args[0], wanted | {"size": size_of(wanted)}, args[1]) else "QueueFull"
        )
    return getattr(line, name)(*args)


def one_after_the_other(wishes: dict, setup: list, calls: tuple, order: tuple) -> list:
    """[answer of the first call, of the second, who waits then, in which order they are served]."""
    line, answers = line_of(wishes, setup), [None, None]
    for place in order:
        answers[place] = asked(line, wishes, *calls[place])
    names, served = sorted(line.names()), []
    while (name := line.first(1.0)) is not None:
        served.append(name)
        line.remove(name)
    return [*answers, names, served]


def told_of(result: list) -> str:
    """A result in words."""
    return f"{result[0]} and {result[1]}, then {result[2]} wait and are served as {result[3]}"


def expect_in_some_order(learner, wishes: dict, setup: list, calls: tuple) -> None:
    """Whenever the second call comes, all is as if one had come after the other."""
    right = [one_after_the_other(wishes, setup, calls, order) for order in ((0, 1), (1, 0))]
    for got in drive(learner, "queue_from_two_threads", GIVEN, wishes, setup, list(calls)):
        if got not in right:
            first, second = (f"{name}({', '.join(map(repr, args))})" for name, *args in calls)
            raise Wrong(
                f"{first}, and {second} from another thread in the midst of it, gave "
                f"{told_of(got)}; one after the other they give {told_of(right[0])}. Whoever looks "
                "and then changes something must hold the lock all the while"
            )


@case("6.3")
def queue_from_any_thread(learner, rng):
    """What another thread does in the midst of a call comes before or after that call: nobody is
    lost or there twice, and no more wait than may.
    """
    made = [wish("a", 4, deadline=40.0), wish("b", 6), wish("c", 8, deadline=30.0)]
    made += [wish("gone", 2), wish("d", rng.choice([3, 5, 9])), wish("e", 7)]
    wishes = {one["name"]: one for one in made}
    setup = [["add", name, 0.0] for name in ("gone", "a", "b", "c")] + [["remove", "gone"]]
    for calls in PAIRS:
        expect_in_some_order(learner, wishes, setup, calls)
    many = {f"gone {n}": wish(f"gone {n}", 20 + n) for n in range(35)}  # to be swept by the next
    leave = [call for name in many for call in (["add", name, 0.0], ["remove", name])]
    expect_in_some_order(learner, wishes | many, setup + leave, PAIRS[4])


@case("6.8")
def step_meets_other_threads(learner, rng):
    """Between any two lines of a step another thread may cancel and submit: the one who is
    cancelled ends so, in this step or the next, and the new one is served.
    """
    wishes = {name: asks(ids_of(rng, 2), 4, priority=n) for n, name in enumerate("abcd")}
    found = drive(learner, "serve_between_lines", {"cache": [2, 16]}, wishes)
    reasons = {"a": "cancelled", "b": "length", "c": "cancelled", "d": "length"}
    for got in found:
        expect_equal(got, [reasons, [], 0], "[reasons, check(), tokens reserved]")
