"""solutions/config.py: every spelling that checkpoints use, and a refusal by name for the rest."""

import pytest

from course.model import ensure_model
from solutions.config import Config, read_config
from tests.tiny_files import write_config


def test_config_of_the_bundled_model():
    assert read_config(ensure_model()) == Config(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        max_position_embeddings=8192,
        rope_theta=100000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_ids=(2,),
    )


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"rope_theta": 5e5}, "rope_theta", 5e5),
        ({"rope_theta": 500000}, "rope_theta", 5e5),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 7.0}}, "rope_theta", 7.0),
        ({"rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}}, "rope_theta", 7.0),
        ({"rope_scaling": {"rope_theta": 7.0, "type": "default"}}, "rope_theta", 7.0),
        ({"rope_scaling": None}, "rope_theta", 1e4),
        ({"head_dim": 10}, "head_dim", 10),
        ({"head_dim": None}, "head_dim", 8),
        ({"num_key_value_heads": None}, "num_key_value_heads", 4),
        ({"eos_token_id": [2, 5]}, "eos_token_ids", (2, 5)),
        ({"eos_token_id": None}, "eos_token_ids", ()),
        ({"bos_token_id": None}, "bos_token_id", None),
        ({"bos_token_id": 0}, "bos_token_id", 0),
        ({"tie_word_embeddings": False}, "tie_word_embeddings", False),
    ],
)
def test_config_spellings(tmp_path, changes, field, value):
    assert getattr(read_config(write_config(tmp_path, **changes)), field) == value


def test_end_tokens_of_generation_config_win(tmp_path):
    write_config(tmp_path, eos_token_id=2)
    path = tmp_path / "generation_config.json"
    path.write_text('{"eos_token_id": [7, 2]}', encoding="utf-8")
    assert read_config(tmp_path).eos_token_ids == (7, 2)
    path.write_text('{"temperature": 0.6}', encoding="utf-8")
    assert read_config(tmp_path).eos_token_ids == (2,)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"architectures": None, "model_type": "gpt2"}, "gpt2"),
        ({"hidden_size": 33}, "33 does not divide into 4"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3"),
        ({"head_dim": 7}, "head_dim 7 is odd"),
        ({"vocab_size": None}, "vocab_size must be a positive integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a positive integer, not 0"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers must be at most 10000, not 1000"),
        ({"num_hidden_layers": 10_001}, "num_hidden_layers must be at most 10000, not 10001"),
        ({"hidden_size": 10**4000}, "hidden_size must be at most 2147483647"),
        ({"max_position_embeddings": 2**31}, "max_position_embeddings must be at most"),
        ({"rope_theta": 10**400}, "rope_theta must be a positive number"),
        ({"hidden_size": "32"}, "hidden_size"),
        ({"num_attention_heads": True}, "num_attention_heads"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": -1}, "rope_theta"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "'llama3'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "'yarn'"),
        ({"rope_parameters": "default"}, "rope_parameters must be an object"),
        ({"eos_token_id": "2"}, "eos_token_id"),
        ({"eos_token_id": [2, -1]}, "eos_token_id"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_config_that_cannot_run_is_refused_by_name(tmp_path, changes, words):
    with pytest.raises(ValueError, match=words) as caught:
        read_config(write_config(tmp_path, **changes))
    assert str(tmp_path / "config.json") in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_byte_order_mark_is_no_harm(tmp_path):
    path = write_config(tmp_path) / "config.json"
    before = read_config(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_config(tmp_path) == before


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"', "[" * 100_000, "\xff"])
def test_config_that_is_no_json_object(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"config\.json"):
        read_config(tmp_path)


def test_no_config(tmp_path):
    with pytest.raises(FileNotFoundError, match="checkpoint folder"):
        read_config(tmp_path)
