"""What a worker sends is looked at before it is used: it may have been forged, field by field.

Wire has made sure that it is plain data; here its shape is checked, and nothing it says about
itself decides anything but what the learner reads.
"""

from collections.abc import Callable

from course.runner import PRINT_LIMIT
from course.wire import Raised


class Forged(ValueError):
    """Not a reply that our worker would have sent."""


def nothing(value) -> None:
    """The reply to open."""
    _require(value is None, "open")


def raised_or_nothing(value) -> Raised | None:
    """The reply to cell."""
    return None if value is None else _raised(value)


def names(value) -> list[str]:
    """The reply to names."""
    _require(_all(value, lambda name: type(name) is str), "names")
    return value


def answer(value) -> dict:
    """The reply to a call: {value, changed, printed}, {raised, printed} or {unsendable}."""
    _require(type(value) is dict, "answer")
    if type(value.get("unsendable")) is str:
        return {"unsendable": value["unsendable"][:400]}
    _require(type(value.get("printed")) is str, "printed")
    printed = value["printed"][:PRINT_LIMIT]
    if "raised" in value:
        return {"raised": _raised(value["raised"]), "printed": printed}
    _require("value" in value and _all(value.get("changed"), _is_index), "changed")
    return {"value": value["value"], "changed": value["changed"][:100], "printed": printed}


def _raised(value) -> Raised:
    good = (
        isinstance(value, Raised)
        and type(value.kind) is str
        and _all(value.kinds, lambda kind: type(kind) is str)
        and type(value.message) is str
        and type(value.not_attempted) is bool
        and (value.line is None or _is_index(value.line))
        and _all(value.lines, _is_index)
    )
    _require(good, "exception")
    value.kind, value.message = value.kind[:200], value.message[:2000]
    value.kinds, value.lines = value.kinds[:100], value.lines[:1000]
    return value


def _is_index(value) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _all(values, good: Callable) -> bool:
    return type(values) is list and all(map(good, values))


def _require(good: bool, what: str) -> None:
    if not good:
        raise Forged(f"no {what} of ours")
