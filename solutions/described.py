"""Chapter 07: the bodies of the two endpoints, as OpenAPI describes them, made from the tables."""

from solutions.api_request import CHAT, COMPLETION, HARMLESS, HONOURED, MAX_CHOICES, UNSUPPORTED
from solutions.chat import ROLES
from solutions.sampling_params import MAX_STOP_LENGTH, MAX_STOPS, RANGES

JSON = "application/json"
_TYPES = {int: "integer", float: "number"}


def _number(name: str) -> dict:
    """The schema of a field of SamplingParams."""
    kind, least, most, words = RANGES[name]
    schema = {"type": _TYPES[kind], "minimum": least, "description": words}
    return schema if most == float("inf") else schema | {"maximum": most}


_TEXT, _FLAG = {"type": "string", "minLength": 1}, {"type": "boolean"}
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_STOP = _TEXT | {"maxLength": MAX_STOP_LENGTH}
_PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"enum": [*ROLES, "developer"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": _PART}]},
    },
    "required": ["role", "content"],
}
_MORE_PROMPTS = {
    "type": "array",
    "items": {"anyOf": [_TEXT, _IDS]},
    "minItems": 1,
    "maxItems": MAX_CHOICES,
}
_FIELDS = {
    "model": {"type": "string"},
    "messages": {"type": "array", "items": _MESSAGE, "minItems": 1},
    "prompt": {"anyOf": [_TEXT, _IDS, _MORE_PROMPTS]},
    "n": {"type": "integer", "minimum": 1, "maximum": MAX_CHOICES},
    "stream": _FLAG,
    "stream_options": {"type": "object", "properties": {"include_usage": _FLAG}},
    "ignore_eos": _FLAG,
    "max_completion_tokens": _number("max_tokens"),
    "top_logprobs": _number("logprobs"),
    "stop": {"anyOf": [_STOP, {"type": "array", "items": _STOP, "maxItems": MAX_STOPS}]},
    **{name: _number(name) for name in RANGES},
}


def _or_null(schema: dict) -> dict:
    return {"anyOf": [schema, {"type": "null"}]}


def _body(endpoint: str) -> dict:
    needed = "messages" if endpoint == CHAT else "prompt"
    honoured = {name: _FIELDS[name] for name in HONOURED[endpoint]}
    if endpoint == CHAT:
        honoured["logprobs"] = _FLAG
    fields = {name: it if name == needed else _or_null(it) for name, it in honoured.items()}
    fields |= {name: {} for name in HARMLESS}
    fields |= {name: {"enum": [None, *fine]} for name, fine in UNSUPPORTED[endpoint].items()}
    schema = {"type": "object", "properties": fields, "required": [needed]}
    schema["additionalProperties"] = False
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}


_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}},
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}


def _error(words: str) -> dict:
    return {"description": words, "content": {JSON: {"schema": _ERROR}}}


BODIES = {endpoint: _body(endpoint) for endpoint in (CHAT, COMPLETION)}
ERRORS = {
    401: _error("no valid key"),
    403: _error("another web site may not call"),
    404: _error("not here"),
}
RESPONSES = ERRORS | {
    200: {"description": "the answer, or events", "content": {JSON: {}, "text/event-stream": {}}},
    202: {"description": "accepted, with Prefer: respond-async"},
    400: _error("something is wrong with the request"),
    408: _error("the body came too slowly"),
    413: _error("the body is too large"),
    500: _error("the engine failed"),
    503: _error("no room now: see Retry-After"),
    504: _error("it took too long"),
}
