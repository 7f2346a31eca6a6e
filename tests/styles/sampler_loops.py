"""Chapter 05 by someone who knows torch's corners and Python's: one-liners, codecs, regexes."""

import codecs
import itertools
import random
import re
import statistics
from collections import Counter
from dataclasses import asdict, replace

import torch
import torch.nn.functional as F

from solutions.comparing import Score, Trial
from solutions.sampling import TokenCounts, seen_tokens
from solutions.sampling_params import SamplingParams

__all__ = ["SamplingParams", "TokenCounts"]
INF = float("inf")


def apply_temperature(logits, temperature):
    logits = logits.to(torch.float32)
    out = torch.empty_like(logits)
    for i, heat in enumerate(temperature.tolist()):
        best = logits[i].argmax()
        if heat == 0:
            out[i] = torch.zeros_like(out[i]).index_fill(0, best, 1.0).log()
        else:
            out[i] = (logits[i] - logits[i, best]).div(torch.tensor(heat, dtype=torch.float32))
    return out


def softmax(logits):
    return F.softmax(logits, dim=-1, dtype=torch.float32)


def keep_top_k(logits, k):
    size = logits.size(-1)
    rank = torch.where((k < 1) | (k > size), size, k).long()
    edges = torch.sort(logits, dim=-1, descending=True).values.gather(1, rank[:, None] - 1)
    return torch.where(logits >= edges, logits, -INF)


def keep_top_p(logits, p):
    order = torch.argsort(logits.float(), dim=-1, descending=True, stable=True)
    shares = logits.double().softmax(-1).gather(-1, order)
    before = F.pad(shares.cumsum(-1)[:, :-1], (1, 0))
    before[:, 0] = -1.0  # whatever p is
    stays = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before < p.unsqueeze(-1))
    stays |= (p == 1).unsqueeze(-1)
    return torch.where(stays, logits, torch.full_like(logits, -INF))


def keep_min_p(logits, p):
    shares = logits.double().softmax(-1)
    too_small = shares < shares.max(-1, keepdim=True).values * p.unsqueeze(1)
    return logits.masked_fill(too_small, -INF)


def penalize(logits, rows, ids, written, repetition, presence, frequency):
    dense = torch.zeros_like(logits, dtype=torch.float32)
    place = (rows.long(), ids.long())
    seen = dense.bool().index_put(place, torch.tensor(True))
    counts = dense.index_put(place, written.float())
    logits = logits.float().clone()
    factor = repetition.float()[:, None].expand_as(logits)
    logits = torch.where(seen, torch.where(logits > 0, logits / factor, logits * factor), logits)
    presence, frequency = (x.float()[:, None] for x in (presence, frequency))
    return logits - presence * (counts > 0) - frequency * counts


def new_generator(seed):
    generator = torch.Generator()
    generator.manual_seed(random.SystemRandom().getrandbits(60) if seed is None else seed)
    return generator


class SamplingState:
    def __init__(self, params, prompt=()):
        self.params, self.generator = params, new_generator(params.seed)
        self.counts = TokenCounts(prompt) if params.has_penalties else None

    def add(self, token):
        if self.counts is not None:
            self.counts.add(token)


def distributions(logits, states):
    wishes = [asdict(state.params) for state in states]

    def of(name, dtype=torch.float32):
        return torch.tensor([wish[name] for wish in wishes], dtype=dtype)

    kinds = ("repetition", "presence", "frequency")
    penalties = [of(f"{kind}_penalty") for kind in kinds]
    logits = penalize(logits, *seen_tokens([state.counts for state in states]), *penalties)
    logits = apply_temperature(logits, of("temperature"))
    for i, wish in enumerate(wishes):
        one = logits[i : i + 1]
        if wish["top_k"] > 0:
            one = keep_top_k(one, of("top_k", torch.long)[i : i + 1])
        if wish["top_p"] < 1:
            one = keep_top_p(one, of("top_p", torch.float64)[i : i + 1])
        logits[i] = one[0]
    return softmax(keep_min_p(logits, of("min_p")))


def pick(probabilities, uniform):
    shares = probabilities.double()
    ends = shares.cumsum(1) / shares.sum(1, keepdim=True)
    above = (ends > uniform.double().unsqueeze(1)) & (shares > 0)
    fallback = shares.size(1) - 1 - (shares.flip(1) > 0).int().argmax(1)
    return torch.where(above.any(1), above.int().argmax(1), fallback)


def sample(logits, states):
    if len(states) != logits.size(0):
        raise ValueError(f"{len(states)} states do not fit {logits.size(0)} rows")
    numbers = [
        0.5 if s.params.temperature == 0 else torch.rand(1, generator=s.generator).item()
        for s in states
    ]
    return pick(distributions(logits, states), torch.tensor(numbers, dtype=torch.float64))


def log_probabilities(logits, chosen, top):
    logs = F.log_softmax(logits.float(), dim=-1)
    order = logits.float().argsort(dim=-1, descending=True, stable=True)[:, :top]
    return logs[torch.arange(len(logs)), chosen.long()], order, logs.gather(1, order)


class StopMatcher:
    def __init__(self, stops):
        self.found, self.held = None, ""
        self.stops = sorted(stops, key=len, reverse=True)

    def add(self, piece):
        if self.found is not None:
            return ""
        text, self.held = self.held + piece, ""
        matches = [(text.index(s) + len(s), i) for i, s in enumerate(self.stops) if s in text]
        if matches:
            end, which = min(matches)
            self.found = self.stops[which]
            return text[: end - len(self.found)]
        for start in range(max(0, len(text) - 256), len(text)):
            if any(s.startswith(text[start:]) for s in self.stops):
                text, self.held = text[:start], text[start:]
                break
        return text

    def flush(self):
        held, self.held = self.held, ""
        return held


class Detokenizer:
    def __init__(self, token_bytes, strip=False):
        self.token_bytes, self.strip = token_bytes, strip
        self.reader = codecs.getincrementaldecoder("utf8")(errors="replace")

    def add(self, token):
        data = bytes(self.token_bytes(token))
        if self.strip and data:
            self.strip = False
            data = re.sub(rb"^ ", b"", data)
        return self.reader.decode(data)

    def flush(self):
        return self.reader.decode(b"", True)


class Answer:
    def __init__(self, detokenizer, max_tokens, end_ids=(), stops=()):
        self.detokenizer, self.room, self.end_ids = detokenizer, max_tokens, set(end_ids)
        self.matcher, self.ids, self.finish_reason = StopMatcher(stops), [], None

    def add(self, token):
        if self.finish_reason is not None:
            raise RuntimeError(f"ended: {self.finish_reason}")
        return "".join(self.pieces(token))

    def pieces(self, token):
        if token not in self.end_ids:
            self.ids += [token]
            self.room -= 1
            yield self.matcher.add(self.detokenizer.add(token))
        if token in self.end_ids or self.room == 0 or self.matcher.found:
            self.finish_reason = "length" if token not in self.end_ids else "stop"
            yield self.matcher.add(self.detokenizer.flush())
            yield self.matcher.flush()
        if self.matcher.found:
            self.finish_reason = "stop"


def counted(texts, n):
    found = Counter()
    for text in texts:
        words = text.casefold().split()
        found.update(" ".join(words[i : i + n]) for i in range(len(words) + 1 - n))
    return found


def distinct(texts, n):
    found = counted(texts, n)
    return len(found) / found.total() if found else 0.0


def repeated(text, n):
    found = counted([text], n)
    return 1 - len(found) / found.total() if found else 0.0


def compare(generate, questions, settings, seeds):
    return [
        Trial(q, name, seed, generate(q, replace(settings[name], seed=seed)))
        for q, name, seed in itertools.product(questions, settings, seeds)
    ]


def scores(trials):
    found = {}
    for trial in trials:
        found.setdefault(trial.setting, {}).setdefault(trial.question, []).append(trial.text)
    mean = statistics.fmean
    return {
        name: Score(
            mean(distinct(texts, 1) for texts in answers.values()),
            mean(distinct(texts, 2) for texts in answers.values()),
            mean(repeated(text, 3) for texts in answers.values() for text in texts),
            mean(len(text.split()) for texts in answers.values() for text in texts),
        )
        for name, answers in found.items()
    }


def blind_table(trials, seed):
    groups = {}
    for trial in trials:
        groups.setdefault(trial.question, []).append(trial)
    mixer = random.Random(f"blind {seed}")
    for answers in groups.values():
        mixer.shuffle(answers)
    key = [*itertools.chain(*groups.values())]

    def cell(text):
        return re.sub(r"([\\|])", r"\\\1", re.sub(r"\s+", " ", text).strip())

    rows = [f"| {i} | {cell(t.question)} | {cell(t.text)} |  |" for i, t in enumerate(key, 1)]
    return "\n".join(["| # | question | answer | rating |", "|---|---|---|---|", *rows]), key
