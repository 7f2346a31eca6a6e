"""5.6 StopMatcher."""

import itertools

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.grading.sampler.checks import split
from tests.oracles import sampler as oracle


def matched(learner, stops: list[str], pieces: list[str], kind: str = "list") -> None:
    """A StopMatcher fed these pieces: what is shown after each, and in all, is the oracle's."""
    got = drive(learner, "matched", stops, pieces, kind)
    told = f"stop strings {_brief(stops)}, pieces {_brief(pieces)}"
    text = shown = ""
    for at, piece in enumerate(pieces):
        text += piece
        shown += got["shown"][at]
        what = f"{told}: after piece {at}, what was shown so far"
        expect_equal(shown, oracle.shown(text, stops), what)
        expect_equal(got["found"][at], oracle.cut(text, stops)[1], f"{told}: found after {at}")
    whole, found = oracle.cut(text, stops)
    expect_equal(shown + got["rest"][0], whole, f"{told}: the whole text with flush")
    expect_equal(got["rest"][1], "", f"{told}: a second flush")
    expect_equal(got["last"], found, f"{told}: found after flush")


def _brief(items: list[str]) -> str:
    text = repr(items)
    return text if len(text) < 160 else f"{text[:70]} … {text[-70:]}"


@case("5.6")
def stop_by_hand(learner, rng):
    """With the stop string "END", "The E" shows "The "; "N" shows nothing; "ND" shows "EN" and
    finds nothing (it is "ENND"); "END!" ends the text.
    """
    matched(learner, ["END"], ["The E", "N", "ND", "END!", "more"])
    matched(learner, ["END"], ["The E", "N", "D", "ing"])


@case("5.6")
def stop_without_any(learner, rng):
    """Without stop strings every piece is shown at once, and "" is a piece like any other."""
    matched(learner, [], ["a", "", "bc", "\n"])
    matched(learner, [], [])
    matched(learner, ["x"], [])
    matched(learner, ["xy"], ["", "x", "", "y", "", "z"])


@case("5.6")
def stop_in_any_pieces(learner, rng):
    """However a text comes in pieces, what is shown in all is the same: every way to cut it."""
    text, stops = "a<b<|end|>c", ["<|end|>"]
    for count in range(4):
        for cuts in itertools.combinations(range(1, len(text)), count):
            ends = zip([0, *cuts], [*cuts, len(text)], strict=True)
            if rng.random() < 0.3:
                matched(learner, stops, [text[a:b] for a, b in ends])
    matched(learner, stops, list(text))


@case("5.6")
def stop_inside_a_piece(learner, rng):
    """A piece may hold a whole stop string, or the end of one and more: it is cut at the match."""
    matched(learner, ["stop"], ["do not stop here"])
    matched(learner, ["\n\n"], ["one\n", "\ntwo"])
    matched(learner, ["st"], ["st", "st"])
    matched(learner, ["."], ["Paris.", " It is"])
    matched(learner, ["Q:"], ["A Q", ": x Q: y"])


@case("5.6")
def stop_that_begins_within_itself(learner, rng):
    """A beginning that fails may hold the beginning of the real one: "aab" in "aaab"."""
    matched(learner, ["aab"], list("aaab"))
    matched(learner, ["ababc"], list("abababcab"))
    matched(learner, ["aabaaac"], list("aabaaabaaac"))
    matched(learner, ["\n\nX"], ["a\n", "\n", "\n", "X"])
    for _ in range(30):
        stops = ["".join(rng.choices("ab", k=rng.randrange(2, 6)))]
        matched(learner, stops, split(rng, "".join(rng.choices("ab", k=14))))


@case("5.6")
def stop_of_several(learner, rng):
    """Of several, the one that is complete first ends the text, in whatever order they are listed:
    "b" before "abc", though "abc" begins earlier.
    """
    for stops in itertools.permutations(["abc", "b", "xyz"]):
        matched(learner, list(stops), ["x", "xya", "bc"])
        matched(learner, list(stops), ["xx", "y", "z"])
    for _ in range(40):
        stops = ["".join(rng.choices("abc", k=rng.randrange(2, 5))) for _ in range(4)]
        matched(learner, stops, split(rng, "".join(rng.choices("abc", k=16))))


@case("5.6")
def stop_of_equal_ends(learner, rng):
    """Of several that are complete at the same character, the longest is cut off."""
    for stops in itertools.permutations(["b", "aab", "ab"]):
        matched(learner, list(stops), list("xaab"))
        matched(learner, list(stops), ["xa", "aab"])
        matched(learner, list(stops), ["xcabz"])


@case("5.6")
def stop_holds_back_no_more_than_it_must(learner, rng):
    """Only what could still become a stop string waits, to the character, and it is shown as soon
    as it no longer can.
    """
    matched(learner, ["</answer>"], ["a < b", " and <", "/answ", "ers> </", "answer"])
    matched(learner, ["0123456789"], ["x", "0", "12", "3", "45x", "0", "1"])
    matched(learner, ["aaab", "caa"], ["aa", "a", "a", "c", "a", "x"])


@case("5.6")
def stop_lets_go_at_the_end(learner, rng):
    """flush gives what was held back, once; after a stop string there is nothing to give."""
    matched(learner, ["<|end|>"], ["Paris <|e", "nd"])
    matched(learner, ["<|end|>"], ["Paris <|e", "nd|>"])
    matched(learner, ["ab", "abc"], ["xa"])
    matched(learner, ["\n\nUser"], ["one", "\n", "\n"])


@case("5.6")
def stop_is_final(learner, rng):
    """After a stop string whatever comes is "", another stop string included."""
    matched(learner, ["##", "!!"], ["a #", "# b", "c", "!!", "", "##"])


@case("5.6")
def stop_at_the_edges(learner, rng):
    """A stop string may be the whole text, its beginning, or its end, or be longer than it."""
    for stop in ("Paris", "P", "s", "Paris is", "ris", rng.choice(["ar", "ari"])):
        matched(learner, [stop], ["Par", "is"])
        matched(learner, [stop], list("Paris"), "tuple")


@case("5.6")
def stop_in_any_script(learner, rng):
    """Characters count, not bytes: accents, Chinese, emoji, white space."""
    matched(learner, ["漢字", "\t"], ["これは漢", "字だ"])
    matched(learner, ["🌿🌿"], ["a🌿", "b🌿", "🌿"])
    matched(learner, ["END", "字a"], ["漢字EN", "é漢END", "x"])
    matched(learner, ["END", "字a"], ["x漢字a"])
    matched(learner, ["é"], ["cafe\u0301 caf", "é"])
    matched(learner, ["\r\n\r\n"], ["a\r\n", "\r", "\nb"])
    matched(learner, ["b"], ["a\0", "\0\0c", "b"])


@case("5.6")
def stop_strings_that_are_long(learner, rng):
    """Four stop strings of 256 characters that nearly match, over a long text; a piece of 5,000
    characters.
    """
    matched(learner, ["end"], ["en dive " * 625 + "end", "x"])
    stops = ["a" * 255 + last for last in "bcde"]
    matched(learner, stops, ["a" * 200, "a" * 200, "x", "a" * rng.randrange(250), "a" * 300 + "d"])
    text = ("a" * 100 + "x") * 20 + "a" * 256 + "b"
    got = drive(learner, "matched", stops, list(text))
    whole, found = oracle.cut(text, stops)
    expect_equal("".join(got["shown"]), whole, "what was shown of a long text")
    expect_equal(got["last"], found, "found in a long text")


@case("5.6")
def stop_matchers_are_apart(learner, rng):
    """Each matcher has a state of its own."""
    texts = ["one # two", "three ## four", "five", "## six", "seven #"]
    got = drive(learner, "matched_together", ["##"], texts)
    expected = [oracle.cut(text, ["##"])[0] for text in texts]
    if got != expected:
        raise Wrong(f"matchers fed in turns let {got} through, expected {expected}")
