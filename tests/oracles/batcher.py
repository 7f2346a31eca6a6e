"""What chapter 06 should do, told plainly: sorted lists, counted places, no heap and no tensor."""

import numpy as np
import torch

VOCABULARY = 101


def next_token(history: list[int]) -> int:
    """What tests/scenarios' Teller says after these tokens: from 1 to 90, by all of them."""
    mixed = 0
    for token in history:
        mixed = (mixed * 31 + token + 7) % 10_007
    return 1 + mixed % 90


def told(prompt: list[int], count: int, ends=()) -> tuple[list[int], str]:
    """What it writes to a prompt: at most count ids and the finish reason."""
    history = list(prompt)
    while len(history) < len(prompt) + count:
        token = next_token(history)
        if token in ends:
            return history[len(prompt) :], "stop"
        history.append(token)
    return history[len(prompt) :], "length"


def drawn(prompt: list[int], count: int, seed: int, temperature: float, penalty: float) -> list:
    """What is drawn when a Teller's logits are divided by 4: one random number for each token."""
    generator, history = torch.Generator().manual_seed(seed), list(prompt)
    while len(history) < len(prompt) + count:
        logits = np.linspace(-9, -1, VOCABULARY)
        logits[next_token(history)] = -0.5
        logits /= 4
        logits[sorted(set(history))] *= penalty  # all of them are negative
        shares = np.exp(logits / temperature).cumsum()
        number = float(torch.rand((), dtype=torch.float64, generator=generator))
        history.append(int((shares <= number * shares[-1]).sum()))
    return history[len(prompt) :]


def padded(sequences, starts) -> tuple[list, list]:
    """(tokens, positions) as lists of rows, padded on the right."""
    width = max(len(ids) for ids in sequences)
    tokens = [[row[c] if c < len(row) else 0 for c in range(width)] for row in sequences]
    places = [
        [start + c if c < len(row) else -1 for c in range(width)]
        for row, start in zip(sequences, starts, strict=True)
    ]
    return tokens, places


def static_forwards(prompts, answers) -> tuple[list, int, int]:
    """The [tokens, positions] of each forward of a static batch, useful places and wasted ones.

    Args:
        answers: for each prompt, all tokens that were chosen for it, an end id included.
    """
    rows = range(len(prompts))
    width = max(map(len, prompts))
    forwards = [[list(map(list, prompts)), [list(range(len(p))) for p in prompts]]]
    useful = sum(map(len, prompts))
    wasted = width * len(prompts) - useful
    for step in range(1, max(map(len, answers))):
        tokens, places = [], []
        for row in rows:
            fed = min(step, len(answers[row]) - 1)  # of its tokens; the last one is never fed
            history = [*prompts[row], *answers[row][:fed]]
            tokens.append([history[-1]])
            places.append([len(history) - 1])
            useful += step < len(answers[row])
            wasted += step >= len(answers[row])
        forwards.append([tokens, places])
    return forwards, useful, wasted


class Line:
    """The waiting queue as a list that is searched from end to end."""

    def __init__(self, bound: int, patience: float):
        self.bound, self.patience, self.line = bound, patience, []

    def add(self, name: str, wish: dict, now: float) -> bool:
        """wish: "priority", "size", "deadline", "admit_by". False when it is full."""
        if len(self.line) == self.bound:
            return False
        times = [t for t in (wish["deadline"], wish["admit_by"]) if t is not None]
        expires = min(times, default=None)
        self.line.append((name, wish["priority"], wish["size"], expires, now))
        return True

    def first(self, now: float):
        """The name of whoever is next, or None."""
        if not self.line:
            return None
        tired = [entry for entry in self.line if now - entry[4] > self.patience]
        turn = tired or sorted(self.line, key=lambda entry: entry[1:3])  # sorted is stable
        return turn[0][0]

    def remove(self, name: str) -> bool:
        """Whether it was there."""
        kept = [entry for entry in self.line if entry[0] != name]
        gone, self.line = len(kept) < len(self.line), kept
        return gone

    def expired(self, now: float) -> list[str]:
        """The names of those whose time is over; they leave."""
        over = [entry for entry in self.line if entry[3] is not None and entry[3] <= now]
        self.line = [entry for entry in self.line if entry not in over]
        return [entry[0] for entry in sorted(over, key=lambda entry: entry[3])]

    def names(self) -> list[str]:
        """All who wait, by arrival."""
        return [entry[0] for entry in self.line]


def plan(requests: list[dict], budget: int) -> tuple[list, list, int]:
    """(decodes, prefills, places); requests have "name", "state", "row" and "remaining"."""
    decodes = sorted((r for r in requests if r["state"] == "decode"), key=lambda r: r["row"])
    left = budget - len(decodes)
    prompts = [r for r in requests if r["state"] == "prefill"]
    told = [[r["name"], 1] for r in decodes]
    if not prompts:
        return told, [], len(decodes)
    others = sorted(prompts[1:], key=lambda r: r["remaining"])
    inside: list = []
    for number in range(1, len(others) + 1):
        parts = [min(r["remaining"], left // (k + 1)) for k, r in enumerate(others[:number], 1)]
        if (number + 1) * max(parts) > left:
            break
        inside = parts
    share = left // (1 + len(inside))
    counts = [min(prompts[0]["remaining"], share), *inside]
    prefills = [[r["name"], n] for r, n in zip([prompts[0], *others], counts, strict=False)]
    return told, prefills, len(decodes) + len(counts) * max(counts)
