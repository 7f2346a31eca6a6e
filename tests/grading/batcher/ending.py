"""6.6 emit, end and usable_rows."""

import torch

from course.cases import Wrong, case, expect_equal, randn
from tests.grading.batcher.static import ids_of
from tests.grading.forward_pass.driving import drive, expect_failure

END = 95  # an end id in all cases here


def emitted(learner, tokens, limit=9, answers=None, ends=(END,), **more) -> dict:
    """Tokens through emit; see emit_session."""
    setting = {"tokens": tokens, "limit": limit, "answers": {} if answers is None else answers}
    setting |= {"ends": list(ends), "kind": "list", "ignore_eos": False, "told": False}
    return drive(learner, "emit_session", setting | more)


def expect_emitted(found: dict, output: list, reasons: list, what: str) -> None:
    """Output, reasons and what the listener heard of the tokens."""
    expect_equal(found["reasons"], reasons, f"what emit gave for each token {what}")
    expect_equal(found["output"], output, f"output {what}")
    expect_equal([heard[0] for heard in found["heard"]], output, f"what on_token got {what}")
    expect_equal(found["state"], "decode", f"the state {what}")


@case("6.6")
def emit_one_by_one(learner, rng):
    """Each token is added, then given to on_token, which sees it in the output; with the limit-th
    it is over, "length".
    """
    for limit in (1, rng.randrange(2, 6)):
        tokens = ids_of(rng, limit)
        found = emitted(learner, tokens, limit)
        expect_emitted(found, tokens, [None] * (limit - 1) + ["length"], f"with limit {limit}")
        outputs = [heard[1] for heard in found["heard"]]
        seen = [tokens[: n + 1] for n in range(limit)]
        expect_equal(outputs, seen, "the output that on_token saw at each call")


@case("6.6")
def emit_looks_at_the_limit(learner, rng):
    """It is the limit that counts, which fit has clamped, and not what was wished for."""
    tokens = ids_of(rng, 4)
    found = emitted(learner, tokens, 50, context=2 + 4)
    expect_emitted(found, tokens, [None] * 3 + ["length"], "with a limit of 4, and 50 wished for")


@case("6.6")
def emit_ends_at_an_end_id(learner, rng):
    """An end id is "stop": it is not added, and nobody is told; any collection of them will do,
    and 0 is one like any other.
    """
    for kind in ("list", "tuple", "set", "frozenset"):
        for end, place in ((END, 2), (0, 0), (7, 4)):
            tokens = [t for t in ids_of(rng, 9, 10) if t != end]
            said = [*tokens[:place], end, *tokens[place:]]
            found = emitted(learner, said, 5, ends=(7, END, 0), kind=kind)
            expect_emitted(found, said[:place], [None] * place + ["stop"], f"before end id {end}")


@case("6.6")
def emit_ignores_end_ids(learner, rng):
    """With ignore_eos an end id is a token like any other."""
    tokens = [5, END, 6, END]
    found = emitted(learner, tokens, 4, ignore_eos=True)
    expect_emitted(found, tokens, [None, None, None, "length"], "with ignore_eos")


@case("6.6")
def emit_stops_when_told(learner, rng):
    """When on_token returns True it is over, "stop", with that token in the output; also with the
    last one that there may be.
    """
    for place, limit in ((1, 9), (3, 9), (3, 3)):
        tokens = ids_of(rng, place)
        found = emitted(learner, tokens, limit, {place: True})
        what = f"when on_token returned True at number {place} of {limit}"
        expect_emitted(found, tokens, [None] * (place - 1) + ["stop"], what)


@case("6.6")
def emit_stops_only_at_true(learner, rng):
    """Only True itself stops: a number, a text, a list, None or False do not."""
    tokens = ids_of(rng, 7)
    answers = {1: 1, 2: "a piece", 3: [0], 4: None, 5: False, 6: 7.5, 7: 0}
    found = emitted(learner, tokens, 8, answers)
    expect_emitted(found, tokens, [None] * 7, f"when on_token returned {list(answers.values())}")


@case("6.6")
def emit_without_a_listener(learner, rng):
    """Nobody has to listen."""
    tokens = ids_of(rng, 3)
    setting = {"tokens": tokens, "limit": 3, "answers": None, "ends": [], "kind": "list"}
    found = drive(learner, "emit_session", setting | {"ignore_eos": False, "told": False})
    expect_equal([found["reasons"], found["output"]], [[None, None, "length"], tokens], "it")


@case("6.6")
def emit_lets_errors_through(learner, rng):
    """What on_token raises goes on to the caller; the token has been added."""
    tokens = ids_of(rng, 3)
    for error in ("ArithmeticError", "KeyboardInterrupt"):
        found = emitted(learner, tokens, 9, {2: error})
        expect_failure(found["raised"], error, "emit with a listener that fails")
        expect_equal(found["output"], tokens[:2], "output after the error")


@case("6.6")
def emit_adds_log_probabilities(learner, rng):
    """What is told about a token is added with it, before on_token is called, and not with an end
    id.
    """
    tokens = ids_of(rng, 2)
    found = emitted(learner, [*tokens, END], 9, told=True)
    expect_equal(found["logprobs"], [f"about {token}" for token in tokens], "logprobs")
    expect_equal([heard[2] for heard in found["heard"]], [1, 2], "logprobs that on_token saw")


def ended(learner, calls, breaks=None, listens=True) -> dict:
    """end, several times; see end_session."""
    return drive(learner, "end_session", calls, breaks, listens)


@case("6.6")
def end_tells_once(learner, rng):
    """The request is finished, then on_finish is called with it, once; nothing is returned."""
    for reason in ("stop", "length", "cancelled", "timeout"):
        found = ended(learner, [[reason, None]])
        expect_equal(found["answers"], [[True, None]], "[whether it returned None, what it raised]")
        expect_equal(len(found["seen"]), 1, "how often on_finish was called")
        same, stand = found["seen"][0]
        if not same:
            raise Wrong("on_finish was called with something else than the request")
        expect_equal([stand["state"], stand["finish_reason"]], ["finished", reason], "as it saw it")


@case("6.6")
def end_with_an_error(learner, rng):
    """The error is the request's when on_finish is called; without on_finish it works too."""
    text = f"fault {rng.randrange(100)}"
    found = ended(learner, [["error", text]])
    expect_equal(found["seen"][0][1]["error"], f"ValueError({text!r})", "error as on_finish saw it")
    found = ended(learner, [["error", text]], listens=False)
    expect_equal([found["finish_reason"], found["error"]], ["error", f"ValueError({text!r})"], "it")


@case("6.6")
def end_only_once(learner, rng):
    """Ending it again, or for no known reason, raises what finish raises, and calls nobody."""
    found = ended(learner, [["stop", None], ["length", None], ["error", "late"]])
    kinds = [answer[1] for answer in found["answers"]]
    expect_equal(kinds, [None, "RuntimeError", "RuntimeError"], "what three calls of end raised")
    expect_equal(len(found["seen"]), 1, "how often on_finish was called")
    expect_equal([found["finish_reason"], found["error"]], ["stop", None], "[reason, error]")
    found = ended(learner, [["eos", None], ["stop", None]])
    kinds = [answer[1] for answer in found["answers"]]
    expect_equal(kinds, ["ValueError", None], "what end('eos') and then end('stop') raised")
    expect_equal(len(found["seen"]), 1, "how often on_finish was called")


@case("6.6")
def end_survives_its_listener(learner, rng):
    """An Exception of on_finish is returned, and the request stays as it is finished; what is no
    Exception, such as Ctrl-C, goes on to the caller.
    """
    for error in ("ArithmeticError", "RuntimeError"):
        found = ended(learner, [["length", None]], error)
        expect_equal(found["answers"], [[True, None]], f"[whether it returned the {error}, raised]")
        expect_equal([found["finish_reason"], found["error"]], ["length", None], "[reason, error]")
        expect_equal(len(found["seen"]), 1, "how often on_finish was called")
    for error in ("KeyboardInterrupt", "SystemExit"):
        found = ended(learner, [["length", None]], error)
        expect_equal(found["answers"], [[False, error]], f"[returned, raised] with {error}")
        expect_equal(found["state"], "finished", "the state")


@case("6.6")
def usable_tells_rows_apart(learner, rng):
    """NaN anywhere, +inf anywhere or nothing but -inf make a row unusable; -inf beside a number
    does not, and neither do large numbers.
    """
    nan, inf, width = float("nan"), float("inf"), 7
    rows = randn(rng, 9, width)
    place = [rng.randrange(width) for _ in range(9)]
    rows[1, place[1]], rows[2, place[2]], rows[3] = nan, inf, -inf
    rows[4] = rows[4].masked_fill(torch.arange(width) != place[4], -inf)
    rows[5, place[5]], rows[5, (place[5] + 1) % width] = -inf, nan
    rows[6, place[6]], rows[6, (place[6] + 1) % width] = inf, -inf
    rows[7] = 6e4 * torch.where(torch.arange(width) % 2 == 0, 1.0, -1.0)
    fine = [True, False, False, False, True, False, False, True, True]
    order = rng.sample(range(9), 9)
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        found = drive(learner, "usable", rows[order], dtype)
        expect_equal(found, [fine[n] for n in order], f"usable_rows in {dtype}")


@case("6.6")
def usable_when_all_are(learner, rng):
    """One row, one column, and no row at all."""
    for shape in ((1, 5), (3, 1), (0, 5)):
        found = drive(learner, "usable", randn(rng, *shape), "float32")
        expect_equal(found, [True] * shape[0], f"usable_rows of {list(shape)}")
