"""Chapter 05: the same questions at several settings, measured, and laid out to be judged blind."""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from solutions.sampling_params import SamplingParams


@dataclass(frozen=True)
class Trial:
    """One answer: to which question, at which setting, with which seed."""

    question: str
    setting: str
    seed: int
    text: str


@dataclass(frozen=True)
class Score:
    """What a setting did, on average over the questions.

    distinct_1 and distinct_2 compare the answers to one question with each other; repeated looks
    at each answer alone; words is the length of an answer.
    """

    distinct_1: float
    distinct_2: float
    repeated: float
    words: float


def distinct(texts: Sequence[str], n: int) -> float:
    """How varied texts are: of all their n-grams together, the share that are different.

    1 when no n words in a row ever come again, in the same text or in another.

    Args:
        texts: words are what str.split gives, in lower case; n-grams do not reach from one text
            to the next.
        n: words in an n-gram, at least 1.

    Returns:
        different n-grams over all n-grams, above 0 up to 1; 0.0 when there are none.

    Source: Li et al. 2016, section 5.1 (distinct-1 and distinct-2).
    """
    # exercise 5.8
    grams = [gram for text in texts for gram in _ngrams(text, n)]
    return len(set(grams)) / len(grams) if grams else 0.0


def repeated(text: str, n: int) -> float:
    """How much a text repeats itself: the share of its n-grams that were there before.

    Args:
        text: words as in `distinct`.
        n: words in an n-gram, at least 1.

    Returns:
        1 - different n-grams over all n-grams: 0.0 where nothing comes twice, and where there are
        no n-grams.

    Source: Welleck et al. 2020, section 6 (seq-rep-n).
    """
    # exercise 5.8
    return 1.0 - distinct([text], n) if _ngrams(text, n) else 0.0


def compare(
    generate: Callable[[str, SamplingParams], str],
    questions: Sequence[str],
    settings: Mapping[str, SamplingParams],
    seeds: Sequence[int],
) -> list[Trial]:
    """Ask every question at every setting with every seed.

    Args:
        generate: the answer to a question; called with the setting's params, but for their seed,
            which is that of the trial.
        questions, settings, seeds: what to try; settings by name.

    Returns:
        the trials, question by question, in each setting by setting, in each seed by seed.
    """
    # exercise 5.8
    return [
        Trial(question, name, seed, generate(question, replace(params, seed=seed)))
        for question, (name, params), seed in itertools.product(questions, settings.items(), seeds)
    ]


def scores(trials: Sequence[Trial]) -> dict[str, Score]:
    """Diversity, repetition and length of each setting.

    Returns:
        by setting, in the order in which they come: Score(distinct_1, distinct_2, repeated,
        words). The first two are the mean over the questions of `distinct` of all answers to
        that question, so that the same answer to every seed counts as little variety; repeated is
        the mean of `repeated(text, 3)` over all answers, words the mean number of words.
    """
    # exercise 5.8
    return {name: _score([t for t in trials if t.setting == name]) for name in _settings(trials)}


def blind_table(trials: Sequence[Trial], seed: int) -> tuple[str, list[Trial]]:
    """A Markdown table of the answers for a person to rate, who must not know the settings.

    The questions keep their order; the answers to one question are shuffled.

    Args:
        trials: at least one.
        seed: of the shuffle; the same trials and seed give the same table.

    Returns:
        (table, key). The table has the header "| # | question | answer | rating |", the line
        "|---|---|---|---|", then a line for each answer, "| 1 | question | answer |  |", counted
        from 1; no setting and no seed is in it. In questions and answers, a backslash and a "|"
        get a backslash before them, and every run of white space becomes one space, with none at
        the ends: each answer is one row. key[i] is the trial of row i + 1.
    """
    # exercise 5.8
    shuffle, key = random.Random(seed), []
    for question in dict.fromkeys(trial.question for trial in trials):
        answers = [trial for trial in trials if trial.question == question]
        key += shuffle.sample(answers, len(answers))
    lines = ["| # | question | answer | rating |", "|---|---|---|---|"]
    for number, trial in enumerate(key, 1):
        lines.append(f"| {number} | {_cell(trial.question)} | {_cell(trial.text)} |  |")
    return "\n".join(lines) + "\n", key


def _ngrams(text: str, n: int) -> list[tuple[str, ...]]:
    """All n words in a row of a text."""
    words = text.lower().split()
    return [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]


def _settings(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(trial.setting for trial in trials))


def _score(trials: list[Trial]) -> Score:
    """The scores of the trials of one setting."""
    answers: dict[str, list[str]] = {}
    for trial in trials:
        answers.setdefault(trial.question, []).append(trial.text)
    return Score(
        _mean([distinct(texts, 1) for texts in answers.values()]),
        _mean([distinct(texts, 2) for texts in answers.values()]),
        _mean([repeated(trial.text, 3) for trial in trials]),
        _mean([len(trial.text.split()) for trial in trials]),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _cell(text: str) -> str:
    """A text that stays in its cell."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
