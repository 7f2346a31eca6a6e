"""5.7 Detokenizer and Answer."""

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.grading.sampler.checks import split
from tests.oracles import sampler as oracle

LEAF = "🌿".encode()  # four bytes
WORDS = [
    "The",
    " capital",
    " of",
    " France",
    " is",
    " Paris",
    ".",
    "\n",
    " é",
    " 漢字",
    "🌿",
    "</s>",
]


def hexes(words: list[bytes | str]) -> list[str]:
    """A vocabulary for the scenarios: ids count from 0."""
    return [(word.encode() if isinstance(word, str) else word).hex() for word in words]


def detokenized(learner, words: list, ids: list[int], strip: bool | None = None) -> None:
    """A Detokenizer fed these ids: what is shown after each, and in all, is the oracle's.

    Of what is no UTF-8, the last three bytes may be shown or not.
    """
    words = [word.encode() if isinstance(word, str) else word for word in words]
    got = drive(learner, "detokenized", hexes(words), ids, strip)
    whole = _stripped(b"".join(words[i] for i in ids), strip).decode("utf-8", "replace")
    told = f"the tokens {[words[i] for i in ids][:12]}"
    data, shown = b"", ""
    for at, piece in enumerate(got["shown"]):
        data, shown = data + words[ids[at]], shown + piece
        most = oracle.readable(_stripped(data, strip))
        least = max(most.rstrip("\ufffd"), oracle.readable(_stripped(data, strip)[:-3]), key=len)
        if not (most.startswith(shown) and shown.startswith(least)):
            raise Wrong(f"of {told}, {shown!r} was shown after number {at}, expected {most!r}")
    expect_equal(shown + got["rest"][0], whole, f"of {told}, the whole text with flush")
    expect_equal(got["rest"][1], "", f"of {told}, a second flush")


def _stripped(data: bytes, strip: bool | None) -> bytes:
    """Without its first space, where there is one and it should go."""
    return data[1:] if strip and data[:1] == b" " else data


def pieces_of(rng, data: bytes) -> list[bytes]:
    """Cut bytes at random places."""
    return [bytes(piece) for piece in split(rng, list(data))]


@case("5.7")
def text_of_words(learner, rng):
    """Tokens that are whole characters come out as they are."""
    detokenized(learner, WORDS, [0, 1, 2, 3, 4, 5, 6])
    detokenized(learner, WORDS, [rng.randrange(len(WORDS)) for _ in range(20)])
    detokenized(learner, WORDS, [])
    detokenized(learner, ["\ufeff", "a\r", "\nb\r\n", "\r", "\0"], [0, 1, 2, 3, 4, 0])


@case("5.7")
def text_of_a_spread_character(learner, rng):
    """The bytes of a character wait until it is whole: "🌿" over four tokens shows after the last.

    Never U+FFFD for a character that is on its way."""
    for text in ("🌿", "é", "漢", "a🌿b", "🌿🌿", "🇫🇷", "e\u0301"):
        words = [bytes([b]) for b in text.encode()]
        detokenized(learner, words, list(range(len(words))))


@case("5.7")
def text_before_a_spread_character(learner, rng):
    """A complete character never waits, though the same token begins another: of "🌿" and half a
    "🌿", the first is shown.
    """
    detokenized(learner, ["a🌿".encode() + LEAF[:2], LEAF[2:]], [0, 1])
    for text in ("a🌿b", "🌿🌿", "🇫🇷é", "e\u0301漢字"):
        data = text.encode()
        words = pieces_of(rng, data + b"!" + data)
        detokenized(learner, words, list(range(len(words))))


@case("5.7")
def text_of_any_bytes(learner, rng):
    """Any sequence of byte tokens survives: what is no UTF-8 becomes U+FFFD, as many as
    bytes.decode writes, and no more than three bytes wait.
    """
    pools = [range(256), range(0x80, 0x100), [0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x8C, 0xBF, 0xC3, 0x41]]
    for _ in range(40):
        pool = rng.choice(pools)
        data = bytes(rng.choice(pool) for _ in range(rng.randrange(1, 14)))
        words = pieces_of(rng, data)
        detokenized(learner, words, list(range(len(words))))


@case("5.7")
def text_that_breaks_off(learner, rng):
    """A character that is never finished is flushed as U+FFFD, once."""
    for size in (1, 2, 3):
        detokenized(learner, ["a", LEAF[:size]], [0, 1])
        detokenized(learner, ["a", LEAF[:size], "b"], [0, 1, 2, 1])
    detokenized(learner, ["漢".encode()[:2]], [0, 0])


@case("5.7")
def text_of_empty_tokens(learner, rng):
    """A token without bytes shows nothing and ends nothing: a character goes on behind it."""
    detokenized(learner, [b"", LEAF[:2], LEAF[2:], "x"], [0, 1, 0, 2, 0, 3, 0])


@case("5.7")
def text_with_its_first_space(learner, rng):
    """strip leaves out one space at the very beginning; without it nothing is left out."""
    words = [" Hello", " world", " ", "", "  two", "x", "\u00a0"]
    for ids in ([0, 1], [3, 0, 1], [2, 0], [4, 0], [5, 0], [2, 2], [3], [6, 0], [5, 2, 0]):
        for strip in (True, False, None):
            detokenized(learner, words, ids, strip)


@case("5.7")
def text_after_an_unknown_token(learner, rng):
    """The exception for an id that does not exist goes on, and nothing is lost by it."""
    table = [*hexes([LEAF[:1], LEAF[1:3], LEAF[3:], " a"]), None]
    got = drive(learner, "detokenized", table, [0, 4, 1, 4, 4, 2, 3], None)
    expect_equal(got["shown"], ["", None, "", None, None, "🌿", " a"], "what was shown")
    got = drive(learner, "detokenized", table, [4, 3, 4, 3], True)
    expect_equal(got["shown"], [None, "a", None, " a"], "what was shown with strip")


@case("5.7")
def texts_are_apart(learner, rng):
    """Each Detokenizer waits for its own bytes."""
    words = [LEAF[:2], LEAF[2:], "é".encode()[:1], "é".encode()[1:], "a"]
    stories = [[0, 1, 4], [2, 3, 4], [4, 4], [0, 4, 0], [2]]
    got = drive(learner, "detokenized_together", hexes(words), stories)
    expected = [b"".join(map(_encoded(words), s)).decode("utf-8", "replace") for s in stories]
    expect_equal(got, expected, "texts of ids fed in turns")


def _encoded(words: list):
    return lambda i: words[i] if isinstance(words[i], bytes) else words[i].encode()


# --- Answer ---


def answered(learner, words, ids, most, ends=(), stops=(), kind="list") -> dict:
    """An Answer fed these ids; its text, shown step by step, is the oracle's."""
    words = [word.encode() if isinstance(word, str) else word for word in words]
    ends, stops = list(ends), list(stops)
    got = drive(learner, "answered", hexes(words), ids, most, ends, stops, kind)
    expected = [None]
    shown, kept, data = "", [], b""
    for at, token in enumerate(ids):
        told = f"ids {ids}, end ids {ends}, stop strings {stops}, at most {most}: number {at}"
        over = token in ends
        kept, data = (kept, data) if over else ([*kept, token], data + words[token])
        text = oracle.readable(data)
        _, found = oracle.cut(text, stops)
        reason = "stop" if over or found else "length" if len(kept) == most else None
        if found is None and reason is not None:  # the rest is let go
            text = data.decode("utf-8", "replace")
            before, found = oracle.cut(text, stops)
            visible, reason = before, "stop" if found else reason
        else:
            visible = oracle.shown(text, stops)
        shown += got["shown"][at]
        expect_equal(shown, visible, f"{told}: what was shown so far")
        expected.append(reason)
        expect_equal(got["reasons"][at + 1], reason, f"{told}: finish_reason")
        if reason is not None:
            break
    expect_equal(got["reasons"][0], None, "finish_reason before the first token")
    expect_equal(got["ids"], kept, f"ids {ids}, end ids {ends}, stop strings {stops}: ids kept")
    return got


@case("5.7")
def answer_to_the_length(learner, rng):
    """The max_tokens-th id ends it, "length", and belongs to it."""
    for most in (1, 2, 5):
        answered(learner, WORDS, [0, 1, 2, 3, 4, 5], most)
        answered(learner, WORDS, [7] * 6, most, [11], ["zzz"])


@case("5.7")
def answer_to_an_end_id(learner, rng):
    """An end id ends it, "stop", and neither the id nor its text belongs to it; even as the first,
    even if it is 0, even where the length would have ended it.
    """
    for ends in ([11], [11, 99], [50, 11]):
        answered(learner, WORDS, [0, 1, 11, 2], 9, ends)
        answered(learner, WORDS, [11, 0], 3, ends)
        answered(learner, WORDS, [0, 1, 11], 3, ends)
        answered(learner, WORDS, [0, 1, 3, 2], 9, [*ends, 3])
        answered(learner, WORDS, [0, 11, 3], 9, [3, *ends])
    answered(learner, WORDS, [5, 0, 6], 9, [0])


@case("5.7")
def answer_of_any_collection(learner, rng):
    """end_ids may be a list, a tuple, a set, a frozenset, or left out."""
    for kind in ("list", "tuple", "set", "frozenset"):
        answered(learner, WORDS, [0, 1, 11, 2], 9, [11, 77], [], kind)
    answered(learner, WORDS, [11, 11, 0], 3)


@case("5.7")
def answer_to_a_stop_string(learner, rng):
    """A stop string ends it, "stop", and is cut from the text; the ids that wrote it stay. It may
    span tokens, or end inside one.
    """
    answered(learner, WORDS, [0, 1, 2, 3, 4, 5], 9, [11], ["capital of"])
    answered(learner, WORDS, [0, 1, 2, 3, 4, 5], 9, [11], ["Fra"])
    answered(learner, WORDS, [0, 1, 2, 3, 4, 5], 9, [11], ["al o", "is P"])
    answered(learner, WORDS, [5, 6, 7, 7, 5], 9, [11], ["\n\n"])
    answered(learner, WORDS, [0, 9, 5], 9, [11], ["漢"])


@case("5.7")
def answer_that_ends_twice(learner, rng):
    """Where the last allowed token completes a stop string, the reason is "stop"."""
    answered(learner, WORDS, [0, 1, 5], 3, [11], ["Paris"])
    answered(learner, WORDS, [6], 1, [11], ["."])


@case("5.7")
def answer_lets_go_at_the_end(learner, rng):
    """What was held back for a stop string comes out when the answer ends otherwise."""
    answered(learner, WORDS, [0, 1, 2, 11], 9, [11], [" of France"])
    answered(learner, WORDS, [0, 1, 2], 3, [11], [" of France"])
    answered(learner, WORDS, [0, 1, 2], 3, [11], ["capital of Spain", "f ", "The capital of s"])


@case("5.7")
def answer_of_spread_characters(learner, rng):
    """Characters wait for their bytes; at the end the rest comes out as U+FFFD, and before what
    stop strings hold back goes out, it is looked at as well.
    """
    words = [LEAF[:1], LEAF[1:2], LEAF[2:], "a", "</s>"]
    for ids in ([3, 0, 1, 2, 3], [3, 0, 1], [0, 1, 4], [0, 3, 0, 4], [3, 0, 1, 2, 0]):
        for stops in ([], ["🌿"], ["a🌿"], ["🌿a"], ["\ufffd"], ["\ufffda"], ["a\ufffd"]):
            answered(learner, words, ids, len(ids), [4], stops)
    answered(learner, ["a", b"." + LEAF[:2]], [0, 1], 9, [], ["."])


@case("5.7")
def answer_of_special_tokens(learner, rng):
    """A token without text counts against the length like any other."""
    answered(learner, ["a", b"", "b"], [0, 1, 1, 2], 3, [9], ["ab"])
    answered(learner, ["a", b""], [0, 1], 2, [9])


@case("5.7")
def answer_after_its_end(learner, rng):
    """A token after the end is a RuntimeError, whatever ended it, and changes nothing."""
    for ids, most, ends, stops in (
        ([0, 11], 9, [11], []),
        ([0, 1], 2, [11], []),
        ([0, 5], 9, [11], ["Paris"]),
    ):
        got = answered(learner, WORDS, ids, most, ends, stops)
        if "RuntimeError" not in got.get("after", {}).get("raised", []):
            raise Wrong("a token after the end should raise a RuntimeError")


@case("5.7")
def answers_at_random(learner, rng):
    """Tokens of all kinds, with end ids and stop strings of all kinds."""
    words = [*WORDS, b"", " a", "b", "ab", LEAF[:2], LEAF[2:]]
    parts = [[i] for i in range(len(words) - 2)] + [[len(words) - 2, len(words) - 1]] * 3
    stops = [" Paris.", "🌿", "é", "ab", "\n\n", "b a", "\ufffd", "of Fr", "is is"]
    for _ in range(30):
        ids = [i for _ in range(rng.randrange(1, 12)) for i in rng.choice(parts)]
        most, ends = rng.randrange(1, 16), rng.sample(range(len(words) - 2), rng.randrange(3))
        chosen = rng.sample(stops, rng.randrange(5))
        answered(learner, words, ids, most, ends, chosen)


@case("5.7")
def answers_are_apart(learner, rng):
    """Each answer has its own ids, text and end."""
    stories = [[0, 1, 2], [5], [6, 6], [3, 4, 5, 6]]
    got = drive(learner, "answered_together", hexes(WORDS), stories, 3)
    expected = []
    for story in stories:
        ids = story[:3]
        text = "".join(WORDS[i] for i in ids)
        expected.append([ids, text, "length" if len(ids) == 3 else None])
    expect_equal(got, expected, "[ids, text, finish_reason] of answers fed in turns")
