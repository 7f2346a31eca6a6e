"""5.6 to 5.8: text that is nearly right."""

import dataclasses
import random

from tests.parts import part


def matcher(m, **methods):
    """StopMatcher with other methods; each gets the right one first."""
    right = m.StopMatcher

    def wrap(name, method):
        return lambda self, *args: method(getattr(right, name), self, *args)

    m.StopMatcher = type("StopMatcher", (right,), {n: wrap(n, f) for n, f in methods.items()})


@part("5.6")
def found_is_true(m):
    """found says True, not which."""

    def add(right, self, piece):
        shown = right(self, piece)
        self.found = True if self.found is not None else None
        return shown

    matcher(m, add=add)


@part("5.6")
def found_is_empty_text(m):
    """found is "" as long as nothing is."""

    def add(right, self, piece):
        shown = right(self, piece)
        if self.found is None:
            self.found = ""
        return shown

    matcher(m, add=lambda right, self, piece: "" if self.found else add(right, self, piece))


@part("5.6")
def stops_kept_by_reference(m):
    """The caller's list is used as it is later on."""

    def init(right, self, stops):
        right(self, stops)
        self.given = stops

    def add(right, self, piece):
        if len(self.given) != len(self._stops):
            held = self._held
            right_init(self, self.given)
            self._held = ""
            piece = held + piece
        return right(self, piece)

    right_init = m.StopMatcher.__init__
    matcher(m, __init__=init, add=add)


@part("5.6")
def stops_need_a_list(m):
    """A tuple of stop strings fails."""
    matcher(m, __init__=lambda right, self, stops: right(self, stops.copy()))


@part("5.6")
def stops_in_lower_case(m):
    """Upper and lower case are the same."""

    def add(right, self, piece):
        shown = right(self, piece.lower())
        return shown if piece.islower() else piece[: len(shown)] if shown else ""

    matcher(m, add=add)


@part("5.6")
def one_piece_late(m):
    """Every piece waits for the next."""

    def add(right, self, piece):
        waiting, self.waiting = getattr(self, "waiting", ""), piece
        return right(self, waiting)

    def flush(right, self):
        waiting, self.waiting = getattr(self, "waiting", ""), ""
        return self._add(waiting) + right(self)

    m.StopMatcher._add = m.StopMatcher.add
    matcher(m, add=add, flush=flush)


@part("5.6")
def flush_forgets_the_end(m):
    """flush resets found."""

    def flush(right, self):
        self.found = None
        return right(self)

    matcher(m, flush=flush)


@part("5.6")
def the_rest_of_the_piece_is_flushed(m):
    """What stood behind the stop string comes out with flush."""

    def add(right, self, piece):
        before = self.found
        shown = right(self, piece)
        if before is None and self.found is not None and self.found in piece:
            self._held = piece.split(self.found, 1)[1]
        return shown

    matcher(m, add=add)


@part("5.6")
def four_stop_strings_share_a_state(m):
    """All matchers share what is held back."""
    held = {}

    def add(right, self, piece):
        self._held = held.get(tuple(s for s, _ in self._stops), "")
        shown = right(self, piece)
        held[tuple(s for s, _ in self._stops)] = self._held
        return shown

    matcher(m, add=add)


@part("5.6")
def only_the_first_stop_string(m):
    """The others are not looked for."""
    matcher(m, __init__=lambda right, self, stops: right(self, stops[:1]))


@part("5.6")
def stop_strings_stripped(m):
    """White space around stop strings is left out."""
    matcher(m, __init__=lambda right, self, stops: right(self, [s.strip() or s for s in stops]))


@part("5.6")
def bytes_are_counted(m):
    """The cut counts UTF-8 bytes."""

    def add(right, self, piece):
        shown = right(self, piece)
        if self.found is not None and not shown.isascii():
            return shown[:-1]
        return shown

    matcher(m, add=add)


# --- 5.7 ---


def detokenizer(m, **methods):
    """Detokenizer with other methods; each gets the right one first."""
    right = m.Detokenizer

    def wrap(name, method):
        return lambda self, *args: method(getattr(right, name), self, *args)

    m.Detokenizer = type("Detokenizer", (right,), {n: wrap(n, f) for n, f in methods.items()})


@part("5.7")
def character_by_its_first_byte(m):
    """A first byte is believed, whatever follows it: "a" waits behind half a character."""

    class Detokenizer:
        def __init__(self, token_bytes, strip=False):
            self.token_bytes, self.strip, self.rest = token_bytes, strip, b""

        def add(self, token):
            data = self.token_bytes(token)
            if not data:
                return ""
            if self.strip and data[0] == 32:
                data = data[1:]
            self.strip, data, keep = False, self.rest + data, 0
            for back in range(1, min(3, len(data)) + 1):
                first = data[-back]
                size = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1
                if first >= 0xC0:
                    keep = back if size > back else 0
                    break
            self.rest = data[len(data) - keep :]
            return data[: len(data) - keep].decode("utf-8", "replace")

        def flush(self):
            rest, self.rest = self.rest, b""
            return rest.decode("utf-8", "replace")

    m.Detokenizer = Detokenizer


@part("5.7")
def one_mark_for_all_broken_bytes(m):
    """Several U+FFFD in a row become one."""

    def add(right, self, token):
        text = right(self, token)
        while "\ufffd\ufffd" in text:
            text = text.replace("\ufffd\ufffd", "\ufffd")
        return text

    detokenizer(m, add=add)


@part("5.7")
def empty_tokens_end_a_character(m):
    """A token without bytes lets the unfinished character go."""

    def add(right, self, token):
        text = right(self, token)
        return text or (m.Detokenizer.flush(self) if not self._token_bytes(token) else "")

    detokenizer(m, add=add)


@part("5.7")
def strip_by_default(m):
    """Without a word about strip, the first space goes."""
    right = m.Detokenizer.__init__

    def init(_, self, token_bytes, strip=True):
        right(self, token_bytes, strip)

    detokenizer(m, __init__=init)


@part("5.7")
def strip_waits_for_a_space(m):
    """The first space anywhere goes."""

    def add(right, self, token):
        wanted, self._strip = getattr(self, "wanted", self._strip), False
        text = right(self, token)
        self.wanted = wanted and not text.startswith(" ")
        return text[1:] if wanted and text.startswith(" ") else text

    detokenizer(m, add=add)


@part("5.7")
def unknown_token_spoils_strip(m):
    """An id that does not exist uses up the right to strip."""

    def add(right, self, token):
        strip, self._strip = self._strip, False
        data = self._token_bytes(token)
        self._strip = strip
        del data
        return right(self, token)

    detokenizer(m, add=add)


@part("5.7")
def unknown_token_is_silent(m):
    """An id that does not exist shows nothing and raises nothing."""

    def add(right, self, token):
        try:
            return right(self, token)
        except KeyError:
            return ""

    detokenizer(m, add=add)


@part("5.7")
def flush_twice(m):
    """A second flush gives U+FFFD once more."""

    def flush(right, self):
        self.last = right(self) or getattr(self, "last", "")
        return self.last

    detokenizer(m, flush=flush)


def answer(m, add):
    """Answer with another add(right, self, token)."""
    right = m.Answer
    m.Answer = type("Answer", (right,), {"add": lambda self, token: add(right.add, self, token)})


@part("5.7")
def reason_of_an_end_id_is_eos(m):
    """ "eos" instead of "stop"."""

    def add(right, self, token):
        text = right(self, token)
        if token in self._end_ids and self.finish_reason == "stop":
            self.finish_reason = "eos"
        return text

    answer(m, add)


@part("5.7")
def end_id_zero_unseen(m):
    """The end id 0 is left out, as false."""

    def add(right, self, token):
        self._end_ids = frozenset(filter(None, self._end_ids))
        return right(self, token)

    answer(m, add)


@part("5.7")
def ids_without_those_of_the_stop_string(m):
    """The token that completes a stop string is taken out of the ids."""

    def add(right, self, token):
        text = right(self, token)
        if self._matcher.found is not None:
            self.ids.pop()
        return text

    answer(m, add)


@part("5.7")
def ids_of_special_tokens_not_counted(m):
    """A token without text does not count."""

    def add(right, self, token):
        text = right(self, token)
        if not self._detokenizer._token_bytes(token) and self.finish_reason is None:
            self.ids.pop()
        return text

    answer(m, add)


@part("5.7")
def only_the_first_end_id(m):
    """Of several end ids only the smallest counts."""

    def add(right, self, token):
        self._end_ids = frozenset(sorted(self._end_ids)[:1])
        return right(self, token)

    answer(m, add)


@part("5.7")
def stop_in_the_last_text_is_length(m):
    """A stop string found in the flushed text leaves the reason "length"."""

    def add(right, self, token):
        before = self._matcher.found
        text = right(self, token)
        full = len(self.ids) == self._max_tokens
        if before is None and self._matcher.found == "\ufffd" and full:
            self.finish_reason = "length"
        return text

    answer(m, add)


@part("5.7")
def ids_shared_by_all(m):
    """One list of ids for all answers."""
    right = m.Answer.__init__
    ids: list = []

    def init(self, *args):
        right(self, *args)
        self.ids = ids

    m.Answer.__init__ = init


@part("5.7")
def value_error_after_the_end(m):
    """ValueError instead of RuntimeError."""

    def add(right, self, token):
        try:
            return right(self, token)
        except RuntimeError:
            raise ValueError("over") from None

    answer(m, add)


# --- 5.8 ---


@part("5.8")
def distinct_without_full_stops(m):
    """Punctuation is left out."""
    right = m.distinct
    m.distinct = lambda texts, n: right([text.replace(".", " ") for text in texts], n)


@part("5.8")
def distinct_of_nothing_is_one(m):
    """Nothing is as varied as can be."""
    right = m.distinct
    m.distinct = lambda texts, n: right(texts, n) or 1.0


@part("5.8")
def distinct_up_to_two(m):
    """Any n above 2 is 2."""
    right = m.distinct
    m.distinct = lambda texts, n: right(texts, min(n, 2))


@part("5.8")
def distinct_in_any_order(m):
    """ "a b" and "b a" are the same pair."""

    def distinct(texts, n):
        grams = [tuple(sorted(gram)) for text in texts for gram in m._ngrams(text, n)]
        return len(set(grams)) / len(grams) if grams else 0.0

    m.distinct = distinct


@part("5.8")
def compare_changes_the_settings(m):
    """The seed stays in the setting."""
    right = m.compare

    def compare(generate, questions, settings, seeds):
        found = right(generate, questions, settings, seeds)
        for name in list(settings):
            settings[name] = dataclasses.replace(settings[name], seed=seeds[-1]) if seeds else None
        return found

    m.compare = compare


@part("5.8")
def compare_sorted_by_name(m):
    """Settings in alphabetical order."""
    right = m.compare

    def compare(generate, questions, settings, seeds):
        return right(generate, questions, dict(sorted(settings.items())), seeds)

    m.compare = compare


@part("5.8")
def compare_keeps_a_seed_of_the_setting(m):
    """A setting that has a seed keeps it."""

    def compare(generate, questions, settings, seeds):
        found = []
        for question in questions:
            for name, params in settings.items():
                for seed in seeds:
                    own = seed if params.seed is None else params.seed
                    text = generate(question, dataclasses.replace(params, seed=own))
                    found.append(m.Trial(question, name, seed, text))
        return found

    m.compare = compare


@part("5.8")
def compare_by_tuples(m):
    """Tuples instead of trials."""
    right = m.compare

    def compare(*args):
        return [dataclasses.astuple(trial) for trial in right(*args)]

    m.compare = compare


@part("5.8")
def scores_of_pairs_repeated(m):
    """repeated(text, 2) instead of 3."""
    right = m.repeated
    m.repeated = lambda text, n: right(text, 2)


@part("5.8")
def scores_sorted_by_name(m):
    """Settings in alphabetical order."""
    right = m.scores
    m.scores = lambda trials: dict(sorted(right(trials).items()))


@part("5.8")
def scores_in_characters(m):
    """Length in characters."""
    right = m.scores

    def scores(trials):
        found = right(trials)
        for name, score in found.items():
            texts = [t.text for t in trials if t.setting == name]
            length = sum(map(len, texts)) / len(texts)
            found[name] = dataclasses.replace(score, words=length)
        return found

    m.scores = scores


@part("5.8")
def scores_of_full_answers(m):
    """Answers without words are left out."""
    right = m.scores
    m.scores = lambda trials: right([t for t in trials if t.text.strip()])


@part("5.8")
def scores_weighted_by_answers(m):
    """A question with more answers counts more."""
    right = m.scores

    def scores(trials):
        found = right(trials)
        for name, score in found.items():
            mine = [t for t in trials if t.setting == name]
            one = [m.distinct([o.text for o in mine if o.question == t.question], 1) for t in mine]
            found[name] = dataclasses.replace(score, distinct_1=sum(one) / len(one))
        return found

    m.scores = scores


@part("5.8")
def table_from_zero(m):
    """Rows are counted from 0."""
    right = m.blind_table

    def blind_table(trials, seed):
        table, key = right(trials, seed)
        lines = table.split("\n")
        for i in range(len(key)):
            lines[i + 2] = lines[i + 2].replace(f"| {i + 1} |", f"| {i} |", 1)
        return "\n".join(lines), key

    m.blind_table = blind_table


@part("5.8")
def table_by_the_global_random(m):
    """The same seed gives another table each time."""
    right = m.blind_table
    m.blind_table = lambda trials, seed: right(trials, random.random())


@part("5.8")
def table_shuffles_the_trials(m):
    """The caller's list is shuffled."""
    right = m.blind_table

    def blind_table(trials, seed):
        found = right(trials, seed)
        random.Random(seed).shuffle(trials)
        return found

    m.blind_table = blind_table


@part("5.8")
def table_of_any_seed(m):
    """The seed does not matter."""
    right = m.blind_table
    m.blind_table = lambda trials, seed: right(trials, 0)


@part("5.8")
def table_without_its_twins(m):
    """Answers that are the same are shown once."""
    right = m.blind_table

    def blind_table(trials, seed):
        unique = {(t.question, t.text): t for t in trials}
        return right(list(unique.values()), seed)

    m.blind_table = blind_table


@part("5.8")
def table_with_sorted_questions(m):
    """Questions in alphabetical order."""
    right = m.blind_table

    def blind_table(trials, seed):
        return right(sorted(trials, key=lambda t: t.question), seed)

    m.blind_table = blind_table
