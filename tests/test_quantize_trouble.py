"""`quantize` where something is in the way: a sentence, and nothing half-made stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors import SafetensorError

from course import paths, quantize
from course.model_files import ModelError
from course.paths import ROOT
from solutions.quantized import Format
from solutions.quantizer import load_quantized, save_quantized
from tests.tiny_files import write_checkpoint


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr(paths, "MODELS", tmp_path / "models")
    return write_checkpoint(tmp_path / "tiny")


def refused(capsys, *arguments) -> str:
    """What the verb says on stderr when it ends with 1 and makes nothing."""
    assert quantize.main([str(argument) for argument in arguments]) == 1
    made = paths.MODELS.iterdir() if paths.MODELS.is_dir() else ()
    assert [file.name for file in made if file.name != ".lock"] == []
    return capsys.readouterr().err


@pytest.mark.parametrize("size", [65, 10**9, 10**20])
def test_groups_longer_than_every_row_would_only_be_filled_up(tiny, capsys, size):
    said = refused(capsys, "--model", tiny, "--group-size", size)
    assert f"--group-size {size} is longer than any row; the longest has 64" in said


def test_a_quantized_folder_is_not_quantized_again(tiny, capsys):
    folder = quantize.ensure_quantized(tiny)
    assert quantize.main(["--model", str(folder), "--bits", "2"]) == 1
    assert "is quantized already" in capsys.readouterr().err


def test_a_disk_that_is_full_when_the_package_writes(tiny, capsys, monkeypatch):
    """It raises an error of its own, which is no OSError."""

    def full(*args, **kwargs):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "serialize_file", full)
    said = refused(capsys, "--model", tiny)
    assert "tiny-q4-g32 cannot be written" in said
    assert "No space left" in said


@pytest.mark.skipif(os.name != "posix", reason="links ask for a right on Windows")
def test_a_link_to_itself(tiny, tmp_path, capsys):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "loop" in refused(capsys, "--model", tmp_path / "loop")
    assert "loop" in refused(capsys, "--model", tiny, "--out", tmp_path / "loop")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name is Unicode")
def test_a_name_that_is_not_utf_8(tiny, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff")
    for arguments in ((odd, Format(4, 32)), (tiny, Format(4, 32), odd)):
        with pytest.raises(ModelError, match="not UTF-8"):
            quantize.ensure_quantized(*arguments)
    assert not odd.exists()


def test_a_path_with_a_space_can_be_pasted(tiny, tmp_path, capsys):
    folder = tmp_path / "few bits"
    assert quantize.main(["--model", str(tiny), "--out", str(folder)]) == 0
    assert f'--quantized "{folder}"' in capsys.readouterr().out


def test_tensors_that_share_numbers_are_all_written(tmp_path):
    """A tied head, and parts of one tensor that overlap."""
    whole = torch.arange(24.0).reshape(6, 4)
    weights = {"embed": whole, "head": whole, "front": whole[:4], "back": whole[2:]}
    save_quantized(tmp_path / "tied.safetensors", weights)
    found = load_quantized(tmp_path / "tied.safetensors")
    assert all(torch.equal(found[name], weight) for name, weight in weights.items())


FAULTS = """
import resource, torch
from course.quantize import large_blocks_given_back
with large_blocks_given_back():
    torch.ones(4_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    torch.ones(4_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is about glibc's memory")
def test_after_quantizing_freed_memory_is_used_again():
    """Blocks asked for anew cost a fault a page: 16 MB have 3,906, and a product needs such."""
    run = [sys.executable, "-c", FAULTS]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert int(done.stdout) < 3 * 3906
