"""Where things are. Two environment variables move what is large or personal."""

import argparse
import os
from pathlib import Path


def _folder(variable: str, default: Path) -> Path:
    """The folder an environment variable names, or the default when it is unset or empty."""
    value = os.environ.get(variable)
    try:
        return Path(value).expanduser().resolve() if value else default
    except (OSError, RuntimeError) as problem:
        raise SystemExit(
            f"{variable} is {value!r}, which names no folder ({problem}): "
            "set it to one of your own, or unset it"
        ) from None


ROOT = Path(__file__).resolve().parent.parent
WORK = _folder("COURSE_WORK", ROOT / "work")
MODELS = _folder("COURSE_MODELS", ROOT / "models")
MODEL = MODELS / "smollm2-135m-instruct"
GGUF = MODELS / "gguf" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def folder_argument(text: str) -> Path:
    """The type of an argument that names a folder. Nothing must not mean the current one."""
    try:
        if text.strip():
            return Path(text).expanduser()
    except RuntimeError as problem:
        raise argparse.ArgumentTypeError(f"{text!r} names no folder: {problem}") from None
    raise argparse.ArgumentTypeError("the folder is empty: write its path, or . for this one")


def in_words(problem: OSError) -> str:
    """What the operating system refused, as one sentence with what to do."""
    place, reason = problem.filename, problem.strerror or str(problem) or type(problem).__name__
    if not isinstance(place, str | Path):
        return f"the system refused to read or write ({reason}): mend that, then try again"
    fix = "see what is there, and whether you may write there"
    for variable, folder in (("COURSE_WORK", WORK), ("COURSE_MODELS", MODELS)):
        if Path(place).is_relative_to(folder):
            fix += f", or set {variable} to another folder of your own"
    return f"{place} cannot be read or written ({reason}): {fix}"
