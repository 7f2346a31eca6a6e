"""Chapter 05's comparisons, driven beside the code under test."""

from tests.scenarios.helpers import Unusable, in_words, told
from tests.scenarios.sampler_text import text_of


@told
def compared(module, questions: list, settings: dict, seeds: list) -> dict:
    """compare with a function that tells what it was asked: the trials and the calls."""
    calls = []
    wishes = {name: module.SamplingParams(**wish) for name, wish in settings.items()}

    def generate(question, params):
        calls.append([question, params.temperature, params.top_p, params.max_tokens, params.seed])
        return f"{question} {params.temperature} {params.seed} {len(calls)}"

    trials = module.compare(generate, questions, wishes, seeds)
    if not isinstance(trials, list):
        raise Unusable(f"compare should return a list, not {in_words(trials)}")
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
    return [[name, [_plain(getattr(score, n)) for n in names]] for name, score in found.items()]


def _plain(number):
    """A number as Python's own: numpy's float64 is a float as well."""
    return float(number) if isinstance(number, int | float) else number


@told
def tabled(module, trials: list, seed: int) -> dict:
    """blind_table of trials given as lists, twice: whether both are the same, table and key."""
    made = [module.Trial(*trial) for trial in trials]
    table, key = module.blind_table(made, seed)
    again = module.blind_table(list(made), seed)
    if not isinstance(key, list):
        raise Unusable(f"the key should be a list, not {in_words(key)}")
    key = [_trial(module, trial) for trial in key]
    same = [again[0], [_trial(module, trial) for trial in again[1]]] == [table, key]
    kept = [_trial(module, trial) for trial in made] == [list(trial) for trial in trials]
    return {"table": text_of("blind_table", table), "key": key, "same": same, "kept": kept}
