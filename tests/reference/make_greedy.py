"""What the bundled model says to fixed prompts, from Hugging Face transformers.

Greedy ids come from float32. A float64 run along the same ids gives the margin between the first
and the second choice at each step: where it is smaller than the spread between two float32
programs, either token is right. The tokenizer's ids are stored, so that reading needs none.
"""

import json

import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from course.paths import MODEL
from solutions.forward_pass import Llama
from solutions.loader import load_weights, read_config
from tests.reference.record import FOLDER, record, write_text

NEW_TOKENS = 24
TEXTS = [
    "Once upon a time",
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "In 1969, 3 astronauts",
    "La Révolution française a commencé en",
    "你好，世界。今天",
    "I love pizza 🍕 and 🎉 because",
    "1, 2, 3, 4, 5,",
    "The quick brown fox\tjumps   over\n\nthe lazy",
    "SELECT name, age FROM users WHERE",
    "Q: What is 12 + 7?\nA:",
]
CHATS = [
    [{"role": "user", "content": "What is gravity?"}],
    [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
    [
        {"role": "user", "content": "Hi, I am Ada."},
        {"role": "assistant", "content": "Hello Ada! How can I help you?"},
        {"role": "user", "content": "Write a haiku about the sea."},
    ],
]
WITH_LOGITS = (0, 4, 12)  # prompts whose float64 logits are stored
VOCABULARY = list(range(0, 49152, 1536))  # the 32 columns that are stored of them


class WideRotary(nn.Module):
    """Rotary angles in float64, where transformers has float32 whatever the model's dtype."""

    def __init__(self, theta: float, head_dim: int):
        super().__init__()
        pairs = torch.arange(0, head_dim, 2, dtype=torch.float64)
        self.frequencies = theta ** (-pairs / head_dim)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()


def widened(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """The model in float64 throughout: norms and angles too, which transformers leaves at 32."""
    model, config = model.double(), model.config
    theta = config.rope_parameters["rope_theta"]
    for owner in list(model.modules()):
        for name, part in list(owner.named_children()):
            if type(part).__name__ == "LlamaRMSNorm":
                norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=torch.float64)
                norm.weight = part.weight
                setattr(owner, name, norm)
    model.model.rotary_emb = WideRotary(theta, config.head_dim)
    return model


def prompts() -> list[dict]:
    """Each prompt as text or messages, with its ids."""
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    texts = [{"text": text, "prompt": tokenizer.encode(text).ids} for text in TEXTS]
    chat = PreTrainedTokenizerFast.from_pretrained(MODEL)
    for messages in CHATS:
        text = chat.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        texts.append({"messages": messages, "prompt": tokenizer.encode(text).ids})
    return texts


@torch.no_grad()
def greedy(model: LlamaForCausalLM, prompt: list[int]) -> list[int]:
    """24 ids, past an end token too: what is compared is the arithmetic."""
    output = model(torch.tensor([prompt]), use_cache=True)
    ids = [int(output.logits[0, -1].argmax())]
    while len(ids) < NEW_TOKENS:
        step = torch.tensor([[ids[-1]]])
        output = model(step, cache=output.past_key_values, use_cache=True)
        ids.append(int(output.logits[0, -1].argmax()))
    return ids


@torch.no_grad()
def all_logits(model: LlamaForCausalLM, ids: list[int]) -> torch.Tensor:
    """Logits [T, V] at every position, in float64."""
    return model(torch.tensor([ids])).logits[0].double()


@torch.no_grad()
def our_logits(model: Llama, ids: list[int]) -> torch.Tensor:
    """The same from this repository's engine, only to measure how far float32 programs differ."""
    positions = torch.arange(len(ids))[None]
    return model.forward(torch.tensor([ids]), positions, every_position=True)[0].double()


def largest_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """The spread of two sets of logits: the worst of all values."""
    return float((a - b).abs().max())


def main() -> None:
    """Greedy ids, then margins and logits, then the spread of two float32 programs."""
    entries = prompts()
    config = read_config(MODEL)
    ours = Llama(config, load_weights(MODEL, config))
    narrow = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    assert narrow.config.rope_parameters["rope_theta"] == config.rope_theta
    for entry in entries:
        entry["new"] = greedy(narrow, entry["prompt"])
        ids = entry["prompt"] + entry["new"][:-1]
        entry["float32"] = all_logits(narrow, ids), our_logits(ours, ids)
    wide = widened(narrow)
    spread = {"transformers": 0.0, "ours": 0.0}
    for index, entry in enumerate(entries):
        logits = all_logits(wide, entry["prompt"] + entry["new"][:-1])
        for name, other in zip(spread, entry.pop("float32"), strict=True):
            spread[name] = max(spread[name], largest_difference(logits, other))
        top = logits[len(entry["prompt"]) - 1 :].topk(2).values
        entry["margins"] = [round(float(first - second), 6) for first, second in top]
        if index in WITH_LOGITS:
            entry["logits"] = [[round(v, 6) for v in row] for row in logits[:, VOCABULARY].tolist()]
    result = {
        "model_sha256": json.loads((MODEL / "manifest.json").read_text(encoding="utf-8"))["files"][
            "model.safetensors"
        ]["sha256"],
        "float32_spread": {name: float(f"{value:.3g}") for name, value in spread.items()},
        "vocabulary": VOCABULARY,
        "prompts": entries,
    }
    write_text(FOLDER / "greedy.json", json.dumps(result, ensure_ascii=False) + "\n")
    record(["greedy.json"], "make_greedy.py", None, ["torch", "transformers", "tokenizers"])


if __name__ == "__main__":
    main()
