"""config.json of a checkpoint: the sizes of the model, checked before anything relies on them."""

import codecs
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_LAYERS = 10_000  # each layer has nine tensors to look for; no model comes near
MAX_COUNT = 2**31 - 1  # what other engines store sizes in
ARCHITECTURE = "LlamaForCausalLM"
# Variants of the architecture that this engine does not compute, and the value that means "off".
PLAIN = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "rope_interleaved": False,
    "quantization_config": None,
    "sliding_window": None,
}


@dataclass(frozen=True)
class Config:
    """The sizes of a Llama model, under Hugging Face's own names."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int  # tokens
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]


def read_config(folder: str | Path) -> Config:
    """Read config.json, and the end tokens of generation_config.json when it names any.

    A wrong size found here is one sentence; found later it is a puzzle about shapes.
    Raises FileNotFoundError or ValueError, naming the file, the field and what is accepted.
    """
    path = Path(folder) / "config.json"
    raw = json_file(path)
    try:
        _check_architecture(raw)
        return Config(**_sizes(raw), **_settings(raw), eos_token_ids=_end_tokens(path.parent, raw))
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


def json_file(path: Path) -> dict[str, Any]:
    """The JSON object in a file that has to be there."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; is {path.parent} a checkpoint folder?")
    return json_object(path.read_bytes().removeprefix(codecs.BOM_UTF8), path)  # Notepad's


def json_object(text: bytes, where: object) -> dict[str, Any]:
    """JSON bytes to a dict; bottomless nesting and endless numbers are refused as well."""
    try:
        value = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{where} is not valid JSON: {problem}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{where} must hold a JSON object, not a {type(value).__name__}")
    return value


def _check_architecture(raw: dict[str, Any]) -> None:
    """Refuse by name whatever would load and then compute something else."""
    names = raw.get("architectures") or [raw.get("model_type")]
    if names not in ([ARCHITECTURE], ["llama"]):
        raise ValueError(f"architecture {names} is not supported; this engine runs {ARCHITECTURE}")
    for key, plain in PLAIN.items():
        if raw.get(key) not in (plain, None):
            raise ValueError(f"{key} = {raw[key]!r} is not supported; it must be {plain!r}")


def _sizes(raw: dict[str, Any]) -> dict[str, int]:
    """The fields that count something, checked against each other."""
    names = ["vocab_size", "hidden_size", "intermediate_size", "num_attention_heads"]
    sizes = {name: _count(raw, name) for name in names}
    sizes["num_hidden_layers"] = _count(raw, "num_hidden_layers", most=MAX_LAYERS)
    heads, hidden = sizes["num_attention_heads"], sizes["hidden_size"]
    sizes["max_position_embeddings"] = _count(raw, "max_position_embeddings", 2048)
    sizes["num_key_value_heads"] = _count(raw, "num_key_value_heads", heads)
    sizes["head_dim"] = _count(raw, "head_dim", hidden // heads)
    if raw.get("head_dim") is None and hidden % heads:
        raise ValueError(f"hidden_size {hidden} does not divide into {heads} attention heads")
    if heads % sizes["num_key_value_heads"]:
        shared = sizes["num_key_value_heads"]
        raise ValueError(f"{heads} attention heads cannot share {shared} key/value heads evenly")
    if sizes["head_dim"] % 2:
        raise ValueError(f"head_dim {sizes['head_dim']} is odd; RoPE rotates pairs")
    return sizes


def _count(
    raw: dict[str, Any], name: str, default: int | None = None, most: int = MAX_COUNT
) -> int:
    """A positive integer field; `default` stands in when it is absent or null."""
    value = default if raw.get(name) is None else raw[name]
    if not is_int(value) or value < 1:
        raise ValueError(f"{name} must be a positive integer, not {value!r:.40}")
    if value > most:
        raise ValueError(f"{name} must be at most {most}, not {value!r:.40}")
    return value


def is_int(value: object) -> bool:
    """Integers only; to Python, True is one too."""
    return isinstance(value, int) and not isinstance(value, bool)


def _settings(raw: dict[str, Any]) -> dict[str, Any]:
    """The fields that are not sizes, with Hugging Face's defaults for those left out."""
    return {
        "rope_theta": _rope_theta(raw),
        "rms_norm_eps": _positive(raw.get("rms_norm_eps", 1e-6), "rms_norm_eps"),
        "tie_word_embeddings": raw.get("tie_word_embeddings") is True,
        "bos_token_id": next(iter(_token_ids(raw, "bos_token_id")), None),
    }


def _positive(value: object, name: str) -> float:
    """A positive finite number."""
    number = is_int(value) or isinstance(value, float)
    if not number or not 0 < value <= sys.float_info.max:
        raise ValueError(f"{name} must be a positive number, not {value!r:.40}")
    return float(value)


def _rope_theta(raw: dict[str, Any]) -> float:
    """The rotary base: at the top level, or in rope_parameters as transformers 5 writes it."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"rope_parameters must be an object, not {rope!r}")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(f"RoPE scaling of type {kind!r} is not supported; only 'default' is")
    return _positive(rope.get("rope_theta", raw.get("rope_theta", 10000.0)), "rope_theta")


def _token_ids(raw: dict[str, Any], name: str) -> tuple[int, ...]:
    """A field that holds one id, a list of them, or nothing."""
    value = raw.get(name)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(is_int(i) and i >= 0 for i in ids):
        raise ValueError(f"{name} must be a token id or a list of them, not {value!r:.80}")
    return tuple(ids)


def _end_tokens(folder: Path, raw: dict[str, Any]) -> tuple[int, ...]:
    """generation_config.json wins: chat models often add their end of turn only there."""
    path = folder / "generation_config.json"
    generation = json_file(path) if path.is_file() else {}
    return _token_ids(generation, "eos_token_id") or _token_ids(raw, "eos_token_id")
