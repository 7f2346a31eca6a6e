"""`model --from file.gguf`: a whole GGUF file opened directly, or refused in a sentence."""

import json
import random
import struct

import numpy as np
import pytest
import torch

from course import generate, model, paths
from course.model_convert import convert_local
from course.model_files import ModelError, is_complete
from course.text import Text
from solutions.loader import load_model
from tests.tiny_files import (
    STRING,
    U32,
    byte_vocabulary,
    gguf_pair,
    random_tensors,
    tiny_gguf,
)


@pytest.fixture
def models(tmp_path, monkeypatch):
    """An empty models/ in place of the real one."""
    folder = tmp_path / "models"
    monkeypatch.setattr(paths, "MODELS", folder)
    monkeypatch.setattr(paths, "MODEL", folder / paths.MODEL.name)
    return folder


@pytest.fixture
def gguf(tmp_path):
    """A tiny model in one file."""
    path = tmp_path / "tiny-llama.gguf"
    path.write_bytes(tiny_gguf("some licence of its own"))
    return path


def test_a_file_becomes_a_checkpoint(gguf, models):
    assert model.main(["--from", str(gguf)]) == 0
    folder = models / "tiny-llama"
    assert is_complete(folder) is None
    loaded = load_model(folder)
    expected = random_tensors()
    assert loaded.weights.keys() == expected.keys()
    assert all(torch.equal(loaded.weights[name], expected[name]) for name in expected)
    assert (loaded.config.head_dim, loaded.config.rope_theta) == (8, 1e5)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["source"].startswith(f"GGUF file {gguf}")
    assert manifest["licence"] == "not checked: a local copy"


def test_the_second_time_nothing_is_converted(gguf, models, monkeypatch):
    assert model.main(["--from", str(gguf)]) == 0
    monkeypatch.setattr(model, "_make", None)
    assert model.main(["--from", str(gguf), "--verify"]) == 0


def test_another_version_of_the_file_is_converted_again(gguf, models):
    assert model.main(["--from", str(gguf)]) == 0
    data = bytearray(gguf.read_bytes())
    data[-4:] = struct.pack("<f", 7.0)  # the last number of the last tensor
    gguf.write_bytes(data)
    assert model.main(["--from", str(gguf)]) == 0
    assert load_model(models / "tiny-llama").weights["model.norm.weight"][-1] == 7.0


def test_two_files_of_one_name_do_not_replace_each_other(gguf, models, tmp_path, capsys):
    assert model.main(["--from", str(gguf)]) == 0
    other = tmp_path / "elsewhere" / gguf.name
    other.parent.mkdir()
    other.write_bytes(gguf.read_bytes())
    assert model.main(["--from", str(other)]) == 1
    assert "already holds another model" in capsys.readouterr().err


def test_generate_opens_it_too(gguf, models, capsys):
    assert generate.main(["ab", "--max-tokens", "3", "--model", str(gguf), "--raw-ids"]) == 0
    assert "tiny-llama, float32" in capsys.readouterr().err


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1
    assert len(old) == len(new)  # nothing behind it moves
    return data.replace(old, new)


def text_pair(key: str, value: str) -> bytes:
    return gguf_pair(key, STRING, value)


def number_pair(key: str, value: int) -> bytes:
    return gguf_pair(key, U32, value)


CHANGES = {
    "architecture": (
        text_pair("general.architecture", "llama"),
        text_pair("general.architecture", "qwen3"),
        "architecture is 'qwen3'",
    ),
    "tokenizer": (
        text_pair("tokenizer.ggml.model", "gpt2"),
        text_pair("tokenizer.ggml.model", "bert"),
        "tokenizer is of kind ('bert', 'smollm')",
    ),
    "pre-tokenizer": (
        text_pair("tokenizer.ggml.pre", "smollm"),
        text_pair("tokenizer.ggml.pre", "qwen35"),
        "tokenizer is of kind ('gpt2', 'qwen35')",
    ),
    "no heads": (
        b"llama.attention.head_count\x04",
        b"llama.attention.head_c0unt\x04",
        "head_count",
    ),
    "no tokens": (b"tokenizer.ggml.tokens", b"tokenizer.ggml.t0kens", "tokenizer.ggml.tokens"),
    "no layers": (
        number_pair("llama.block_count", 2),
        number_pair("llama.block_count", 3),
        "missing: model.layers.2",
    ),
    "odd heads": (
        number_pair("llama.attention.head_count", 4),
        number_pair("llama.attention.head_count", 5),
        "32 rows do not divide into 5 heads",
    ),
    "special token": (
        number_pair("tokenizer.ggml.bos_token_id", 1),
        number_pair("tokenizer.ggml.bos_token_id", 999),
        "special tokens [999]",
    ),
    "magic": (b"GGUF", b"GGML", "not a GGUF file"),
    "name": (b"blk.1.attn_q.weight", b"blk.1.ssm_in.weight", "blk.1.ssm_in.weight"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_cannot_be_run_is_refused_by_name(gguf, models, capsys, name):
    old, new, words = CHANGES[name]
    if name == "no heads":
        old, new = (part[:-1] + struct.pack("<I", U32) for part in (old, new))
    gguf.write_bytes(replaced(gguf.read_bytes(), old, new))
    assert model.main(["--from", str(gguf)]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert "tiny-llama" in said
    assert not (models / "tiny-llama").exists()


def test_a_file_that_is_not_there_or_cut_off(gguf, models, capsys, tmp_path):
    assert model.main(["--from", str(tmp_path / "no.gguf")]) == 1
    assert "no.gguf is not there" in capsys.readouterr().err
    gguf.write_bytes(gguf.read_bytes()[:-100])
    assert model.main(["--from", str(gguf)]) == 1
    assert "truncated" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gguf", "smollm2-135m-instruct", "smollm2-135m-instruct-q8"])
def test_a_name_that_the_course_keeps_for_itself(models, tmp_path, capsys, name):
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(tiny_gguf())
    assert model.main(["--from", str(path)]) == 1
    assert "another name" in capsys.readouterr().err


def test_gpt2_s_own_split_leaves_digits_together(gguf, models):
    """With pre-tokenizer "gpt-2" the merge "1 2" applies; with "smollm" digits stand alone."""
    digits = byte_vocabulary().index("1"), byte_vocabulary().index("2")
    assert model.main(["--from", str(gguf)]) == 0
    assert Text(models / "tiny-llama").encode("12") == list(digits)
    data = gguf.read_bytes()
    old = text_pair("tokenizer.ggml.pre", "smollm")
    new = text_pair("tokenizer.ggml.pre", "gpt-2")
    other = gguf.with_name("other.gguf")
    spare = text_pair("tokenizer.chat_template", "{{ messages }}\n")
    longer = text_pair("tokenizer.chat_template", "{{ messages }}\n ")  # the index stays in place
    other.write_bytes(data.replace(old, new).replace(spare, longer))
    assert model.main(["--from", str(other)]) == 0
    assert Text(models / "other").encode("12") == [len(byte_vocabulary()) + 1]


def test_damaged_files_end_in_a_sentence(gguf, tmp_path):
    """Only ModelError, whatever is wrong with metadata or index."""
    whole, rng, refused = gguf.read_bytes(), random.Random(5), 0
    for number in range(400):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(whole) // 12)] = rng.randrange(256)
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(damaged)
        folder = tmp_path / f"out{number}"
        folder.mkdir()
        try:
            with np.errstate(all="ignore"):
                convert_local(path, "x", "y", folder)
        except ModelError as problem:
            refused += 1
            words = str(problem)
            assert str(path) in words or "another model" in words
    assert refused > 100
