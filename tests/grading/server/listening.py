"""7.4 listen."""

from course.cases import case, expect_equal
from tests.grading.forward_pass.driving import drive

E, SMILE_BEGINS = "é", "\ufffd"


def heard(learner, tokens, pieces, said=None, *, stops=(), logprobs=None, reason="length", **more):
    """A request gets these tokens and is over: these pieces were put, and on_token said so.

    pieces: [text, tokens of the log-probabilities, offsets] each; the last has the finish_reason
    `ends`, if it is given, else the reason.
    """
    ends = more.pop("ends", reason)
    setting = {"tokens": list(tokens), "stops": list(stops), "logprobs": logprobs}
    setting |= {"reason": reason, "index": 3} | more
    found = drive(learner, "listens", setting)
    expected = [[3, text, told, None, offsets] for text, told, offsets in pieces]
    expected[-1][3] = ends
    shown = f"tokens {list(tokens)} with stops {list(stops)}"
    expect_equal(found["pieces"], expected, f"the pieces of {shown}")
    said = [False] * len(tokens) if said is None else said
    expect_equal(found["said"], said, f"whether on_token returned True, {shown}")
    texts, *told = (
        "".join(p[0] for p in pieces),
        *([x for p in pieces for x in p[n]] for n in (1, 2)),
    )
    whole = [3, texts, told[0], ends, told[1]]
    expect_equal(found["whole"][1], whole, f"the whole answer of {shown}")
    expect_equal(found["whole"][0][3], None, "its finish_reason before the end")
    before = "".join(p[0] for p in pieces[: found["counts"][-1]]) if found["counts"] else ""
    expect_equal(found["whole"][0][1], before, "its text before the end")


@case("7.4")
def listen_piece_by_piece(learner, rng):
    """Each token that brings text is a piece, at once; the end is one more, though it be empty."""
    for reason in ("stop", "length", "timeout", "error", "cancelled"):
        pieces = [["one", [], []], [" two", [], []], ["\n", [], []], ["", [], []]]
        heard(learner, [1, 2, 4], pieces, reason=reason)
    heard(learner, [], [["", [], []]], reason="cancelled")
    heard(learner, [2, 1], [["two", [], []], ["one", [], []], ["", [], []]], strip=True)


@case("7.4")
def listen_holds_half_characters(learner, rng):
    """A token without text makes no piece; a character that is never finished comes at the end."""
    heard(learner, [1, 5, 6, 0, 2], [["one", [], []], [E, [], []], [" two", [], []], ["", [], []]])
    heard(learner, [1, 7], [["one", [], []], [SMILE_BEGINS, [], []]], reason="timeout")


@case("7.4")
def listen_ends_at_a_stop_string(learner, rng):
    """A stop string ends the request in on_token, not later, and neither it nor what begins like
    it is ever put.
    """
    pieces = [["one", [], []], ["", [], []]]
    heard(learner, [1, 8], pieces, [False, True], stops=["END"], reason="stop")
    heard(learner, [1, 9, 10], pieces, [False, False, True], stops=["END"], reason="stop")
    pieces = [["one", [], []], [" t", [], []], ["", [], []]]
    heard(learner, [1, 2], pieces, [False, True], stops=["wo"], reason="stop")


@case("7.4")
def listen_gives_back_what_it_held(learner, rng):
    """What could have become a stop string comes when it did not, at the latest at the end."""
    pieces = [["one", [], []], ["EN three", [], []], ["", [], []]]
    heard(learner, [1, 9, 3], pieces, stops=["END"])
    for reason in ("length", "stop", "timeout", "cancelled"):
        heard(learner, [1, 9], [["one", [], []], ["EN", [], []]], stops=["END"], reason=reason)


@case("7.4")
def listen_stops_at_the_very_end(learner, rng):
    """A stop string that is complete only by what the detokenizer held back is cut off; "length"
    becomes "stop" then, and no other reason does.
    """
    tokens, stops = [1, 9, 5], ["EN\ufffd"]
    pieces = [["one", [], []], ["", [], []]]
    heard(learner, tokens, pieces, stops=stops, reason="length", ends="stop")
    for reason in ("timeout", "error", "cancelled", "stop"):
        heard(learner, tokens, pieces, stops=stops, reason=reason)


@case("7.4")
def listen_with_logprobs(learner, rng):
    """Log-probabilities come with the text of their token, and with the next where it has none yet.
    offsets say where in the text each token begins, half characters and stop strings or not: so
    they are the same in a stream and in the whole answer.
    """
    for count in (0, rng.randrange(1, 4)):
        pieces = [["one", [1], [0]], [E, [5, 6], [3, 3]], [" three", [0, 3], [4, 4]], ["", [], []]]
        heard(learner, [1, 5, 6, 0, 3], pieces, logprobs=count)
        pieces = [["one", [1], [0]], ["EN two", [9, 2], [3, 5]], ["\ufffd", [7], [9]]]
        heard(learner, [1, 9, 2, 7], pieces, logprobs=count, stops=["END"])
        pieces = [["one", [1], [0]], ["", [9, 10], [3, 5]]]
        said = [False, False, True]
        heard(learner, [1, 9, 10], pieces, said, logprobs=count, stops=["END"], reason="stop")


@case("7.4")
def listen_for_many(learner, rng):
    """Any tokens: the pieces joined are the text, up to the stop string."""
    words = {1: "one", 2: " two", 3: " three", 4: "\n", 8: "END", 9: "EN"}
    for _ in range(8):
        tokens = [rng.choice(list(words)) for _ in range(12)]
        setting = {"tokens": tokens, "stops": ["NE", "\n\n"], "logprobs": None, "reason": "length"}
        found = drive(learner, "listens", setting | {"index": 0})
        text, whole, stopped = "", "".join(words[token] for token in tokens), False
        for end in range(len(whole) + 1):
            text = whole[:end]
            stop = next((s for s in ("NE", "\n\n") if text.endswith(s)), None)
            if stop:
                text, stopped = text.removesuffix(stop), True
                break
        got = ["".join(piece[1] for piece in found["pieces"]), found["whole"][1][1]]
        expect_equal(got, [text, text], f"[pieces joined, whole] of {tokens}")
        reason = "stop" if stopped else "length"
        reasons = [piece[3] for piece in found["pieces"]]
        expect_equal(reasons, [None] * (len(reasons) - 1) + [reason], "the finish_reasons")
