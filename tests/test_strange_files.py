"""What a stranger's file or folder may bring: each ends in a sentence that fits the screen."""

import json
import os
import sys

import pytest
from safetensors.torch import save_file

from course import model
from solutions.checkpoint import INDEX, weight_files
from solutions.config import check_architecture
from solutions.safetensors_file import read_header
from tests.model_verb import refused
from tests.tiny_files import random_tensors, write_checkpoint


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setattr("course.paths.MODELS", tmp_path / "models")
    monkeypatch.setattr("course.paths.MODEL", tmp_path / "models" / "smollm2-135m-instruct")
    return tmp_path / "models"


@pytest.mark.parametrize("shape", [[2**63 - 1, 2**63 - 1, 0], [0, 2**62, 2**62], [2**61, 0]])
def test_an_empty_tensor_too_large_for_torch_is_refused(tmp_path, shape):
    text = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(ValueError, match="torch has no tensor of shape"):
        read_header(path)


@pytest.mark.parametrize("name", ["ä" * 200, "C:x", "a\\b", "\ud800" * 100])
def test_a_name_that_is_no_file_on_some_system_is_refused(tmp_path, name):
    index = {"weight_map": {"x": f"{name}.safetensors"}}
    (tmp_path / INDEX).write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ValueError, match="weight_map"):
        weight_files(tmp_path)


@pytest.mark.parametrize(
    "raw",
    [
        {"architectures": ["llama"], "model_type": "llama"},
        {"architectures": "LlamaForCausalLM", "model_type": "llama"},
        {"model_type": "LlamaForCausalLM"},
    ],
)
def test_each_name_counts_in_its_own_place(raw):
    with pytest.raises(ValueError, match="is not supported"):
        check_architecture(raw)


@pytest.mark.skipif(os.name != "posix", reason="links ask for a right on Windows")
@pytest.mark.parametrize("name", ["loop", "loop.gguf"])
def test_a_link_to_itself(models, tmp_path, capsys, name):
    (tmp_path / name).symlink_to(tmp_path / name)
    assert name in refused(capsys, "--from", str(tmp_path / name))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name is Unicode")
def test_a_folder_whose_name_is_not_utf_8(models, tmp_path, capsys):
    folder = write_checkpoint(tmp_path / "plain").rename(tmp_path / os.fsdecode(b"\xff\xfe"))
    said = refused(capsys, "--from", str(folder))
    assert "has a path that is not UTF-8; rename it" in said
    assert not models.exists()


def test_names_in_a_file_do_not_reach_the_terminal_as_they_are(models, tmp_path, capsys):
    odd = {"\x1b]0;owned\x07\x1b[31m\r": random_tensors()["model.norm.weight"]}
    folder = write_checkpoint(tmp_path / "odd", random_tensors() | odd)
    assert model.main(["--from", str(folder)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 2
    assert r"unexpected: \x1b]0;owned\x07\x1b[31m\r" in said
    assert all(character.isprintable() or character == "\n" for character in said)


def test_a_message_does_not_fill_the_screen(models, tmp_path, capsys):
    norm = random_tensors()["model.norm.weight"]
    folder = write_checkpoint(tmp_path / "many")
    many = {f"{i:04} {'x' * 5000}": norm.clone() for i in range(200)}
    save_file(random_tensors() | many, folder / "model.safetensors")
    assert model.main(["--from", str(folder)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 61
    assert lines[1].startswith("  unexpected: 0000 xxx")
    assert lines[-1] == "  and 141 lines more"
    assert max(map(len, lines)) < 1100
