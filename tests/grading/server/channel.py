"""7.4 Channel."""

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive


def driven(learner, script: list, got: list, calls: list | None = None) -> None:
    """A script gives these answers; the loop was called so often after each step."""
    found = drive(learner, "channel_script", script)
    expect_equal(found["got"], got, f"what came out of {script}")
    if calls is not None:
        expect_equal(found["calls"], calls, f"calls of the loop after each step of {script}")


def put(index: int, text: str, tokens=(), reason=None, offsets=()) -> list:
    """A step that puts a piece."""
    return ["put", index, text, list(tokens), reason, list(offsets)]


@case("7.4")
def channel_passes_pieces(learner, rng):
    """What is put comes out once, as it was; then there is nothing, and get waits."""
    number = rng.randrange(100)
    script = [put(0, f"a{number}", [1, 2], None, [7, 9]), ["get"], ["get"], put(1, "b"), ["get"]]
    driven(
        learner,
        script,
        [[[0, f"a{number}", [1, 2], None, [7, 9]]], "waits", [[1, "b", [], None, []]]],
    )


@case("7.4")
def channel_joins_pieces(learner, rng):
    """While nobody reads, the pieces of one answer become one: so it never holds more pieces than
    there are answers. It has the offsets of all, and the last one's finish_reason.
    """
    texts = [f"{rng.randrange(100)} " for _ in range(30)]
    script = [put(2, text, [n], "stop" if n == 29 else None, [n]) for n, text in enumerate(texts)]
    driven(
        learner,
        [*script, ["get"]],
        [[[2, "".join(texts), list(range(30)), "stop", list(range(30))]]],
    )


@case("7.4")
def channel_keeps_answers_apart(learner, rng):
    """Pieces of several answers: one each, in the order in which the first of each came."""
    script = [
        put(1, "a"),
        put(0, "b", [4]),
        put(1, "c", [5]),
        put(2, ""),
        put(0, "d", [], "length"),
    ]
    got = [[1, "ac", [5], None, []], [0, "bd", [4], "length", []], [2, "", [], None, []]]
    driven(learner, [*script, ["get"], put(0, "e"), ["get"]], [got, [[0, "e", [], None, []]]])


@case("7.4")
def channel_wakes_a_reader(learner, rng):
    """A reader that waits gets what comes; of two channels each wakes its own."""
    script = [["ask"], ["settle"], put(0, "x"), ["settle"], ["ask"], put(1, "y"), put(1, "z")]
    got = [["reader", [[0, "x", [], None, []]]], ["reader", [[1, "yz", [], None, []]]]]
    driven(learner, [*script, ["settle"], ["get"]], [*got, "waits"])


@case("7.4")
def channel_calls_the_loop_once(learner, rng):
    """The loop is called when something comes into an empty channel, and not again before it has
    been read: not for every token.
    """
    more = rng.randrange(3, 9)
    script = [put(0, "x")] * more + [put(1, "y")] * 2 + [["settle"], put(0, "z"), ["get"]]
    script += [put(0, "x"), put(0, "x"), ["get"], ["get"], put(2, "")]
    calls = [1] * (more + 5) + [2, 2, 2, 2, 3]
    text = "x" * more + "z"
    got = [[[0, text, [], None, []], [1, "yy", [], None, []]], [[0, "xx", [], None, []]], "waits"]
    driven(learner, script, got, calls)


@case("7.4")
def channel_loses_nothing(learner, rng):
    """A reader that stops waiting takes nothing with it, not even in the moment in which something
    comes.
    """
    script = [["ask"], ["leave"], put(0, "x"), ["get"], ["ask"], ["leave"], put(0, "y")]
    script += [["settle"], put(0, "z"), ["get"], ["get"]]
    driven(learner, script, [[[0, "x", [], None, []]], [[0, "yz", [], None, []]], "waits"])
    for pause in ([], [["tick"]], [["tick"], ["tick"]]):
        script = [["ask"], put(0, "x"), *pause, ["leave"], put(0, "y"), ["get"]]
        found = drive(learner, "channel_script", script)["got"]
        texts = ["".join(piece[1] for piece in (got[1] if got[0] == "reader" else got))
                 for got in found]  # fmt: skip
        expect_equal("".join(texts), "xy", f"the text that came out of {script}")


@case("7.4")
def channel_is_bounded(learner, rng):
    """However much is put that nobody reads: no more than one piece an answer is kept."""
    counts = [rng.randrange(50, 90) for _ in range(3)]
    alive, texts = drive(learner, "channel_unread", counts)
    if alive > len(counts):
        raise Wrong(f"of {sum(counts)} pieces of {len(counts)} answers, {alive} are kept")
    expect_equal(texts, ["".join(f"{n}," for n in range(c)) for c in counts], "the texts")


@case("7.4")
def channel_outlives_its_loop(learner, rng):
    """When the loop is closed there are no readers: put raises nothing, and keeps nothing."""
    found = drive(learner, "channel_closed_loop", ["a", "b", "c"])
    expected = {"tried": True, "kept": 0}
    expect_equal(found, expected, "whether a closed loop was called, how many pieces are kept")


@case("7.4")
def channel_from_many_threads(learner, rng):
    """Writers on several threads, a reader on the loop: nothing is lost, doubled or shuffled."""
    counts = [rng.randrange(700, 900) for _ in range(4)]
    if not drive(learner, "channel_from_threads", counts):
        raise Wrong("with four writers at once, text is lost, doubled or out of order")
