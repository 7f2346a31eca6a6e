"""5.8 distinct, repeated, compare, scores and blind_table."""

import itertools

from course.cases import Wrong, case, describe, expect_equal
from tests.grading.forward_pass.driving import drive
from tests.oracles import sampler as oracle

WORDS = ["Paris", "is", "the", "capital", "of", "France", "paris", "IS", "and", "a", "city."]


def number(got, expected: float, what: str) -> None:
    """got is a float, close to what is expected."""
    if type(got) is not float:
        raise Wrong(f"{what} should be a float, but is {describe(got)}")
    if abs(got - expected) > 1e-9:
        raise Wrong(f"{what} is {got:.9g}, expected {expected:.9g}")


def a_text(rng, words: int) -> str:
    """So many words, with white space of all kinds between them."""
    return "".join(rng.choice(WORDS) + rng.choice([" ", "  ", "\n", "\t"]) for _ in range(words))


@case("5.8")
def distinct_by_hand(learner, rng):
    """ "the cat the dog" has 3 different words of 4; "a b a b" has 2 different pairs of 3."""
    number(learner.distinct(["the cat the dog"], 1), 0.75, "distinct-1")
    number(learner.distinct(["a b a b"], 2), 2 / 3, "distinct-2")
    number(learner.distinct(["one two three"], 2), 1.0, "distinct-2")
    number(learner.distinct(["ab c a bc"], 2), 1.0, "distinct-2 of 'ab c a bc'")


@case("5.8")
def distinct_of_several_texts(learner, rng):
    """The n-grams of all texts are counted together: the same text twice has half the variety."""
    number(learner.distinct(["a b c", "a b c"], 1), 0.5, "distinct-1 of the same text twice")
    number(learner.distinct(["a b", "b a"], 2), 1.0, "distinct-2")
    for n in (1, 2, 3):
        texts = [a_text(rng, rng.randrange(12)) for _ in range(4)]
        number(learner.distinct(texts, n), oracle.distinct(texts, n), f"distinct-{n} of {texts}")


@case("5.8")
def distinct_not_over_the_border(learner, rng):
    """No n-gram reaches from one text to the next."""
    number(learner.distinct(["a b", "c a", "b"], 2), 1.0, "distinct-2")
    number(learner.distinct(["a", "b", "a b"], 2), 1.0, "distinct-2")
    number(learner.distinct(["a b", "b a b"], 2), 2 / 3, "distinct-2")


@case("5.8")
def distinct_in_lower_case(learner, rng):
    """Upper case and white space make no difference; a full stop does."""
    number(learner.distinct(["Paris paris\tPARIS\n\n paris."], 1), 0.5, "distinct-1")
    number(learner.distinct(["paris\r\nparis\u00a0paris paris"], 1), 0.25, "distinct-1")


@case("5.8")
def distinct_of_nothing(learner, rng):
    """Where there are no n-grams it is 0.0."""
    for texts, n in (([], 1), ([""], 1), (["  \n"], 1), (["a", "b"], 2), (["a b"], 3)):
        number(learner.distinct(texts, n), 0.0, f"distinct-{n} of {texts}")


@case("5.8")
def repeated_by_hand(learner, rng):
    """Of the 3 pairs of "a b a b" one was there before: 1/3."""
    number(learner.repeated("a b a b", 2), 1 / 3, "the repeated share")
    number(learner.repeated("no no no no", 1), 0.75, "the repeated share")
    number(learner.repeated("all words differ", 1), 0.0, "the repeated share")
    for n in (1, 2, 3):
        text = a_text(rng, rng.randrange(3, 40))
        number(learner.repeated(text, n), oracle.repeated(text, n), f"repeated-{n} of {text!r}")


@case("5.8")
def repeated_of_nothing(learner, rng):
    """A text without n-grams repeats nothing: 0.0."""
    for text, n in (("", 1), ("a", 2), ("a b c", 4), (" \n ", 1)):
        number(learner.repeated(text, n), 0.0, f"repeated-{n} of {text!r}")


@case("5.8")
def compare_asks_everything(learner, rng):
    """Every question at every setting with every seed, question by question; each call has the
    params of its setting and the seed of its trial, and the settings stay as they were.
    """
    questions = ["Who?", "Why?", "Who else?"][: rng.randrange(2, 4)]
    settings = {
        "zoo": {"temperature": 0.1, "max_tokens": 7},
        "calm": {"temperature": 0.5, "top_p": 0.85, "seed": 3},
        "mild": {},
    }
    seeds = rng.sample(range(1000), rng.randrange(2, 4))
    got = drive(learner, "compared", questions, settings, seeds)
    order = list(itertools.product(questions, settings, seeds))
    calls = []
    for question, name, seed in order:
        wish = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 256, **settings[name]}
        calls.append([question, wish["temperature"], wish["top_p"], wish["max_tokens"], seed])
    expect_equal(got["calls"], calls, "the calls of generate")
    trials = [
        [question, name, seed, f"{question} {call[1]} {seed} {count}"]
        for count, ((question, name, seed), call) in enumerate(zip(order, calls, strict=True), 1)
    ]
    expect_equal(got["trials"], trials, "the trials")
    expect_equal(got["settings"], [[0.1, None], [0.5, 3], [1.0, None]], "the settings afterwards")


@case("5.8")
def compare_nothing(learner, rng):
    """Without questions, settings or seeds there are no trials."""
    for questions, settings, seeds in (
        ([], {"a": {}}, [1]),
        (["q"], {}, [1]),
        (["q"], {"a": {}}, []),
    ):
        got = drive(learner, "compared", questions, settings, seeds)
        expect_equal(got["trials"], [], "the trials")


def some_trials(rng, settings: list[str], questions: int = 3, seeds: int = 2) -> list:
    """Trials of random texts, question by question."""
    return [
        [f"question {q}", name, seed, a_text(rng, rng.randrange(4, 16))]
        for q in range(questions)
        for name in settings
        for seed in range(seeds)
    ]


def expected_scores(trials: list) -> list:
    """Each setting with its four numbers."""
    found = []
    for name in dict.fromkeys(trial[1] for trial in trials):
        mine = [trial for trial in trials if trial[1] == name]
        questions = list(dict.fromkeys(trial[0] for trial in mine))
        pools = [[t[3] for t in mine if t[0] == question] for question in questions]
        one, two = ([oracle.distinct(pool, n) for pool in pools] for n in (1, 2))
        again = [oracle.repeated(trial[3], 3) for trial in mine]
        words = [len(trial[3].split()) for trial in mine]
        found.append([name, [sum(x) / len(x) for x in (one, two, again, words)]])
    return found


def scored(learner, trials: list, expected: list | None = None) -> None:
    """scores, compared with the oracle or with what was computed by hand."""
    got, expected = drive(learner, "scored", trials), expected or expected_scores(trials)
    expect_equal([name for name, _ in got], [name for name, _ in expected], "the settings")
    for (name, mine), (_, theirs) in zip(got, expected, strict=True):
        for what, a, b in zip(("distinct_1", "distinct_2", "repeated", "words"), mine, theirs,
                              strict=True):  # fmt: skip
            if not isinstance(a, int | float) or abs(a - b) > 1e-9:
                raise Wrong(f"{what} of {name!r} is {a!r}, expected {b:.9g}")


@case("5.8")
def scores_by_hand(learner, rng):
    """Two answers "a b" to one question: distinct-1 is 0.5, whatever the other question has."""
    trials = [
        ["q", "s", 0, "a b"],
        ["q", "s", 1, "a b"],
        ["r", "s", 0, "c d"],
        ["r", "s", 1, "e f"],
    ]
    scored(learner, trials, [["s", [0.75, 0.75, 0.0, 2.0]]])


@case("5.8")
def scores_of_settings(learner, rng):
    """Each setting by itself, in the order in which they come, whatever the order of the trials."""
    for settings in (["hot", "cold"], ["b", "a", "c"], ["only"]):
        trials = some_trials(rng, settings)
        scored(learner, trials)
        rng.shuffle(trials)
        scored(learner, trials)


@case("5.8")
def scores_of_uneven_trials(learner, rng):
    """A question with more answers counts no more than another in distinct; answers without words
    are answers.
    """
    trials = some_trials(rng, ["a", "b"], 2, 2) + some_trials(rng, ["a"], 1, 4)
    trials += [["question 9", "a", 0, ""], ["question 9", "b", 0, "one two"]]
    scored(learner, trials)


def rows_of(table: str) -> list[str]:
    return table.rstrip("\n").split("\n")


@case("5.8")
def table_by_hand(learner, rng):
    """One answer: a header, a line, a row."""
    got = drive(learner, "tabled", [["Who?", "calm", 3, "It is me."]], rng.randrange(99))
    lines = [
        "| # | question | answer | rating |",
        "|---|---|---|---|",
        "| 1 | Who? | It is me. |  |",
    ]
    expect_equal(rows_of(got["table"]), lines, "the lines of the table")
    expect_equal(got["key"], [["Who?", "calm", 3, "It is me."]], "the key")


@case("5.8")
def table_with_its_key(learner, rng):
    """key[i] is the trial of row i + 1; every trial is there once; questions keep their order and
    their answers stay together.
    """
    trials = some_trials(rng, ["x", "y", "z"])
    rng.shuffle(trials)
    got = drive(learner, "tabled", trials, rng.randrange(999))
    expect_equal(sorted(got["key"]), sorted(trials), "the trials of the key, sorted")
    order = [q for q in dict.fromkeys(t[0] for t in trials) for t in trials if t[0] == q]
    expect_equal([trial[0] for trial in got["key"]], order, "the questions of the rows")
    lines = [
        f"| {n} | {question} | {' '.join(text.split())} |  |"
        for n, (question, _, _, text) in enumerate(got["key"], 1)
    ]
    expect_equal(rows_of(got["table"])[2:], lines, "the rows of the table")
    expect_equal(got["kept"], True, "whether the trials are as they were")


@case("5.8")
def table_of_equal_answers(learner, rng):
    """Answers that are equal, to one question or to two, have a row each."""
    trials = [[q, name, seed, "Yes."] for q in "ab" for name in ("x", "y") for seed in (1, 2)]
    got = drive(learner, "tabled", trials, rng.randrange(99))
    expect_equal(sorted(got["key"]), sorted(trials), "the trials of the key, sorted")
    lines = [f"| {n} | {'a' if n < 5 else 'b'} | Yes. |  |" for n in range(1, 9)]
    expect_equal(rows_of(got["table"])[2:], lines, "the rows of the table")


@case("5.8")
def table_is_blind(learner, rng):
    """Neither setting nor seed can be read from it: answers to a question are shuffled, and not
    those of every question in the same way.
    """
    trials = [
        [f"question {q}", name, 770 + s, f"answer {q}{name[-1]}{s}"]
        for q in range(12)
        for name in ("setting_a", "setting_b", "setting_c")
        for s in range(2)
    ]
    got = drive(learner, "tabled", trials, rng.randrange(999))
    if "setting" in got["table"] or "77" in got["table"].replace("question", ""):
        raise Wrong("the table names a setting or a seed")
    orders = [
        tuple((name, seed) for _, name, seed, _ in got["key"][6 * q : 6 * q + 6]) for q in range(12)
    ]
    if len(set(orders)) < 6:  # of 720 orders; by chance once in 10 ** 13 runs
        raise Wrong(
            f"the answers to 12 questions stand in only {len(set(orders))} different orders"
        )


@case("5.8")
def table_can_be_made_again(learner, rng):
    """The same trials and seed give the same table; another seed gives another."""
    trials = some_trials(rng, ["x", "y", "z"], 6)
    found = [drive(learner, "tabled", trials, seed) for seed in (1, 2, 3)]
    expect_equal([one["same"] for one in found], [True] * 3, "whether a second call gave the same")
    if len({one["table"] for one in found}) < 2:
        raise Wrong("three different seeds gave the same table")


@case("5.8")
def table_keeps_its_cells(learner, rng):
    """Bars, backslashes and line breaks in questions or answers do not break a row."""
    for text, cell in (
        ("a|b", "a\\|b"),
        ("| x | y |", "\\| x \\| y \\|"),
        ("one\n\n two\t three ", "one two three"),
        ("one\r\ntwo\x0bthree\u2028four\u00a0five", "one two three four five"),
        ("a\\b", "a\\\\b"),
        ("\\|", "\\\\\\|"),
        ("", ""),
        ("\n", ""),
        ("C:\\dir | é 漢", "C:\\\\dir \\| é 漢"),
        ("<b> & *x* `y` _z_ # 1", "<b> & *x* `y` _z_ # 1"),
        (" word" * 200, " ".join(["word"] * 200)),
    ):
        got = drive(learner, "tabled", [[text or "q", "s", 0, text]], 0)
        question = cell if text else "q"
        expect_equal(rows_of(got["table"])[2:], [f"| 1 | {question} | {cell} |  |"], "the row")
        expect_equal(got["key"], [[text or "q", "s", 0, text]], "the key")
