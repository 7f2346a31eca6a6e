"""7.1 and 7.2: bodies and shapes."""

import json

from tests.parts import part


def parsing(m, change) -> None:
    """change(right, body, endpoint, model) takes the place of parse_body."""
    right = m.parse_body
    m.parse_body = lambda body, endpoint, model: change(right, body, endpoint, model)


@part("7.1")
def fields_in_any_case(m):
    """Names are taken in any case, as HTTP headers are."""

    def change(right, body, endpoint, model):
        found = json.loads(body)
        return right(json.dumps({name.lower(): v for name, v in found.items()}), endpoint, model)

    parsing(m, change)


@part("7.1")
def zero_for_nothing(m):
    """A field that is 0, false or empty is as if it were not there."""

    def change(right, body, endpoint, model):
        try:
            found = json.loads(body)
            kept = {name: value for name, value in found.items() if value}
            return right(json.dumps(kept), endpoint, model)
        except (ValueError, AttributeError):
            return right(body, endpoint, model)

    parsing(m, change)


@part("7.1")
def numbers_in_texts(m):
    """What looks like a number is one."""

    def change(right, body, endpoint, model):
        try:
            found = json.loads(body)
            for name in ("temperature", "max_tokens"):
                if isinstance(found.get(name), str):
                    found[name] = json.loads(found[name])
            return right(json.dumps(found), endpoint, model)
        except (ValueError, AttributeError):
            return right(body, endpoint, model)

    parsing(m, change)


@part("7.1")
def model_not_looked_at(m):
    """Any model will do."""
    m._check_model = lambda name, served: None


@part("7.1")
def too_many_are_cut_off(m):
    """The first sixteen prompts are served, without a word about the others."""
    right = m._prompts
    m._prompts = lambda fields: right(fields)[:16]


@part("7.1")
def parts_joined_by_lines(m):
    """The parts of a content get line breaks between them."""
    right = m._content

    def content(content, where):
        if isinstance(content, list) and all(isinstance(p, dict) for p in content):
            right(content, where)
            return "\n".join(part["text"] for part in content)
        return right(content, where)

    m._content = content


@part("7.1")
def half_characters_in_stops(m):
    """Stop strings are not looked at."""
    right = m._check_text
    m._check_text = lambda text, where: where.startswith("stop") or right(text, where)


@part("7.2")
def usage_in_chunks(m):
    """Every chunk has a usage, None but in the last."""
    right = m.chunk_body
    m.chunk_body = lambda *args, **named: right(*args, **named) | {"usage": None}


@part("7.2")
def reason_as_a_text(m):
    """A finish_reason that is not there is an empty text."""
    right = m._choice

    def choice(*args):
        found = right(*args)
        return found | {"finish_reason": found["finish_reason"] or ""}

    m._choice = choice


@part("7.2")
def nan_let_through(m):
    """NaN is written as Python writes it."""

    def to_json(body):
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")

    m.to_json = to_json


@part("7.2")
def offsets_from_nothing(m):
    """text_offset always begins at 0."""
    right = m._completion_logprobs

    def told(piece, token_bytes):
        found = right(piece, token_bytes)
        first = found["text_offset"][:1] or [0]
        return found | {"text_offset": [place - first[0] for place in found["text_offset"]]}

    m._completion_logprobs = told
