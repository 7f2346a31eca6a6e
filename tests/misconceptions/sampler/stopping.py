"""Wrong versions of 5.6 StopMatcher."""

from course.misconceptions import misconception


@misconception("5.6", "StopMatcher.add")
def stop_leaks(self, piece):
    """You show the beginning of a stop string before it is complete. It cannot be taken back: what
    a stop string may begin with has to wait.
    """
    if self.found is not None:
        return ""
    self._whole = getattr(self, "_whole", "") + piece
    ends = [(self._whole.find(s) + len(s), -len(s), s) for s, _ in self._stops if s in self._whole]
    if not ends:
        return piece
    end, _, self.found = min(ends)
    shown = len(self._whole) - len(piece)
    return self._whole[shown : end - len(self.found)] if end - len(self.found) > shown else ""


@misconception("5.6", "StopMatcher.add")
def stop_only_within_a_piece(self, piece):
    """You look for stop strings in each piece alone. One that spans two pieces is never found: look
    at what waits and the piece together.
    """
    if self.found is not None:
        return ""
    ends = [(piece.find(s) + len(s), -len(s), s) for s, _ in self._stops if s in piece]
    if ends:
        end, _, self.found = min(ends)
        return piece[: end - len(self.found)]
    return piece


@misconception("5.6", "StopMatcher.add")
def stop_holds_the_longest(self, piece):
    """You always hold back as many characters as the longest stop string may need. Text that cannot
    become a stop string has to go out at once, or a reader sees the answer stutter.
    """
    if self.found is not None:
        return ""
    text = self._held + piece
    ends = [(text.find(s) + len(s), -len(s), s) for s, _ in self._stops if s in text]
    if ends:
        end, _, self.found = min(ends)
        self._held = ""
        return text[: end - len(self.found)]
    safe = max(0, len(text) - max((len(s) - 1 for s, _ in self._stops), default=0))
    self._held = text[safe:]
    return text[:safe]


@misconception("5.6", "StopMatcher.add")
def stop_first_listed(self, piece):
    """Where several stop strings match, you take the one that is listed first. It is the one that
    is complete first: compare where each match ends.
    """
    if self.found is not None:
        return ""
    text = self._held + piece
    self.found = next((s for s, _ in self._stops if s in text), None)
    if self.found is not None:
        self._held = ""
        return text[: text.find(self.found)]
    starts = [n for s, _ in self._stops for n in range(1, len(s)) if text.endswith(s[:n])]
    safe = len(text) - max(starts, default=0)
    self._held = text[safe:]
    return text[:safe]


@misconception("5.6", "StopMatcher.add")
def stop_that_begins_first(self, piece):
    """Where several stop strings match, you take the one that begins first. A stream cannot wait to
    see whether a longer one is going to be complete: the one that ends first counts.
    """
    if self.found is not None:
        return ""
    text = self._held + piece
    starts = [(text.find(s), -len(s), s) for s, _ in self._stops if s in text]
    if starts:
        start, _, self.found = min(starts)
        self._held = ""
        return text[:start]
    counts = [n for s, _ in self._stops for n in range(1, len(s)) if text.endswith(s[:n])]
    safe = len(text) - max(counts, default=0)
    self._held = text[safe:]
    return text[:safe]


@misconception("5.6", "StopMatcher.add")
def stop_shortest_of_equal_ends(self, piece):
    """Of several stop strings that are complete at the same character you cut off the shortest. The
    longest counts: it began first.
    """
    if self.found is not None:
        return ""
    text = self._held + piece
    ends = [(text.find(s) + len(s), len(s), s) for s, _ in self._stops if s in text]
    if ends:
        end, _, self.found = min(ends)
        self._held = ""
        return text[: end - len(self.found)]
    counts = [n for s, _ in self._stops for n in range(1, len(s)) if text.endswith(s[:n])]
    safe = len(text) - max(counts, default=0)
    self._held = text[safe:]
    return text[:safe]


@misconception("5.6", "_advance")
def stop_that_starts_over(stop, borders, count, character):
    """When a beginning of a stop string fails, you start over with nothing. A shorter beginning may
    still stand at the end of the text: "aab" is in "aaab".
    """
    if stop[count] != character:
        count = 0
    return count + (stop[count] == character)


@misconception("5.6", "StopMatcher.add")
def stop_string_in_the_text(self, piece):
    """You show the stop string itself. It is cut off: the text ends where it begins."""
    if self.found is not None:
        return ""
    text = self._held + piece
    ends = [(text.find(s) + len(s), -len(s), s) for s, _ in self._stops if s in text]
    if ends:
        end, _, self.found = min(ends)
        self._held = ""
        return text[:end]
    counts = [n for s, _ in self._stops for n in range(1, len(s)) if text.endswith(s[:n])]
    safe = len(text) - max(counts, default=0)
    self._held = text[safe:]
    return text[:safe]


@misconception("5.6", "StopMatcher.add")
def stop_and_go_on(self, piece):
    """After a stop string you let the text go on. It is over: whatever comes, the answer is ""."""
    text = self._held + piece
    ends = [(text.find(s) + len(s), -len(s), s) for s, _ in self._stops if s in text]
    if ends:
        end, _, self.found = min(ends)
        self._held = text[end:]
        return text[: end - len(self.found)]
    counts = [n for s, _ in self._stops for n in range(1, len(s)) if text.endswith(s[:n])]
    safe = len(text) - max(counts, default=0)
    self._held = text[safe:]
    return text[:safe]


@misconception("5.6", "StopMatcher.flush")
def flush_of_nothing(self):
    """Your flush gives nothing. When the text ends without a stop string, what was held back
    belongs to it.
    """
    self._held = ""
    return ""


@misconception("5.6", "StopMatcher.flush")
def flush_again_and_again(self):
    """A second flush gives the same once more. What was given out is gone: empty what you hold."""
    return self._held
