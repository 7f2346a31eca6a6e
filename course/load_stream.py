"""Server-sent events out of bytes, however the network cuts them; and what an answer says."""

import json


class EventStream:
    """Bytes in, the data of whole events out.

    Lines end with LF, CR or CR LF and nothing else: the line separators of Unicode (U+2028) are
    allowed inside JSON, so a splitter of text lines would tear an event apart.
    Source: HTML standard, section 9.2.6, "Interpreting an event stream".
    """

    def __init__(self):
        self._line, self._data, self._after_cr = bytearray(), [], False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of every event that these bytes complete, in order."""
        found = []
        if self._after_cr and chunk:  # a CR at the end of the last chunk: is this its LF?
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        chunk, self._after_cr = chunk.replace(b"\r\n", b"\n"), chunk.endswith(b"\r")
        *whole, rest = chunk.replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            found += self._take(bytes(self._line + line))
            self._line.clear()
        self._line += rest
        return found

    def _take(self, line: bytes) -> list[str]:
        """One line; an empty one ends an event. Fields other than data are of no use here."""
        if not line:
            data, self._data = self._data, []
            return ["\n".join(data)] if data else []
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", errors="replace"))
        return []


def read_event(data: str) -> dict:
    """A chunk: an object. Errors: ValueError when it is something else."""
    event = json.loads(data)
    if not isinstance(event, dict):
        raise ValueError(f"an event is a JSON object, not {type(event).__name__}")
    return event


def piece(event: dict) -> str:
    """The text in a chunk of either route; empty where it holds none."""
    for choice in event.get("choices") or []:
        text = (choice.get("delta") or {}).get("content") or choice.get("text")
        if isinstance(text, str):
            return text
    return ""


def finish_reason(event: dict) -> str | None:
    """Why the answer is over, where a chunk or an answer says so."""
    reasons = [choice.get("finish_reason") for choice in event.get("choices") or []]
    return next((reason for reason in reasons if reason), None)


def usage(event: dict) -> tuple[int, int] | None:
    """Tokens of the prompt and of the answer, where a chunk or an answer counts them."""
    found = event.get("usage")
    if not isinstance(found, dict):
        return None
    counts = found.get("prompt_tokens"), found.get("completion_tokens")
    return counts if all(isinstance(n, int) for n in counts) else None
