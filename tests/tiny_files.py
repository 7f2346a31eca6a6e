"""Small model files for tests, written by hand or by other libraries, never by our own code."""

import json
import struct
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LAYER = {
    "input_layernorm": (32,),
    "self_attn.q_proj": (32, 32),
    "self_attn.k_proj": (16, 32),
    "self_attn.v_proj": (16, 32),
    "self_attn.o_proj": (32, 32),
    "post_attention_layernorm": (32,),
    "mlp.gate_proj": (64, 32),
    "mlp.up_proj": (64, 32),
    "mlp.down_proj": (32, 64),
}
SHAPES = {
    "model.embed_tokens.weight": (300, 32),
    **{f"model.layers.{i}.{n}.weight": s for i in (0, 1) for n, s in LAYER.items()},
    "model.norm.weight": (32,),
}


def random_tensors(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """A value for every tensor of SHAPES."""
    generator = torch.Generator().manual_seed(0)
    return {n: torch.randn(s, generator=generator).to(dtype) for n, s in SHAPES.items()}


def byte_vocabulary() -> list[str]:
    """Three special tokens and one token a byte: 259 in all."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *alphabet]


def write_tokenizer(path: Path) -> None:
    """A byte-level tokenizer without merges."""
    vocabulary = {token: index for index, token in enumerate(byte_vocabulary())}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(byte_vocabulary()[:3])
    tokenizer.save(str(path))


def write_checkpoint(folder: Path, tensors: dict | None = None, **changes: object) -> Path:
    """A whole folder; `changes` go into config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, **changes)
    save_file(random_tensors() if tensors is None else tensors, folder / "model.safetensors")
    write_tokenizer(folder / "tokenizer.json")
    return folder


def write_config(folder: Path, **changes: object) -> Path:
    text = json.dumps(CONFIG | changes)
    (folder / "config.json").write_text(text, encoding="utf-8")
    return folder


# ---- GGUF, field by field ----

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
CODES = {U32: "<I", F32: "<f", BOOL: "<?", I32: "<i"}


def gguf_string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind: int, value: object) -> bytes:
    return gguf_string(value) if kind == STRING else struct.pack(CODES[kind], value)


def gguf_pair(key: str, kind: int, value: object) -> bytes:
    """One key and its value; a list is written as an array of `kind`."""
    if isinstance(value, list):
        body = struct.pack("<IIQ", ARRAY, kind, len(value))
        return gguf_string(key) + body + b"".join(gguf_value(kind, v) for v in value)
    return gguf_string(key) + struct.pack("<I", kind) + gguf_value(kind, value)


def gguf_file(
    pairs: list[bytes], tensors: list[tuple], version: int = 3, alignment: int = 32
) -> bytes:
    """A file of (name, shape, type number, bytes) tensors."""
    index, data = b"", b""
    for name, shape, kind, raw in tensors:
        index += gguf_string(name) + struct.pack("<I", len(shape))
        index += struct.pack(f"<{len(shape)}Q", *reversed(shape))
        index += struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % alignment)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    head += b"".join(pairs) + index
    return head + bytes(-len(head) % alignment) + data


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def llama_cpp_name(name: str) -> str:
    """The name llama.cpp gives a tensor of SHAPES."""
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    layer, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
    return f"blk.{layer}.{GGUF_NAMES[part]}.weight"


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's row order for q_proj and k_proj: 0, d/2, 1, d/2 + 1, ... in each head."""
    size = len(weight) // heads
    order = [h * size + i + half for h in range(heads) for i in range(size // 2)
             for half in (0, size // 2)]  # fmt: skip
    return weight[order]


def tiny_gguf(licence: str = "apache-2.0") -> bytes:
    """A whole Llama model in float32 with the byte vocabulary, as llama.cpp would store it."""
    tensors = []
    for name, tensor in random_tensors().items():
        weight = tensor.numpy()
        heads = {"q_proj.weight": 4, "k_proj.weight": 2}.get(name.rpartition("attn.")[2])
        weight = interleave(weight, heads) if heads else weight
        tensors.append((llama_cpp_name(name), weight.shape, 0, weight.astype("<f4").tobytes()))
    vocabulary = byte_vocabulary()
    vocabulary += ["ab", "12", *(f"unused{i}" for i in range(298 - len(vocabulary)))]
    numbers = {
        "llama.block_count": 2, "llama.context_length": 128, "llama.embedding_length": 32,
        "llama.feed_forward_length": 64, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.vocab_size": 300,
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip
    texts = {
        "general.architecture": "llama",
        "general.license": licence,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.chat_template": "{{ messages }}\n",
    }
    pairs = [gguf_pair(k, U32, v) for k, v in numbers.items()]
    pairs += [gguf_pair(k, STRING, v) for k, v in texts.items()]
    pairs += [
        gguf_pair("llama.rope.freq_base", F32, 100000.0),
        gguf_pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        gguf_pair("tokenizer.ggml.tokens", STRING, vocabulary),
        gguf_pair("tokenizer.ggml.token_type", I32, [3, 3, 3] + [1] * 297),
        gguf_pair("tokenizer.ggml.merges", STRING, ["a b", "1 2"]),
    ]
    return gguf_file(pairs, tensors)
