"""`python -m course compare`: the same questions at several settings, measured and to be judged.

Prints diversity, repetition and length of each setting, and writes two files: a table of the
answers in which nobody can see which setting made which, and its key. Rate first, then look.
"""

import argparse
import csv
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from tqdm import tqdm

from course.arguments import add_model, at_least_one, model_folder
from course.assemble import Engine
from course.generate import load_engine
from course.model import ModelError
from course.paths import WORK, folder_argument, in_words
from solutions.comparing import Score, Trial, blind_table, compare, scores
from solutions.sampling_params import RANGES, SamplingParams

QUESTIONS = (
    "Where is my order?",
    "Can I return shoes that I have worn?",
    "My parcel arrived damaged. What now?",
    "Do you ship to Norway?",
)
SYSTEM = "You answer the customers of a shoe shop."
SETTINGS = (  # the claim: 0.1 is rigid, 0.5 with top-p 0.85 suits support chat
    ["0.1", "temperature=0.1"],
    ["0.5, top-p 0.85", "temperature=0.5", "top_p=0.85"],
    ["1", "temperature=1"],
)
TABLE, KEY = "compare.md", "compare-key.csv"


def main(argv: list[str]) -> int:
    """The verb; the exit code."""
    args = _parser().parse_args(argv)
    try:
        settings = _settings(args.setting or SETTINGS, args.max_tokens)
        questions = _questions(args.questions)
        _make_room(args.out)
        engine = load_engine(model_folder(args))
        trials = run(engine, questions, settings, range(1, args.seeds + 1), args.system)
        _write(args.out, trials, args.shuffle)
        print(score_table(scores(trials)))
        print(f"Rate the answers in {args.out / TABLE}, then look into {args.out / KEY}.")
    except (ModelError, ValueError, FileNotFoundError) as problem:
        by_system = isinstance(problem, OSError) and problem.filename is not None
        print(f"compare: {in_words(problem) if by_system else problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncompare: stopped, nothing was written", file=sys.stderr)
        return 130
    return 0


def run(
    engine: Engine, questions: list[str], settings: dict, seeds: range, system: str
) -> list[Trial]:
    """Every question at every setting with every seed; a progress bar on a terminal."""
    total = len(questions) * len(settings) * len(seeds)
    with tqdm(total=total, unit="answer", disable=None) as bar:

        def generate(question: str, params: SamplingParams) -> str:
            text = answer(engine, question, params, system)
            bar.update()
            return text

        return compare(generate, questions, settings, seeds)


def answer(engine: Engine, question: str, params: SamplingParams, system: str) -> str:
    """The model's answer to one question, as text."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    ids = engine.chat_ids(messages)
    length = min(len(ids) + params.max_tokens, engine.config.max_position_embeddings)
    cache = engine.new_cache(1, length)
    stream = engine.stream()
    ends = engine.config.eos_token_ids
    return engine.layers["generate"].generate(engine.model, ids, params, stream, ends, cache).text


def score_table(found: dict[str, Score]) -> str:
    """A line a setting."""
    width = max(len("setting"), *map(len, found))
    lines = [f"{'setting':{width}}  distinct-1  distinct-2  repeated  words"]
    for name, score in found.items():
        lines.append(
            f"{name:{width}}  {score.distinct_1:10.2f}  {score.distinct_2:10.2f}"
            f"  {score.repeated:8.2f}  {score.words:5.1f}"
        )
    return "\n".join(lines)


def _write(folder: Path, trials: list[Trial], shuffle: int) -> None:
    """The table and its key, both whole or none: one is worth nothing without the other."""
    table, key = blind_table(trials, shuffle)
    rows = io.StringIO()
    writer = csv.writer(rows, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["#", "setting", "seed"])
    writer.writerows([number, trial.setting, trial.seed] for number, trial in enumerate(key, 1))
    texts = {KEY: rows.getvalue(), TABLE: table}
    try:
        for name, text in texts.items():
            _partial(folder, name).write_text(text, encoding="utf-8", newline="\n")
        for name in texts:
            os.replace(_partial(folder, name), folder / name)
    finally:
        for name in texts:
            _partial(folder, name).unlink(missing_ok=True)


def _partial(folder: Path, name: str) -> Path:
    return folder / f"{name}.partial"


def _make_room(folder: Path) -> None:
    """A folder that can be written to and holds no result: found out before the model works."""
    for name in (TABLE, KEY):
        if (folder / name).exists():
            raise ValueError(f"{folder / name} is there already: move it, or name another --out")
    folder.mkdir(parents=True, exist_ok=True)
    _partial(folder, TABLE).touch()
    _partial(folder, TABLE).unlink()


def _questions(path: Path | None) -> list[str]:
    """The questions in a file, one a line; blank lines are left out."""
    if path is None:
        return list(QUESTIONS)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise ValueError(
            f"{path} is not UTF-8 (byte {problem.start}): save it as UTF-8 text"
        ) from None
    found = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    if not found:
        raise ValueError(f"{path} holds no question: write one a line")
    return found


def _settings(given: Sequence[list[str]], max_tokens: int) -> dict[str, SamplingParams]:
    """The params of each setting by its name."""
    found = {}
    for words in given:
        name, params = _setting(words, max_tokens)
        if name in found:
            raise ValueError(f"two settings are called {name!r}: give each a name of its own")
        found[name] = params
    return found


def _setting(words: list[str], max_tokens: int) -> tuple[str, SamplingParams]:
    """NAME field=value ... as a name and params."""
    name, *pairs = words
    values = {"max_tokens": max_tokens}
    known = {f.name for f in fields(SamplingParams)} & set(RANGES) - {"seed", "logprobs"}
    for pair in pairs:
        field, equals, value = pair.partition("=")
        if not equals or field not in known:
            raise ValueError(
                f"setting {name!r}: {pair!r} is not FIELD=VALUE with FIELD one of "
                f"{', '.join(sorted(known))}"
            )
        values[field] = _value(name, field, value)
    return name, SamplingParams(**values)


def _value(name: str, field: str, text: str) -> int | float:
    try:
        return RANGES[field][0](text)
    except ValueError:
        raise ValueError(f"setting {name!r}: {field} must be a number, not {text!r}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course compare", description="Compare sampling settings on questions."
    )
    parser.add_argument("--questions", type=folder_argument, metavar="FILE", help="one a line")
    parser.add_argument(
        "--setting",
        action="append",
        nargs="+",
        metavar="NAME FIELD=VALUE",
        help="a setting to try, such as --setting calm temperature=0.5 top_p=0.85",
    )
    parser.add_argument("--seeds", type=at_least_one, default=3, metavar="N", help="answers each")
    parser.add_argument("--max-tokens", type=at_least_one, default=32, metavar="N")
    parser.add_argument("--system", default=SYSTEM, metavar="TEXT", help="the system message")
    parser.add_argument("--shuffle", type=int, default=0, metavar="N", help="seed of the order")
    parser.add_argument("--out", type=folder_argument, default=WORK / "compare", metavar="DIR")
    add_model(parser)
    return parser
