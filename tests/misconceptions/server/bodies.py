"""Wrong versions of 7.1 parse_body."""

import json

from course.misconceptions import misconception
from solutions.api_error import ApiError
from solutions.api_request import CHAT, COMPLETION, MAX_CHOICES, ApiRequest
from solutions.bodies import (
    _check_known,
    _check_model,
    _check_prompts,
    _flag,
    _include_usage,
    _messages,
    _object,
    _params,
    _prompts,
    _short_repr,
    invalid,
)


@misconception("7.1", "_check_known")
def ignored_in_silence(name, value, endpoint):
    """You pass over fields that you do not know. Then "temprature": 0 gives answers at temperature
    1, and "response_format" gives text that is no JSON, and nobody is told. Refuse them by name.
    """
    return None


@misconception("7.1", "_check_known")
def compared_without_types(name, value, endpoint):
    """You compare a field's value with the harmless ones by ==. In Python 0 == False and 1 == True,
    so "store": 0 slips through. Compare the types as well.
    """
    if name in HONOURED[endpoint] or name in HARMLESS:  # noqa: F821
        return
    unsupported = UNSUPPORTED[endpoint]  # noqa: F821
    if name not in unsupported:
        near = difflib.get_close_matches(name, [*HONOURED[endpoint], *HARMLESS, *unsupported], 1)  # noqa: F821
        hint = f"; did you mean {near[0]}?" if near else ""
        said = f"unknown field {_short_repr(name)}{hint}"
        raise ApiError(400, said, name[:100], "unknown_parameter")
    if value not in unsupported[name]:
        said = f"{name} is not supported here: leave it out"
        raise ApiError(400, said, name, "unsupported_parameter")


@misconception("7.1", "parse_body")
def null_is_a_value(body, endpoint, model):
    """You treat null like any other value. Clients send "temperature": null where nothing is
    chosen. It means the default, for every field. Drop such fields first.
    """
    fields = _object(body)
    for name, value in fields.items():
        _check_known(name, value, endpoint)
    _check_model(fields.get("model", model), model)
    n = fields.get("n", 1)
    if type(n) is not int or n < 1:
        raise invalid(f"n must be a whole number from 1; got {_short_repr(n)}", "n")
    prompts = [_messages(fields)] if endpoint == CHAT else _prompts(fields)
    if n * len(prompts) > MAX_CHOICES:
        asked = f"{len(prompts)} prompts times n = {n}"
        fault = "n" if len(prompts) <= MAX_CHOICES else "prompt"
        raise invalid(f"at most {MAX_CHOICES} answers to one request, not {asked}", fault)
    if endpoint == COMPLETION:
        _check_prompts(prompts, fields["prompt"] is prompts)
    stream, usage = _flag(fields, "stream"), _include_usage(fields)
    ignore = _flag(fields, "ignore_eos")
    return ApiRequest(endpoint, prompts, _params(fields, endpoint), n, stream, usage, ignore)


@misconception("7.1", "_flag")
def truth_of_anything(fields, name, inside=""):
    """You take whatever Python holds true for true: "stream": "false" streams then, and so does 1.
    A flag is true or false, everything else is a mistake of the sender.
    """
    return bool(fields.get(name, False))


@misconception("7.1", "_check_text")
def half_characters_let_in(text, where):
    """JSON can write half a character: "\\ud800". Python keeps it in a str, and the tokenizer, or
    whoever encodes the text as UTF-8, fails on it later. Try text.encode("utf-8") at the door.
    """
    return None


@misconception("7.1", "_object")
def any_json_will_do(body):
    """You expect an object and take what json.loads gives: a list or a number then fails where you
    look for a field. And json.loads accepts NaN and Infinity, which are no JSON.
    """
    try:
        return json.loads(body)
    except ValueError as problem:
        said = f"the body is not JSON: {problem}"
        raise ApiError(400, said, code="invalid_json") from None
