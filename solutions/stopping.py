"""Chapter 05: stop strings, found in a stream without showing a part of one."""

from collections.abc import Sequence


class StopMatcher:
    """Lets a text through piece by piece, up to the first stop string.

    The text ends where a stop string is complete first, reading character by character; of
    several that are complete at the same character, the longest counts, which begins first. It is
    cut off, whole. So the result depends on the text alone, never on how it came in pieces.

    What could still become a stop string is held back: not a character more, and never a whole
    piece when a part of it is safe.

    Args:
        stops: the stop strings, none empty. There may be none.

    Attributes:
        found: the stop string that ended the text, or None so far.
    """

    def __init__(self, stops: Sequence[str]):
        """Nothing is found, and nothing held back."""
        # exercise 5.6
        self.found: str | None = None
        self._stops = [(stop, _borders(stop)) for stop in stops]
        self._matched = [0] * len(stops)  # how much of each stop string the text ends with
        self._held = ""

    def add(self, piece: str) -> str:
        """Take the next piece of the text, of any length, and give what may be shown now.

        The work is the same for each character, however long the text before it: what was shown
        is not kept. Once a stop string was found the text is over: whatever comes, the answer
        is "".
        """
        # exercise 5.6
        if self.found is not None:
            return ""
        if not self._stops:
            return piece
        text = self._held + piece
        for end, character in enumerate(piece, len(self._held) + 1):
            pairs = zip(self._stops, self._matched, strict=True)
            self._matched = [_advance(*known, count, character) for known, count in pairs]
            complete = [
                s for (s, _), n in zip(self._stops, self._matched, strict=True) if n == len(s)
            ]
            if complete:
                self.found, self._held = max(complete, key=len), ""
                return text[: end - len(self.found)]
        safe = len(text) - max(self._matched)
        self._held = text[safe:]
        return text[:safe]

    def flush(self) -> str:
        """The text is over for another reason: give what was held back. A second time, ""."""
        # exercise 5.6
        held, self._held = self._held, ""
        return held


def _advance(stop: str, borders: list[int], count: int, character: str) -> int:
    """How much of a stop string a text ends with after one more character; it was count."""
    while count and stop[count] != character:
        count = borders[count - 1]  # the next shorter beginning that the text ends with
    return count + (stop[count] == character)


def _borders(stop: str) -> list[int]:
    """For each beginning of a text, the longest shorter beginning that it also ends with.

    Source: Knuth, Morris and Pratt 1977, section 2.
    """
    borders = [0]
    for character in stop[1:]:
        borders.append(_advance(stop, borders, borders[-1], character))
    return borders
