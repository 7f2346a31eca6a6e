"""7.1 parse_body: what is refused, and in which words."""

import json

from course.cases import Wrong, case, expect_equal
from tests.grading.server.bodies import HELLO, MODEL, body, parsed

INVALID = (400, "invalid_value")


def refused(learner, given, param, status=400, code="invalid_value", naming=(), at="chat"):
    """The body is refused with this status, param and code; the message names these."""
    shown = (given if isinstance(given, str) else json.dumps(given))[:200]
    found = parsed(learner, at, given, naming)
    if "error" not in found:
        raise Wrong(f"{shown} was taken, but it should be refused: {status}, param {param!r}")
    error = found["error"]
    got = [error["status"], error["param"], error["code"]]
    expect_equal(got, [status, param, code], f"[status, param, code] of {shown}")
    for name in error["unnamed"]:
        raise Wrong(f"the message about {shown} does not name {name}: {error['message']!r}")
    expect_equal(error["retry_after"], None, f"retry_after of {shown}")


def both(learner, param, fields, **more) -> None:
    """The same field at both endpoints."""
    for endpoint in ("chat", "completion"):
        refused(learner, body(endpoint, **fields), param, at=endpoint, **more)


@case("7.1")
def refuses_what_is_no_json(learner, rng):
    """What is not JSON, or no object, is 400 "invalid_json": nobody's fault but the sender's."""
    deep = "[" * 100_000 + "]" * 100_000
    for given in (
        *("", "{", "nonsense", '{"prompt": }', '["prompt"]', '"prompt"', "null", "7"),
        *('{"prompt": "x", "temperature": NaN}', '{"prompt": "x", "top_p": -Infinity}'),
        *('{"prompt": "x", "seed": ' + "9" * 5000 + "}", deep, '{"prompt": ' + deep + "}"),
        *("bytes:\xff\xfe", 'bytes:{"prompt": "\xe9"}', "bytes:"),
        'bytes:{"prompt": "\xed\xa0\x80"}',  # half a character, as no UTF-8 is
        "bytes:" + '{"prompt": "x"}'.encode("utf-16").decode("latin-1"),
    ):
        refused(learner, given, None, code="invalid_json", at="completion")


@case("7.1")
def refuses_another_model(learner, rng):
    """A model that is not served is 404, naming both."""
    names = {"status": 404, "code": "model_not_found", "naming": ["gpt-9", MODEL]}
    both(learner, "model", {"model": "gpt-9"}, **names)
    both(learner, "model", {"model": ""}, status=404, code="model_not_found")
    both(learner, "model", {"model": 7})
    both(learner, "model", {"model": [MODEL]})


@case("7.1")
def refuses_unknown_fields(learner, rng):
    """A field that nobody knows is refused by name, with the nearest name that there is: a typing
    error must not be a default in silence.
    """
    unknown = {"code": "unknown_parameter"}
    both(learner, "temprature", {"temprature": 1}, naming=["temprature", "temperature"], **unknown)
    both(learner, "max_token", {"max_token": 1}, naming=["max_token", "max_tokens"], **unknown)
    both(learner, "qqqq", {"qqqq": 1}, naming=["qqqq"], **unknown)
    both(learner, "metdata", {"metdata": 1}, naming=["metdata", "metadata"], **unknown)
    refused(learner, body("chat", tols=[]), "tols", naming=["tols", "tools"], **unknown)
    both(learner, "Stream", {"Stream": True}, naming=["Stream"], **unknown)
    for name, value in (("messages", HELLO), ("max_completion_tokens", 5), ("tools", [])):
        given = body("completion", **{name: value})
        refused(learner, given, name, at="completion", naming=[name], **unknown)
    for name, value in (("prompt", "x"), ("best_of", 1), ("echo", False)):
        refused(learner, body("chat", **{name: value}), name, naming=[name], **unknown)


@case("7.1")
def refuses_unsupported_fields(learner, rng):
    """What the API has and we have not is refused by name, unless its value changes nothing; 0 and
    1 are not false and true.
    """
    code = {"code": "unsupported_parameter"}
    tool = {"type": "function", "function": {"name": "f"}}
    for name, value in (
        ("tools", [tool]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("logit_bias", {"5": -100}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "x"}),
        ("parallel_tool_calls", 1),
        ("store", True),
        ("store", 0),
        ("reasoning_effort", "high"),
        ("prediction", {"type": "content"}),
        ("verbosity", "low"),
        ("web_search_options", {}),
        ("functions", [{}]),
    ):
        refused(learner, body("chat", **{name: value}), name, naming=[name], **code)
    given, allowed = body("chat", tool_choice="any"), ["tool_choice", "none", "auto"]
    refused(learner, given, "tool_choice", naming=allowed, **code)
    for name, value in (
        *(("best_of", 2), ("best_of", True), ("best_of", 1.0), ("echo", True), ("echo", 0)),
        *(("suffix", "."), ("logit_bias", {"1": 1})),
    ):
        given = body("completion", **{name: value})
        refused(learner, given, name, at="completion", naming=[name], **code)


@case("7.1")
def refuses_numbers_out_of_range(learner, rng):
    """Whatever SamplingParams refuses is 400 with the field as param."""
    for name, value in (
        *(("temperature", 2.5), ("temperature", -0.1), ("temperature", "1"), ("temperature", True)),
        *(("top_p", 0), ("top_p", 1.5), ("top_k", -2), ("top_k", 1.5), ("min_p", -1)),
        *(("presence_penalty", 3), ("frequency_penalty", -2.5), ("repetition_penalty", 0)),
        *(
            ("seed", 1.5),
            ("seed", 2**70),
            ("max_tokens", 0),
            ("max_tokens", -5),
            ("max_tokens", "5"),
        ),
        *(("stop", ["a"] * 5), ("stop", [""]), ("stop", ["a" * 300]), ("stop", 5), ("stop", [5])),
        *(("max_tokens", True), ("max_tokens", "5"), ("top_k", [1]), ("temperature", {})),
    ):
        both(learner, name, {name: value}, naming=[name])
    name = "max_completion_tokens"
    refused(learner, body("chat", **{name: 0}), name, naming=[name])
    for old, new in ((5, 6), (True, 1), (5, 5.0)):
        differ = {"max_tokens": old, name: new}
        refused(learner, body("chat", **differ), name, naming=[old, new])
    for name, value, words in (  # its words say what is allowed
        *(("temperature", 2.5, "to 2"), ("top_p", 0, "above 0"), ("max_tokens", 0, "at least 1")),
        *(("stop", ["a"] * 5, "up to 4"), ("stop", ["a" * 300], "256")),
    ):
        both(learner, name, {name: value}, naming=[name, words])


@case("7.1")
def refuses_wrong_flags(learner, rng):
    """true is not 1, and not "true"."""
    for value in (1, 0, "true", [], {}):
        both(learner, "stream", {"stream": value}, naming=["stream"])
        both(learner, "ignore_eos", {"ignore_eos": value}, naming=["ignore_eos"])
        refused(learner, body("chat", logprobs=value), "logprobs")
    for value in (True, 21, -1, "5", 1.0):
        refused(learner, body("completion", logprobs=value), "logprobs", at="completion")
    for value in (21, -1, "5", True):
        given = body("chat", logprobs=True, top_logprobs=value)
        refused(learner, given, "top_logprobs", naming=["top_logprobs"])
    refused(learner, body("chat", top_logprobs=3), "top_logprobs", naming=["logprobs"])
    refused(learner, body("chat", top_logprobs=0), "top_logprobs", naming=["logprobs"])
    refused(learner, body("chat", top_logprobs=3, logprobs=False), "top_logprobs")
    for value in (False, "", []):
        refused(learner, body("chat", logprobs=True, top_logprobs=value), "top_logprobs")


@case("7.1")
def refuses_wrong_stream_options(learner, rng):
    """stream_options goes with stream true, and knows two names."""
    options = {"include_usage": True}
    both(learner, "stream_options", {"stream_options": options})
    both(learner, "stream_options", {"stream_options": options, "stream": False})
    both(learner, "stream_options", {"stream_options": {}})
    for value in ([], "yes", True):
        both(learner, "stream_options", {"stream_options": value, "stream": True})
    for value in (1, "true", []):
        for name in ("include_usage", "include_obfuscation"):
            given = {"stream": True, "stream_options": {name: value}}
            both(learner, f"stream_options.{name}", given, naming=[name])
    given = {"stream": True, "stream_options": {"continuous_usage": True}}
    both(learner, "stream_options.continuous_usage", given, naming=["continuous_usage"])


@case("7.1")
def refuses_too_many_answers(learner, rng):
    """A huge n, or thousands of prompts, is 400 at once; both numbers are named."""
    for value in (0, -1, 1.0, "2", True, [1]):
        both(learner, "n", {"n": value}, naming=["n"])
    both(learner, "n", {"n": 17}, naming=[17, 16])
    both(learner, "n", {"n": 10**9}, naming=[10**9, 16])
    many = {"prompt": ["x"] * 3000}
    refused(learner, many, "prompt", naming=[3000, 16], at="completion")
    for count, n in ((6, 3), (16, 2)):
        many = {"prompt": ["x"] * count, "n": n}
        refused(learner, many, "n", naming=[count, n, 16], at="completion")


@case("7.1")
def refuses_strange_messages(learner, rng):
    """Each way in which a message can be wrong, with the place where it is."""
    refused(learner, {}, "messages", code="missing_required_parameter", naming=["messages"])
    missing = {"messages": None}
    refused(learner, missing, "messages", code="missing_required_parameter", naming=["messages"])
    for value in ([], "Hello", {"role": "user"}, 7):
        refused(learner, {"messages": value}, "messages")
    fine, place = HELLO[0], rng.randrange(1, 4)
    for wrong, end in (
        ("Hello", ""),
        (None, ""),
        ({"content": "x"}, ".role"),
        ({"role": "tool", "content": "x"}, ".role"),
        ({"role": "User", "content": "x"}, ".role"),
        ({"role": None, "content": "x"}, ".role"),
        ({"role": ["user"], "content": "x"}, ".role"),
        ({"role": "user"}, ".content"),
        ({"role": "user", "content": None}, ".content"),
        ({"role": "user", "content": 7}, ".content"),
        ({"role": "user", "content": {"type": "text", "text": "x"}}, ".content"),
        ({"role": "user", "content": ["x"]}, ".content"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, ".content"),
        ({"role": "user", "content": [{"type": "text"}]}, ".content"),
        ({"role": "user", "content": [{"type": "text", "text": 7}]}, ".content"),
        ({"role": "user", "content": [{"text": "x"}]}, ".content"),
    ):
        refused(learner, {"messages": [fine] * place + [wrong]}, f"messages[{place}]{end}")
    given = {"messages": [{"role": "tool", "content": "x"}]}
    roles = ["system", "user", "assistant"]
    refused(learner, given, "messages[0].role", naming=roles)
    for name in ("tool_calls", "function_call"):
        wrong = {"role": "assistant", "content": "x", name: [1]}
        given = {"messages": [fine] * place + [wrong]}
        param = f"messages[{place}].{name}"
        refused(learner, given, param, code="unsupported_parameter", naming=[name])


@case("7.1")
def refuses_strange_prompts(learner, rng):
    """An empty prompt, or one that is no text and no list of ids, with the place where it is."""
    code = {"code": "missing_required_parameter", "at": "completion", "naming": ["prompt"]}
    refused(learner, {}, "prompt", **code)
    refused(learner, {"prompt": None}, "prompt", **code)
    for value in ("", [], 7, {"text": "x"}, True, [1, "x"], [1.0], [True], [None], [1, [2]]):
        refused(learner, {"prompt": value}, "prompt", at="completion")
    place = rng.randrange(1, 5)
    for value in ("", [], 7, None, [True], ["x"], [1.5]):
        prompts = ["x"] * place + [value]
        refused(learner, {"prompt": prompts}, f"prompt[{place}]", at="completion")


@case("7.1")
def refuses_half_characters(learner, rng):
    """A lone surrogate is half a character: 400, with the place, wherever a text goes on to the
    model. A whole pair is a character.
    """
    half = rng.choice(["\ud800", "ab\udfff", "\ude42\ud83d"])
    place = rng.randrange(3)
    messages = [*HELLO * place, {"role": "user", "content": half}]
    refused(learner, {"messages": messages}, f"messages[{place}].content")
    parts = [{"type": "text", "text": "x"}, {"type": "text", "text": half}]
    messages = [*HELLO * place, {"role": "user", "content": parts}]
    refused(learner, {"messages": messages}, f"messages[{place}].content")
    refused(learner, {"prompt": half}, "prompt", at="completion")
    refused(learner, {"prompt": ["x", half]}, "prompt[1]", at="completion")
    both(learner, "stop", {"stop": half})
    both(learner, "stop[1]", {"stop": ["x", half]})
    refused(learner, {"messages": HELLO, half: 1}, half, code="unknown_parameter")
    refused(learner, body("chat", model=half), "model", status=404, code="model_not_found")
