"""Chapter 05: from token ids to text, as they come."""

import codecs
from collections.abc import Callable, Collection, Sequence

from solutions.stopping import StopMatcher


class Detokenizer:
    """Turns ids into text one at a time, holding back the bytes of an unfinished character.

    A character can be spread over several tokens. Its first bytes alone would show as U+FFFD, so
    they wait for the rest; what was given out is never taken back. All pieces and the flush,
    joined, are the bytes of all ids, joined and decoded as UTF-8, with U+FFFD for what is no UTF-8
    (as bytes.decode(errors="replace") puts it). Any sequence of ids is allowed.

    Args:
        token_bytes: gives the bytes of an id; empty for one that is not to be seen.
        strip: leave out a space at the very beginning of the text, one, if there is one
            (SentencePiece writes one before the first word).
    """

    def __init__(self, token_bytes: Callable[[int], bytes], strip: bool = False):
        """Nothing has come, and nothing waits."""
        # exercise 5.7
        self._token_bytes = token_bytes
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = strip

    def add(self, token: int) -> str:
        """The text that this id completes; often a word, sometimes nothing yet.

        A complete character never waits, nor what stands before it; of bytes that are no UTF-8, at
        most the last three do. The work is the same for each id, however many came before: what was
        given out is not kept. An exception of token_bytes goes on, and nothing has changed then.
        """
        # exercise 5.7
        data = self._token_bytes(token)
        if data and self._strip:
            data, self._strip = data.removeprefix(b" "), False
        return self._utf8.decode(data)

    def flush(self) -> str:
        """What is left at the end: U+FFFD for an unfinished character, else "". Once; then ""."""
        # exercise 5.7
        return self._utf8.decode(b"", final=True)


class Answer:
    """The answer to one request as it grows: its ids, the text to send, and why it ended.

    Token by token: an end id ends it, "stop", and is no part of it. Any other id joins `ids` and
    its text goes through the stop strings; the first one found ends it, "stop". Else the
    max_tokens-th id ends it, "length". At the end everything that waited comes out: first the
    unfinished character, through the stop strings, then what they held back. Should a stop string
    be found in that, the reason is "stop".

    Args:
        detokenizer: a new one.
        max_tokens: at least 1.
        end_ids: the ids that end a text.
        stops: the stop strings.

    Attributes:
        ids: list of ints, the tokens of the answer, also those of a stop string.
        finish_reason: "stop", "length", or None as long as it goes on.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        max_tokens: int,
        end_ids: Collection[int] = (),
        stops: Sequence[str] = (),
    ):
        """No ids yet, and no reason to end."""
        # exercise 5.7
        self.ids: list[int] = []
        self.finish_reason: str | None = None
        self._detokenizer, self._matcher = detokenizer, StopMatcher(stops)
        self._max_tokens, self._end_ids = max_tokens, frozenset(end_ids)

    def add(self, token: int) -> str:
        """Take the token that was sampled, and give the text that can be sent now.

        All texts given, joined, are the text of the answer. After the end it is RuntimeError.
        """
        # exercise 5.7
        if self.finish_reason is not None:
            raise RuntimeError(f"the answer has ended ({self.finish_reason}): no token can follow")
        if token in self._end_ids:
            return _end(self, "stop")
        self.ids.append(token)
        text = self._matcher.add(self._detokenizer.add(token))
        if self._matcher.found is not None:
            self.finish_reason = "stop"
        elif len(self.ids) >= self._max_tokens:
            text += _end(self, "length")
        return text


def _end(answer: "Answer", reason: str) -> str:
    """The answer ends: give out what waited."""
    text = answer._matcher.add(answer._detokenizer.flush())
    answer.finish_reason = reason if answer._matcher.found is None else "stop"
    return text + answer._matcher.flush()
