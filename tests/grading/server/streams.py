"""7.7 collect and stream."""

import json

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive

STILL = ": still here\n\n"
DONE = "data: [DONE]\n\n"


def event(body: dict) -> str:
    """The text of an event, one character a byte."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode().decode("latin-1")


def chat_chunk(index: int, delta: dict, reason=None) -> str:
    """An event of a chat, of the scenario's job."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
    named = {"id": "id-7", "object": "chat.completion.chunk", "created": 5, "model": "m"}
    return event(named | {"choices": [choice]})


def role(index: int, text: str, reason=None) -> str:
    """The first event of an answer."""
    return chat_chunk(index, {"role": "assistant", "content": text}, reason)


def text(index: int, words: str, reason=None, logprobs=None) -> str:
    """An event of a completion."""
    choice = {"index": index, "text": words, "logprobs": logprobs, "finish_reason": reason}
    named = {"id": "id-7", "object": "text_completion", "created": 5, "model": "m"}
    return event(named | {"choices": [choice]})


def streamed(learner, expected: list, **setting) -> dict:
    """stream gives these [time, event], ends without an error, and cancels at its end."""
    found = drive(learner, "streams", setting)
    expect_equal(found["events"], expected, f"[time, event] of {setting['puts']}")
    if "raised" in found:
        raise Wrong(f"stream raised {found['raised']} at {found['at']}")
    expect_cancelled(found, expected[-1][0])
    return found


def expect_cancelled(found: dict, at: float) -> None:
    """job.cancel was called when the stream was over."""
    before, after = found["cancels"]
    if not before:
        when = f"only when it was closed, at {after[0]}" if after else "never"
        raise Wrong(f"the stream was over at {at}, but job.cancel was called {when}")
    expect_equal(before[0], at, "the time at which job.cancel was called first")


def expect_raised(found: dict) -> None:
    """Something was raised at the end."""
    if "raised" not in found:
        raise Wrong("a request failed, job.failure had an ApiError for it, and nothing was raised")


@case("7.7")
def stream_of_a_chat(learner, rng):
    """Each piece is an event as soon as it comes; the first has the role, the last the reason."""
    puts = [[1.0, 0, "The"], [1.5, 0, " capital"], [2.0, 0, " é"], [2.25, 0, "", "stop"]]
    expected = [
        [1.0, role(0, "The")],
        [1.5, chat_chunk(0, {"content": " capital"})],
        [2.0, chat_chunk(0, {"content": " é"})],
        [2.25, chat_chunk(0, {}, "stop")],
        [2.25, DONE],
    ]
    streamed(learner, expected, puts=puts)
    streamed(learner, [[3.0, role(0, "", "length")], [3.0, DONE]], puts=[[3.0, 0, "", "length"]])


@case("7.7")
def stream_of_a_completion(learner, rng):
    """Events of a completion have no role; the numbers of tokens come at last, when asked for."""
    puts = [[1.0, 0, "Paris"], [2.0, 0, ".", "length"]]
    tokens = rng.randrange(2, 9)
    expected = [[1.0, text(0, "Paris")], [2.0, text(0, ".", "length")]]
    streamed(learner, [*expected, [2.0, DONE]], puts=puts, endpoint="completion")
    usage = {"prompt_tokens": 11, "completion_tokens": tokens, "total_tokens": 11 + tokens}
    named = {"id": "id-7", "object": "text_completion", "created": 5, "model": "m", "choices": []}
    expected += [[2.0, event(named | {"usage": usage})], [2.0, DONE]]
    streamed(learner, expected, puts=puts, endpoint="completion", usage=True, outputs=[tokens])


@case("7.7")
def stream_of_several(learner, rng):
    """Answers side by side: each has a first event of its own, and the stream goes on until the
    last is over.
    """
    puts = [
        [1.0, 1, "b"],
        [1.0, 0, "a"],
        [2.0, 0, "A", "stop"],
        [3.0, 1, "B"],
        [4.0, 1, "", "length"],
    ]
    expected = [
        [1.0, role(1, "b")],
        [1.0, role(0, "a")],
        [2.0, chat_chunk(0, {"content": "A"}, "stop")],
        [3.0, chat_chunk(1, {"content": "B"})],
        [4.0, chat_chunk(1, {}, "length")],
        [4.0, DONE],
    ]
    streamed(learner, expected, puts=puts, outputs=[2, 2])


@case("7.7")
def stream_with_logprobs(learner, rng):
    """Log-probabilities are in the events when the job has token_bytes."""
    puts = [[1.0, 0, "Par", None, [[1, 0]]], [2.0, 0, "is", "stop", [[2, 3]]]]
    told = [
        {
            "tokens": [name],
            "token_logprobs": [-1.0],
            "top_logprobs": [{}],
            "text_offset": [at],
        }
        for name, at in (("Par", 0), ("is", 3))
    ]
    expected = [[1.0, text(0, "Par", None, told[0])], [2.0, text(0, "is", "stop", told[1])]]
    expected.append([2.0, DONE])
    streamed(learner, expected, puts=puts, endpoint="completion", told=True)
    setting = {"puts": puts, "endpoint": "completion", "told": True}
    whole = {key: told[0][key] + told[1][key] for key in told[0]}
    found = drive(learner, "collects", setting).get("gave", {}).get("choices")
    choice = {"index": 0, "text": "Paris", "logprobs": whole, "finish_reason": "stop"}
    expect_equal(found, [choice], "the choices that collect gives of the same answer")


@case("7.7")
def stream_keeps_alive(learner, rng):
    """After quiet seconds of silence a comment is sent, and again: before the first event, too."""
    quiet = rng.choice([2.0, 4.0, 8.0])
    puts = [[2.5 * quiet, 0, "a"], [3 * quiet, 0, "b"], [4.25 * quiet, 0, "", "stop"]]
    expected = [
        *([quiet, STILL], [2 * quiet, STILL], [2.5 * quiet, role(0, "a")]),
        [3 * quiet, chat_chunk(0, {"content": "b"})],
        [4 * quiet, STILL],
        *([4.25 * quiet, chat_chunk(0, {}, "stop")], [4.25 * quiet, DONE]),
    ]
    streamed(learner, expected, puts=puts, quiet=quiet)


@case("7.7")
def stream_is_silent_in_the_queue(learner, rng):
    """Before a request is admitted no comment is sent: with it the status 200 would be out, and the
    queue timeout could not be a 503 any more.
    """
    wrong = [503, "later", None, "queue_timeout", 5]
    setting = {"puts": [[30.0, 0, "", "timeout"]], "fails": {0: wrong}, "admitted": [None]}
    found = drive(learner, "streams", setting | {"quiet": 4.0})
    got = [found["events"], found.get("raised"), found.get("facts")]
    expect_equal(got, [[], "ApiError", [503, "queue_timeout"]], "[sent, raised, its facts]")
    expected = [[12.0, STILL], [14.0, role(1, "a")], [18.0, STILL]]
    expected += [[20.0, chat_chunk(1, {}, "stop")], [21.0, role(0, "b", "stop")], [21.0, DONE]]
    puts = [[14.0, 1, "a"], [20.0, 1, "", "stop"], [21.0, 0, "b", "stop"]]
    setting = {"puts": puts, "outputs": [1, 1], "admitted": [19.0, 9.0], "quiet": 4.0}
    streamed(learner, expected, **setting)


@case("7.7")
def stream_to_a_slow_reader(learner, rng):
    """A slow reader gets what came meanwhile in one event, and the other end never waits."""
    puts = [[float(n), 0, f"{n} "] for n in range(1, 9)] + [[8.5, 0, "", "stop"]]
    found = drive(learner, "streams", {"puts": puts, "slow": 3.0, "endpoint": "completion"})
    expected = [
        *([1.0, text(0, "1 ")], [4.0, text(0, "2 3 4 ")], [7.0, text(0, "5 6 7 ")]),
        *([10.0, text(0, "8 ", "stop")], [13.0, DONE]),
    ]
    expect_equal(found["events"], expected, "[time, event] of a reader that takes 3 s for each")


@case("7.7")
def stream_fails_early(learner, rng):
    """A failure before anything was sent is raised: the response can still have its status."""
    for puts in ([[2.0, 0, "", "timeout"]], [[1.0, 0, "x"], [1.0, 0, "", "error"]]):
        wrong = [503, "later", None, "queue_timeout", 5]
        found = drive(learner, "streams", {"puts": puts, "fails": {0: wrong}})
        expect_equal(found["events"], [], "what was sent")
        expect_raised(found)
        got = [found.get("raised"), found.get("facts"), found["at"]]
        expect_equal(
            got, ["ApiError", [503, "queue_timeout"], puts[-1][0]], "what was raised, when"
        )
        expect_cancelled(found, puts[-1][0])


@case("7.7")
def stream_fails_late(learner, rng):
    """A failure in the middle is one event with the error, and the end, without [DONE]; the other
    answers of the request are ended.
    """
    wrong = [500, "it failed", None, "engine_error"]
    failed = {"message": "it failed", "type": "server_error", "param": None, "code": "engine_error"}
    puts = [[1.0, 0, "a"], [2.0, 1, "b"], [3.0, 0, "c", "error"], [4.0, 1, "d", "stop"]]
    expected = [[1.0, role(0, "a")], [2.0, role(1, "b")], [3.0, event({"error": failed})]]
    streamed(learner, expected, puts=puts, outputs=[1, 1], fails={0: wrong}, usage=True)
    puts = [[9.0, 0, "", "timeout"]]
    expected = [[6.0, STILL], [9.0, event({"error": failed})]]
    streamed(learner, expected, puts=puts, quiet=6.0, fails={0: wrong})


@case("7.7")
def stream_that_is_left(learner, rng):
    """Whoever closes or cancels the stream, in whatever phase: job.cancel is called at once."""
    puts = [[1.0, 0, "a"], [2.0, 0, "b"], [9.0, 0, "c", "stop"]]
    for at, count in ((0.5, 0), (1.5, 1), (5.0, 2)):
        found = drive(learner, "streams", {"puts": puts, "cancel_at": at})
        expect_equal(found.get("raised"), "CancelledError", f"what was raised at {at}")
        expect_equal(len(found["events"]), count, f"events before {at}")
        expect_cancelled(found, at)
    for turns in range(6):
        found = drive(learner, "streams", {"puts": puts, "cancel_at": 2.0, "turns": turns})
        what = f"what was raised {turns} turns of the loop after a piece came"
        expect_equal(found.get("raised"), "CancelledError", what)
    for count in (1, 2):
        found = drive(learner, "streams", {"puts": puts, "close_after": count})
        before, after = found["cancels"]
        got = [len(found["events"]), before, after[:1]]
        expect_equal(got, [count, [], [float(count)]], "[events, cancelled before close, by close]")


@case("7.7")
def collect_waits_for_all(learner, rng):
    """The whole body when all answers are over; then job.cancel, which does no harm."""
    puts = [[1.0, 0, "Par"], [2.0, 1, "x", "length"], [3.0, 0, "is", "stop"]]
    found = drive(learner, "collects", {"puts": puts, "outputs": [2, 1], "endpoint": "completion"})
    if "gave" not in found:
        raise Wrong(f"collect raised {found['raised']}")
    choices = [
        {"index": index, "text": words, "logprobs": None, "finish_reason": reason}
        for index, words, reason in ((0, "Paris", "stop"), (1, "x", "length"))
    ]
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    named = {"id": "id-7", "object": "text_completion", "created": 5, "model": "m"}
    expect_equal(found["gave"], named | {"choices": choices, "usage": usage}, "what collect gave")
    expect_equal([found["at"], found["cancels"][:1]], [3.0, [3.0]], "[over, cancelled] at")


@case("7.7")
def collect_that_fails(learner, rng):
    """The first failure is raised as soon as it is known, and the other answers are ended."""
    puts = [[1.0, 0, "x"], [2.0, 1, "", "timeout"], [5.0, 0, "y", "error"]]
    wrong = {1: [504, "too late", None, "timeout"], 0: [500, "no", None, "engine_error"]}
    found = drive(learner, "collects", {"puts": puts, "outputs": [1, 0], "fails": wrong})
    expect_raised(found)
    got = [found.get("raised"), found.get("facts"), found["at"], found["cancels"][:1]]
    expect_equal(
        got, ["ApiError", [504, "timeout"], 2.0, [2.0]], "[raised, its facts, at, cancelled]"
    )


@case("7.7")
def collect_that_is_left(learner, rng):
    """Whoever cancels collect cancels the job, however long nothing has come."""
    for at in (0.5, 20.0):
        found = drive(learner, "collects", {"puts": [[1.0, 0, "x"]], "cancel_at": at})
        got = [found.get("raised"), found["at"], found["cancels"][:1]]
        expect_equal(got, ["CancelledError", at, [at]], "[raised, at, cancelled]")
