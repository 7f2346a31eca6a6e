"""`python -m course model --from` and `--source hub`: other checkpoints, as carefully taken in."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

from course import model, model_hub, paths
from tests.model_verb import refused, sha
from tests.tiny_files import CONFIG, SHAPES, random_tensors, write_checkpoint


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A models folder that is not there yet."""
    monkeypatch.setattr(paths, "MODELS", tmp_path / "models")
    monkeypatch.setattr(paths, "MODEL", tmp_path / "models" / "smollm2-135m-instruct")
    monkeypatch.setattr(paths, "GGUF", tmp_path / "models" / "gguf" / "tiny.gguf")
    return tmp_path / "models"


# ---- --from ----


@pytest.fixture
def source(tmp_path):
    return write_checkpoint(tmp_path / "elsewhere" / "my-llama", random_tensors(torch.bfloat16))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_local_checkpoint_is_taken_in(source, models):
    before = snapshot(source)
    assert model.main(["--from", str(source)]) == 0
    folder = models / "my-llama"
    assert model.is_complete(folder) is None
    assert model.main(["--from", str(source), "--verify"]) == 0
    assert load_file(folder / "model.safetensors")["model.norm.weight"].dtype == torch.bfloat16
    assert snapshot(source) == before


def test_a_system_without_links_copies(source, models, monkeypatch):
    monkeypatch.setattr(os, "symlink", lambda *_: (_ for _ in ()).throw(OSError("no right")))
    assert model.main(["--from", str(source)]) == 0
    copied = models / "my-llama" / "model.safetensors"
    assert not copied.is_symlink()
    assert copied.read_bytes() == (source / "model.safetensors").read_bytes()


def test_a_sharded_checkpoint_keeps_its_shards(source, models):
    tensors = random_tensors()
    (source / "model.safetensors").unlink()
    index = {}
    for number, name in enumerate(SHAPES):
        index[name] = f"part-{number % 2}.safetensors"
    for part in sorted(set(index.values())):
        save_file({n: tensors[n] for n in SHAPES if index[n] == part}, source / part)
    text = json.dumps({"weight_map": index})
    (source / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    assert model.main(["--from", str(source)]) == 0
    manifest = json.loads((models / "my-llama" / "manifest.json").read_text(encoding="utf-8"))
    assert {"part-0.safetensors", "part-1.safetensors"} <= manifest["files"].keys()


def test_the_chat_template_gets_a_file_of_its_own(source, models):
    text = json.dumps({"chat_template": "{{ é }}"})
    (source / "tokenizer_config.json").write_text(text, encoding="utf-8")
    assert model.main(["--from", str(source)]) == 0
    template = (models / "my-llama" / "chat_template.jinja").read_text(encoding="utf-8")
    assert template == "{{ é }}"


def test_a_checkpoint_that_does_not_fit_is_refused(source, models, capsys):
    save_file({"x": torch.ones(1)}, source / "model.safetensors")
    assert model.main(["--from", str(source)]) == 1
    message = capsys.readouterr().err
    assert "unexpected: x" in message
    assert "missing: model.norm.weight" in message
    assert not (models / "my-llama").exists()


def test_a_tokenizer_of_another_model_is_refused(source, models, capsys):
    changed = CONFIG | {"vocab_size": 100}
    (source / "config.json").write_text(json.dumps(changed), encoding="utf-8")
    tensors = random_tensors()
    tensors["model.embed_tokens.weight"] = torch.ones(100, 32)
    save_file(tensors, source / "model.safetensors")
    assert "different models" in refused(capsys, "--from", str(source))


def test_no_checkpoint_there(tmp_path, models, capsys):
    assert "config.json is missing" in refused(capsys, "--from", str(tmp_path / "nowhere"))


def test_two_checkpoints_of_one_name_do_not_replace_each_other(source, models, tmp_path, capsys):
    assert model.main(["--from", str(source)]) == 0
    other = write_checkpoint(tmp_path / "another" / "my-llama")
    capsys.readouterr()
    assert "already holds another model" in refused(capsys, "--from", str(other))
    assert model.main(["--from", str(source)]) == 0


@pytest.mark.parametrize(
    "name", ["gguf", "GGUF", "smollm2-135m-instruct", "smollm2-135m-instruct-hub", ".lock"]
)
def test_a_name_that_the_course_keeps_for_itself_is_refused(tmp_path, models, capsys, name):
    other = write_checkpoint(tmp_path / "elsewhere" / name)
    assert "give" in refused(capsys, "--from", str(other))
    assert not models.exists()


def test_the_end_of_a_path_is_not_the_path(tmp_path, models, capsys):
    outer = write_checkpoint(tmp_path / "a" / "my-llama")
    assert model.main(["--from", str(outer)]) == 0
    manifest = models / "my-llama" / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    longer = text.replace(f"checkpoint {outer}", f"checkpoint /mnt{outer}")
    assert longer != text
    manifest.write_text(longer, encoding="utf-8")
    assert "already holds another model" in refused(capsys, "--from", str(outer))


@pytest.mark.parametrize("gone", ["source", "licence", "files"])
def test_a_manifest_without_a_fact_is_made_again(source, models, gone):
    assert model.main(["--from", str(source)]) == 0
    path = models / "my-llama" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    whole = dict(manifest)
    del manifest[gone]
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert "damaged" in model.is_complete(models / "my-llama")
    assert model.main(["--from", str(source)]) == 0
    assert json.loads(path.read_text(encoding="utf-8")) == whole


def test_a_checkpoint_put_there_by_hand_is_only_checked(models, capsys):
    folder = write_checkpoint(models / "mine")
    assert model.main(["--from", str(folder)]) == 0
    assert "can be used" in capsys.readouterr().out
    assert "manifest.json is missing" in refused(capsys, "--from", str(folder), "--verify")


def test_layers_without_number_are_refused_before_they_are_listed(source, models, capsys):
    text = json.dumps(CONFIG | {"num_hidden_layers": 10**30})
    (source / "config.json").write_text(text, encoding="utf-8")
    assert "num_hidden_layers must be at most 10000" in refused(capsys, "--from", str(source))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "must hold a JSON object"),
        ("{", "not valid JSON"),
        ('{"chat_template": 3}', "chat_template"),
        ('{"chat_template": [{"name": "default", "template": 3}]}', "chat_template"),
    ],
)
def test_a_tokenizer_config_that_is_none_is_a_sentence(source, models, capsys, text, words):
    (source / "tokenizer_config.json").write_text(text, encoding="utf-8")
    assert words in refused(capsys, "--from", str(source))
    assert not (models / "my-llama").exists()


def test_templates_without_a_default_are_no_template(source, models):
    text = '{"chat_template": [3, {}, {"name": "tools", "template": "x"}]}'
    (source / "tokenizer_config.json").write_text(text, encoding="utf-8")
    assert model.main(["--from", str(source)]) == 0
    assert not (models / "my-llama" / "chat_template.jinja").exists()


# ---- --source hub, with the network played by a function ----


@pytest.fixture
def hub(models, tmp_path, monkeypatch):
    """A tiny repository on a pretended Hub; its files' hashes are the pinned ones."""
    remote = write_checkpoint(tmp_path / "remote", random_tensors(torch.bfloat16))
    (remote / "generation_config.json").write_text('{"eos_token_id": 2}', encoding="utf-8")
    (remote / "special_tokens_map.json").write_text("{}", encoding="utf-8")
    template = json.dumps({"chat_template": "{{ messages }}"})
    (remote / "tokenizer_config.json").write_text(template, encoding="utf-8")
    hashes = {path.name: sha(path.read_bytes()) for path in remote.iterdir()}
    assert hashes.keys() == model_hub.FILES.keys()
    monkeypatch.setattr(model_hub, "FILES", hashes)
    card = "---\nlibrary_name: transformers\nlicense: apache-2.0\n---\n# Model\n"
    (remote / "README.md").write_text(card, encoding="utf-8")
    asked = []

    def snapshot_download(repository, *, revision, local_dir, allow_patterns):
        asked.append((repository, revision))
        local_dir.mkdir(parents=True, exist_ok=True)
        for name in allow_patterns:
            if (remote / name).is_file() and not (local_dir / name).is_file():
                shutil.copy(remote / name, local_dir / name)
        return str(local_dir)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return SimpleNamespace(remote=remote, asked=asked, folder=models / "smollm2-135m-instruct-hub")


def test_the_hub_s_checkpoint(hub, models):
    assert model.main(["--source", "hub", "--verify"]) == 0
    assert hub.asked == [("HuggingFaceTB/SmolLM2-135M-Instruct", model_hub.REVISION)]
    assert load_file(hub.folder / "model.safetensors")["model.norm.weight"].dtype == torch.bfloat16
    template = (hub.folder / "chat_template.jinja").read_text(encoding="utf-8")
    assert template == "{{ messages }}"
    manifest = json.loads((hub.folder / "manifest.json").read_text(encoding="utf-8"))
    assert model_hub.REVISION in manifest["source"]
    assert manifest["licence"] == "apache-2.0"
    assert not paths.MODEL.exists()
    assert model.main(["--source", "hub"]) == 0
    assert len(hub.asked) == 1


def test_a_file_of_the_hub_with_another_hash(hub, capsys):
    original = (hub.remote / "config.json").read_bytes()
    (hub.remote / "config.json").write_text(json.dumps(CONFIG | {"x": 1}), encoding="utf-8")
    message = refused(capsys, "--source", "hub")
    assert "config.json from the Hub lacks the expected SHA-256" in message
    assert not hub.folder.exists()
    (hub.remote / "config.json").write_bytes(original)
    assert model.main(["--source", "hub"]) == 0


def test_a_licence_of_the_hub_off_the_list(hub, capsys):
    (hub.remote / "README.md").write_text("---\nlicense: llama3\n---\n", encoding="utf-8")
    assert "'llama3'" in refused(capsys, "--source", "hub")
    assert not hub.folder.exists()


def test_another_revision_has_its_own_folder(hub, models):
    revision = "0123456789" * 4
    assert model.main(["--source", "hub", "--revision", revision]) == 0
    assert hub.asked == [("HuggingFaceTB/SmolLM2-135M-Instruct", revision)]
    assert model.is_complete(models / f"smollm2-135m-instruct-hub-{revision}") is None
    assert not hub.folder.exists()


def test_another_revision_that_does_not_fit_is_refused(hub, models, capsys):
    save_file({"x": torch.ones(1)}, hub.remote / "model.safetensors")
    assert model.main(["--source", "hub", "--revision", "0" * 40]) == 1
    assert "unexpected: x" in capsys.readouterr().err
    assert [path.name for path in models.iterdir() if "hub-" in path.name] == []


@pytest.mark.parametrize(
    "argv",
    [
        ["--source", "hub", "--revision", "main"],
        ["--revision", "0" * 40],
        ["--source", "hub", "--from", "x"],
        ["--from", ""],
        ["--from", "~no such user/x"],
    ],
)
def test_arguments_that_do_not_go_together(models, capsys, argv):
    with pytest.raises(SystemExit) as stopped:
        model.main(argv)
    assert stopped.value.code == 2


def test_the_hub_is_out_of_reach(hub, monkeypatch, capsys):
    def fail(*_, **__):
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    assert "Name or service not known" in refused(capsys, "--source", "hub")
    assert not hub.folder.exists()
