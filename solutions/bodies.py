"""Chapter 07: what a JSON body asks for, or what is wrong with it."""

import difflib
import json
from functools import partial

from solutions.api_error import ApiError
from solutions.api_request import (
    CHAT,
    COMPLETION,
    HARMLESS,
    HONOURED,
    MAX_CHOICES,
    SAMPLING,
    UNSUPPORTED,
    ApiRequest,
    Message,
)
from solutions.chat import ROLES
from solutions.sampling_params import SamplingParams

invalid = partial(ApiError, 400, code="invalid_value")  # invalid(message, param)


def parse_body(body: bytes | str, endpoint: str, model: str) -> ApiRequest:
    """Understand the body of a request, or say what is wrong with it.

    null, for any field, is as if the field were not there.

    Args:
        body: the bytes as they came, or a text.
        endpoint: CHAT or COMPLETION.
        model: the name of the model that is served. A body may leave it out.

    Returns:
        an ApiRequest. Sampling fields go to SamplingParams; so does max_tokens, of CHAT also under
        its new name max_completion_tokens. CHAT asks for log-probabilities by logprobs true and
        top_logprobs (0 to 20, none given is 0), COMPLETION by the number logprobs. A message's
        content may be a list of parts {"type": "text", "text": ...}: their texts, joined with
        nothing between. The role "developer" is "system" under its new name. Other fields of a
        message have no effect. A prompt is a text, a list of ids, or a list of texts or of lists
        of ids.

    Errors: ApiError, always with a message that names what is wrong and what is allowed:
        - 400, code "invalid_json": not UTF-8, not JSON (NaN and Infinity are not), nested too
          deeply, or not an object;
        - 404, param "model", code "model_not_found": another model, naming both;
        - 400, param the field, code "unknown_parameter": a field that is in no list above, with the
          nearest name that is, if one is near;
        - 400, param the field, code "unsupported_parameter": a field of UNSUPPORTED with another
          value than those in its list (of the same type: 1 is not true); or tool_calls or
          function_call in a message, param "messages[2].tool_calls";
        - 400, param "messages" or "prompt", code "missing_required_parameter": not given;
        - 400, param the field, code "invalid_value": anything else. What SamplingParams refuses,
          in its words; a value of the wrong type (1 is not true, true is not 1); n under 1; prompts
          times n over MAX_CHOICES, naming all three (param "prompt" when there are more prompts
          than that, else "n"); max_tokens and max_completion_tokens that differ, naming both (param
          the new name); top_logprobs without logprobs; stream_options without stream, or in it
          anything but include_usage and include_obfuscation; no messages; a message that is not an
          object, without a role of ROLES (or "developer") or without content; a part of another
          type than "text"; an empty prompt; an id that is not an int; a text with a lone
          surrogate, which is half a character and has no UTF-8. Inside a list the param says where:
          "messages[2]", "messages[2].role", "messages[2].content", "prompt[3]", "stop[0]" (of one
          alone, also of a list of ids, "prompt", "stop"); inside stream_options:
          "stream_options.include_usage".
    """
    # exercise 7.1
    fields = {name: value for name, value in _object(body).items() if value is not None}
    for name, value in fields.items():
        _check_known(name, value, endpoint)
    _check_model(fields.get("model", model), model)
    n = fields.get("n", 1)
    if type(n) is not int or n < 1:
        raise invalid(f"n must be a whole number from 1; got {_short_repr(n)}", "n")
    prompts = [_messages(fields)] if endpoint == CHAT else _prompts(fields)
    if n * len(prompts) > MAX_CHOICES:
        asked = f"{len(prompts)} prompts times n = {_short_repr(n)}"
        fault = "n" if len(prompts) <= MAX_CHOICES else "prompt"
        raise invalid(f"at most {MAX_CHOICES} answers to one request, not {asked}", fault)
    if endpoint == COMPLETION:
        _check_prompts(prompts, fields["prompt"] is prompts)
    stream, usage = _flag(fields, "stream"), _include_usage(fields)
    ignore = _flag(fields, "ignore_eos")
    return ApiRequest(endpoint, prompts, _params(fields, endpoint), n, stream, usage, ignore)


def _object(body: bytes | str) -> dict:
    """The JSON object that a body is."""
    try:
        text = body if isinstance(body, str) else body.decode("utf-8")
        if not text.strip():
            raise ValueError("it is empty")
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        said = "it is nested too deeply" if isinstance(problem, RecursionError) else str(problem)
        said = said.split(";")[0]  # behind it Python says how it could be set up to take more
        raise ApiError(400, f"the body is not JSON: {said}", code="invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return found


def _no_constant(name: str):
    raise ValueError(f"{name} is not allowed in JSON")


def _check_known(name: str, value, endpoint: str) -> None:
    if name in HONOURED[endpoint] or name in HARMLESS:
        return
    unsupported = UNSUPPORTED[endpoint]
    if name not in unsupported:
        name = name[:100]  # a body may be one long name
        near = difflib.get_close_matches(name, [*HONOURED[endpoint], *HARMLESS, *unsupported], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        said = f"unknown field {_short_repr(name)}{hint}"
        raise ApiError(400, said, name, "unknown_parameter")
    if not any(type(value) is type(fine) and value == fine for fine in unsupported[name]):
        allowed = " or ".join(["null", *map(json.dumps, unsupported[name])])
        said = f"{name} is not supported here: leave it out, or send {allowed}"
        raise ApiError(400, said, name, "unsupported_parameter")


def _check_model(name, served: str) -> None:
    if not isinstance(name, str):
        raise invalid(f"model must be a text; got {_short_repr(name)}", "model")
    if name != served:
        said = f"there is no model {_short_repr(name)} here: this server has {served!r}"
        raise ApiError(404, said, "model", "model_not_found")


def _flag(fields: dict, name: str, inside: str = "") -> bool:
    """A field that is true or false; false when it is not there."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        param = inside + name
        raise invalid(f"{param} must be true or false; got {_short_repr(value)}", param)
    return value


def _include_usage(fields: dict) -> bool:
    """What stream_options asks for."""
    options = fields.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise invalid("stream_options must be an object", "stream_options")
    if not _flag(fields, "stream"):
        raise invalid("stream_options goes with stream true", "stream_options")
    inside = "stream_options."
    options = {name: value for name, value in options.items() if value is not None}
    for name in options:
        if name not in ("include_usage", "include_obfuscation"):
            raise invalid(f"unknown field {_short_repr(name)}", inside + name)
    _flag(options, "include_obfuscation", inside)
    return _flag(options, "include_usage", inside)


def _params(fields: dict, endpoint: str) -> SamplingParams:
    wanted = {name: fields[name] for name in SAMPLING if name in fields}
    wanted["max_tokens"] = _max_tokens(fields)
    wanted["logprobs"] = _logprobs(fields) if endpoint == CHAT else fields.get("logprobs")
    try:
        params = SamplingParams(**wanted)
    except ValueError as problem:
        name, rest = str(problem).split(" ", 1)  # its messages begin with the field
        name = _as_given(name, fields, endpoint)
        raise invalid(f"{name} {rest}", name) from None
    for place, stop in enumerate(params.stop):
        _check_text(stop, "stop" if isinstance(fields["stop"], str) else f"stop[{place}]")
    return params


def _as_given(name: str, fields: dict, endpoint: str) -> str:
    """The field of the body that a field of SamplingParams comes from."""
    if name == "max_tokens" and name not in fields:
        return "max_completion_tokens"
    return "top_logprobs" if name == "logprobs" and endpoint == CHAT else name


def _max_tokens(fields: dict):
    old, new = fields.get("max_tokens"), fields.get("max_completion_tokens")
    if old is not None and new is not None and (type(old), old) != (type(new), new):
        said = f"max_tokens {_short_repr(old)} and max_completion_tokens {_short_repr(new)} differ"
        raise invalid(f"{said}: send one of them", "max_completion_tokens")
    return old if new is None else new


def _logprobs(fields: dict):
    """What logprobs and top_logprobs of a chat mean together: a number, or None."""
    top = fields.get("top_logprobs")
    if _flag(fields, "logprobs"):
        return 0 if top is None else top
    if top is not None:
        raise invalid("top_logprobs goes with logprobs true", "top_logprobs")
    return None


def _messages(fields: dict) -> list[Message]:
    if "messages" not in fields:
        raise _missing("messages")
    messages = fields["messages"]
    if not isinstance(messages, list) or not messages:
        raise invalid("messages must be a list of at least one message", "messages")
    return [_message(message, f"messages[{n}]") for n, message in enumerate(messages)]


def _message(message, where: str) -> Message:
    if not isinstance(message, dict):
        raise invalid(f"{where} must be an object with role and content", where)
    role = message.get("role")
    role = "system" if role == "developer" else role
    if role not in ROLES:
        allowed = ", ".join(ROLES)
        raise invalid(f"role must be one of {allowed}; got {_short_repr(role)}", f"{where}.role")
    for name in ("tool_calls", "function_call"):
        if message.get(name) is not None:
            said = f"{name} is not supported here: leave it out"
            raise ApiError(400, said, f"{where}.{name}", "unsupported_parameter")
    return {"role": role, "content": _content(message.get("content"), f"{where}.content")}


def _content(content, where: str) -> str:
    """The text of a message, which may come in parts."""
    if not isinstance(content, str | list):
        raise invalid(f"{where} must be a text or a list of parts of type text", where)
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise invalid(f"a part of {where} is not of type text: only texts are read here", where)
        if not isinstance(part.get("text"), str):
            raise invalid(f"a part of {where} has no text", where)
    text = "".join(part["text"] for part in parts)
    _check_text(text, where)
    return text


def _prompts(fields: dict) -> list:
    """The prompts of a completion, not looked at yet: there may be too many of them."""
    if "prompt" not in fields:
        raise _missing("prompt")
    prompt = fields["prompt"]
    several = isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list)
    return prompt if several else [prompt]


def _check_prompts(prompts: list, are_several: bool) -> None:
    for place, prompt in enumerate(prompts):
        _check_prompt(prompt, f"prompt[{place}]" if are_several else "prompt")


def _check_prompt(prompt, where: str) -> None:
    if not isinstance(prompt, str | list):
        raise invalid(f"{where} must be a text or a list of token ids", where)
    if not prompt:
        raise invalid(f"{where} is empty: send at least one token", where)
    if isinstance(prompt, str):
        return _check_text(prompt, where)
    for token in prompt:
        if type(token) is not int:
            raise invalid(f"{where} holds {_short_repr(token)}, which is no token id", where)
    return None


def _missing(name: str) -> ApiError:
    return ApiError(400, f"{name} is missing", name, "missing_required_parameter")


def _check_text(text: str, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        said = f"character {problem.start} of {where} is a lone surrogate: send valid Unicode"
        raise invalid(said, where) from None


def _short_repr(value) -> str:
    """A value as it came, in ASCII, and no more than its beginning: it may have no end."""
    return f"{value!a:.60}"
