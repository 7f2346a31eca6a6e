"""Chapter 05 with one part written otherwise."""

import itertools

import torch

from tests.parts import part


@part("5.1")
def temperature_as_a_subclass_would(m):
    """In float64 all the way, and greedy rows by comparison with the first of the largest."""

    def apply_temperature(logits, temperature):
        wide = logits.double()
        best = torch.zeros_like(wide).scatter(-1, wide.argmax(-1, keepdim=True), 1.0)
        heat = temperature.float().double().unsqueeze(-1)
        cold = heat.eq(0)
        scaled = (wide - wide.max(-1, keepdim=True).values) / heat.masked_fill(cold, 1.0)
        return torch.where(cold, best.log(), scaled).float()

    m.apply_temperature = apply_temperature


@part("5.1")
def softmax_of_torch(m):
    """torch has the function."""
    m.softmax = lambda logits: torch.softmax(logits.float(), -1)


@part("5.2")
def top_k_by_sorting(m):
    """All logits sorted, and a copy returned where nothing is hidden."""

    def keep_top_k(logits, k):
        k = torch.where(k < 1, logits.shape[1], k).clamp(max=logits.shape[1]).long()
        ascending = logits.sort().values
        edge = ascending.gather(1, (logits.shape[1] - k).unsqueeze(1))
        return logits.clone().masked_fill_(logits < edge, -torch.inf)

    m.keep_top_k = keep_top_k


@part("5.2")
def top_p_from_the_tail(m):
    """As transformers has it: sorted upwards, hidden while the sum is at most 1 - p."""

    def keep_top_p(logits, p):
        shares = logits.double().softmax(-1)
        ids = shares.flip(-1).argsort(dim=-1, stable=True)  # of equals the higher id first
        ids = shares.shape[-1] - 1 - ids
        tail = shares.gather(-1, ids).cumsum(-1)
        hidden = (tail <= 1 - p.double()[:, None] + 1e-12) & (p < 1)[:, None]
        hidden[:, -1] = False
        return torch.where(hidden.scatter(-1, ids, hidden), -torch.inf, logits).to(logits.dtype)

    m.keep_top_p = keep_top_p


@part("5.2")
def min_p_in_probabilities(m):
    """Compared as probabilities, as transformers does."""

    def keep_min_p(logits, p):
        shares = m.softmax(logits)
        least = shares.amax(-1, keepdim=True) * p.unsqueeze(-1).float()
        return logits.masked_fill(shares < least, float("-inf"))

    m.keep_min_p = keep_min_p


@part("5.3")
def penalize_with_dense_counts(m):
    """Counts for the whole vocabulary."""

    def penalize(logits, rows, ids, written, repetition, presence, frequency):
        seen = torch.zeros(logits.shape, dtype=torch.bool)
        seen[rows.long(), ids.long()] = True
        counts = torch.zeros(logits.shape)
        counts[rows.long(), ids.long()] = written.float()
        factor = torch.where(seen, repetition[:, None].float(), torch.ones(()))
        found = torch.where(logits > 0, logits.float() / factor, logits.float() * factor)
        found = found - counts * frequency[:, None] - counts.clamp(max=1) * presence[:, None]
        return found.float()

    m.penalize = penalize


@part("5.4")
def generator_of_secrets(m):
    """Unseeded ones get a seed from the secrets module."""
    import secrets

    def new_generator(seed):
        generator = torch.Generator(device="cpu")
        generator.manual_seed(secrets.randbits(63) if seed is None else seed)
        return generator

    m.new_generator = new_generator


@part("5.4")
def sample_row_by_row(m):
    """A loop; numbers are float32; greedy rows from the distribution."""

    def sample(logits, states):
        if len(logits) != len(states):
            raise ValueError(f"{len(logits)} != {len(states)}")
        ids = []
        for row, state in enumerate(states):
            shares = m.distributions(logits[row : row + 1], [state])
            if state.params.temperature == 0:
                ids.append(int(shares.argmax()))
            else:
                number = torch.rand((1,), generator=state.generator)
                ids.append(int(m.pick(shares, number.double())))
        return torch.tensor(ids, dtype=torch.long)

    m.sample = sample


@part("5.4")
def pick_in_float32(m):
    """Sums in float32, and only tokens that can come."""

    def pick(probabilities, uniform):
        ids = []
        for row, number in zip(probabilities, uniform, strict=True):
            possible = row.nonzero()[:, 0]
            ends = row[possible].cumsum(0)
            place = int((ends <= (number * ends[-1]).float()).sum())
            ids.append(possible[min(place, len(possible) - 1)])
        return torch.stack(ids)

    m.pick = pick


@part("5.5")
def log_probabilities_of_torch(m):
    """log_softmax, and a list for a result."""

    def log_probabilities(logits, chosen, top):
        logs = torch.log_softmax(logits.double(), -1)
        ids = torch.sort(logits, dim=-1, descending=True, stable=True).indices[:, :top]
        value = logs[range(len(logs)), chosen.tolist()]
        return [value.float(), ids, logs.take_along_dim(ids, -1).float()]

    m.log_probabilities = log_probabilities


@part("5.7")
def detokenizer_by_hand(m):
    """The length of a character is in its first byte, if only bytes of its kind follow."""

    class Detokenizer:
        def __init__(self, token_bytes, strip=False):
            self.token_bytes, self.strip, self.rest = token_bytes, strip, b""

        def add(self, token):
            data = self.token_bytes(token)
            if not data:
                return ""
            if self.strip and data[0] == 32:
                data = data[1:]
            self.strip = False
            data = self.rest + data
            keep = 0
            for back in range(1, min(3, len(data)) + 1):
                first = data[-back]
                size = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1
                if first & 0xC0 != 0x80:
                    keep = back if size > back else 0
                    break
            self.rest = data[len(data) - keep :]
            return data[: len(data) - keep].decode("utf-8", "replace")

        def flush(self):
            rest, self.rest = self.rest, b""
            return rest.decode("utf-8", "replace")

    m.Detokenizer = Detokenizer


@part("5.8")
def comparing_with_loops(m):
    """Sets of strings, nested loops, another shuffle."""

    def distinct(texts, n):
        grams = []
        for text in texts:
            words = text.lower().split()
            grams += ["\0".join(words[i : i + n]) for i in range(len(words)) if i + n <= len(words)]
        return float(len(set(grams))) / len(grams) if grams else 0.0

    def blind_table(trials, seed):
        import random

        rng, key = random.Random(seed * 7 + 1), []
        for _, group in itertools.groupby(_grouped(trials), key=lambda trial: trial.question):
            key += sorted(group, key=lambda _: rng.random())
        lines = [
            f"| {i + 1} | {_cell(t.question)} | {_cell(t.text)} |  |" for i, t in enumerate(key)
        ]
        return "\n".join(["| # | question | answer | rating |", "|---|---|---|---|", *lines]), key

    def _grouped(trials):
        order = [*dict.fromkeys(trial.question for trial in trials)]
        return sorted(trials, key=lambda trial: order.index(trial.question))

    def _cell(text):
        table = str.maketrans({"\\": "\\\\", "|": "\\|"})
        return " ".join(text.translate(table).split())

    m.distinct, m.blind_table = distinct, blind_table
