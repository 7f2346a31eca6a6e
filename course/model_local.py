"""A checkpoint that is already on this disk, checked and taken into models/ by links."""

import hashlib
import os
from pathlib import Path

from tqdm import tqdm

from course.model_files import CHUNK, ModelError, write_manifest
from course.text import Text
from solutions.config import json_file
from solutions.loader import INDEX, read_config, stored_tensors, weight_files

OPTIONAL = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json", INDEX)
TEMPLATE = "chat_template.jinja"


def check_checkpoint(folder: Path) -> None:
    """ModelError unless config, every tensor and the tokenizer are there and fit each other."""
    try:
        config = read_config(folder)
        stored_tensors(folder, config)
        ids = Text(folder).size
    except (FileNotFoundError, ValueError) as problem:
        raise ModelError(str(problem)) from None
    if ids > config.vocab_size:
        raise ModelError(
            f"{folder}: tokenizer.json has {ids} tokens, config.json only {config.vocab_size}; "
            "they belong to different models."
        )


def take_checkpoint(source: Path, partial: Path) -> None:
    """Fill `partial` from `source`, which is only read: weights are linked, the rest is copied."""
    hashes = copy_texts(source, partial)
    for path in weight_files(source):
        hashes[path.name] = _link(path, partial / path.name)
    about = {"source": origin(source), "licence": "not checked: a local copy"}
    write_manifest(partial, about, hashes)


def copy_texts(source: Path, partial: Path) -> dict[str, str]:
    """Everything but the weights, into `partial`; each file's name and SHA-256."""
    hashes = {path.name: copy(path, partial / path.name) for path in _small_files(source)}
    return hashes | write_template(partial)


def origin(source: Path) -> str:
    """How a manifest names the checkpoint that a folder was taken from."""
    return f"local checkpoint {source}"


def gguf_origin(source: Path) -> str:
    """How a manifest names the GGUF file that a folder was converted from."""
    return f"GGUF file {source}, dequantized to float32"


def _small_files(source: Path) -> list[Path]:
    """Everything but the weights that the engine, the tokenizer or transformers may read."""
    names = ["config.json", "tokenizer.json", TEMPLATE, *OPTIONAL]
    return [source / name for name in names if (source / name).is_file()]


def _link(source: Path, target: Path) -> str:
    """A symbolic link where the system allows one, else a copy; returns the SHA-256."""
    try:
        os.symlink(source.resolve(), target)
    except OSError:  # Windows asks for a right that most users lack
        return copy(source, target)
    return copy(source, None)


def copy(source: Path, target: Path | None) -> str:
    """Copy a file and return its SHA-256, reading it once. Without a target, only hash it."""
    digest = hashlib.sha256()
    size = source.stat().st_size
    bar = tqdm(total=size, desc=source.name, unit="B", unit_scale=True, leave=False, disable=None)
    with bar, source.open("rb") as read, open(target or os.devnull, "wb") as write:
        while chunk := read.read(CHUNK):
            digest.update(chunk)
            write.write(chunk)
            bar.update(len(chunk))
    return digest.hexdigest()


def write_template(folder: Path) -> dict[str, str]:
    """Give the chat template its own file where tokenizer_config.json still holds it.

    Returns the new file's name and SHA-256, or nothing if there was nothing to do.
    """
    path, config = folder / TEMPLATE, folder / "tokenizer_config.json"
    if path.is_file() or not config.is_file():
        return {}
    try:
        template = _template(json_file(config))
    except ValueError as problem:
        raise ModelError(f"{problem}; mend it, then run it again.") from None
    if not template:
        return {}
    data = template.encode("utf-8")
    path.write_bytes(data)
    return {TEMPLATE: hashlib.sha256(data).hexdigest()}


def _template(config: dict) -> str:
    """The template in a tokenizer_config.json; empty when there is none."""
    template = config.get("chat_template")
    if isinstance(template, list):  # several, each with a name
        named = [e for e in template if isinstance(e, dict) and e.get("name") == "default"]
        template = named[0].get("template") if named else None
    if not isinstance(template, str | None):
        raise ValueError(f"chat_template in tokenizer_config.json is not text: {template!r:.40}")
    return template or ""
