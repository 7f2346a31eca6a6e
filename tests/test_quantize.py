"""`quantize`, and the engine on what it makes: tiny checkpoints, and the bundled model."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from course import generate, paths, quality_report, quantize
from course.assemble import QUANTIZED, assemble
from course.model_files import ModelError, is_complete
from course.paths import MODEL
from solutions.loader import INDEX, read_config, stored_tensors
from solutions.quality import share_on_grid
from solutions.quantized import Format, QuantizedTensor
from solutions.quantizer import load_quantized, quantize_weights, save_quantized
from tests.scenarios.memory import peak_of
from tests.tiny_files import SHAPES, random_tensors, write_checkpoint

LAYER_BYTES = 4 * 3_538_944  # of the bundled model in float32: 576 * (576 * 2 + 192 * 2 + 1536 * 3)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch) -> Path:
    """A tiny checkpoint, and a models/ folder for what is made of it."""
    monkeypatch.setattr(paths, "MODELS", tmp_path / "models")
    return write_checkpoint(tmp_path / "tiny")


def logits(folder: Path) -> torch.Tensor:
    """Of a few tokens, from the engine as `generate` puts it together."""
    tokens = torch.arange(1, 9)[None]
    model = assemble(folder).model
    return model.forward(tokens, torch.arange(8)[None], every_position=True)


def test_a_folder_is_made_whole_and_runs(tiny: Path, capsys):
    assert quantize.main(["--model", str(tiny), "--bits", "8", "--group-size", "16"]) == 0
    folder = paths.MODELS / "tiny-q8-g16"
    assert str(folder) in capsys.readouterr().out
    assert is_complete(folder) is None
    assert {"config.json", "tokenizer.json", "manifest.json", QUANTIZED} == {
        file.name for file in folder.iterdir()
    }
    weights = load_quantized(folder / QUANTIZED)
    assert sum(isinstance(weight, QuantizedTensor) for weight in weights.values()) == 14
    assert weights.keys() == SHAPES.keys()
    error = (logits(folder) - logits(tiny)).norm() / logits(tiny).norm()
    assert 0 < error < 0.2  # random weights, some layers deep


def test_rows_have_a_folder_of_their_own(tiny: Path):
    assert quantize.main(["--model", str(tiny), "--rows"]) == 0
    weights = load_quantized(paths.MODELS / "tiny-int8-rows" / QUANTIZED)
    matrix = weights["model.layers.0.mlp.up_proj.weight"]
    assert (matrix.bits, matrix.group_size, matrix.data.dtype) == (8, None, torch.int8)


def test_a_checkpoint_without_a_manifest_is_quantized_anew(tiny: Path):
    """Nobody knows whether its files are the ones from before."""
    folder = quantize.ensure_quantized(tiny)
    before = load_quantized(folder / QUANTIZED)["model.norm.weight"].clone()
    write_checkpoint(tiny, {n: t + 1 for n, t in random_tensors().items()})
    assert quantize.ensure_quantized(tiny) == folder
    after = load_quantized(folder / QUANTIZED)["model.norm.weight"]
    assert torch.equal(after, before + 1)


def test_shards_and_bfloat16_are_quantized_as_well(tiny: Path, tmp_path: Path):
    tensors = random_tensors(torch.bfloat16)
    folder = write_checkpoint(tmp_path / "sharded", tensors)
    (folder / "model.safetensors").unlink()
    names = list(tensors)
    shards = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    for file, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / file)
    index = {"weight_map": {n: file for file, held in shards.items() for n in held}}
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    weights = load_quantized(quantize.ensure_quantized(folder, Format(4, 16)) / QUANTIZED)
    kept = weights["model.embed_tokens.weight"]
    assert kept.dtype == torch.float32
    assert torch.equal(kept, tensors["model.embed_tokens.weight"].float())
    matrix = tensors["model.layers.1.mlp.down_proj.weight"].float()
    again = weights["model.layers.1.mlp.down_proj.weight"].dequantize()
    assert (again - matrix).abs().max() < matrix.abs().max() / 10


def test_another_model_of_the_same_name_is_refused(tiny: Path, tmp_path: Path):
    quantize.ensure_quantized(tiny)
    other = write_checkpoint(tmp_path / "other" / "tiny")
    with pytest.raises(ModelError, match="already holds another model"):
        quantize.ensure_quantized(other)


def test_a_folder_of_somebody_else_is_not_touched(tiny: Path, tmp_path: Path, capsys):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work", encoding="utf-8")
    assert quantize.main(["--model", str(tiny), "--out", str(mine)]) == 1
    assert "was not made by this command" in capsys.readouterr().err
    assert [file.name for file in mine.iterdir()] == ["thesis.txt"]
    assert quantize.main(["--model", str(tiny), "--out", str(tiny)]) == 1
    assert (tiny / "model.safetensors").is_file()


def test_interrupted_it_leaves_nothing(tiny: Path, monkeypatch, capsys):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(quantize, "save_quantized", stop)
    assert quantize.main(["--model", str(tiny)]) == 130
    assert "nothing half-made" in capsys.readouterr().err
    assert [file.name for file in paths.MODELS.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    "arguments",
    ["--bits 5", "--bits 0", "--group-size 0", "--rows --bits 4", "--rows --group-size 8"],
)
def test_arguments_that_make_no_sense(arguments: str):
    with pytest.raises(SystemExit) as stopped:
        quantize.main(arguments.split())
    assert stopped.value.code == 2


def test_a_folder_that_is_no_checkpoint(tmp_path: Path, capsys):
    assert quantize.main(["--model", str(tmp_path)]) == 1
    assert "config.json" in capsys.readouterr().err


def test_a_quantized_file_of_another_model_is_refused(tiny: Path):
    folder = quantize.ensure_quantized(tiny)
    weights = load_quantized(folder / QUANTIZED)
    norm = weights.pop("model.layers.1.input_layernorm.weight")
    save_quantized(folder / QUANTIZED, {**weights, "model.norm.weight": norm[:16]})
    with pytest.raises(ValueError, match=r"input_layernorm.*model\.norm\.weight"):
        assemble(folder)


def test_generate_runs_a_quantized_folder(tiny: Path, capsys):
    folder = quantize.ensure_quantized(tiny)
    arguments = ["Hi", "--max-tokens", "3", "--raw-ids", "--quantized", str(folder)]
    assert generate.main(arguments) == 0
    out, err = capsys.readouterr()
    assert len(out.split()) == 3
    assert "4 bits, groups of 32" in err
    assert generate.main([*arguments, "--model", str(tiny)]) == 1
    assert generate.main(["Hi", "--max-tokens", "1", "--model", str(tiny), "--quantized"]) == 0
    with pytest.raises(SystemExit):
        generate.main(["--quantized", "Hi"])


def test_the_report_has_a_row_a_format(tiny: Path, tmp_path: Path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    text.write_text("A short text, for a model that has learnt nothing. " * 4, encoding="utf-8")
    monkeypatch.setattr(quality_report, "TEXT", text)
    paths.MODELS.mkdir()
    formats = (Format(8), Format(4, 32), Format(2, 64))
    assert quality_report.run(tiny, formats) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:22].strip() for line in lines[:5]] == ["format", "float32", *map(str, formats)]
    errors = [float(line[28:37]) for line in lines[1:5]]
    assert 0 == errors[0] < errors[1] < errors[2] < errors[3] < 1
    assert not any(paths.MODELS.iterdir())
    text.unlink()
    with pytest.raises(FileNotFoundError, match=r"text\.txt is missing"):
        quality_report.run(tiny)


# ---- the bundled model ----


@pytest.fixture(scope="module")
def stored() -> dict[str, torch.Tensor]:
    return stored_tensors(MODEL, read_config(MODEL))


def test_the_bundled_model_is_on_its_own_grid(stored: dict):
    """Which is why 4 bits in groups of 32 lose nothing on it, and 64 do."""
    weight = stored["model.layers.3.self_attn.k_proj.weight"]
    assert share_on_grid(weight, 4, 32) == 1.0
    assert share_on_grid(weight, 4, 64) < 0.01
    for size, lossless in ((32, True), (64, False)):
        found = quantize_weights({"a_proj.weight": weight}, Format(4, size))["a_proj.weight"]
        error = (found.dequantize() - weight).norm() / weight.norm()
        assert (error < 1e-6) == lossless


def test_the_peak_of_the_bundled_model_is_the_result_and_less_than_two_layers():
    stored = quantize.OneByOne(MODEL)
    weights, peak = peak_of(lambda: quantize_weights(stored, Format(4, 32)))
    quantized = [w for w in weights.values() if isinstance(w, QuantizedTensor)]
    assert len(quantized) == 210
    result = sum(weight.nbytes for weight in quantized)
    assert result == 30 * 3_538_944 * 5 // 8  # 4 bits, and two float16 for each 32 weights
    assert result < peak.total < result + 2 * LAYER_BYTES


def test_saving_and_loading_the_bundled_model_copies_nothing(tmp_path: Path, stored: dict):
    weights = quantize_weights(dict(list(stored.items())[:40]), Format(4, 32))
    path = tmp_path / QUANTIZED
    _, saving = peak_of(lambda: save_quantized(path, weights))
    again, loading = peak_of(lambda: load_quantized(path))
    assert saving.total < LAYER_BYTES
    assert loading.total < LAYER_BYTES / 4
    assert again.keys() == weights.keys()
