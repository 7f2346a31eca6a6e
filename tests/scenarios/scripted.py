"""A model for 4.8 that says what a script says."""

import torch


class Scripted:
    """It says the next id of the script, if it is shown what it should be shown.

    It remembers the tokens that a cache would hold. When the tokens it can see are not the
    prompt and the script so far, each at its place, it says the last id of the vocabulary.
    """

    def __init__(self, config, prompt: list, script: list, events: list, broken: dict):
        self.config, self.device = config, torch.device("cpu")
        self.story, self.start = [*prompt, *script], len(prompt)
        self.events, self.broken, self.calls, self.memory = events, broken, 0, {}

    def forward(self, tokens, positions, cache=None, rows=None, every_position=False):
        """Logits that have one clear maximum; the forward of a number in `broken` raises that."""
        used = None if cache is None else int(cache.used_tokens)
        self.events.append(["forward", tokens.clone(), positions.clone(), used])
        self.calls += 1
        if self.calls in self.broken:
            raise self.broken[self.calls]("the model failed on purpose")
        seen = self.memory if cache is not None else {}
        seen.update(zip(positions[0].tolist(), tokens[0].tolist(), strict=True))
        if cache is not None:
            self._write(cache, rows, positions)
        answers = [self._answer(seen, place) for place in positions[0].tolist()]
        logits = torch.stack([self._logits(answer) for answer in answers])
        return logits[None] if every_position else logits[-1:]

    def _write(self, cache, rows, positions) -> None:
        rows = torch.zeros(1, dtype=torch.long) if rows is None else rows
        shape = (1, self.config.num_key_value_heads, positions.shape[1], self.config.head_dim)
        for layer in range(self.config.num_hidden_layers):
            cache.write(layer, rows, positions, torch.zeros(shape), torch.zeros(shape))

    def _answer(self, seen: dict, place: int) -> int:
        history = [seen.get(i) for i in range(place + 1)]
        right = history == self.story[: place + 1] and self.start <= place + 1 < len(self.story)
        return self.story[place + 1] if right else self.config.vocab_size - 1

    def _logits(self, answer: int) -> torch.Tensor:
        logits = torch.linspace(-9.0, -1.0, self.config.vocab_size)
        logits[answer] = -0.5  # all are negative: their sizes say nothing about their order
        return logits
