"""Read the stored expected values."""

import json
from functools import cache

from safetensors.torch import load_file
from torch import Tensor

from tests.reference.record import FOLDER


@cache
def read_json(name: str) -> dict:
    """A JSON file of tests/reference."""
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


@cache
def tiny(name: str) -> dict[str, Tensor]:
    """The arrays of one tiny model, "tied" or "untied"."""
    arrays = load_file(FOLDER / "forward_pass.safetensors")
    prefix = f"{name}."
    return {n.removeprefix(prefix): t for n, t in arrays.items() if n.startswith(prefix)}


def tiny_config(name: str) -> dict:
    """Its sizes, under the names of the engine's Config."""
    return read_json("forward_pass.json")["configs"][name]


@cache
def tiny_weights(name: str) -> dict[str, Tensor]:
    """Its weights in float32, by their Hugging Face names."""
    prefix = "weights."
    found = {n: t for n, t in tiny(name).items() if n.startswith(prefix)}
    return {n.removeprefix(prefix): t.float() for n, t in found.items()}
