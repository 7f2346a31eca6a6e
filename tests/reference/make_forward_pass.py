"""Expected values of chapter 04: two tiny Llamas in Hugging Face transformers, in float64.

Their weights are random numbers that float16 holds exactly, so every dtype starts from the same
model. transformers computes the rotary angles and the norms in float32 even in a float64 model;
the values here are therefore good to about seven digits, not sixteen.
"""

import json

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

from tests.reference.record import FOLDER, record, write_text

SEED = 20240404
SIZES = {
    "tied": {
        "vocab_size": 101,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "rope_theta": 10000.0,
    },
    "untied": {
        "vocab_size": 67,
        "hidden_size": 40,
        "intermediate_size": 56,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 16,
        "max_position_embeddings": 48,
        "rms_norm_eps": 1e-3,
        "tie_word_embeddings": False,
        "rope_theta": 500000.0,
    },
}
PADDED_LENGTHS = [4, 9, 6]


def make_model(sizes: dict, generator: torch.Generator) -> LlamaForCausalLM:
    """A float64 model whose random weights keep the numbers near 1 from layer to layer."""
    sizes = dict(sizes)
    rope = {"rope_type": "default", "rope_theta": sizes.pop("rope_theta")}
    config = LlamaConfig(**sizes, rope_parameters=rope, attn_implementation="sdpa")
    model = LlamaForCausalLM(config).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            random = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            random = 1 + random / 4 if weight.ndim == 1 else random * scale_of(name, weight)
            weight.copy_(random.half())
    return model


def scale_of(name: str, weight: torch.Tensor) -> float:
    """The embedding is small and q, k are large, so that attention has favourites."""
    if "embed_tokens" in name:
        return 0.3
    return (2.0 if "q_proj" in name or "k_proj" in name else 1.0) / weight.shape[1] ** 0.5


def capture(model: LlamaForCausalLM, inputs: dict) -> dict[str, torch.Tensor]:
    """Logits of one forward, and what went in and out of the parts of its last layer."""
    seen, rotated = {}, []
    rotate = modeling_llama.apply_rotary_pos_emb

    def spy(q, k, cos, sin, **kwargs):
        rotated[:] = (q, k, cos, sin, *rotate(q, k, cos, sin, **kwargs))
        return rotated[4:]

    def watch(name):
        def hook(module, args, output):
            seen[f"{name}.in"], seen[f"{name}.out"] = args[0], output

        return hook

    block = model.model.layers[-1]
    parts = {"norm": block.input_layernorm, "v_proj": block.self_attn.v_proj, "mlp": block.mlp}
    parts["o_proj"] = block.self_attn.o_proj
    hooks = [part.register_forward_hook(watch(name)) for name, part in parts.items()]
    modeling_llama.apply_rotary_pos_emb = spy
    try:
        with torch.no_grad():
            seen["logits"] = model(**inputs).logits
    finally:
        modeling_llama.apply_rotary_pos_emb = rotate
        for hook in hooks:
            hook.remove()
    names = ("q", "k", "cos", "sin", "q_rotated", "k_rotated")
    return seen | dict(zip(names, rotated, strict=True))


def left_padded(vocabulary: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """A batch of unequal lengths as transformers pads it, with positions that count from 0."""
    width = max(PADDED_LENGTHS)
    columns = torch.arange(width)
    lengths = torch.tensor(PADDED_LENGTHS)[:, None]
    positions = columns - (width - lengths)
    return {
        "input_ids": torch.randint(vocabulary, (len(lengths), width), generator=generator),
        "attention_mask": (positions >= 0).long(),
        "position_ids": positions.clamp(min=0),
    }


def arrays_of(name: str, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """The weights of one model, an unpadded batch with its captured parts, and a padded batch."""
    model = make_model(SIZES[name], generator)
    weights = {n: w.detach().half() for n, w in model.named_parameters()}
    tokens = torch.randint(SIZES[name]["vocab_size"], (2, 11), generator=generator)
    whole = capture(model, {"input_ids": tokens})
    padded = left_padded(SIZES[name]["vocab_size"], generator)
    with torch.no_grad():
        logits = model(**padded).logits
    arrays = {f"weights.{n}": w for n, w in weights.items()}
    arrays |= {f"whole.{n}": t for n, t in whole.items()} | {"whole.tokens": tokens}
    arrays["padded.tokens"] = padded["input_ids"]
    arrays["padded.positions"] = padded["position_ids"].where(padded["attention_mask"] > 0, -1)
    arrays["padded.logits"] = logits[:, -1]
    return {f"{name}.{n}": t.detach().clone().contiguous() for n, t in arrays.items()}


def config_of(name: str) -> dict:
    """The sizes as the engine's Config spells them."""
    return SIZES[name] | {"bos_token_id": None, "eos_token_ids": []}


def main() -> None:
    """Both models into one file of arrays and one of configurations."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(SEED)
    arrays = {}
    for name in SIZES:
        arrays |= arrays_of(name, generator)
    partial = FOLDER / "forward_pass.safetensors.partial"
    save_file(arrays, partial)
    partial.chmod(0o644)
    partial.replace(FOLDER / "forward_pass.safetensors")
    configs = {name: config_of(name) for name in SIZES}
    write_text(FOLDER / "forward_pass.json", json.dumps({"configs": configs}, indent=2) + "\n")
    made = ["forward_pass.safetensors", "forward_pass.json"]
    record(made, "make_forward_pass.py", SEED, ["torch", "transformers", "safetensors"])


if __name__ == "__main__":
    main()
