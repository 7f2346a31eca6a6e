"""8.4 describe_error, request_record, DailyLog."""

from course.cases import Wrong, case, describe, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.grading.monitoring.making import admitted, arrived, expect_near, finished, rising, token

DAY = 86_400.0
NOON = 1_796_040_000.0  # 2026-11-30T12:00:00Z


# --- exceptions ---


def described(learner, rng, name: str) -> tuple:
    """(what describe_error says, what is true) of a kind of error that quotes a secret."""
    secret = f"the patient {rng.getrandbits(60):015x} coughs"
    found = drive(learner, "error_described", name, secret)
    if secret in found["told"] or secret.split()[2] in found["told"]:
        raise Wrong("what describe_error gave quotes what the user wrote")
    expected = [{"error": kind, "frames": frames[-20:]} for kind, frames in found["chain"][:5]]
    return found["found"], expected


@case("8.4")
def error_without_its_message(learner, rng):
    """A KeyError is its key, a UnicodeDecodeError holds the text: class and places are all there
    is.
    """
    for name in ("key", "decoding", "never_raised", "odd"):
        found, expected = described(learner, rng, name)
        expect_equal(found, expected, f"describe_error of the error {name!r}")


@case("8.4")
def error_without_its_notes(learner, rng):
    """Notes that were added to an exception are text too."""
    found, expected = described(learner, rng, "noted")
    expect_equal(found, expected, "describe_error of an error with a note")


@case("8.4")
def error_with_its_cause(learner, rng):
    """The error that led to it follows: __cause__, or what was being handled, unless suppressed."""
    for name, length in (("caused", 2), ("in_handling", 2), ("suppressed", 1)):
        found, expected = described(learner, rng, name)
        expect_equal(found, expected, f"describe_error of the error {name!r}")
        expect_equal(len(found), length, "how many errors it tells")


@case("8.4")
def error_within_limits(learner, rng):
    """At most 20 frames, the innermost; at most 5 errors, the last ones that were raised."""
    for name in ("deep", "chain"):
        found, expected = described(learner, rng, name)
        expect_equal(found, expected, f"describe_error of the error {name!r}")


# --- records ---


@case("8.4")
def record_of_a_request(learner, rng):
    """All fields of a request that went well."""
    start = rng.uniform(0, 9)
    enter, first, second, third, end = rising(rng, 5, start)
    second = third - (third - first) / rng.uniform(3, 9)  # the longer gap is not the newest
    asked = arrived(
        "req-7", start, prompt_tokens=12, characters=55, fingerprint="c0ffee", stream=False
    )
    events = [admitted("req-7", enter), *(token("req-7", t) for t in (first, second, third))]
    found = drive(learner, "record_of", asked, [*events, finished("req-7", end, "length", 3)])
    gaps = sorted([second - first, third - second])
    expected = {
        "id": "req-7",
        "reason": "length",
        "error": None,
        "stream": False,
        "prompt_tokens": 12,
        "characters": 55,
        "fingerprint": "c0ffee",
        "max_tokens": 20,
        "tokens": 3,
        "queue_s": round(enter - start, 6),
        "first_token_s": round(first - start, 6),
        "inter_token_p50_s": round(gaps[0], 6),
        "inter_token_max_s": round(gaps[1], 6),
        "e2e_s": round(end - start, 6),
        "tokens_per_s": round(2 / (third - first), 6),
    }
    expect_keys(found, expected)
    expect_near(found, expected, "request_record")


def expect_keys(found, expected: dict) -> None:
    """A dict with these keys."""
    if not isinstance(found, dict):
        raise Wrong(f"request_record should return a dict, not {describe(found)}")
    expect_equal(sorted(found), sorted(expected), "the keys of request_record")


@case("8.4")
def record_of_a_failure(learner, rng):
    """A request that failed while it waited: the class of its error, and None for all that never
    was.
    """
    end = finished("a", 4.0, "error", 0, "FloatingPointError")
    found = drive(learner, "record_of", arrived("a", 1.0), [end])
    missing = ("queue_s", "first_token_s", "inter_token_p50_s", "inter_token_max_s", "tokens_per_s")
    expected = {
        "id": "a",
        "reason": "error",
        "error": "FloatingPointError",
        "stream": True,
        "prompt_tokens": 7,
        "characters": 30,
        "fingerprint": "a1b2",
        "max_tokens": 20,
        "tokens": 0,
        "e2e_s": 3.0,
        **dict.fromkeys(missing),
    }
    expect_keys(found, expected)
    expect_near(found, expected, "request_record")


@case("8.4")
def record_counts_as_told(learner, rng):
    """tokens is what Finished says: the last token may end a stop string, and not be sent."""
    events = [admitted("a", 1.0), token("a", 2.0), token("a", 3.0)]
    found = drive(learner, "record_of", arrived("a", 0.0), [*events, finished("a", 4.0, tokens=5)])
    expect_keys(found, found)
    expect_equal([found.get("tokens"), found.get("inter_token_p50_s")], [5, 1.0], "[tokens, p50]")


# --- files ---


def session(learner, steps: list, name: str = "requests", keep=None, start: float = NOON) -> list:
    """Steps of a DailyLog: see log_session."""
    return drive(learner, "log_session", {"name": name, "keep": keep, "start": start}, steps)


@case("8.4")
def log_lines(learner, rng):
    """Each record is one line, with the time in front; the file is named after the day."""
    number = rng.randrange(1000)
    steps = [["write", {"n": number}], ["clock", NOON + 61.25], ["write", {"b": None, "c": True}]]
    found = session(learner, [*steps, ["files"], ["lines", "requests-2026-11-30.jsonl"], ["lost"]])
    expect_equal(found[0], True, "what write returned")
    expect_equal(found[3], ["requests-2026-11-30.jsonl"], "the files")
    expected = [
        {"at": "2026-11-30T12:00:00.000Z", "n": number},
        {"at": "2026-11-30T12:01:01.250Z", "b": None, "c": True},
        "",
    ]
    expect_equal(found[4], expected, "the lines of the file")
    expect_equal([list(line) for line in found[4][:2]], [["at", "n"], ["at", "b", "c"]], "the keys")
    expect_equal(found[5], 0, "lost")


@case("8.4")
def log_of_any_text(learner, rng):
    """Line ends, other alphabets, half characters: still one line of ASCII, and read back equal."""
    texts = ["two\nlines\r\n", "Größe 日本 🙂", "a\u2028b\x00", 'quote " and \\', "half \ud83d"]
    rng.shuffle(texts)
    steps = [["write", {"text": text, "in": [text, {"deep": text}]}] for text in texts]
    found = session(learner, [*steps, ["lines", "requests-2026-11-30.jsonl"]])
    expect_equal(found[:5], [True] * 5, "what write returned")
    told = [
        [line["text"], line["in"]] if isinstance(line, dict) else line for line in found[-1][:-1]
    ]
    expect_equal(told, [[text, [text, {"deep": text}]] for text in texts], "what was read back")


@case("8.4")
def log_of_no_numbers(learner, rng):
    """Infinity and NaN, at any depth, become null: JSON has no other word for them."""
    nan, inf = float("nan"), float("inf")
    record = {"a": nan, "b": [1.5, -inf, {"c": inf, "d": (nan, 2)}], "e": 3}
    found = session(learner, [["write", record], ["lines", "requests-2026-11-30.jsonl"]])
    expected = {"a": None, "b": [1.5, None, {"c": None, "d": [None, 2]}], "e": 3}
    line = found[1][0]
    if not isinstance(line, dict):
        raise Wrong(f"the line is no strict JSON: {line!r}")
    expect_equal({key: line.get(key) for key in expected}, expected, "what was read back")


@case("8.4")
def log_of_each_day(learner, rng):
    """A new file begins with the first line after midnight UTC, wherever the program runs."""
    midnight = NOON + DAY / 2
    steps = [["clock", midnight - 0.001], ["write", {"n": 1}], ["clock", midnight]]
    steps += [["write", {"n": 2}], ["clock", midnight + 3600], ["write", {"n": 3}], ["files"]]
    steps += [["lines", "requests-2026-11-30.jsonl"], ["lines", "requests-2026-12-01.jsonl"]]
    found = session(learner, steps)
    expect_equal(found[6], ["requests-2026-11-30.jsonl", "requests-2026-12-01.jsonl"], "the files")
    expect_equal(numbers(found[7]), [1], "what the file of the first day holds")
    expect_equal(numbers(found[8]), [2, 3], "what the file of the second day holds")


def numbers(lines: list) -> list:
    """n of each line that is whole."""
    return [line["n"] if isinstance(line, dict) else line for line in lines[:-1]]


@case("8.4")
def log_keeps_a_week(learner, rng):
    """Seven files stay, the newest; files of others stay too."""
    others = ["errors-2020-01-01.jsonl", "requests-old.jsonl", "requests-2020-01-01.jsonl.gz"]
    others += ["my-requests-2020-01-01.jsonl", "requests-2020-01-01-jsonl"]
    steps = [["plant", name, "kept\n"] for name in others]
    for day in range(10):
        steps += [["clock", NOON + day * DAY], ["write", {"n": day}]]
    found = session(learner, [*steps, ["files"]])
    days = ["2026-12-03", "2026-12-04", "2026-12-05", "2026-12-06", "2026-12-07"]
    days += ["2026-12-08", "2026-12-09"]
    expected = sorted([*others, *(f"requests-{day}.jsonl" for day in days)])
    expect_equal(found[-1], expected, "the files after ten days")


@case("8.4")
def log_keeps_what_it_is_told(learner, rng):
    """keep is how many stay, also of those that were there before; the open one always does."""
    keep = rng.choice([1, 2, 3])
    old = [f"requests-2026-11-{day}.jsonl" for day in ("20", "21", "22")]
    steps = [["plant", name, "{}\n"] for name in old]
    found = session(learner, [*steps, ["write", {"n": 1}], ["files"]], keep=keep)
    expected = [*old, "requests-2026-11-30.jsonl"][-keep:]
    expect_equal(found[-1], expected, f"the files with keep={keep}")
    newer = [f"requests-2027-01-0{day}.jsonl" for day in range(1, 6)]
    steps = [["plant", name, "{}\n"] for name in newer]
    found = session(
        learner,
        [*steps, ["write", {"n": 1}], ["files"], ["lines", "requests-2026-11-30.jsonl"]],
        keep=keep,
    )
    kept = newer[len(newer) - keep + 1 :]
    expect_equal(found[-2], ["requests-2026-11-30.jsonl", *kept], "the files, the clock set back")
    expect_equal(numbers(found[-1]), [1], "what the open one holds")


@case("8.4")
def log_goes_on(learner, rng):
    """What is in the file of the day already stays, after a restart as after close."""
    name = "requests-2026-11-30.jsonl"
    steps = [["plant", name, '{"n": 1}\n'], ["write", {"n": 2}], ["close"], ["write", {"n": 3}]]
    found = session(learner, [*steps, ["close"], ["close"], ["lines", name]])
    expect_equal(numbers(found[-1]), [1, 2, 3], "the lines")


@case("8.4")
def log_after_a_crash(learner, rng):
    """A last line that was cut off does not spoil the next; an empty file gets no empty line."""
    name = "requests-2026-11-30.jsonl"
    cut = rng.choice(['{"n": 1', '{"at": "2026-11-30T11', "x"])
    found = session(
        learner,
        [
            ["plant", name, f'{{"n": 0}}\n{cut}'],
            ["write", {"n": 2}],
            ["write", {"n": 3}],
            ["lines", name],
        ],
    )
    expect_equal(numbers(found[-1]), [0, cut, 2, 3], "the lines")
    found = session(learner, [["plant", name, ""], ["write", {"n": 2}], ["lines", name]])
    expect_equal(numbers(found[-1]), [2], "the lines of a file that was empty")


@case("8.4")
def log_that_cannot_be_written(learner, rng):
    """When the system refuses, write returns False and counts; it raises nothing, and tries again
    each time.
    """
    name = "requests-2026-11-30.jsonl"
    count = rng.randrange(2, 5)
    steps = [["block", name], *[["write", {"n": n}] for n in range(count)], ["lost"]]
    steps += [["unblock", name], ["write", {"n": 99}], ["lost"], ["lines", name]]
    found = session(learner, steps)
    expect_equal(found[1 : count + 2], [False] * count + [count], "write, write, ..., lost")
    expect_equal(found[count + 3 : -1], [True, count], "write and lost, once there is room")
    expect_equal(numbers(found[-1]), [99], "the lines")


@case("8.4")
def log_of_a_bad_day(learner, rng):
    """A day whose file cannot be opened does not end up in the file of the day before."""
    steps = [["write", {"n": 1}], ["block", "requests-2026-12-01.jsonl"], ["clock", NOON + DAY]]
    steps += [["write", {"n": 2}], ["lost"], ["lines", "requests-2026-11-30.jsonl"]]
    found = session(learner, steps)
    expect_equal(found[3:5], [False, 1], "[write, lost]")
    expect_equal(numbers(found[-1]), [1], "the file of the day before")


@case("8.4")
def log_of_many_threads(learner, rng):
    """Lines of several threads never mix."""
    found = drive(learner, "log_raced", 6, 60)
    expect_equal(found, [360, 0, 0], "[whole lines, others, lost]")


@case("8.4")
def log_is_there_at_once(learner, rng):
    """A line is in the file when write returns, not when the log is closed."""
    found = drive(learner, "log_seen_at_once")
    expect_equal(found, [{"at": "1970-01-01T00:00:00.000Z", "a": 1}, ""], "the lines")
