"""Wrong versions of 5.8 distinct, repeated, compare, scores and blind_table."""

import random
from dataclasses import replace

from course.misconceptions import misconception
from solutions.comparing import Score, Trial


def grams_of(text, n):
    """All n words in a row of a text."""
    words = text.lower().split()
    return [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]


@misconception("5.8", "distinct")
def distinct_of_each_text(texts, n):
    """You average the distinct share of each text. The n-grams of all texts are counted together,
    so that the same answer twice is little variety.
    """
    from tests.misconceptions.sampler.comparing import grams_of

    lists = [grams for text in texts if (grams := grams_of(text, n))]
    shares = [len(set(grams)) / len(grams) for grams in lists]
    return sum(shares) / len(shares) if shares else 0.0


@misconception("5.8", "distinct")
def distinct_over_the_border(texts, n):
    """You join the texts and count n-grams that reach from one into the next. Each text is counted
    by itself, then all are put together.
    """
    from tests.misconceptions.sampler.comparing import grams_of

    grams = grams_of(" ".join(texts), n)
    return len(set(grams)) / len(grams) if grams else 0.0


@misconception("5.8", "distinct")
def distinct_by_case(texts, n):
    """ "Paris" and "paris" are two words in your count. Words are compared in lower case."""
    words = [text.split() for text in texts]
    grams = [tuple(w[i : i + n]) for w in words for i in range(len(w) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 0.0


@misconception("5.8", "distinct")
def distinct_over_words(texts, n):
    """You divide by the number of words. There are fewer n-grams than words: divide by the number
    of n-grams.
    """
    from tests.misconceptions.sampler.comparing import grams_of

    grams = [gram for text in texts for gram in grams_of(text, n)]
    words = sum(len(text.split()) for text in texts)
    return len(set(grams)) / words if grams else 0.0


@misconception("5.8", "repeated")
def repeated_with_the_first(text, n):
    """You count every n-gram that occurs more than once, the first time included. What is repeated
    is the second time and all after it.
    """
    from tests.misconceptions.sampler.comparing import grams_of

    grams = grams_of(text, n)
    again = [gram for gram in grams if grams.count(gram) > 1]
    return len(again) / len(grams) if grams else 0.0


@misconception("5.8", "repeated")
def repeated_of_nothing_is_one(text, n):
    """A text without n-grams repeats all in your count: 1 - 0. There is nothing to repeat: 0.0."""
    return 1.0 - distinct([text], n)  # noqa: F821


@misconception("5.8", "compare")
def compare_without_the_seed(generate, questions, settings, seeds):
    """Your trials all run with the seed of the setting, so that they are the same, or cannot be
    repeated. Put the trial's seed in: dataclasses.replace(params, seed=seed).
    """
    return [
        Trial(question, name, seed, generate(question, params))
        for question in questions
        for name, params in settings.items()
        for seed in seeds
    ]


@misconception("5.8", "compare")
def compare_setting_by_setting(generate, questions, settings, seeds):
    """Your trials come setting by setting. They come question by question, so that answers to one
    question stand together.
    """
    return [
        Trial(question, name, seed, generate(question, replace(params, seed=seed)))
        for name, params in settings.items()
        for question in questions
        for seed in seeds
    ]


def means(trials, score):
    """Score of each setting's trials, in the order in which settings come."""
    names = list(dict.fromkeys(trial.setting for trial in trials))
    return {name: score([t for t in trials if t.setting == name]) for name in names}


def mean(values):
    """The mean of a list."""
    return sum(values) / len(values)


@misconception("5.8", "scores")
def scores_of_all_questions_together(trials):
    """You put the answers to all questions together for distinct. Different questions have
    different answers anyway: take it question by question, and the mean.
    """
    from tests.misconceptions.sampler.comparing import mean, means

    def score(mine):
        texts = [trial.text for trial in mine]
        again, words = [repeated(t, 3) for t in texts], [len(t.split()) for t in texts]  # noqa: F821
        return Score(distinct(texts, 1), distinct(texts, 2), mean(again), mean(words))  # noqa: F821

    return means(trials, score)


@misconception("5.8", "scores")
def scores_of_each_answer(trials):
    """You take distinct of each answer alone. It is to tell how different the answers to one
    question are: all seeds together.
    """
    from tests.misconceptions.sampler.comparing import mean, means

    def score(mine):
        texts = [trial.text for trial in mine]
        ones, twos = ([distinct([t], n) for t in texts] for n in (1, 2))  # noqa: F821
        again, words = [repeated(t, 3) for t in texts], [len(t.split()) for t in texts]  # noqa: F821
        return Score(mean(ones), mean(twos), mean(again), mean(words))

    return means(trials, score)


@misconception("5.8", "blind_table")
def table_in_order(trials, seed):
    """The answers stand in the order of the settings. Whoever rates them soon knows which is which:
    shuffle the answers to each question.
    """
    key = []
    for question in dict.fromkeys(trial.question for trial in trials):
        key += [trial for trial in trials if trial.question == question]
    lines = ["| # | question | answer | rating |", "|---|---|---|---|"]
    for number, trial in enumerate(key, 1):
        lines.append(f"| {number} | {_cell(trial.question)} | {_cell(trial.text)} |  |")  # noqa: F821
    return "\n".join(lines) + "\n", key


@misconception("5.8", "blind_table")
def table_all_shuffled(trials, seed):
    """You shuffle all answers, so that those to one question are scattered over the table.
    Questions keep their order; only the answers to one are shuffled.
    """
    key = random.Random(seed).sample(list(trials), len(trials))
    lines = ["| # | question | answer | rating |", "|---|---|---|---|"]
    for number, trial in enumerate(key, 1):
        lines.append(f"| {number} | {_cell(trial.question)} | {_cell(trial.text)} |  |")  # noqa: F821
    return "\n".join(lines) + "\n", key


@misconception("5.8", "blind_table")
def table_shuffled_alike(trials, seed):
    """The answers to every question are shuffled in the same way. Who has seen through one question
    knows them all: one Random for the whole table, not a new one for each question.
    """
    key = []
    for question in dict.fromkeys(trial.question for trial in trials):
        answers = [trial for trial in trials if trial.question == question]
        key += random.Random(seed).sample(answers, len(answers))
    lines = ["| # | question | answer | rating |", "|---|---|---|---|"]
    for number, trial in enumerate(key, 1):
        lines.append(f"| {number} | {_cell(trial.question)} | {_cell(trial.text)} |  |")  # noqa: F821
    return "\n".join(lines) + "\n", key


@misconception("5.8", "blind_table")
def table_with_the_key_unshuffled(trials, seed):
    """Your key has the trials in the order in which they came. key[i] belongs to row i + 1: it has
    to be shuffled with the rows.
    """
    shuffle, key = random.Random(seed), []
    for question in dict.fromkeys(trial.question for trial in trials):
        answers = [trial for trial in trials if trial.question == question]
        key += shuffle.sample(answers, len(answers))
    lines = ["| # | question | answer | rating |", "|---|---|---|---|"]
    for number, trial in enumerate(key, 1):
        lines.append(f"| {number} | {_cell(trial.question)} | {_cell(trial.text)} |  |")  # noqa: F821
    return "\n".join(lines) + "\n", list(trials)


@misconception("5.8", "_cell")
def cell_that_breaks_out(text):
    """A bar in an answer begins a new cell in your table. Put a backslash before it."""
    return " ".join(text.split())


@misconception("5.8", "_cell")
def cell_with_its_backslashes(text):
    """A backslash before a bar undoes yours, in an answer that has one. Put a backslash before
    every backslash first, then before every bar.
    """
    return " ".join(text.split()).replace("|", "\\|")


@misconception("5.8", "_cell")
def cell_of_several_lines(text):
    """An answer of several lines breaks your table. A row is one line: make every run of white
    space one space.
    """
    return text.strip().replace("\\", "\\\\").replace("|", "\\|")
