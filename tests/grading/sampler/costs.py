"""5.4, 5.6 and 5.7: what must not grow, counted in numbers, bytes and calls, never in seconds."""

from course.cases import Wrong, case
from tests.grading.forward_pass.driving import drive
from tests.grading.sampler.checks import logits_of

COUNT = 300  # pieces of a stream
ROOM = 8 * 1024  # bytes that may be kept of it; all of it would be at least twice as much


@case("5.4")
def distribution_sorts_for_those_who_ask(learner, rng):
    """A row without top-k and top-p is not sorted, whatever the other rows ask for."""
    rows, vocabulary = 12, 600
    wishes = [rng.choice([{}, {"temperature": 0.7}, {"min_p": 0.1}, {"temperature": 0}])
              for _ in range(rows)]  # fmt: skip
    for asked, more in ((0, {}), (1, {"top_p": 0.9}), (1, {"top_k": 40, "top_p": 0.9})):
        wishes[rng.randrange(rows)] = {"temperature": 1.0, **more}
        found = drive(learner, "numbers_sorted", logits_of(rng, rows, vocabulary), wishes)
        if found > 3 * asked * vocabulary:  # a filter may sort its row more than once
            raise Wrong(
                f"{asked} of {rows} rows ask for top-k or top-p, but distributions puts {found:,} "
                f"numbers in order, and a row has {vocabulary}"
            )
        wishes = [{**wish, "top_p": 1.0, "top_k": 0} for wish in wishes]


@case("5.6")
def stop_keeps_nothing_that_was_shown(learner, rng):
    """The work for each character is the same, however long the text before it: what was shown is
    not kept, so it cannot be searched again.
    """
    piece = rng.choice(["🌿 The capital ", "Paris </ans 🦜 "])
    for stops in (["</answer>"], ["##", "\n\nUser:"]):
        kept = drive(learner, "matcher_growth", stops, piece + "of France", COUNT)
        if kept > ROOM:
            raise Wrong(
                f"of a text of {COUNT * len(piece + 'of France'):,} characters in {COUNT} pieces, "
                f"the stop strings {stops} not among them, {kept:,} bytes are still in memory"
            )


@case("5.7")
def text_keeps_nothing_that_was_shown(learner, rng):
    """The work for each id is the same, however many came before: what was given out is not kept,
    so it cannot be decoded again.
    """
    words = f" {rng.choice(['parrot', 'France'])} 🦜 {'é' * 12} and 🌿 as well, of four bytes"
    word = words.encode()
    found = drive(learner, "detokenizer_growth", word.hex(), COUNT)
    if found["asked"] > 20 * COUNT:
        raise Wrong(f"for {COUNT} ids, token_bytes was called {found['asked']:,} times")
    if found["bytes"] > ROOM:
        raise Wrong(
            f"of {COUNT} ids with {len(word)} bytes each, all of them whole characters, "
            f"{found['bytes']:,} bytes are still in memory"
        )
