"""5.4, 5.6 and 5.7: right results at a price that grows."""

import codecs

import torch

from tests.parts import part


@part("5.4")
def every_filter_on_every_row(m):
    """Every row goes through every filter, and all of them are sorted."""

    def distributions(logits, states):
        def of(name, dtype=torch.float32):
            return torch.tensor([getattr(s.params, name) for s in states], dtype=dtype)

        names = ("repetition_penalty", "presence_penalty", "frequency_penalty")
        listed = m.seen_tokens([s.counts for s in states])
        found = m.penalize(logits, *listed, *map(of, names))
        found = m.apply_temperature(found, of("temperature"))
        found = m.keep_top_k(found, of("top_k", torch.int64))
        found = m.keep_top_p(found, of("top_p"))
        return m.softmax(m.keep_min_p(found, of("min_p")))

    m.distributions = distributions


@part("5.6")
def matcher_on_the_whole_text(m):
    """Everything is kept, and all of it is searched again for each piece."""

    class StopMatcher:
        def __init__(self, stops):
            self.stops, self.text, self.sent, self.found = tuple(stops), "", 0, None

        def add(self, piece):
            if self.found is not None:
                return ""
            self.text += piece
            for end in range(len(self.text) + 1):
                done = [s for s in self.stops if self.text.endswith(s, 0, end)]
                if done:
                    self.found = max(done, key=len)
                    return self._to(end - len(self.found))
            held = [n for s in self.stops for n in range(len(s)) if self.text.endswith(s[:n]) and n]
            return self._to(len(self.text) - max(held, default=0))

        def _to(self, end):
            start, self.sent = self.sent, max(self.sent, end)
            return self.text[start : self.sent]

        def flush(self):
            return "" if self.found is not None else self._to(len(self.text))

    m.StopMatcher = StopMatcher


@part("5.7")
def answer_decoded_again(m):
    """All bytes of the answer are kept, and decoded again for each id."""

    class Detokenizer:
        def __init__(self, token_bytes, strip=False):
            self.token_bytes, self.strip, self.data, self.sent = token_bytes, strip, b"", 0

        def add(self, token):
            return self._more(self.token_bytes(token), False)

        def _more(self, new, final):
            self.data += new
            data = self.data.removeprefix(b" ") if self.strip else self.data
            text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final)
            start, self.sent = self.sent, len(text)
            return text[start:]

        def flush(self):
            return self._more(b"", True)

    m.Detokenizer = Detokenizer


@part("5.7")
def bytes_of_all_ids_again(m):
    """The ids are kept, and the bytes of all of them are asked for again at each."""

    class Detokenizer:
        def __init__(self, token_bytes, strip=False):
            self.token_bytes, self.strip, self.ids, self.sent = token_bytes, strip, [], 0

        def add(self, token):
            self.token_bytes(token)
            self.ids.append(token)
            return self._more(False)

        def _more(self, final):
            data = b"".join(map(self.token_bytes, self.ids))
            data = data.removeprefix(b" ") if self.strip else data
            text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final)
            start, self.sent = self.sent, len(text)
            return text[start:]

        def flush(self):
            return self._more(True)

    m.Detokenizer = Detokenizer
