"""Damaged files, thousands of them: every one is read, or refused in a sentence.

Nothing but ValueError and FileNotFoundError may come out, no single file may take long or much
memory, and what is read is held against the safetensors package. The seeds are fixed.
"""

import json
import random
import shutil
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

from solutions.checkpoint import stored_tensors
from solutions.config import read_config
from solutions.safetensors_file import read_safetensors
from tests.tiny_files import CONFIG, random_tensors, write_checkpoint

SAFETENSORS, CONFIGS, CHECKPOINTS = 6000, 4000, 1000
SECONDS, MEGABYTES = 5, 20  # for one file of a few kilobytes; far more than any of them needs
ODD = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**70), 10**400, 0.5, 1e308),
    *(float("nan"), float("inf"), "", "x", "../x", "F32", "\ud800", "\0", "ä" * 300),
    *([], {}, [[]], [None], {"a": {}}, ["x"], [2**62] * 70, [-1, 4], {"rope_type": "yarn"}),
)


def whole_file() -> bytes:
    """What the package writes, with several dtypes, an empty tensor and metadata."""
    tensors = {
        "a.weight": torch.arange(6.0).view(2, 3),
        "b": torch.arange(5).to(torch.bfloat16),
        "c": torch.tensor(3, dtype=torch.int64),
        "d": torch.empty(0, 4),
        "e": torch.ones(3, dtype=torch.bool),
    }
    return save(tensors, {"format": "pt", "who": "ü"})


def split(data: bytes) -> tuple[dict, bytes]:
    """Header and data of a whole file."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def put(value, rng: random.Random, odd=ODD):
    """The same JSON with one part at any depth replaced, removed, doubled or renamed."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.15:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.3:
            return value | {rng.choice([*value, "new", "__metadata__", ""]): value[key]}
        return value | {key: put(value[key], rng, odd)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], put(value[at], rng, odd), *value[at + 1 :]]
    if type(value) is int and rng.random() < 0.5:
        return value + rng.choice([-8, -4, -1, 1, 2, 4, 8, 100])
    return rng.choice(odd)


def spoil_bytes(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut out, put in, or the end lost."""
    spoilt = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(spoilt)) if spoilt else 0
        kind = rng.random()
        if kind < 0.5 and spoilt:
            spoilt[at] = rng.randrange(256)
        elif kind < 0.65:
            del spoilt[at : at + rng.randrange(1, 9)]
        elif kind < 0.8:
            spoilt[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif kind < 0.9:
            del spoilt[at:]
        else:
            spoilt[:8] = struct.pack("<Q", rng.choice([0, 1, 2**31, 2**62, 2**64 - 1]))
    return bytes(spoilt)


def damaged(rng: random.Random) -> bytes:
    """A safetensors file with a fault in its bytes or in its header."""
    if rng.random() < 0.4:
        return spoil_bytes(whole_file(), rng)
    header, data = split(whole_file())
    for _ in range(rng.randrange(1, 3)):
        header = put(header, rng) if isinstance(header, dict) else header
    text = json.dumps(header, ensure_ascii=rng.random() < 0.5)
    text = text.encode("utf-8", "surrogatepass")
    data = data[: rng.randrange(len(data))] if rng.random() < 0.1 else data
    return struct.pack("<Q", len(text)) + text + data


def outcome(call):
    """(what a call gives, None) or (None, the sentence that it refuses with)."""
    began = time.perf_counter()
    tracemalloc.start()
    try:
        found, problem = call(), None
    except (ValueError, FileNotFoundError) as error:
        found, problem = None, error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert time.perf_counter() - began < SECONDS
    assert peak < MEGABYTES * 1e6
    assert type(problem) in (type(None), ValueError, FileNotFoundError)  # no subclass: a sentence
    return found, str(problem) if problem else None


def test_damaged_safetensors_files(tmp_path):
    rng, refused = random.Random(2), 0
    for number in range(SAFETENSORS):
        data = damaged(rng)
        path = tmp_path / f"{number % 50}.safetensors"
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        found, problem = outcome(lambda path=path: read_safetensors(path))
        if problem is None:
            same_as_the_package(found, data)
        else:
            refused += 1
            assert path.name in problem
    assert SAFETENSORS * 0.6 < refused < SAFETENSORS


def same_as_the_package(found: dict, data: bytes) -> None:
    """What we read the package reads too, bit for bit."""
    theirs = load(data)
    assert theirs.keys() == found.keys()
    for name, tensor in theirs.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        bits = (t.contiguous().flatten().view(torch.uint8) for t in (found[name], tensor))
        assert torch.equal(*bits)


def test_damaged_configs(tmp_path):
    rng, refused = random.Random(3), 0
    for _ in range(CONFIGS):
        for name, raw in (
            ("config.json", CONFIG | {"rope_scaling": {"type": "default"}, "head_dim": 8}),
            ("generation_config.json", {"eos_token_id": [2, 3], "temperature": 0.5}),
        ):
            value = put(raw, rng) if rng.random() < 0.7 else raw
            data = json.dumps(value).encode("utf-8")
            data = spoil_bytes(data, rng) if rng.random() < 0.2 else data
            (tmp_path / name).write_bytes(data)
        config, problem = outcome(lambda: read_config(tmp_path))
        if problem is None:
            assert config.num_attention_heads % config.num_key_value_heads == 0
            assert config.head_dim % 2 == 0
            assert 0 < config.rope_theta < float("inf")
        else:
            refused += 1
            assert "config.json" in problem
    assert CONFIGS * 0.3 < refused < CONFIGS


@pytest.fixture
def shards(tmp_path) -> Path:
    """A checkpoint of two shards and an index."""
    folder, tensors = write_checkpoint(tmp_path / "tiny"), random_tensors()
    (folder / "model.safetensors").unlink()
    names, weight_map = list(tensors), {}
    for number in (1, 2):
        file = f"model-{number}.safetensors"
        part = {name: tensors[name] for name in names[number - 1 :: 2]}
        (folder / file).write_bytes(save(part))
        weight_map |= dict.fromkeys(part, file)
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    return folder


def test_damaged_checkpoints(shards, tmp_path):
    """Index, config or shard damaged, or a shard gone."""
    rng, refused = random.Random(4), 0
    files = sorted(path.name for path in shards.iterdir() if path.suffix != ".jinja")
    for number in range(CHECKPOINTS):
        folder = tmp_path / f"case{number % 20}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(shards, folder)
        path = folder / rng.choice([f for f in files if f != "tokenizer.json"])
        damage(path, rng)
        _, problem = outcome(lambda folder=folder: stored_tensors(folder, read_config(folder)))
        refused += problem is not None
    assert CHECKPOINTS * 0.3 < refused < CHECKPOINTS


def damage(path: Path, rng: random.Random) -> None:
    """One file of a folder is spoilt or removed."""
    data = path.read_bytes()
    path.unlink()
    if rng.random() < 0.1:
        return
    if path.suffix == ".json" and rng.random() < 0.7:
        value = put(json.loads(data), rng, (*ODD, "model-3.safetensors", "tokenizer.json"))
        path.write_text(json.dumps(value), encoding="utf-8")
    else:
        path.write_bytes(spoil_bytes(data, rng))
