"""8.4 describe_error, request_record."""

from course.cases import Wrong, case, describe, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.grading.monitoring.making import admitted, arrived, expect_near, finished, rising, token

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
    times = [n * (n + 1) / 2 for n in range(52)]  # gaps of 1, 2, ... 51 seconds: the 26th is p50
    events = [*(token("b", t) for t in times), finished("b", 9999.0, tokens=52)]
    found = drive(learner, "record_of", arrived("b", 0.0), [admitted("b", 0.0), *events])
    expect_equal(found.get("inter_token_p50_s"), 26.0, "inter_token_p50_s of 1, 2, ... 51 s")


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
