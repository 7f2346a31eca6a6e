"""Chapter 05 by someone who thinks in numpy: round trips, a row at a time, text by slicing."""

import numpy as np
import torch

from solutions.comparing import Score, Trial
from solutions.sampler import SamplingState as OurState
from solutions.sampling import TokenCounts
from solutions.sampling_params import SamplingParams

__all__ = ["SamplingParams", "Trial", "Score"]


class SamplingState(OurState):
    def __init__(self, params, prompt=()):
        self.params = params
        self.generator = new_generator(params.seed)
        self.counts = TokenCounts(prompt) if params.has_penalties else None


def array(logits):
    return logits.float().cpu().numpy().astype(np.float64)


def back(rows, dtype=torch.float32):
    return torch.from_numpy(np.stack(rows)).to(dtype)


def apply_temperature(logits, temperature):
    rows = []
    for row, heat in zip(array(logits), temperature.float().numpy().astype(float), strict=True):
        if heat == 0:
            out = np.full(row.shape, -np.inf)
            out[np.argmax(row)] = 0
        else:
            out = (row - np.max(row)) / heat
        rows.append(out)
    return back(rows)


def shares_of(row):
    powers = np.exp(row - row.max())
    return powers / powers.sum()


def softmax(logits):
    return back([shares_of(row) for row in array(logits)])


def masked(logits, hidden):
    return torch.where(torch.from_numpy(np.stack(hidden)), torch.tensor(float("-inf")), logits).to(
        logits.dtype
    )


def keep_top_k(logits, k):
    hidden = []
    for row, count in zip(array(logits), k.tolist(), strict=True):
        edge = np.sort(row)[-count] if 0 < count <= row.size else -np.inf
        hidden.append(row < edge)
    return masked(logits, hidden)


def keep_top_p(logits, p):
    hidden = []
    for row, goal in zip(array(logits), p.tolist(), strict=True):
        gone = np.zeros(row.size, dtype=bool)
        if goal < 1:
            shares = shares_of(row)
            order = np.lexsort((np.arange(row.size), -shares))
            count = np.searchsorted(np.cumsum(shares[order]), goal) + 1
            gone[order[count:]] = True
        hidden.append(gone)
    return masked(logits, hidden)


def keep_min_p(logits, p):
    hidden = []
    for row, least in zip(array(logits), p.tolist(), strict=True):
        shares = shares_of(row)
        hidden.append(shares < least * shares.max())
    return masked(logits, hidden)


def penalize(logits, rows, ids, written, repetition, presence, frequency):
    found = array(logits)
    for row, token, count in zip(rows.tolist(), ids.tolist(), written.tolist(), strict=True):
        factor = float(repetition[row])
        found[row, token] *= 1 / factor if found[row, token] > 0 else factor
        if count:
            found[row, token] -= float(presence[row]) + count * float(frequency[row])
    return torch.from_numpy(found).float()


def new_generator(seed):
    made = torch.Generator("cpu")
    return made.manual_seed(made.seed() if seed is None else seed)


def penalties_of(logits, state, row):
    if state.counts is None:
        return logits[row : row + 1]
    zeros = torch.zeros(len(state.counts.ids), dtype=torch.long)
    wish = state.params
    penalties = (wish.repetition_penalty, wish.presence_penalty, wish.frequency_penalty)
    columns = [torch.tensor([value]) for value in penalties]
    return penalize(logits[row : row + 1], zeros, state.counts.ids, state.counts.written, *columns)


def distributions(logits, states):
    rows = []
    for row, state in enumerate(states):
        wish, one = state.params, penalties_of(logits, state, row)
        one = apply_temperature(one, torch.tensor([wish.temperature]))
        one = keep_top_k(one, torch.tensor([wish.top_k]))
        one = keep_top_p(one, torch.tensor([wish.top_p], dtype=torch.float64))
        rows.append(softmax(keep_min_p(one, torch.tensor([wish.min_p], dtype=torch.float64))))
    return torch.cat(rows)


def pick(probabilities, uniform):
    ids = []
    for row, number in zip(array(probabilities), uniform.tolist(), strict=True):
        possible = np.flatnonzero(row)
        ends = np.cumsum(row[possible])
        place = np.searchsorted(ends, number * ends[-1], side="right")
        ids.append(possible[min(place, len(possible) - 1)])
    return torch.tensor(np.array(ids), dtype=torch.int64)


def sample(logits, states):
    if logits.shape[0] != len(states):
        raise ValueError(f"rows: {logits.shape[0]}, states: {len(states)}")
    ids = []
    for row, state in enumerate(states):
        shares = distributions(logits[row : row + 1], [state])
        if state.params.is_greedy:
            ids.append(shares.argmax(-1))
        else:
            ids.append(pick(shares, torch.rand(1, generator=state.generator).double()))
    return torch.cat(ids)


def log_probabilities(logits, chosen, top):
    rows = array(logits)
    logs = rows - np.logaddexp.reduce(rows, axis=-1, keepdims=True)
    ids = np.argsort(-rows, axis=-1, kind="stable")[:, :top]
    tops = np.take_along_axis(logs, ids, -1)
    values = logs[np.arange(len(logs)), chosen.numpy()]
    return (
        torch.from_numpy(values).float(),
        torch.from_numpy(ids).long(),
        torch.from_numpy(tops).float(),
    )


class StopMatcher:
    def __init__(self, stops):
        self.stops, self.rest, self.found = tuple(stops), "", None

    def add(self, piece):
        out = []
        for letter in piece:
            if self.found is not None:
                break
            self.rest += letter
            done = [stop for stop in self.stops if self.rest.endswith(stop)]
            if done:
                self.found = sorted(done, key=len)[-1]
                out.append(self.rest.removesuffix(self.found))
                self.rest = ""
            else:
                out.append(self.let_go())
        return "".join(out)

    def let_go(self):
        for start in range(len(self.rest)):
            tail = self.rest[start:]
            if any(stop.startswith(tail) for stop in self.stops):
                safe, self.rest = self.rest[:start], tail
                return safe
        safe, self.rest = self.rest, ""
        return safe

    def flush(self):
        rest, self.rest = self.rest, ""
        return rest


class Detokenizer:
    def __init__(self, token_bytes, strip=False):
        self.token_bytes, self.first, self.waiting = token_bytes, strip, b""

    def add(self, token):
        new = self.token_bytes(token)
        if self.first and new:
            new = new[1:] if new[:1] == b" " else new
            self.first = False
        data, self.waiting = self.waiting + new, b""
        for size in (3, 2, 1):  # the beginning of a character, at the end
            tail = data[-size:]
            if len(tail) == size and self.unfinished(tail):
                data, self.waiting = data[:-size], tail
                break
        return data.decode("utf-8", errors="replace")

    @staticmethod
    def unfinished(tail):
        try:
            tail.decode("utf-8")
        except UnicodeDecodeError as problem:
            return problem.start == 0 and problem.reason == "unexpected end of data"
        return False

    def flush(self):
        rest, self.waiting = self.waiting, b""
        return rest.decode("utf-8", errors="replace")


class Answer:
    def __init__(self, detokenizer, max_tokens, end_ids=(), stops=()):
        self.ids, self.finish_reason = [], None
        self.text, self.stop = detokenizer, StopMatcher(stops)
        self.most, self.ends = max_tokens, list(end_ids)

    def add(self, token):
        if self.finish_reason:
            raise RuntimeError("it is over")
        out, over = "", token in self.ends
        if not over:
            self.ids.append(token)
            out = self.stop.add(self.text.add(token))
        full = len(self.ids) == self.most
        if self.stop.found is None and (over or full):
            out += self.stop.add(self.text.flush())
            out += self.stop.flush()
        if over or self.stop.found is not None:
            self.finish_reason = "stop"
        elif full:
            self.finish_reason = "length"
        return out


def grams(text, n):
    words = text.lower().split()
    return list(zip(*[words[i:] for i in range(n)], strict=False))


def distinct(texts, n):
    found = sum((grams(text, n) for text in texts), [])
    return np.unique(np.array([hash(g) for g in found])).size / len(found) if found else 0.0


def repeated(text, n):
    found = grams(text, n)
    return (len(found) - len(set(found))) / len(found) if found else 0.0


def compare(generate, questions, settings, seeds):
    trials = []
    for question in questions:
        for name in settings:
            for seed in seeds:
                values = {**vars(settings[name]), "seed": seed}
                text = generate(question, SamplingParams(**values))
                trials.append(Trial(question=question, setting=name, seed=seed, text=text))
    return trials


def scores(trials):
    found = {}
    for name in dict.fromkeys(t.setting for t in trials):
        mine = [t for t in trials if t.setting == name]
        questions = sorted({t.question for t in mine})
        pools = [[t.text for t in mine if t.question == q] for q in questions]
        found[name] = Score(
            distinct_1=float(np.mean([distinct(pool, 1) for pool in pools])),
            distinct_2=float(np.mean([distinct(pool, 2) for pool in pools])),
            repeated=float(np.mean([repeated(t.text, 3) for t in mine])),
            words=float(np.mean([len(t.text.split()) for t in mine])),
        )
    return found


def blind_table(trials, seed):
    numbers, key = np.random.default_rng(seed), []
    for question in dict.fromkeys(t.question for t in trials):
        answers = [t for t in trials if t.question == question]
        key.extend(answers[i] for i in numbers.permutation(len(answers)))
    table = "| # | question | answer | rating |\n|---|---|---|---|"
    for i, trial in enumerate(key):
        cells = [" ".join(text.split()) for text in (trial.question, trial.text)]
        cells = ["".join("\\" + c if c in "\\|" else c for c in text) for text in cells]
        table += f"\n| {i + 1} | {cells[0]} | {cells[1]} |  |"
    return table, key
