"""The two files of `python -m course batch`: requests, one JSON object a line, and results.

Both are read a line at a time. Of a request only its place, its name and a hash stay in memory, so
that a file may be longer than the memory.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO

from tqdm import tqdm

from course import place
from course.words import counted
from solutions.chat import ROLES
from solutions.config import each_once
from solutions.sampling_params import SamplingParams

SAMPLING = tuple(field.name for field in fields(SamplingParams))
FIELDS = ("id", "prompt", "messages", "priority", *SAMPLING)
SHOWN = 20  # wrong lines that are named; of more, only their number
BEGIN = b'{"id": '  # of each result
KINDS = {"id": str | int | None, "line": int, "sha256": str, "model": str}  # of its fields

Key = tuple[str, int | str]  # ("id", id) or ("line", number)


class WrongLines(ValueError):
    """Lines of the input that cannot be run: all of them, each with its number."""

    def __init__(self, name: str, problems: list[tuple[int, str]]):
        shown = [f"  line {number}: {problem}" for number, problem in problems[:SHOWN]]
        if len(problems) > SHOWN:
            shown.append(f"  and {len(problems) - SHOWN} more")
        count = counted(len(problems), "line")
        super().__init__("\n".join([f"{name}: {count} cannot be run; nothing was run.", *shown]))


@dataclass(frozen=True)
class Job:
    """One line of the input, understood.

    Attributes:
        line: its number, from 1, blank lines counted.
        id: as given, or None.
        sha256: of its content, whatever the order of its fields and the spaces between them.
        prompt: a text, or a list of messages for the chat template.
    """

    line: int
    id: int | str | None
    sha256: str
    prompt: str | list[dict[str, str]]
    params: SamplingParams
    priority: int

    @property
    def key(self) -> Key:
        """By what its result is found again."""
        return ("line", self.line) if self.id is None else ("id", self.id)


def named(key: Key) -> str:
    """A key in a message."""
    return f"{key[0]} {key[1]!r}"


def parse(line: int, text: bytes) -> Job:
    """Understand one line.

    Errors: ValueError saying what is wrong with it; the number is for the caller to add.
    """
    found = _object(text)
    if unknown := [name for name in found if name not in FIELDS]:
        raise ValueError(f"unknown field {unknown[0][:40]!r}; there are {', '.join(FIELDS)}")
    plain = json.dumps(found, sort_keys=True)
    return Job(
        line=line,
        id=_id(found.get("id")),
        sha256=hashlib.sha256(plain.encode("ascii")).hexdigest(),
        prompt=_prompt(found),
        params=SamplingParams(**{name: found.get(name) for name in SAMPLING}),
        priority=_priority(found.get("priority")),
    )


def _object(text: bytes) -> dict:
    """The JSON object in a line of UTF-8."""
    try:
        found = json.loads(text.decode("utf-8-sig"), object_pairs_hook=each_once)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"not JSON in UTF-8 ({problem})") from None
    if not isinstance(found, dict):
        raise ValueError('not a JSON object, such as {"prompt": "Hi"}')
    try:
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("it holds a lone surrogate, which is half a character") from None
    return found


def _id(value: object) -> int | str | None:
    if isinstance(value, bool) or not isinstance(value, int | str | None):
        raise ValueError(f"id must be a text or a whole number, not {str(value)[:40]}")
    return value


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | None):
        raise ValueError(f"priority must be a whole number, not {str(value)[:40]}")
    return value or 0


def _prompt(found: dict) -> str | list[dict[str, str]]:
    prompt, messages = found.get("prompt"), found.get("messages")
    if (prompt is None) == (messages is None):
        raise ValueError('give either "prompt" or "messages"')
    if messages is None:
        if not isinstance(prompt, str):
            raise ValueError('"prompt" must be a text')
        return prompt
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        raise ValueError(
            '"messages" must be a list of {"role": ..., "content": ...}, both texts, the role one '
            f"of {', '.join(ROLES)}"
        )
    return messages


def _is_message(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"role", "content"}
        and value["role"] in ROLES
        and isinstance(value["content"], str)
    )


def lines(handle: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """(number, text) of the lines that are not blank, from the beginning."""
    handle.seek(0)
    for number, text in enumerate(handle, 1):
        if text.strip(b" \t\r\n\xef\xbb\xbf"):
            yield number, text


@dataclass(frozen=True)
class Survey:
    """What is known of the input before anything is run.

    Attributes:
        todo: (number, hash) of each line that is to be run, in their order.
        total: lines that are not blank.
        longest: tokens that prompt and answer of the largest line to be run may have together.
    """

    todo: list[tuple[int, str]]
    total: int
    longest: int


def survey(
    handle: IO[bytes], name: str, done: dict[Key, str], measure: Callable[[Job], int]
) -> Survey:
    """Read the whole input once, and refuse it if a single line is wrong.

    Args:
        handle: the input.
        name: of it, for messages.
        done: hash by key of what needs no running.
        measure: the tokens of a job, prompt and answer; ValueError when it cannot be run.

    Errors: WrongLines, with all that is wrong.
    """
    seen: dict[Key, int] = {}
    todo, problems, total, longest = [], [], 0, 0
    bar = tqdm(lines(handle), "reading", unit="line", leave=False, disable=None)
    for number, text in bar:
        total += 1
        try:
            job = parse(number, text)
            _check_once(job, seen)
            if _is_new(job, done):
                longest = max(longest, measure(job))
                todo.append((number, job.sha256))
        except ValueError as problem:
            problems.append((number, str(problem)))
    if problems:
        raise WrongLines(name, problems)
    return Survey(todo, total, longest)


def _check_once(job: Job, seen: dict[Key, int]) -> None:
    """Two results could not be told apart."""
    if job.key in seen:
        raise ValueError(f"{named(job.key)} is that of line {seen[job.key]}, too")
    seen[job.key] = job.line


def _is_new(job: Job, done: dict[Key, str]) -> bool:
    """Whether it is to be run. What was answered must not have changed since."""
    before = done.get(job.key)
    if before is None:
        return True
    if before != job.sha256:
        raise ValueError(
            f"{named(job.key)} has another content than the one that was answered: take the old "
            "result out, give it another id, or name another --out"
        )
    return False


def jobs(handle: IO[bytes], name: str, todo: list[tuple[int, str]]) -> Iterator[Job]:
    """The jobs to be run, one by one.

    Errors: ValueError when a line is no longer what it was in the survey.
    """
    wanted = iter(todo)
    following = next(wanted, None)
    for number, text in lines(handle):
        if following is None:
            return
        if number == following[0]:
            job = parse(number, text)
            if job.sha256 != following[1]:
                break
            yield job
            following = next(wanted, None)
    if following is not None:
        raise ValueError(f"{name} was changed while it was read, at line {following[0]}")


def encode_result(result: dict) -> bytes:
    """A result as a line."""
    return json.dumps(result, ensure_ascii=False).encode("utf-8") + b"\n"


def read_results(path: Path, model: str) -> tuple[dict[Key, str], bool]:
    """What a file of results holds already.

    Args:
        path: need not exist.
        model: the name of the model whose results they should be.

    Returns:
        (done, whole): the hash by key of every result without an error; and whether there is
        nothing else in the file. What ended in error is to be run again, and so is the last line
        where its end is missing.

    Errors: ValueError when the file holds something else, or results of another model.
    """
    done: dict[Key, str] = {}
    whole = True
    if not path.is_file():
        return done, whole
    with path.open("rb") as handle:
        for number, text in enumerate(handle, 1):
            if not text.endswith(b"\n"):
                if not text.startswith(BEGIN[: len(text)]):
                    raise ValueError(_not_ours(path, number))
                return done, False
            result = _result(path, number, text)
            if result["model"] != model:
                raise ValueError(
                    f"{path} holds results of {result['model']}, and this is {model}: name "
                    "another --out"
                )
            if "error" in result:
                whole = False
            else:
                id = result["id"]
                key = ("line", result["line"]) if id is None else ("id", id)
                done[key] = result["sha256"]
    return done, whole


def _result(path: Path, number: int, text: bytes) -> dict:
    try:
        found = json.loads(text)
        if text.startswith(BEGIN) and all(isinstance(found[k], t) for k, t in KINDS.items()):
            return found
    except (ValueError, RecursionError, KeyError):
        pass
    raise ValueError(_not_ours(path, number))


def _not_ours(path: Path, number: int) -> str:
    return f"{path}, line {number}, is no result of this command: name another --out"


def keep_finished(path: Path) -> None:
    """Drop a half-written last line and all errors from a file of results: they are run again.

    Errors: ValueError when the file cannot be written.
    """
    with place.written(path) as partial:
        with path.open("rb") as old, partial.open("wb") as new:
            for text in old:
                if text.endswith(b"\n") and "error" not in json.loads(text):
                    new.write(text)
        partial.replace(path)
