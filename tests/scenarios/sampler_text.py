"""Chapter 05's text objects, driven beside the code under test.

Every function takes the module under test first and returns plain data.
"""

import tracemalloc
from collections.abc import Callable, Iterable

from course.cases import describe
from tests.scenarios.helpers import Unusable, attempt, in_words, told

# --- 5.6 ---


def text_of(name: str, found) -> str:
    if type(found) is not str:
        raise Unusable(f"{name} should return a str, but returned {in_words(found)}")
    return found


@told
def matched(module, stops: list, pieces: list, kind: str = "list") -> dict:
    """A StopMatcher fed these pieces: what each add gave, found after each, and two flushes."""
    given = {"list": list, "tuple": tuple}[kind](stops)
    matcher = module.StopMatcher(given)
    if list(given) != stops:
        raise Unusable(f"StopMatcher made {given} of the caller's stop strings {stops}")
    if isinstance(given, list):
        given.append("e")  # a list of the caller's: what becomes of it is nobody's business
    shown, found = [], []
    for piece in pieces:
        shown.append(text_of("add", matcher.add(piece)))
        found.append(matcher.found)
    rest = [text_of("flush", matcher.flush()) for _ in range(2)]
    return {"shown": shown, "found": found, "rest": rest, "last": matcher.found}


@told
def matched_together(module, stops: list, texts: list) -> list:
    """Matchers with the same stop strings, fed in turns, a character each: what each let through,
    its flush included."""
    matchers, shown = [module.StopMatcher(stops) for _ in texts], ["" for _ in texts]
    for at in range(max(map(len, texts))):
        for i, text in enumerate(texts):
            shown[i] += text_of("add", matchers[i].add(text[at : at + 1]))
    return [text + text_of("flush", m.flush()) for text, m in zip(shown, matchers, strict=True)]


def growth(feed: Callable, items: Iterable, few: int) -> int:
    """How many bytes more are in use after all items than after the first few, when what feed
    returns is thrown away."""
    tracemalloc.start()
    try:
        for number, item in enumerate(items):
            if number == few:
                before = tracemalloc.get_traced_memory()[0]
            feed(item)
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@told
def matcher_growth(module, stops: list, piece: str, count: int) -> int:
    """The bytes that a StopMatcher has kept of the same piece, again and again."""
    return growth(module.StopMatcher(stops).add, [piece] * count, count // 10)


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
            shown.append(text_of("add", stream.add(token)))
        except KeyError:
            shown.append(None)
    return {"shown": shown, "rest": [text_of("flush", stream.flush()) for _ in range(2)]}


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
        found["shown"].append(text_of("add", answer.add(token)))
        if type(answer.ids) is not list:
            raise Unusable(f"Answer.ids should be a list, not {describe(answer.ids)}")
        found["reasons"].append(answer.finish_reason)
        if answer.finish_reason is not None:
            found["after"] = attempt(lambda: answer.add(ids[0]), [])
            break
    if set(collection) != set(ends):
        raise Unusable(f"Answer made {collection} of the caller's end ids {ends}")
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


@told
def detokenizer_growth(module, word: str, count: int) -> dict:
    """A Detokenizer fed the same word (in hex), again and again: the bytes that it has kept, and
    how often it asked for the bytes of an id."""
    asked = [0]

    def token_bytes(token):
        asked[0] += 1
        return bytes.fromhex(word)  # an object of its own each time

    stream = module.Detokenizer(token_bytes)
    return {"bytes": growth(stream.add, [0] * count, count // 10), "asked": asked[0]}
