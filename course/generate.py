"""`python -m course generate "Once upon a time"`: text from the real model, with its speed."""

import argparse
import re
import sys
import time
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch

from course.arguments import add_model, at_least_one, model_folder
from course.assemble import Engine, assemble
from course.model import ModelError, ensure_model
from solutions.generate import Completion
from solutions.sampling_params import SamplingParams


@dataclass
class Clock:
    """When each token came. Seconds of a monotonic clock."""

    began: float = 0.0
    marks: list[float] = field(default_factory=list)

    def start(self) -> None:
        """The first forward begins now."""
        self.began = time.perf_counter()

    def tick(self) -> None:
        """A token has come."""
        self.marks.append(time.perf_counter())

    @property
    def prefill_seconds(self) -> float:
        """From the start to the first token."""
        return self.marks[0] - self.began

    @property
    def decode_seconds(self) -> float:
        """From the first token to the last."""
        return self.marks[-1] - self.marks[0]


def main(argv: list[str]) -> int:
    """The verb `generate`; the exit code."""
    args = parse(argv)
    try:
        engine = load_engine(model_folder(args))
        prompt = encode(engine, args.prompt, args.chat)
        run(engine, prompt, args.params, args.raw_ids, args.chat)
    except (ModelError, ValueError, FileNotFoundError) as problem:
        print(f"generate: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ngenerate: stopped", file=sys.stderr)
        return 130
    return 0


def load_engine(folder: Path | None) -> Engine:
    """The engine on a checkpoint folder, or on the bundled model; says how long loading took."""
    folder = folder or ensure_model()
    began = time.perf_counter()
    engine = assemble(folder)
    token = torch.zeros((1, 1), dtype=torch.long, device=engine.model.device)
    engine.model.forward(token, token)  # reads every weight once: from here on they are in memory
    seconds = time.perf_counter() - began
    print(f"{folder.name}, {_bits(engine)}, loaded in {seconds:.1f} s", file=sys.stderr)
    return engine


def _bits(engine: Engine) -> str:
    """What the weights are stored in."""
    kinds = engine.layers["quantized"]
    for weight in engine.model.weights.values():
        if isinstance(weight, kinds.QuantizedTensor):
            return f"{kinds.Format(weight.bits, weight.group_size)}, computing in float32"
    return "float32"


def encode(engine: Engine, prompt: str, chat: bool) -> list[int]:
    """Ids of a prompt: as plain text, or as the question of a conversation."""
    if not chat:
        return engine.text.encode(prompt)
    return engine.chat_ids([{"role": "user", "content": prompt}])


def run(
    engine: Engine,
    prompt: list[int],
    params: SamplingParams,
    raw_ids: bool = False,
    chat: bool = False,
) -> Completion:
    """Generate, printing each piece as it comes, then log-probabilities and speed on stderr.

    chat: whether it answers a conversation; else it goes on with the prompt's text.
    """
    context = engine.config.max_position_embeddings
    length = min(len(prompt) + params.max_tokens, context)
    cache = engine.new_cache(1, max(length, 1))
    clock = Clock()

    def on_token(token: int) -> None:
        clock.tick()
        if raw_ids:
            print(token, end=" ", flush=True)

    def on_text(text: str) -> None:
        if not raw_ids:
            print(text, end="", flush=True)

    clock.start()
    stream = engine.stream(continues=not chat)
    made = engine.layers["generate"].generate(
        engine.model, prompt, params, stream, engine.config.eos_token_ids, cache, on_token, on_text
    )
    print()
    _report_tokens(engine, made)
    _report(engine, len(prompt), len(made.ids), made.finish_reason, clock)
    return made


def _report_tokens(engine: Engine, made: Completion) -> None:
    """A line for each token whose log-probability was asked for."""
    for told in made.logprobs:
        top = (f"{_shown(engine, token)} {value:.2f}" for token, value in told.top.items())
        line = f"{_shown(engine, told.token):20} {told.value:7.2f}   {'  '.join(top)}"
        print(line.rstrip(), file=sys.stderr)


def _shown(engine: Engine, token: int) -> str:
    """A token's text so that white space and broken characters can be seen."""
    data = engine.text.token_bytes(token, special=True)
    return repr(data.decode("utf-8", "backslashreplace"))


def bytes_per_token(engine: Engine) -> int:
    """Bytes of weights that one decode step reads: every matrix once, the tied head included."""
    embedding = engine.model.embedding.nbytes  # looked up by row, not read, unless it is the head
    total = sum(weight.nbytes for weight in engine.model.weights.values())
    return total if engine.config.tie_word_embeddings else total - embedding


def _report(engine: Engine, prompt: int, new: int, reason: str, clock: Clock) -> None:
    print(f"[{prompt} prompt tokens, {new} new, finish reason {reason}]", file=sys.stderr)
    if new:
        print(f"prefill {prompt / clock.prefill_seconds:8.1f} tokens/s", file=sys.stderr)
    if new > 1:
        speed = (new - 1) / clock.decode_seconds
        reached = speed * bytes_per_token(engine) / 1e9
        print(
            f"decode  {speed:8.1f} tokens/s, reading weights at {reached:.1f} GB/s",
            file=sys.stderr,
        )


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments, with the sampling parameters as `params`."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        args.params = sampling_params(args)
    except ValueError as problem:
        parser.error(str(problem))
    return args


def add_sampling(parser: argparse.ArgumentParser, max_tokens: int, temperature: float) -> None:
    """The options of SamplingParams, as they are in its docstring."""
    add = parser.add_argument_group("sampling").add_argument
    add("--max-tokens", type=at_least_one, default=max_tokens, metavar="N")
    add("--temperature", type=_number, default=temperature, metavar="T",
        help=f"0: always the most probable token; default {temperature}")  # fmt: skip
    add("--top-k", type=_whole, metavar="K", help="only the K most probable tokens")
    add("--top-p", type=_number, metavar="P", help="only the fewest that hold P together")
    add("--min-p", type=_number, metavar="P", help="only those with P times the largest")
    add("--repetition-penalty", type=_number, metavar="R", help="for prompt and answer; 1 is off")
    add("--presence-penalty", type=_number, metavar="X", help="once for each token of the answer")
    add("--frequency-penalty", type=_number, metavar="X", help="each time it was written")
    add("--seed", type=_whole, metavar="N", help="the same seed, the same draws")
    add("--stop", action="append", metavar="TEXT", help="ends the answer; up to four times")


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """The parameters that add_sampling has read. Errors: ValueError naming one."""
    return SamplingParams(**{f.name: getattr(args, f.name, None) for f in fields(SamplingParams)})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course generate", description="Let the model continue a text."
    )
    parser.add_argument("prompt", help="the text to continue, or the question with --chat")
    add_sampling(parser, max_tokens=64, temperature=0.0)
    parser.add_argument(
        "--logprobs",
        type=_whole,
        nargs="?",
        const=0,
        metavar="N",
        help="print each token's log-probability, and the N most probable there",
    )
    parser.add_argument("--chat", action="store_true", help="put the prompt in the chat template")
    parser.add_argument("--raw-ids", action="store_true", help="print token ids instead of text")
    add_model(parser)
    return parser


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text[:20]!r}") from None


def _whole(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,20}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text[:20]!r}")
    return int(text)
