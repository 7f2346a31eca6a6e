"""solutions/loader.py against files written by safetensors and by hand."""

import json
import os
import struct
import sys

import psutil
import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file

from course.model import ensure_model
from solutions.loader import (
    STAGES,
    expected_tensors,
    load_model,
    load_weights,
    read_config,
    read_safetensors,
    stored_tensors,
    weight_files,
)
from tests.scenarios.memory import peak_of
from tests.tiny_files import SHAPES, random_tensors, write_checkpoint, write_config


@pytest.fixture
def checkpoint(tmp_path):
    return write_checkpoint(tmp_path / "tiny")


# ---- safetensors ----

STORED = {
    "f64": torch.tensor([[1.5, -2.5]], dtype=torch.float64),
    "f32": torch.arange(6, dtype=torch.float32).view(2, 3),
    "f16": torch.tensor([0.5, 65504.0], dtype=torch.float16),
    "bf16": torch.tensor([[3.0], [-1e30]], dtype=torch.bfloat16),
    "i64": torch.tensor([2**60, -1]),
    "i32": torch.tensor([1, -1], dtype=torch.int32),
    "i16": torch.tensor([1, -1], dtype=torch.int16),
    "i8": torch.tensor([-128, 127, 0], dtype=torch.int8),
    "u8": torch.tensor([0, 255], dtype=torch.uint8),
    "bool": torch.tensor([True, False, True]),
    "scalar": torch.tensor(7.0),
    "empty": torch.empty(0, 4),
    "c64": torch.tensor([1 + 2j], dtype=torch.complex64),
    "u16": torch.tensor([65535], dtype=torch.uint16),
    "u32": torch.tensor([2**32 - 1], dtype=torch.uint32),
    "u64": torch.tensor([2**63], dtype=torch.uint64),
    "f8_e4m3": torch.tensor([0.5, 448.0]).to(torch.float8_e4m3fn),
    "f8_e5m2": torch.tensor([0.5, 57344.0]).to(torch.float8_e5m2),
    "f8_e8m0": torch.tensor([0.5, 4.0]).to(torch.float8_e8m0fnu),
}


def test_every_dtype_and_shape(tmp_path):
    save_file(STORED, tmp_path / "x.safetensors", metadata={"format": "pt"})
    found = read_safetensors(tmp_path / "x.safetensors")
    assert found.keys() == STORED.keys()
    for name, tensor in STORED.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        bits = (t.contiguous().view(-1).view(torch.uint8) for t in (found[name], tensor))
        assert torch.equal(*bits)


def raw_file(path, header: object, data: bytes = b"", length: int | None = None):
    """A safetensors file with whatever header one likes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode("utf-8")
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(start: int, stop: int, shape: object = (1,), dtype: object = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def test_misaligned_data_is_read_all_the_same(tmp_path):
    """The format promises no alignment: a header of 1 byte more puts floats at odd addresses."""
    for spaces in range(8):
        header = json.dumps({"x": entry(0, 8, (2,))}).encode("utf-8") + b" " * spaces
        path = raw_file(tmp_path / "x", header, struct.pack("<2f", 1.0, 2.0))
        tensor = read_safetensors(path)["x"]
        assert tensor.tolist() == [1.0, 2.0]
        assert tensor.data_ptr() % 4 == 0


def test_file_without_tensors(tmp_path):
    assert read_safetensors(raw_file(tmp_path / "x", {"__metadata__": {"a": "b"}})) == {}


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        ([], b"", "JSON object, not a list"),
        (b"not json", b"", "not valid JSON"),
        (b"[" * 100_000, b"", "not valid JSON"),
        (b"\xff\xfe", b"", "not valid JSON"),
        ({"x": 3}, b"", "x is not an object"),
        ({"x": entry(0, 4, dtype="F4")}, bytes(4), "x has dtype 'F4'; known are F64"),
        ({"x": entry(0, 4, dtype=["F32"])}, bytes(4), "x has dtype"),
        ({"x": entry(0, 4, shape=[-1])}, bytes(4), "shape"),
        ({"x": entry(0, 4, shape=[True])}, bytes(4), "shape"),
        ({"x": entry(0, 4, shape=[1.0])}, bytes(4), "shape"),
        ({"x": entry(0, 4, shape=None)}, bytes(4), "shape"),
        ({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}, bytes(4), "data_offsets"),
        ({"x": {"dtype": "F32", "shape": [1]}}, bytes(4), "data_offsets"),
        ({"x": entry(4, 0)}, bytes(4), "does not fill"),
        ({"x": entry(0, 4, shape=[2**62])}, bytes(4), "does not fill"),
        ({"x": entry(0, 8)}, bytes(8), "does not fill"),
        ({"x": entry(0, 4), "y": entry(0, 4)}, bytes(8), "overlaps"),
        ({"x": entry(0, 8, (2,)), "y": entry(4, 8)}, bytes(8), "overlaps"),
        ({"x": entry(0, 4), "y": entry(8, 12)}, bytes(12), "leaves a hole"),
        ({"x": entry(4, 8)}, bytes(8), "leaves a hole"),
        ({"x": entry(0, 8, (2,))}, bytes(7), "truncated"),
        ({"x": entry(0, 4)}, b"", "truncated"),
        ({"x": entry(0, 4)}, bytes(5), "truncated or damaged"),
        ({"x": entry(0, 2**62, (2**60,))}, bytes(8), "truncated"),
        ({"x": entry(0, 2**63, (2**61,))}, bytes(8), "data_offsets"),
        ({"x": entry(0, 4, (1,) * 65)}, bytes(4), "shape"),
        (b'{"x": 1, "x": 2}', b"", "'x' is there more than once"),
        ({"__metadata__": []}, b"", "__metadata__ must be an object of strings"),
        ({"__metadata__": {"version": 1}}, b"", "__metadata__ must be an object of strings"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, header, data, words):
    path = raw_file(tmp_path / "x.safetensors", header, data)
    with pytest.raises(ValueError, match=words) as caught:
        read_safetensors(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("length", [3, 2**31, 2**60, 2**64 - 1])
def test_a_header_length_that_lies_allocates_nothing(tmp_path, length):
    path = raw_file(tmp_path / "x.safetensors", b"{}", length=length)
    with pytest.raises(ValueError, match=f"header of {length} bytes does not fit"):
        read_safetensors(path)


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(3), "b": torch.ones(2, 2)}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"Fetch it again|not valid JSON"):
            read_safetensors(path)


# ---- the folder ----


def test_expected_tensors(checkpoint):
    config = read_config(checkpoint)
    assert expected_tensors(config) == SHAPES
    untied = read_config(write_config(checkpoint, tie_word_embeddings=False))
    assert expected_tensors(untied) == SHAPES | {"lm_head.weight": (300, 32)}


def test_load_weights_equals_safetensors(checkpoint):
    weights = load_weights(checkpoint, read_config(checkpoint))
    expected = load_file(checkpoint / "model.safetensors")
    assert list(weights) == list(SHAPES)
    assert all(torch.equal(weights[name], expected[name]) for name in SHAPES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_load_weights_in_a_dtype(tmp_path, dtype):
    stored = random_tensors(torch.bfloat16)
    folder = write_checkpoint(tmp_path / "half", stored)
    weights = load_weights(folder, read_config(folder), dtype=dtype)
    assert all(torch.equal(weights[name], stored[name].to(dtype)) for name in SHAPES)


def test_the_bundled_model_is_mapped_not_copied():
    """538 MB of float32 weights may cost next to no memory before they are used."""
    folder = ensure_model()
    config, process = read_config(folder), psutil.Process()
    before = process.memory_info().rss
    weights = load_weights(folder, config)
    assert process.memory_info().rss - before < 50e6
    assert sum(w.nbytes for w in weights.values()) == 538_060_032


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the zeros would fill the disk")
def test_a_file_larger_than_memory_is_mapped(tmp_path):
    size = (psutil.virtual_memory().total + psutil.swap_memory().total) // 4 * 8
    header = json.dumps({"x": entry(0, size, (size // 4,))}).encode("utf-8")
    path = raw_file(tmp_path / "x.safetensors", header + b" " * (-len(header) % 8))
    os.truncate(path, path.stat().st_size + size)
    tensor = read_safetensors(path)["x"]
    tensor[-1] = 1.0
    assert tensor[-3:].tolist() == [0.0, 0.0, 1.0]


def test_writing_to_a_weight_leaves_the_file_alone(checkpoint):
    path = checkpoint / "model.safetensors"
    before = path.read_bytes()
    load_weights(checkpoint, read_config(checkpoint))["model.norm.weight"].zero_()
    assert path.read_bytes() == before


def test_a_tied_head_may_be_absent_or_redundant(tmp_path):
    tensors = random_tensors()
    head = {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}
    for name, extra in (("absent", {}), ("redundant", head)):
        folder = write_checkpoint(tmp_path / name, tensors | extra)
        assert list(load_weights(folder, read_config(folder))) == list(SHAPES)


def test_an_untied_head_is_loaded(tmp_path):
    tensors = random_tensors() | {"lm_head.weight": torch.ones(300, 32)}
    folder = write_checkpoint(tmp_path / "untied", tensors, tie_word_embeddings=False)
    assert load_weights(folder, read_config(folder))["lm_head.weight"].sum() == 9600


def test_rotary_tables_of_old_checkpoints_are_ignored(tmp_path):
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    folder = write_checkpoint(tmp_path / "old", random_tensors() | extra)
    assert stored_tensors(folder, read_config(folder)).keys() == SHAPES.keys()


def test_one_report_of_everything_that_is_wrong(tmp_path):
    tensors = random_tensors() | {"surprise.weight": torch.ones(1)}
    del tensors["model.norm.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.0.self_attn.k_proj.weight"] = torch.ones(32, 16)
    tensors["model.layers.0.mlp.up_proj.weight"] = torch.ones(64, 32, dtype=torch.int8)
    folder = write_checkpoint(tmp_path / "broken", tensors)
    with pytest.raises(ValueError, match="do not fit") as caught:
        load_weights(folder, read_config(folder))
    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [
        "misshapen: model.layers.0.self_attn.k_proj.weight is (32, 16), expected (16, 32)",
        "missing: model.layers.1.mlp.up_proj.weight",
        "missing: model.norm.weight",
        "not floating point: model.layers.0.mlp.up_proj.weight is torch.int8",
        "unexpected: surprise.weight",
    ]


# ---- shards ----


@pytest.fixture
def shards(tmp_path):
    """The same tensors in three files and an index."""
    folder, tensors = write_checkpoint(tmp_path / "sharded"), random_tensors()
    (folder / "model.safetensors").unlink()
    names, index = list(SHAPES), {}
    for number in range(3):
        shard = f"model-{number + 1:05}-of-00003.safetensors"
        save_file({name: tensors[name] for name in names[number::3]}, folder / shard)
        index |= dict.fromkeys(names[number::3], shard)
    write_index(folder, index)
    return folder


def write_index(folder, weight_map: object) -> None:
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def test_shards_are_put_together(shards):
    weights, expected = load_weights(shards, read_config(shards)), random_tensors()
    assert all(torch.equal(weights[name], expected[name]) for name in SHAPES)


def test_shards_that_huggingface_hub_writes(tmp_path):
    """The writer behind save_pretrained: it cuts by size and writes the index."""
    folder = write_checkpoint(tmp_path / "hub")
    (folder / "model.safetensors").unlink()
    tensors = random_tensors(torch.bfloat16) | {"lm_head.weight": torch.ones(300, 32)}
    save_torch_state_dict(tensors, folder, max_shard_size=20_000)
    write_config(folder, tie_word_embeddings=False)
    assert len(weight_files(folder)) > 2
    loaded = load_model(folder, torch.float32)
    assert loaded.weights.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(loaded.weights[name], tensor.float())


def test_all_missing_shards_in_one_error(shards):
    for number in (1, 3):
        (shards / f"model-0000{number}-of-00003.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model-00001-of-00003.*model-00003-of-00003"):
        load_weights(shards, read_config(shards))


def test_a_tensor_in_two_shards(shards):
    save_file({"model.norm.weight": torch.ones(32)}, shards / "extra.safetensors")
    index = json.loads((shards / "model.safetensors.index.json").read_text(encoding="utf-8"))
    write_index(shards, index["weight_map"] | {"model.norm.weight": "extra.safetensors"})
    with pytest.raises(ValueError, match="differ") as caught:
        load_weights(shards, read_config(shards))
    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [
        "model.norm.weight is in model-00002-of-00003.safetensors, against the index"
    ]


@pytest.mark.parametrize(
    "weight_map", [None, {}, [], {"x": 3}, {"x": "../x.safetensors"}, {"x": "/etc/passwd"}]
)
def test_an_index_that_is_wrong_or_points_elsewhere(shards, weight_map):
    write_index(shards, weight_map)
    with pytest.raises(ValueError, match="weight_map"):
        load_weights(shards, read_config(shards))


def test_no_weights_at_all(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors nor"):
        load_weights(checkpoint, read_config(checkpoint))


# ---- loading, whole ----


def test_load_model_of_the_bundled_model_equals_load_weights():
    folder = ensure_model()
    loaded = load_model(folder)
    expected = load_weights(folder, read_config(folder))
    assert list(loaded.weights) == list(expected)
    assert all(torch.equal(loaded.weights[name], expected[name]) for name in expected)
    assert list(loaded.stages) == list(STAGES)
    assert all(seconds > 0 for seconds in loaded.stages.values())


def test_peak_of_the_bundled_model_in_half_the_bytes():
    """Row 3 of the mission: in bfloat16 the result is half as large, and nothing else is kept."""
    loaded, peak = peak_of(lambda: load_model(ensure_model(), torch.bfloat16))
    result = sum(tensor.nbytes for tensor in loaded.weights.values())
    assert result == 538_060_032 // 2
    assert peak.total < result + 2_000_000


def test_load_model_counts_progress_in_stored_bytes(checkpoint):
    told = []
    load_model(checkpoint, torch.float16, progress=lambda *numbers: told.append(numbers))
    assert len(told) == len(SHAPES)
    assert told[-1] == (told[0][1],) * 2
    assert told[-1][0] == sum(t.nbytes for t in random_tensors().values())


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.uint8])
def test_load_model_refuses_integers(checkpoint, dtype):
    with pytest.raises(ValueError, match=str(dtype).removeprefix("torch.")):
        load_model(checkpoint, dtype)
