"""`python -m course batch FILE.jsonl`: many prompts through the batcher, results as they finish.

Each line of FILE is a JSON object: "prompt" (a text to continue) or "messages" (a conversation);
and, if wanted, "id", "priority" (the lower goes first, among those that wait) and the fields of
SamplingParams. A result is a line of OUT: "id", "line", "text", "finish_reason", "prompt_tokens",
"completion_tokens", "logprobs" where asked for, "error" where there was one, "model", and "sha256"
of the request. Results stand in the order in which they finished.

Typed again it goes on: what OUT holds is not run again, except what ended in error. A result
belongs to the request of the same id, or of the same line where that has none; a request that was
changed since then is refused. All of FILE is read before anything is run, and all of its wrong
lines are named. Ctrl-C leaves whole lines.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil
from tqdm import tqdm

from course.arguments import add_model, at_least_one, model_folder
from course.assemble import Engine
from course.batch_files import (
    alone,
    check_output,
    file_argument,
    how_to_go_on,
    input_argument,
    open_input,
    open_output,
    output_path,
)
from course.batch_lines import Job, encode_result, jobs, keep_finished, read_results, survey
from course.generate import load_engine
from course.model import ModelError
from course.words import counted

RUNNING = 16  # requests at once, unless --max-running says otherwise
WAITING = 256  # that are tokenized and wait; the rest of the file stays on disk
STEP_TOKENS = 512
MEMORY_SHARE = 0.8  # of the memory that is available, for the KV cache
LEAST = -9999.0  # in the place of -infinity, which JSON does not have


@dataclass
class Tally:
    """What was done, for the line at the end. Tokens, and seconds of a monotonic clock."""

    finished: int = 0
    errors: int = 0
    prompt: int = 0
    answer: int = 0
    began: float = field(default_factory=time.perf_counter)

    def add(self, result: dict) -> None:
        """One more result."""
        self.finished += 1
        self.errors += "error" in result
        self.prompt += result["prompt_tokens"]
        self.answer += result["completion_tokens"]

    def __str__(self) -> str:
        seconds = time.perf_counter() - self.began
        return (
            f"[{counted(self.finished, 'request')}, {counted(self.prompt, 'prompt token')}, "
            f"{self.answer} new, {seconds:.1f} s: {self.answer / seconds:.1f} new tokens/s]"
        )


def main(argv: list[str]) -> int:
    """The verb; the exit code, which is 1 also when a request ended in error."""
    args = _parser().parse_args(argv)
    out = output_path(args.file, args.out)
    try:
        check_output(out)
        with open_input(args.file, out) as source, alone(out):
            folder = model_folder(args)
            engine = load_engine(folder)
            tally = run(engine, folder.resolve().name, source, args.file, out, args.max_running)
    except (ModelError, ValueError, FileNotFoundError) as problem:
        print(f"batch: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nbatch: stopped. {how_to_go_on(args.file, out)}", file=sys.stderr)
        return 130
    if tally.errors:
        said = f"batch: {tally.errors} of {counted(tally.finished, 'request')} ended in error."
        print(said, how_to_go_on(args.file, out), file=sys.stderr)
    return 1 if tally.errors else 0


def run(
    engine: Engine, model: str, source: IO[bytes], name: str, out: Path | None, max_running: int
) -> Tally:
    """Run what is to be run of a file of requests.

    Args:
        model: its name, which results carry.
        source: the requests; it can be read again from its beginning.
        name: of the source, for messages.
        out: the file of results; None for standard output.
        max_running: requests at once; fewer where the memory is short.

    Errors: ValueError for requests, or a file of results, that are not what they should be.
    """
    done, whole = ({}, True) if out is None else read_results(out, model)
    found = survey(source, name, done, lambda job: _request(engine, job).size)
    if not whole:
        keep_finished(out)
    todo, tally = len(found.todo), Tally()
    if found.total > todo:
        done = found.total - todo
        have = "has its" if done == 1 else "have their"
        print(f"{done} of {found.total} {have} result", file=sys.stderr)
    if todo:
        batcher = _batcher(engine, found.longest, max_running)
        results = serve(engine, batcher, jobs(source, name, found.todo))
        bar = tqdm(
            results, "batch", found.total, unit="request", initial=found.total - todo, disable=None
        )
        with open_output(out) as write:
            for result in bar:
                write(encode_result(result | {"model": model}))
                tally.add(result)
    print(tally, file=sys.stderr)
    return tally


def serve(engine: Engine, batcher, work: Iterable[Job]) -> Iterator[dict]:
    """Results as they finish. A job is only taken, and tokenized, when there is room to wait.

    Results are given out between two steps, not in a listener: a fault in writing one is no fault
    of a request.
    """
    finished: list[dict] = []
    for job in work:
        while len(batcher.waiting) >= batcher.waiting.bound:
            batcher.step()
            yield from _taken(finished)
        batcher.submit(_request(engine, job, finished.append))
    while not batcher.idle:
        batcher.step()
        yield from _taken(finished)


def _taken(finished: list[dict]) -> list[dict]:
    """All in the list, which is empty then."""
    taken = finished.copy()
    finished.clear()
    return taken


def _request(engine: Engine, job: Job, on_result: Callable[[dict], None] | None = None):
    """The request of a job; its listeners make text of the tokens, and a result at the end.

    Errors: ValueError when it can never be run.
    """
    ids = _encode(engine, job.prompt)
    made = engine.layers["request"].Request(ids, job.params, job.priority, id=job.key[1])
    if on_result is None:
        made.fit(engine.config.max_position_embeddings, engine.config.vocab_size)
        return made
    stream = engine.stream(continues=isinstance(job.prompt, str))
    matcher = engine.layers["stopping"].StopMatcher(job.params.stop)
    pieces: list[str] = []

    def hear(token: int) -> bool:
        pieces.append(matcher.add(stream.add(token)))
        return matcher.found is not None

    def over(request) -> None:
        pieces.append(matcher.add(stream.flush()))
        pieces.append(matcher.flush())
        on_result(_result(job, request, "".join(pieces), matcher.found is not None))

    made.on_token, made.on_finish = hear, over
    return made


def _encode(engine: Engine, prompt: str | list[dict[str, str]]) -> list[int]:
    """Ids of a text, or of a conversation."""
    if isinstance(prompt, str):
        return engine.text.encode(prompt)
    return engine.chat_ids(prompt)


def _result(job: Job, request, text: str, stopped: bool) -> dict:
    """A line of OUT, but for the model. A stop string may be found at the very end."""
    reason = request.finish_reason
    result = {
        "id": job.id,
        "line": job.line,
        "text": text,
        "finish_reason": "stop" if stopped and reason == "length" else reason,
        "prompt_tokens": len(request.prompt),
        "completion_tokens": len(request.output),
    }
    if job.params.logprobs is not None:
        result["logprobs"] = [_logprob(told) for told in request.logprobs]
    if request.error is not None:
        result["error"] = f"{type(request.error).__name__}: {request.error}"
    return result | {"sha256": job.sha256}


def _logprob(told) -> dict:
    """A token id, its log-probability, and those of the most probable ids."""
    top = {str(token): max(value, LEAST) for token, value in told.top.items()}
    return {"token": told.token, "logprob": max(told.value, LEAST), "top": top}


def _batcher(engine: Engine, longest: int, max_running: int):
    """A batcher whose rows hold the longest request, as many as asked for or as memory allows.

    Nobody is promoted: all came at the same time, and a file has an end.
    """
    row = engine.new_cache(1, 1).nbytes * longest
    rows = min(max_running, max(1, int(MEMORY_SHARE * psutil.virtual_memory().available / row)))
    if rows < max_running:
        said = f"{counted(rows, 'request')} at once: the memory has no room for more of "
        print(said + counted(longest, "token"), file=sys.stderr)
    layer = engine.layers["batcher"]
    limits = layer.Limits(
        max_waiting=WAITING, step_tokens=max(STEP_TOKENS, rows), patience=math.inf
    )
    cache = engine.new_cache(rows, longest)
    ends = engine.config.eos_token_ids
    return layer.Batcher(engine.model, cache, ends, limits, sampler=engine.layers["sampler"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course batch",
        description="Run a file of prompts through the batcher; typed again, it goes on.",
    )
    parser.add_argument(
        "file",
        type=input_argument,
        metavar="FILE.jsonl",
        help='lines like {"id": "a", "prompt": "Hi", "max_tokens": 20}; - for standard input',
    )
    parser.add_argument(
        "--out",
        type=file_argument,
        metavar="OUT.jsonl",
        help="results, as they finish; default: FILE.results.jsonl; - for standard output",
    )
    parser.add_argument(
        "--max-running",
        type=at_least_one,
        default=RUNNING,
        metavar="N",
        help=f"requests at once (default: {RUNNING})",
    )
    add_model(parser)
    return parser
