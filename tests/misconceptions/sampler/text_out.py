"""Wrong versions of 5.7 Detokenizer and Answer."""

from course.misconceptions import misconception


@misconception("5.7", "Detokenizer.add")
def tokens_decoded_alone(self, token):
    """You decode the bytes of each token alone. A character spread over two tokens becomes U+FFFD:
    keep its first bytes until the others come.
    """
    data = self._token_bytes(token)
    if data and self._strip:
        data, self._strip = data.removeprefix(b" "), False
    return data.decode("utf-8", "replace")


@misconception("5.7", "Detokenizer.add")
def broken_bytes_left_out(self, token):
    """You leave out bytes that are no UTF-8. The text has U+FFFD in their place: errors="replace",
    not "ignore".
    """
    import codecs

    if not hasattr(self, "_other"):
        self._other = codecs.getincrementaldecoder("utf-8")("ignore")
    data = self._token_bytes(token)
    if data and self._strip:
        data, self._strip = data.removeprefix(b" "), False
    return self._other.decode(data)


@misconception("5.7", "Detokenizer.add")
def waiting_for_an_end(self, token):
    """You wait as long as the text ends with U+FFFD. So a whole character waits if another has
    begun behind it, and behind bytes that never become a character nothing comes out: at most three
    bytes may wait.
    """
    self._all = getattr(self, "_all", b"") + self._token_bytes(token)
    if self._all and self._strip:
        self._all, self._strip = self._all.removeprefix(b" "), False

    def flush():
        rest, self._all = self._all, b""
        return rest.decode("utf-8", "replace")

    self.flush = flush  # of what waits here, not of the reference's own decoder
    return "" if self._all.decode("utf-8", "replace").endswith("\ufffd") else flush()


@misconception("5.7", "Detokenizer.add")
def every_first_space_stripped(self, token):
    """With strip you take the space from every token. Only the very beginning of the text loses
    one: the others stand between words.
    """
    data = self._token_bytes(token)
    return self._utf8.decode(data.removeprefix(b" ") if self._strip else data)


@misconception("5.7", "Detokenizer.add")
def every_space_at_the_beginning(self, token):
    """With strip you take all white space from the beginning. It is one space, the one that
    SentencePiece wrote.
    """
    data = self._token_bytes(token)
    if data and self._strip:
        data, self._strip = data.lstrip(), False
    return self._utf8.decode(data)


@misconception("5.7", "Detokenizer.flush")
def unfinished_character_lost(self):
    """Your flush gives nothing. The bytes of an unfinished character belong to it, as U+FFFD."""
    self._utf8.reset()
    return ""


@misconception("5.7", "Answer.add")
def end_id_in_the_answer(self, token):
    """The end id is among your ids, or its text in your text. It says that the answer is over and
    is no part of it: look for it first.
    """
    if self.finish_reason is not None:
        raise RuntimeError("over")
    self.ids.append(token)
    text = self._matcher.add(self._detokenizer.add(token))
    if token in self._end_ids:
        return text + _end(self, "stop")  # noqa: F821
    if self._matcher.found is not None:
        self.finish_reason = "stop"
    elif len(self.ids) >= self._max_tokens:
        text += _end(self, "length")  # noqa: F821
    return text


@misconception("5.7", "Answer.add")
def length_before_stop(self, token):
    """Where the last allowed token completes a stop string you say "length". The stop string comes
    first: the model had finished.
    """
    if self.finish_reason is not None:
        raise RuntimeError("over")
    if token in self._end_ids:
        return _end(self, "stop")  # noqa: F821
    self.ids.append(token)
    text = self._matcher.add(self._detokenizer.add(token))
    if len(self.ids) >= self._max_tokens:
        text += _end(self, "length")  # noqa: F821
        self.finish_reason = "length"
    elif self._matcher.found is not None:
        self.finish_reason = "stop"
    return text


@misconception("5.7", "Answer.add")
def one_token_more(self, token):
    """Your answer is one token longer than it may be. The max_tokens-th id ends it: count the token
    first, then compare.
    """
    if self.finish_reason is not None:
        raise RuntimeError("over")
    if token in self._end_ids:
        return _end(self, "stop")  # noqa: F821
    full = len(self.ids) >= self._max_tokens
    self.ids.append(token)
    text = self._matcher.add(self._detokenizer.add(token))
    if self._matcher.found is not None:
        self.finish_reason = "stop"
    elif full:
        text += _end(self, "length")  # noqa: F821
    return text


@misconception("5.7", "_end")
def held_text_lost(answer, reason):
    """What the stop strings held back is lost at the end of your answer. When it ends otherwise,
    that text belongs to it: flush the matcher.
    """
    text = answer._matcher.add(answer._detokenizer.flush())
    answer.finish_reason = reason if answer._matcher.found is None else "stop"
    return text


@misconception("5.7", "_end")
def unfinished_character_of_the_answer_lost(answer, reason):
    """You flush the matcher and not the detokenizer: an unfinished character at the end is lost. It
    comes first, then what the stop strings held back.
    """
    answer.finish_reason = reason
    return answer._matcher.flush()


@misconception("5.7", "_end")
def last_text_not_searched(answer, reason):
    """What the detokenizer gives at the end goes out unseen by the stop strings, and before what
    they hold back. It is text like any other: through the matcher first.
    """
    answer.finish_reason = reason
    return answer._matcher.flush() + answer._detokenizer.flush()


@misconception("5.7", "Answer.add")
def tokens_after_the_end(self, token):
    """After its end your answer takes tokens as before. A caller that goes on has a bug, and a
    RuntimeError tells it so.
    """
    if self.finish_reason is not None:
        return ""
    if token in self._end_ids:
        return _end(self, "stop")  # noqa: F821
    self.ids.append(token)
    text = self._matcher.add(self._detokenizer.add(token))
    if self._matcher.found is not None:
        self.finish_reason = "stop"
    elif len(self.ids) >= self._max_tokens:
        text += _end(self, "length")  # noqa: F821
    return text


@misconception("5.7", "Answer.add")
def stop_string_unnoticed(self, token):
    """A stop string cuts your text, but the answer goes on to the length. It is over: the reason is
    "stop", and no token more is needed.
    """
    if self.finish_reason is not None:
        raise RuntimeError("over")
    if token in self._end_ids:
        return _end(self, "stop")  # noqa: F821
    self.ids.append(token)
    text = self._matcher.add(self._detokenizer.add(token))
    if len(self.ids) >= self._max_tokens:
        text += _end(self, "length")  # noqa: F821
    return text
