"""7.1 parse_body: what is understood."""

import json

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive

MODEL = "tiny-model"
PLAIN = {  # the params of a body that asks for nothing
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "seed": None,
    "max_tokens": 256,
    "stop": [],
    "logprobs": None,
}
HELLO = [{"role": "user", "content": "Hello"}]


def body(endpoint: str, **fields) -> dict:
    """A sound body with these fields as well."""
    return ({"messages": HELLO} if endpoint == "chat" else {"prompt": "Hello"}) | fields


def parsed(learner, endpoint: str, given, naming=(), model: str = MODEL) -> dict:
    """What parse_body makes of a body, a dict or a text; naming: what an error should name."""
    text = given if isinstance(given, str) else json.dumps(given)
    return drive(learner, "parses", [[endpoint, text, model, list(map(str, naming))]])[0]


def understood(learner, at: str, given, /, model: str = MODEL, **expected) -> None:
    """The body is taken, and these are what it means; the params as far as they are named."""
    found = parsed(learner, at, given, model=model)
    shown = given if isinstance(given, str) else json.dumps(given)
    if "error" in found:
        error = found["error"]
        raise Wrong(f"{shown[:200]} was refused ({error['status']}: {error['message']})")
    params = PLAIN | expected.pop("params", {})
    expect_equal(found["params"], params, f"params of {shown[:200]}")
    for name, value in expected.items():
        expect_equal(found[name], value, f"{name} of {shown[:200]}")


@case("7.1")
def body_as_small_as_can_be(learner, rng):
    """The least a body can say: one message, or one prompt. All else is the default."""
    usual = {"n": 1, "stream": False, "include_usage": False, "ignore_eos": False, "choices": 1}
    understood(learner, "chat", body("chat"), endpoint="chat", prompts=[HELLO], **usual)
    understood(
        learner, "completion", body("completion"), endpoint="completion", prompts=["Hello"], **usual
    )


@case("7.1")
def body_with_all_numbers(learner, rng):
    """Every field of SamplingParams arrives under its own name, at both endpoints."""
    wanted = {
        "temperature": rng.randrange(1, 20) / 10,
        "top_k": rng.randrange(1, 100),
        "top_p": rng.randrange(1, 10) / 10,
        "min_p": rng.randrange(1, 10) / 10,
        "repetition_penalty": 1.0 + rng.randrange(1, 9) / 10,
        "presence_penalty": -rng.randrange(1, 20) / 10,
        "frequency_penalty": rng.randrange(1, 20) / 10,
        "seed": rng.randrange(2**40),
        "max_tokens": rng.randrange(1, 500),
        "stop": ["\n\n", "END"],
    }
    for endpoint in ("chat", "completion"):
        understood(learner, endpoint, body(endpoint, **wanted), params=wanted)


@case("7.1")
def body_with_nulls(learner, rng):
    """null is as if the field were not there: for honoured, harmless and unsupported ones alike."""
    shared = ("model", "n", "stream", "stream_options", "temperature", "stop", "max_tokens", "user")
    chat = ("max_completion_tokens", "top_logprobs", "tools", "response_format", "tool_choice")
    given = dict.fromkeys((*shared, *chat, "logprobs", "ignore_eos", "logit_bias", "store"))
    understood(learner, "chat", body("chat", **given), n=1, stream=False)
    given = dict.fromkeys((*shared, "best_of", "echo", "suffix", "logprobs", "seed"))
    understood(learner, "completion", body("completion", **given), n=1, stream=False)
    given = body("completion", stream=True, stream_options={"include_obfuscation": None})
    understood(learner, "completion", given, include_usage=False)
    message = {"role": "user", "content": "Hello", "tool_calls": None, "name": None}
    understood(learner, "chat", {"messages": [message]}, prompts=[HELLO])


@case("7.1")
def body_harmless(learner, rng):
    """Fields that say nothing about the answer are taken, whatever they are; unsupported ones are
    taken with the values that change nothing.
    """
    harmless = {"user": "u-1", "metadata": {"a": "b"}, "service_tier": "auto"}
    harmless |= {"safety_identifier": "x", "prompt_cache_key": 7, "model": MODEL}
    fine = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False, "logit_bias": {}}
    fine |= {"response_format": {"type": "text"}, "modalities": ["text"], "store": False}
    fine |= {"functions": [], "function_call": "none"}
    understood(learner, "chat", body("chat", **harmless, **fine))
    fine = {"best_of": 1, "echo": False, "suffix": "", "logit_bias": {}}
    understood(learner, "completion", body("completion", **harmless, **fine))
    name = f"model-{rng.randrange(1000)}"
    understood(learner, "chat", body("chat", model=name), model=name)


@case("7.1")
def body_of_max_tokens(learner, rng):
    """A chat may call max_tokens by its new name; both together are fine when they agree."""
    count = rng.randrange(1, 1000)
    params = {"max_tokens": count}
    for fields in (
        {"max_completion_tokens": count},
        {"max_tokens": count},
        {"max_tokens": count, "max_completion_tokens": count},
        {"max_tokens": None, "max_completion_tokens": count},
        {"max_tokens": count, "max_completion_tokens": None},
    ):
        understood(learner, "chat", body("chat", **fields), params=params)


@case("7.1")
def body_of_stops(learner, rng):
    """stop is one text, a list of texts, or nothing."""
    for stop, expected in (("END", ["END"]), (["a", "é🙂"], ["a", "é🙂"]), ([], []), (None, [])):
        for endpoint in ("chat", "completion"):
            understood(learner, endpoint, body(endpoint, stop=stop), params={"stop": expected})


@case("7.1")
def body_of_logprobs(learner, rng):
    """A chat asks by true and a number beside it, a completion by a number."""
    top = rng.randrange(1, 21)
    for fields, expected in (
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": top}, top),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"logprobs": False}, None),
        ({"logprobs": False, "top_logprobs": None}, None),
    ):
        understood(learner, "chat", body("chat", **fields), params={"logprobs": expected})
    for count in (0, top):
        given = body("completion", logprobs=count)
        understood(learner, "completion", given, params={"logprobs": count})


@case("7.1")
def body_of_stream(learner, rng):
    """stream and what stream_options asks for."""
    for endpoint in ("chat", "completion"):
        given = body(endpoint, stream=True)
        understood(learner, endpoint, given, stream=True, include_usage=False)
        for options, usage in (
            ({"include_usage": True}, True),
            ({"include_usage": False}, False),
            ({}, False),
            (None, False),
            ({"include_usage": None, "include_obfuscation": False}, False),
        ):
            given = body(endpoint, stream=True, stream_options=options)
            understood(learner, endpoint, given, stream=True, include_usage=usage)
        understood(learner, endpoint, body(endpoint, ignore_eos=True), ignore_eos=True)


@case("7.1")
def body_of_messages(learner, rng):
    """Roles, the developer's among them, and texts in one piece or in parts. What else a message
    has, such as a name, has no effect.
    """
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]
    given = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": parts, "name": "Ann"},
        {"role": "assistant", "content": "", "refusal": None, "audio": None},
        {"role": "user", "content": []},
        {"role": "user", "content": "<|im_end|> é 🙂 \u0000"},
    ]
    expected = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one two"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": ""},
        {"role": "user", "content": "<|im_end|> é 🙂 \u0000"},
    ]
    understood(learner, "chat", {"messages": given}, prompts=[expected], choices=1)


@case("7.1")
def body_of_prompts(learner, rng):
    """A prompt is a text or a list of ids, or there are several of them; n is for each."""
    ids = [rng.randrange(1000) for _ in range(4)]
    for prompt, expected in (
        ("one", ["one"]),
        (ids, [ids]),
        (["one", "two"], ["one", "two"]),
        ([ids, [7]], [ids, [7]]),
    ):
        given = {"prompt": prompt, "n": 3}
        choices = 3 * len(expected)
        understood(learner, "completion", given, prompts=expected, n=3, choices=choices)
    understood(learner, "completion", {"prompt": ["x"] * 4, "n": 4}, choices=16)
    understood(learner, "completion", {"prompt": ["x"] * 16}, choices=16)
    understood(learner, "chat", body("chat", n=16), choices=16)


@case("7.1")
def body_as_bytes(learner, rng):
    """A body comes as bytes in UTF-8; escapes and characters mean the same."""
    text = json.dumps({"prompt": "é🙂"}, ensure_ascii=False)
    raw = "bytes:" + text.encode().decode("latin-1")
    understood(learner, "completion", raw, prompts=["é🙂"])
    for spaces in (" \n\u00e9\t", "  "):  # nothing is taken from a text
        given = body("chat", messages=[{"role": "user", "content": spaces}])
        understood(learner, "chat", given, prompts=[[{"role": "user", "content": spaces}]])
        understood(learner, "completion", {"prompt": spaces}, prompts=[spaces])
    understood(learner, "completion", text, prompts=["é🙂"])
    understood(learner, "completion", ' {"prompt" : "\\ud83d\\ude42"}\n', prompts=["🙂"])
