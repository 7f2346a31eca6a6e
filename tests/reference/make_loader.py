"""Expected values of chapter 02: how transformers reads config.json, and the tensors it then has.

Half of the config files are written by transformers itself, half by hand in older spellings.
"""

import json
import logging

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.reference.record import FOLDER, record, write_text

OLD = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BY_HAND = {
    "base at the top level": OLD | {"rope_theta": 5000.0, "rope_scaling": None},
    "base nowhere": OLD | {"tie_word_embeddings": True},
    "heads all their own": OLD | {"num_key_value_heads": None, "rope_theta": 1e6},
    "head_dim given": OLD | {"head_dim": 10, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "head_dim null": OLD | {"head_dim": None, "rope_parameters": {"rope_theta": 7e4}},
    "two end tokens": OLD | {"eos_token_id": [2, 7], "rope_theta": 10000.0},
}
BY_TRANSFORMERS = {
    "written, tied": {"tie_word_embeddings": True, "rope_theta": 123456.0},
    "written, untied": {"tie_word_embeddings": False, "head_dim": 16, "rope_theta": 10000.0},
    "written, one key head": {"num_key_value_heads": 1, "rope_theta": 2e5, "bos_token_id": None},
}
SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "tie_word_embeddings",
    "bos_token_id",
)


def written(changes: dict) -> dict:
    """A config.json as transformers writes it."""
    changes = dict(changes)
    rope = {"rope_type": "default", "rope_theta": changes.pop("rope_theta")}
    config = LlamaConfig(**{**OLD, **changes}, rope_parameters=rope)
    config.architectures = ["LlamaForCausalLM"]
    return json.loads(config.to_json_string())


def entry(raw: dict) -> dict:
    """A file, what transformers takes from it, and the names and shapes of its model's tensors."""
    config = LlamaConfig.from_dict(json.loads(json.dumps(raw)))
    ends = config.eos_token_id
    fields = {name: getattr(config, name) for name in SIZES}
    fields["rope_theta"] = float(config.rope_parameters["rope_theta"])
    fields["eos_token_ids"] = ends if isinstance(ends, list) else [ends]
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    shapes = {name: list(tensor.shape) for name, tensor in model.named_parameters()}
    return {"raw": raw, "config": fields, "shapes": shapes}


def main() -> None:
    """All of them into loader.json."""
    logging.disable(logging.WARNING)
    raws = BY_HAND | {name: written(changes) for name, changes in BY_TRANSFORMERS.items()}
    entries = {name: entry(raw) for name, raw in raws.items()}
    write_text(FOLDER / "loader.json", json.dumps({"configs": entries}, indent=1) + "\n")
    record(["loader.json"], "make_loader.py", None, ["torch", "transformers"])


if __name__ == "__main__":
    main()
