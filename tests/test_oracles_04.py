"""The oracles of chapter 04 against transformers, and the reference files against the manifest."""

import hashlib

import numpy as np
import pytest

from tests.oracles import forward_pass as oracle
from tests.reference.arrays import read_json, tiny, tiny_config, tiny_weights
from tests.reference.record import FOLDER

MODELS = ("tied", "untied")
NEAR = 2e-6  # relative to the largest; transformers has float32 angles and norms: measured 4.9e-7


def close(got: np.ndarray, expected, tolerance: float = NEAR) -> None:
    """Equal shapes, and no value further off than tolerance times the largest one."""
    expected = oracle.wide(expected)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("name", sorted(read_json("manifest.json")))
def test_reference_files_are_the_ones_that_were_made(name):
    data = (FOLDER / name).read_bytes()
    assert hashlib.sha256(data).hexdigest() == read_json("manifest.json")[name]["sha256"]


@pytest.mark.parametrize("name", MODELS)
def test_rms_norm(name):
    weights, config, a = tiny_weights(name), tiny_config(name), tiny(name)
    weight = weights[f"model.layers.{config['num_hidden_layers'] - 1}.input_layernorm.weight"]
    got = oracle.rms_norm(a["whole.norm.in"], weight, config["rms_norm_eps"])
    close(got, a["whole.norm.out"])


@pytest.mark.parametrize("name", MODELS)
def test_rope(name):
    config, a = tiny_config(name), tiny(name)
    positions = np.arange(a["whole.q"].shape[2])[None]
    angles = oracle.rope_angles(positions, config["head_dim"], config["rope_theta"])
    half = config["head_dim"] // 2
    close(np.cos(angles), a["whole.cos"][..., :half])
    close(np.sin(angles), a["whole.sin"][..., :half])
    close(oracle.apply_rope(a["whole.q"], angles), a["whole.q_rotated"])
    close(oracle.apply_rope(a["whole.k"], angles), a["whole.k_rotated"])


@pytest.mark.parametrize("name", MODELS)
def test_attention(name):
    config, a = tiny_config(name), tiny(name)
    batch, heads, length, _ = a["whole.q"].shape
    shape = (batch, length, config["num_key_value_heads"], config["head_dim"])
    v = a["whole.v_proj.out"].view(shape).transpose(1, 2)
    positions = np.tile(np.arange(length), (batch, 1))
    q, k = a["whole.q_rotated"], a["whole.k_rotated"]
    got = oracle.attention(q, k, v, positions, positions)
    expected = a["whole.o_proj.in"].view(batch, length, heads, -1).transpose(1, 2)
    close(got, expected)


@pytest.mark.parametrize("name", MODELS)
def test_feed_forward(name):
    weights, a = tiny_weights(name), tiny(name)
    prefix = f"model.layers.{tiny_config(name)['num_hidden_layers'] - 1}.mlp."
    mlp = (weights[f"{prefix}{n}_proj.weight"] for n in ("gate", "up", "down"))
    close(oracle.feed_forward(a["whole.mlp.in"], *mlp), a["whole.mlp.out"])


@pytest.mark.parametrize("name", MODELS)
def test_attend(name):
    config, weights, a = tiny_config(name), tiny_weights(name), tiny(name)
    layer = config["num_hidden_layers"] - 1
    x, expected = a["whole.norm.out"], a["whole.o_proj.out"]
    for row in range(len(x)):
        got = oracle.attend(config, weights, layer, x[row], np.arange(x.shape[1]))
        close(got, expected[row])


@pytest.mark.parametrize("name", MODELS)
def test_logits(name):
    a = tiny(name)
    for ids, expected in zip(a["whole.tokens"].tolist(), a["whole.logits"], strict=True):
        close(oracle.logits(tiny_config(name), tiny_weights(name), ids), expected)


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_a_padded_batch(name):
    a = tiny(name)
    rows = zip(a["padded.tokens"], a["padded.positions"], a["padded.logits"], strict=True)
    for tokens, positions, expected in rows:
        ids = tokens[positions >= 0].tolist()
        close(oracle.logits(tiny_config(name), tiny_weights(name), ids)[-1], expected)
