"""Events as dicts, for the cases of chapter 08."""

from course.cases import Wrong, describe


def arrived(id: str, at: float, **changes) -> dict:
    """An Arrived."""
    fields = {"prompt_tokens": 7, "max_tokens": 20, "characters": 30}
    fields |= {"fingerprint": "a1b2", "stream": True}
    return {"kind": "Arrived", "id": id, "at": at} | fields | changes


def admitted(id: str, at: float) -> dict:
    """An Admitted."""
    return {"kind": "Admitted", "id": id, "at": at}


def token(id: str, at: float) -> dict:
    """A Token."""
    return {"kind": "Token", "id": id, "at": at}


def finished(id: str, at: float, reason: str = "stop", tokens: int = 0, error=None) -> dict:
    """A Finished."""
    return {
        "kind": "Finished",
        "id": id,
        "at": at,
        "reason": reason,
        "tokens": tokens,
        "error": error,
    }


def rejected(at: float, reason: str = "queue_full") -> dict:
    """A Rejected."""
    return {"kind": "Rejected", "at": at, "reason": reason}


def sent(id: str, at: float, lag: float) -> dict:
    """A Sent."""
    return {"kind": "Sent", "id": id, "at": at, "lag": lag}


def stepped(at: float, seconds: float = 0.06, used: int = 10, total: int = 100, **changes) -> dict:
    """A Stepped."""
    fields = {"running": 1, "waiting": 0, "kv_used": used, "kv_total": total, "errors": []}
    return {"kind": "Stepped", "at": at, "seconds": seconds} | fields | changes


def life(id: str, start: float, moments: list[float], end: float, **changes) -> list[dict]:
    """A whole request: it waits for a second, has its tokens at these moments, and ends."""
    events = [arrived(id, start, **changes), admitted(id, start + 1.0)]
    events += [token(id, at) for at in moments]
    return [*events, finished(id, end, tokens=len(moments))]


def rising(rng, count: int, start: float, low: float = 0.01, high: float = 2.0) -> list[float]:
    """Moments that go up."""
    moments = [start]
    for _ in range(count):
        moments.append(moments[-1] + rng.uniform(low, high))
    return moments[1:]


def expect_near(got, expected, what: str) -> None:
    """Equal numbers but for rounding, of lists and dicts each; None is only None."""
    if isinstance(expected, dict) and isinstance(got, dict):
        if got.keys() != expected.keys():
            raise Wrong(f"{what} has the keys {list(got)}, expected {list(expected)}")
        for key, value in expected.items():
            expect_near(got[key], value, f"{key} of {what}")
    elif isinstance(expected, list) and isinstance(got, list | tuple):
        if len(got) != len(expected):
            raise Wrong(f"{what} has {len(got)} parts, expected {len(expected)}")
        for number, value in enumerate(expected):
            expect_near(got[number], value, f"{what}[{number}]")
    elif not _near(got, expected):
        raise Wrong(f"{what} is {describe(got)}, expected {describe(expected)}")


def _near(got, expected) -> bool:
    numbers = isinstance(got, int | float) and isinstance(expected, int | float)
    if isinstance(got, bool) != isinstance(expected, bool):
        return False
    if not numbers:
        return type(got) is type(expected) and got == expected
    if got == expected:  # infinity
        return True
    return abs(got - expected) <= 1e-9 * max(1.0, abs(expected))
