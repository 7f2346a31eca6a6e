"""Arguments that several verbs have: which model to run, and numbers from 1."""

import argparse
import re
from pathlib import Path

from course.assemble import QUANTIZED
from course.model import ensure_model, take_in
from course.paths import folder_argument


def add_model(parser: argparse.ArgumentParser) -> None:
    """--model and --quantized."""
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


def model_folder(args: argparse.Namespace) -> Path:
    """The folder that --model and --quantized ask for, made first if it is not there.

    A GGUF file is converted once; --quantized alone is the model in 4 bits; neither is the bundled
    model.

    Errors: ModelError; ValueError when the two name two models.
    """
    model = args.model
    if model and model.suffix.lower() == ".gguf":
        model = take_in(model)
    if args.quantized is None:
        return model or ensure_model()
    if args.quantized is True:
        from course.quantize import ensure_quantized

        return ensure_quantized(model)
    if model is not None:
        raise ValueError("--model and a folder behind --quantized are two models: leave one out")
    return args.quantized


def _quantized_folder(text: str) -> Path:
    """A folder with quantized weights. What follows --quantized may as well be another argument."""
    folder = folder_argument(text)
    if not (folder / QUANTIZED).is_file():
        raise argparse.ArgumentTypeError(
            f"{text[:60]!r} holds no {QUANTIZED}: name a folder made by "
            "`python -m course quantize`, or write --quantized at the end"
        )
    return folder


def at_least_one(text: str) -> int:
    """A whole number from 1, of at most nine digits."""
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 1 to {10**9 - 1}, in digits, not {text[:20]!r}"
        )
    return int(text)
