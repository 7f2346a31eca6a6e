"""`python -m course generate "Once upon a time"`: text from the real model, with its speed."""

import argparse
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from course.assemble import QUANTIZED, Engine, assemble
from course.model import ModelError, ensure_model, take_in
from course.paths import folder_argument


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
    args = _parser().parse_args(argv)
    try:
        args.model = _opened(args.model)
        engine = load_engine(_folder(args))
        prompt = encode(engine, args.prompt, args.chat)
        run(engine, prompt, args.max_tokens, args.raw_ids)
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


def _opened(model: Path | None) -> Path | None:
    """A GGUF file is converted first, once; a folder is used as it is."""
    return take_in(model) if model and model.suffix.lower() == ".gguf" else model


def _folder(args: argparse.Namespace) -> Path | None:
    """The folder that the arguments name; --quantized alone is the bundled model in 4 bits."""
    if args.quantized is None:
        return args.model
    if args.quantized is True:
        from course.quantize import ensure_quantized

        return ensure_quantized(args.model)
    if args.model is not None:
        raise ValueError("--model and a folder behind --quantized are two models: leave one out")
    return args.quantized


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
    messages = [{"role": "user", "content": prompt}]
    return engine.layers["chat"].chat_ids(messages, engine.text.encode, engine.text.special)


def run(engine: Engine, prompt: list[int], max_tokens: int, raw_ids: bool = False) -> None:
    """Generate, printing each piece as it comes, then the speed on stderr."""
    limit = min(max_tokens, engine.config.max_position_embeddings)
    length = min(len(prompt) + max(limit, 1), engine.config.max_position_embeddings)
    cache = engine.new_cache(1, max(length, 1))
    clock, stream = Clock(), engine.text.stream()

    def on_token(token: int) -> None:
        clock.tick()
        print(f"{token} " if raw_ids else stream.add(token), end="", flush=True)

    clock.start()
    made = engine.layers["greedy"].generate_greedy(
        engine.model, prompt, max_tokens, engine.config.eos_token_ids, cache, on_token
    )
    print("" if raw_ids else stream.flush())
    _report(engine, len(prompt), len(made.ids), made.finish_reason, clock)


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course generate", description="Let the model continue a text."
    )
    parser.add_argument("prompt", help="the text to continue, or the question with --chat")
    parser.add_argument("--max-tokens", type=_at_least_one, default=64, metavar="N")
    parser.add_argument(
        "--temperature", type=_greedy_only, default=0.0, help="0: always the most probable token"
    )
    parser.add_argument("--chat", action="store_true", help="put the prompt in the chat template")
    parser.add_argument("--raw-ids", action="store_true", help="print token ids instead of text")
    parser.add_argument(
        "--model",
        type=folder_argument,
        metavar="DIR",
        help="another checkpoint folder, or a file.gguf",
    )
    parser.add_argument(
        "--quantized",
        nargs="?",
        const=True,  # not a str, which argparse would take for a folder
        type=_quantized_folder,
        metavar="DIR",
        help="a folder made by `quantize`; without one, the model in 4 bits, groups of 32",
    )
    return parser


def _quantized_folder(text: str) -> Path:
    """A folder with quantized weights. What follows --quantized may as well be the prompt."""
    folder = folder_argument(text)
    if not (folder / QUANTIZED).is_file():
        raise argparse.ArgumentTypeError(
            f"{text[:60]!r} holds no {QUANTIZED}: name a folder made by "
            "`python -m course quantize`, or write --quantized behind the prompt"
        )
    return folder


def _at_least_one(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, not {text[:20]!r}")
    return int(text)


def _greedy_only(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if value != 0:
        raise argparse.ArgumentTypeError("only 0 (greedy) so far: sampling is built in chapter 05")
    return value
