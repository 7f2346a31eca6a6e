"""5.6 to 5.8: text, lists and tables that are wrong where nobody looked."""

import codecs
import html
import re
from dataclasses import replace

from tests.parts import part
from tests.wrong.sampler.text import answer, detokenizer, matcher


@part("5.6")
def stops_sorted_in_place(m):
    """The caller's list is sorted by length."""

    def init(right, self, stops):
        if isinstance(stops, list):
            stops.sort(key=len)
        right(self, stops)

    matcher(m, __init__=init)


@part("5.6")
def flush_stripped(m):
    """Held-back white space is lost at the end."""
    matcher(m, flush=lambda right, self: right(self).strip())


@part("5.6")
def one_call_deeper_for_each_character(m):
    """A long piece goes beyond the recursion limit."""

    def add(right, self, piece):
        if len(piece) < 2:
            return right(self, piece)
        return right(self, piece[0]) + self.add(piece[1:])

    matcher(m, add=add)


@part("5.7")
def byte_order_mark_lost(m):
    """A U+FEFF at the beginning is taken for a mark of the encoding."""

    def init(right, self, *args):
        right(self, *args)
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")("replace")

    detokenizer(m, __init__=init)


@part("5.7")
def ids_in_a_tuple(m):
    """ids is no list any more."""

    def add(right, self, token):
        self.ids = list(self.ids)
        text = right(self, token)
        self.ids = tuple(self.ids)
        return text

    answer(m, add)


@part("5.7")
def end_ids_used_up(m):
    """The caller's end ids are emptied."""
    right = m.Answer.__init__

    def init(self, detokenizer, max_tokens, end_ids=(), stops=()):
        right(self, detokenizer, max_tokens, end_ids, stops)
        if isinstance(end_ids, list | set):
            end_ids.clear()

    m.Answer.__init__ = init


@part("5.7")
def half_a_character_behind_the_stop_string(m):
    """What was unfinished when a stop string was found comes out behind the cut."""

    def add(right, self, token):
        text = right(self, token)
        return text + self._detokenizer.flush() if self._matcher.found else text

    answer(m, add)


@part("5.7")
def no_reason_without_text(m):
    """An answer whose last token has no text does not end."""

    def add(right, self, token):
        text = right(self, token)
        if self.finish_reason == "length" and not text:
            self.finish_reason = None
        return text

    answer(m, add)


def distinct_of(grams_of):
    """distinct with other n-grams of a text."""

    def distinct(texts, n):
        grams = [gram for text in texts for gram in grams_of(text.lower(), n)]
        return len(set(grams)) / len(grams) if grams else 0.0

    return distinct


@part("5.8")
def words_joined_without_a_space(m):
    """ "ab c" and "a bc" are the same pair."""
    m.distinct = distinct_of(lambda text, n: map("".join, m._ngrams(text, n)))


@part("5.8")
def words_split_at_three_kinds_of_space(m):
    """A no-break space or a carriage return is part of a word."""

    def grams(text, n):
        words = [word for word in re.split("[ \n\t]", text) if word]
        return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

    m.distinct = distinct_of(grams)


@part("5.8")
def compare_when_asked(m):
    """A generator: whoever goes through the trials a second time finds none."""
    right = m.compare
    m.compare = lambda *args: (trial for trial in right(*args))


@part("5.8")
def cell_with_a_line_separator(m):
    """Only three kinds of white space become a space: others break the row."""
    right = m._cell
    m._cell = lambda text: re.sub("[ \n\t]+", " ", text).strip(" ") if "\r" in text else right(text)


@part("5.8")
def cell_in_html(m):
    """Markup in an answer is escaped."""
    right = m._cell
    m._cell = lambda text: html.escape(right(text), quote=False)


@part("5.8")
def cell_of_200_characters(m):
    """Long answers are cut."""
    right = m._cell
    m._cell = lambda text: right(text)[:200]


@part("5.8")
def key_in_a_tuple(m):
    """The key is no list."""
    right = m.blind_table

    def blind_table(trials, seed):
        table, key = right(trials, seed)
        return table, tuple(key)

    m.blind_table = blind_table


@part("5.8")
def key_of_stripped_questions(m):
    """The key holds other trials than were given."""
    right = m.blind_table

    def blind_table(trials, seed):
        return right([replace(trial, question=trial.question.strip()) for trial in trials], seed)

    m.blind_table = blind_table
