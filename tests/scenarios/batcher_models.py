"""What the scenarios of chapter 06 put in the place of a real model, clock and sampler."""

import itertools
from types import SimpleNamespace

import torch

from solutions import sampler
from solutions.kv_cache import KVCache
from tests.oracles.batcher import VOCABULARY, next_token
from tests.scenarios.helpers import config_of

NAN, INF, NOTHING = 97, 98, 99  # token ids after which Teller's logits are no use
SPOILT = {NAN: float("nan"), INF: float("inf"), NOTHING: float("-inf")}
CONFUSED = VOCABULARY - 1  # what it says when it is shown something else than the next tokens
ERRORS = {e.__name__: e for e in (ArithmeticError, RuntimeError, KeyboardInterrupt, SystemExit)}


class Teller:
    """A model whose next token depends on every token before it, and on nothing else.

    It keeps the tokens of each row. When it is shown anything but the next ones of a row, at their
    positions, it says CONFUSED. So one token too many, too few or twice shows in the answer.

    Args:
        events: gets ["forward", rows, tokens, positions] for each forward, of the real places only:
            one list a sequence; and the whole shape.
        breaks: {number of a forward: name of the exception that it raises}.
        context: of the model.
        spoils: logits are no use after the tokens NAN, INF and NOTHING.
    """

    def __init__(self, events: list, breaks: dict, context: int = 256, spoils: bool = True):
        self.config = config_of("tied", max_position_embeddings=context, vocab_size=VOCABULARY)
        self.device = torch.device("cpu")
        self.events, self.breaks, self.calls, self.spoils = events, breaks, 0, spoils
        self.rows: dict[int, list[int]] = {}
        self.during = None  # called in every forward

    def forward(self, tokens, positions, cache=None, rows=None, every_position=False):
        """Logits [B, V] after each sequence's last real token."""
        rows = list(range(len(tokens))) if rows is None else rows.tolist()
        shown = [
            [(t, p) for t, p in zip(ids, places, strict=True) if p >= 0]
            for ids, places in zip(tokens.tolist(), positions.tolist(), strict=True)
        ]
        told = [[list(part) for part in zip(*pairs, strict=True)] for pairs in shown]
        self.events.append(["forward", rows, [t for t, _ in told], [p for _, p in told]])
        self.events[-1].append(list(tokens.shape))
        self.calls += 1
        if self.during is not None:
            self.during()
        if self.calls in self.breaks:
            raise ERRORS[self.breaks[self.calls]]("the model failed on purpose")
        if cache is not None:
            self._write(cache, torch.tensor(rows), positions)
        answers = [self._answer(row, pairs) for row, pairs in zip(rows, shown, strict=True)]
        return torch.stack(answers)

    def _write(self, cache, rows, positions) -> None:
        """Into layer 0, so that room which was not reserved is CacheFull."""
        shape = (len(rows), self.config.num_key_value_heads, positions.shape[1])
        nothing = torch.zeros((*shape, self.config.head_dim))
        cache.write(0, rows, positions, nothing, nothing)

    def _answer(self, row: int, pairs: list) -> torch.Tensor:
        if pairs[0][1] == 0:
            self.rows[row] = []
        held = self.rows.setdefault(row, [])
        again = held and pairs == [(held[-1], len(held) - 1)]  # what a static batch does
        if not again:
            following = [position for _, position in pairs]
            fits = following == list(range(len(held), len(held) + len(pairs)))
            held += [token for token, _ in pairs] if fits else [CONFUSED]
        return _logits(next_token(held), held[-1] if self.spoils else 0)


def _logits(answer: int, last: int) -> torch.Tensor:
    logits = torch.linspace(-9.0, -1.0, VOCABULARY)
    logits[answer] = -0.5
    if last == NOTHING:
        return torch.full_like(logits, SPOILT[last])
    if last in SPOILT:
        logits[3] = SPOILT[last]
    return logits


def new_cache(rows: int, max_length: int) -> KVCache:
    """A KV cache for a Teller."""
    return KVCache(config_of("tied"), rows, max_length)


class Clock:
    """Says the time that it was set to, and counts how often it is asked."""

    def __init__(self, now: float = 100.0):
        self.now, self.asked = now, 0

    def __call__(self) -> float:
        self.asked += 1
        return self.now


def watched_sampler(events: list, **breaks: dict) -> SimpleNamespace:
    """Chapter 05's sampler, with an event for each call of sample.

    breaks: {number of a call: name of the exception that it raises}, by the name of what is called.
    """

    def watched(name):
        numbers = itertools.count(1)

        def call(*args, **kwargs):
            if name == "sample":
                events.append(["sample", len(args[1]), list(args[0].shape)])
            if (number := next(numbers)) in breaks[name]:
                raise ERRORS[breaks[name][number]](f"{name} failed on purpose")
            return getattr(sampler, name)(*args, **kwargs)

        return call

    return SimpleNamespace(**{name: watched(name) for name in breaks})
