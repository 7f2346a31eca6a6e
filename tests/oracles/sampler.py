"""What chapter 05 should compute, in float64, one row at a time.

tests/test_oracles_05.py holds it against the logits processors of transformers and against numpy.
"""

import math
from collections import Counter

import numpy as np

HIDDEN = -math.inf


def softmax(logits: list[float]) -> list[float]:
    """exp of each over the sum of all, as exp(x - log of the sum)."""
    return np.exp(np.array(logits) - log_sum(logits)).tolist()


def log_sum(logits: list[float]) -> float:
    """The logarithm of the sum of all exp."""
    return float(np.logaddexp.reduce(np.array(logits)))


def log_probabilities(logits: list[float]) -> list[float]:
    """The natural logarithm of each probability."""
    total = log_sum(logits)
    return [x - total for x in logits]


def temperature(logits: list[float], heat: float) -> list[float]:
    """Less the largest, over the temperature; at 0 only the first of the largest is left."""
    peak = max(logits)
    if heat == 0:
        best = logits.index(peak)
        return [0.0 if i == best else HIDDEN for i in range(len(logits))]
    return [(x - peak) / heat for x in logits]


def ranking(values: list[float]) -> list[int]:
    """Ids from the largest value to the smallest, of equals the lower first."""
    return np.argsort(-np.array(values), kind="stable").tolist()


def top_k(logits: list[float], k: int) -> set[int]:
    """The ids that stay."""
    if not 0 < k < len(logits):
        return set(range(len(logits)))
    edge = logits[ranking(logits)[k - 1]]
    return {i for i, x in enumerate(logits) if x >= edge}


def top_p(logits: list[float], p: float) -> set[int]:
    """The ids that stay: the most probable, until they hold p."""
    if p == 1:
        return set(range(len(logits)))
    shares = np.array(softmax(logits))
    order = np.argsort(-shares, kind="stable")
    count = 1 + int((np.cumsum(shares[order]) < p).sum())  # up to the one that reaches p
    return set(order[:count].tolist())


def min_p(logits: list[float], p: float) -> set[int]:
    """The ids that stay: at least p times the largest probability."""
    shares = np.array(softmax(logits))
    return set(np.flatnonzero(shares >= p * shares.max()).tolist())


def hide(logits: list[float], kept: set[int]) -> list[float]:
    """-inf for all but these."""
    return [x if i in kept else HIDDEN for i, x in enumerate(logits)]


def penalize(logits, prompt, output, repetition=1.0, presence=0.0, frequency=0.0) -> list[float]:
    """Token by token of what was there."""
    found, often = list(logits), Counter(output)
    for token in {*prompt, *output}:
        x = found[token]
        found[token] = x / repetition if x > 0 else x * repetition
    for token, count in often.items():
        found[token] -= presence + frequency * count
    return found


def distribution(logits, prompt, output, wish: dict) -> list[float]:
    """The probabilities of the next token for the fields of a SamplingParams."""
    penalties = [
        wish.get(f"{kind}_penalty", default)
        for kind, default in (("repetition", 1.0), ("presence", 0.0), ("frequency", 0.0))
    ]
    x = penalize(logits, prompt, output, *penalties)
    x = temperature(x, wish.get("temperature", 1.0))
    x = hide(x, top_k(x, wish.get("top_k", 0)))
    x = hide(x, top_p(x, wish.get("top_p", 1.0)))
    x = hide(x, min_p(x, wish.get("min_p", 0.0)))
    return softmax(x)


def pick(probabilities: list[float], uniform: float) -> int:
    """The first token whose cumulative probability is above the number."""
    total, mass = math.fsum(probabilities), 0.0
    for i, share in enumerate(probabilities):
        mass += share
        if uniform * total < mass:
            return i
    return max(i for i, share in enumerate(probabilities) if share > 0)


def chi_square(counts: list[int], probabilities: list[float]) -> float:
    """How far counts are from what they should be; tokens that cannot come are not in it."""
    n = sum(counts)
    pairs = [(c, n * p) for c, p in zip(counts, probabilities, strict=True) if p > 0]
    return sum((c - e) ** 2 / e for c, e in pairs)


# A chi-square statistic is above this in one of a million experiments, by degrees of freedom: the
# upper 1e-6 quantiles, which tests/test_oracles_05.py computes from the incomplete gamma function.
LIMITS = {1: 23.93, 2: 27.63, 3: 30.66, 4: 33.38, 5: 35.89, 6: 38.26, 7: 40.52, 8: 42.70, 9: 44.81}


def cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """A text up to its first stop string, and which one that was: every end, in turn."""
    for end in range(len(text) + 1):
        ending = [s for s in stops if text[:end].endswith(s)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


def shown(text: str, stops: list[str]) -> str:
    """What of an unfinished text may be shown: all but what could become a stop string."""
    before, found = cut(text, stops)
    if found is not None:
        return before
    starts = [s[:n] for s in stops for n in range(1, len(s)) if text.endswith(s[:n])]
    return text[: len(text) - max(map(len, starts), default=0)]


def readable(data: bytes) -> str:
    """What of an unfinished text of bytes may be shown: all but the beginning of a character."""
    whole = data.decode("utf-8", "replace")
    for waiting in (3, 2, 1):
        start, rest = data[: len(data) - waiting], data[len(data) - waiting :]
        if len(rest) == waiting and _begins_a_character(rest):
            return start.decode("utf-8", "replace")
    return whole


def _begins_a_character(rest: bytes) -> bool:
    """Whether some bytes more would make these one character."""
    if len(rest) == 1:
        return 0xC2 <= rest[0] <= 0xF4
    for more in ([bytes([b])] for b in range(0x80, 0xC0)):
        if _is_character(rest + b"".join(more)):
            return True
    return any(
        _is_character(rest + bytes([a, b])) for a in (0x80, 0x90, 0xA0) for b in (0x80, 0xBF)
    )


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode("utf-8")) == 1
    except UnicodeDecodeError:
        return False


def ngram_counts(texts: list[str], n: int) -> Counter:
    """How often each n words in a row occur."""
    counts: Counter = Counter()
    for text in texts:
        words = text.lower().split()
        counts.update(zip(*(words[i:] for i in range(n)), strict=False))
    return counts


def distinct(texts: list[str], n: int) -> float:
    """Different n-grams over all."""
    counts = ngram_counts(texts, n)
    return len(counts) / counts.total() if counts else 0.0


def repeated(text: str, n: int) -> float:
    """The share of n-grams beyond the first of each kind."""
    counts = ngram_counts([text], n)
    return sum(c - 1 for c in counts.values()) / counts.total() if counts else 0.0
