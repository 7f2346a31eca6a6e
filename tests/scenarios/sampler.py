"""Chapter 05's live objects, driven beside the code under test.

Every function takes the module under test first and returns plain data. An exception that a case
does not expect is let through: it then names the line that raised it. `wishes` are the fields of
SamplingParams, one dict a row.
"""

import torch

from tests.scenarios.helpers import Unusable, attempt, call_unchanged, in_words, told


@told
def on_views(module, name: str, logits, *args):
    """A function on logits that lie apart in memory, in two ways; [one, other]."""
    rows, vocabulary = logits.shape
    wide = torch.full((rows + 1, 2 * vocabulary), 1e4, dtype=logits.dtype)
    wide[1:, ::2] = logits
    turned = logits.T.contiguous().T
    function = getattr(module, name)
    return [
        call_unchanged(name, lambda logits: function(logits, *args), logits=view)
        for view in (wide[1:, ::2], turned)
    ]


# --- 5.4 ---


def _states(module, wishes: list, prompts=None, outputs=None) -> list:
    """A SamplingState for each row, after the tokens of its output.

    Rows without a seed get one, so that a run can be repeated; for those that must not, there is
    `unseeded_draws`.
    """
    states = []
    for row, wish in enumerate(wishes):
        params = module.SamplingParams(**{"seed": row, **wish})
        states.append(module.SamplingState(params, prompts[row] if prompts else ()))
        for token in outputs[row] if outputs else ():
            states[-1].add(token)
    return states


def _numbers(generator, count: int) -> list[float]:
    if not isinstance(generator, torch.Generator):
        raise Unusable(f"new_generator should return a torch.Generator, not {in_words(generator)}")
    return torch.rand(count, dtype=torch.float64, generator=generator).tolist()


@told
def generators(module, seeds: list, count: int) -> dict:
    """Numbers of a generator of each seed, all made before the first is used; whether torch's own
    generator moved; and the numbers that it gives afterwards."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    made = [module.new_generator(seed) for seed in seeds]
    numbers = [_numbers(generator, count) for generator in made]
    moved = not torch.equal(before, torch.get_rng_state())
    return {"numbers": numbers, "moved": moved, "device": [str(g.device) for g in made]}


@told
def unseeded_generators(module, count: int) -> list[int]:
    """How many of so many unseeded generators are different from each other, and from the one that
    torch.Generator() is, all after the same torch.manual_seed. (The numbers would be others in
    every run.)"""
    made = []
    for _ in range(count):
        torch.manual_seed(1)
        made.append(module.new_generator(None))
    series = {tuple(_numbers(generator, 3)) for generator in made}
    return [len(series), len({*series, tuple(_numbers(torch.Generator(), 3))})]


@told
def distributions(module, logits, wishes: list, prompts: list, outputs: list):
    """distributions(logits, states)."""
    states = _states(module, wishes, prompts, outputs)
    return call_unchanged(
        "distributions", lambda logits: module.distributions(logits, states), logits=logits
    )


def _ids(found, rows: int) -> list[int]:
    """What sample returned, if it is int64 [B]."""
    right = isinstance(found, torch.Tensor) and found.dtype == torch.int64
    if not right or list(found.shape) != [rows]:
        raise Unusable(f"sample should return int64 [{rows}], but returned {in_words(found)}")
    return found.tolist()


@told
def sampled(module, logits, wishes: list, prompts: list, outputs: list, steps: int, kept: bool):
    """[the ids of each step] of sample on the same logits; kept tokens are added to the states."""
    torch.manual_seed(7)
    states, found = _states(module, wishes, prompts, outputs), []
    for _ in range(steps):
        ids = call_unchanged("sample", lambda logits: module.sample(logits, states), logits=logits)
        found.append(_ids(ids, len(logits)))
        if kept:
            for state, token in zip(states, found[-1], strict=True):
                state.add(token)
    return found


@told
def unseeded_draws(module, logits, runs: int, steps: int) -> list[int]:
    """How many of the unseeded requests of so many runs draw different tokens, [same, all]; each
    run has a request a row and follows the same torch.manual_seed."""
    series = []
    for _ in range(runs):
        torch.manual_seed(7)
        states = _states(module, [{"seed": None}] * len(logits))
        ids = [_ids(module.sample(logits, states), len(logits)) for _ in range(steps)]
        series += zip(*ids, strict=True)
    return [len(set(series)), len(series)]


@told
def sampled_of_views(module, logits, wishes: list) -> list:
    """[distributions, ids] of sample for logits that lie apart in memory, in two ways."""
    wide = torch.full((2 * len(logits), logits.shape[1] + 3), 1e4, dtype=logits.dtype)
    wide[::2, 3:] = logits
    found = []
    for view in (wide[::2, 3:], logits.T.contiguous().T):
        shares = call_unchanged(
            "distributions",
            lambda logits: module.distributions(logits, _states(module, wishes)),
            logits=view,
        )
        found.append([shares, _ids(module.sample(view, _states(module, wishes)), len(view))])
    return found


@told
def sampled_in_company(module, logits, wishes: list, groups: list):
    """[a list of ids for each request], when each step samples one of the groups of requests.

    A group is a list of request numbers, in the order of their rows.
    """
    states, found = _states(module, wishes), [[] for _ in wishes]
    for group in groups:
        ids = module.sample(logits[group], [states[request] for request in group])
        for request, token in zip(group, _ids(ids, len(group)), strict=True):
            found[request].append(token)
    return found


@told
def side_effects(module, logits, wishes: list, output: list) -> dict:
    """What one call of sample did to the states: which generators moved, which counts changed; and
    whether it moved torch's own generator."""
    prompts, outputs = [[1, 2]] * len(wishes), [output] * len(wishes)
    states = _states(module, wishes, prompts, outputs)
    before = [state.generator.get_state() for state in states]
    counts = [_counted(state) for state in states]
    everyone = torch.get_rng_state()
    module.sample(logits, states)
    pairs = zip(before, states, strict=True)
    return {
        "moved": [not torch.equal(old, state.generator.get_state()) for old, state in pairs],
        "counted": [old != _counted(state) for old, state in zip(counts, states, strict=True)],
        "global": not torch.equal(everyone, torch.get_rng_state()),
    }


def _counted(state) -> list:
    return (
        [] if state.counts is None else [state.counts.ids.tolist(), state.counts.written.tolist()]
    )


def sample_of_other_size(module, rows: int, states: int, names: list) -> dict:
    """sample with more or fewer states than rows."""
    made = _states(module, [{"seed": 1}] * states)
    return attempt(lambda: module.sample(torch.zeros(rows, 6), made), names)


# --- 5.6 ---


def _text(name: str, found) -> str:
    if type(found) is not str:
        raise Unusable(f"{name} should return a str, but returned {in_words(found)}")
    return found


@told
def matched(module, stops: list, pieces: list, kind: str = "list") -> dict:
    """A StopMatcher fed these pieces: what each add gave, found after each, and two flushes."""
    given = {"list": list, "tuple": tuple}[kind](stops)
    matcher = module.StopMatcher(given)
    if isinstance(given, list):
        given.append("e")  # a list of the caller's: what becomes of it is nobody's business
    shown, found = [], []
    for piece in pieces:
        shown.append(_text("add", matcher.add(piece)))
        found.append(matcher.found)
    rest = [_text("flush", matcher.flush()) for _ in range(2)]
    return {"shown": shown, "found": found, "rest": rest, "last": matcher.found}


@told
def matched_together(module, stops: list, texts: list) -> list:
    """Matchers with the same stop strings, fed in turns, a character each: what each let through,
    its flush included."""
    matchers, shown = [module.StopMatcher(stops) for _ in texts], ["" for _ in texts]
    for at in range(max(map(len, texts))):
        for i, text in enumerate(texts):
            shown[i] += _text("add", matchers[i].add(text[at : at + 1]))
    return [text + _text("flush", m.flush()) for text, m in zip(shown, matchers, strict=True)]


# --- 5.7 ---


class Vocabulary:
    """The bytes of each id: a table of hex strings; one of None raises."""

    def __init__(self, table: list):
        self.table = table

    def __call__(self, token: int) -> bytes:
        if self.table[token] is None:
            raise KeyError(f"no token {token}")
        return bytes.fromhex(self.table[token])


@told
def detokenized(module, table: list, ids: list, strip: bool | None) -> dict:
    """A Detokenizer fed these ids: what each add gave, or the exception; and two flushes."""
    given = () if strip is None else (strip,)
    stream, shown = module.Detokenizer(Vocabulary(table), *given), []
    for token in ids:
        try:
            shown.append(_text("add", stream.add(token)))
        except KeyError:
            shown.append(None)
    return {"shown": shown, "rest": [_text("flush", stream.flush()) for _ in range(2)]}


@told
def detokenized_together(module, table: list, stories: list) -> list[str]:
    """Detokenizers fed in turns, one id each: the whole text of each."""
    streams = [module.Detokenizer(Vocabulary(table)) for _ in stories]
    shown = ["" for _ in stories]
    for at in range(max(map(len, stories))):
        for i, ids in enumerate(stories):
            shown[i] += "".join(map(streams[i].add, ids[at : at + 1]))
    return [text + stream.flush() for text, stream in zip(shown, streams, strict=True)]


@told
def answered(module, table: list, ids: list, max_tokens: int, ends: list, stops: list, kind="list"):
    """An Answer fed ids until it ends: what each add gave, the reason after each, and its ids; and
    what one more token raises."""
    collection = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](ends)
    given = [max_tokens, collection, stops]
    if not stops:
        given = given[: 2 if ends else 1]
    answer = module.Answer(module.Detokenizer(Vocabulary(table)), *given)
    found: dict = {"shown": [], "reasons": [answer.finish_reason]}
    for token in ids:
        found["shown"].append(_text("add", answer.add(token)))
        found["reasons"].append(answer.finish_reason)
        if answer.finish_reason is not None:
            found["after"] = attempt(lambda: answer.add(ids[0]), [])
            break
    return {**found, "ids": list(answer.ids), "reason": answer.finish_reason}


@told
def answered_together(module, table: list, stories: list, max_tokens: int) -> list:
    """Answers fed in turns: [ids, text, reason] of each."""
    answers = [module.Answer(module.Detokenizer(Vocabulary(table)), max_tokens) for _ in stories]
    shown = ["" for _ in stories]
    for at in range(max(map(len, stories))):
        for i, ids in enumerate(stories):
            if at < len(ids) and answers[i].finish_reason is None:
                shown[i] += answers[i].add(ids[at])
    pairs = zip(answers, shown, strict=True)
    return [[list(answer.ids), text, answer.finish_reason] for answer, text in pairs]


# --- 5.8 ---


@told
def compared(module, questions: list, settings: dict, seeds: list) -> dict:
    """compare with a function that tells what it was asked: the trials and the calls."""
    calls = []
    wishes = {name: module.SamplingParams(**wish) for name, wish in settings.items()}

    def generate(question, params):
        calls.append([question, params.temperature, params.top_p, params.max_tokens, params.seed])
        return f"{question} {params.temperature} {params.seed} {len(calls)}"

    trials = module.compare(generate, questions, wishes, seeds)
    fields = [_trial(module, trial) for trial in trials]
    kept = [[wish.temperature, wish.seed] for wish in wishes.values()]
    return {"trials": fields, "calls": calls, "settings": kept}


def _trial(module, trial) -> list:
    if not isinstance(trial, module.Trial):
        raise Unusable(f"a Trial is needed, not {in_words(trial)}")
    return [trial.question, trial.setting, trial.seed, trial.text]


@told
def scored(module, trials: list) -> list:
    """scores of trials given as lists: [[setting, four numbers], ...]."""
    found = module.scores([module.Trial(*trial) for trial in trials])
    if not isinstance(found, dict):
        raise Unusable(f"scores should return a dict, not {in_words(found)}")
    names = "distinct_1", "distinct_2", "repeated", "words"
    return [[name, [getattr(score, n) for n in names]] for name, score in found.items()]


@told
def tabled(module, trials: list, seed: int) -> dict:
    """blind_table of trials given as lists, twice: whether both are the same, table and key."""
    made = [module.Trial(*trial) for trial in trials]
    table, key = module.blind_table(made, seed)
    again = module.blind_table(list(made), seed)
    key = [_trial(module, trial) for trial in key]
    same = [again[0], [_trial(module, trial) for trial in again[1]]] == [table, key]
    kept = [_trial(module, trial) for trial in made] == [list(trial) for trial in trials]
    return {"table": _text("blind_table", table), "key": key, "same": same, "kept": kept}
