"""Expected values of chapter 03: a weight in the formats of torch and gguf, and the perplexity that
transformers gives to the two tiny Llamas.

Windows as in Hugging Face's "Perplexity of fixed-length models": labels that an earlier window has
counted are -100, so that its loss leaves them out. In float64.
"""

import json
import math
import random

import gguf
import torch
from gguf.quants import dequantize, quantize
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from tests.reference.arrays import tiny_config, tiny_weights
from tests.reference.make_forward_pass import SIZES, make_model
from tests.reference.record import FOLDER, record, write_text

SEED = 20240303
SETTINGS = [("tied", 40, 48, 24), ("tied", 61, 16, 8), ("untied", 55, 20, 15), ("untied", 30, 8, 1)]


def model_of(name: str) -> LlamaForCausalLM:
    """The tiny model with its stored weights, in float64."""
    model = make_model(SIZES[name], torch.Generator().manual_seed(0))
    weights = {n: w.double() for n, w in tiny_weights(name).items()}
    model.load_state_dict(weights, strict=not tiny_config(name)["tie_word_embeddings"])
    model.tie_weights()
    return model


@torch.no_grad()
def perplexity(model: LlamaForCausalLM, ids: list[int], window: int, stride: int) -> float:
    """exp of the mean loss over every token but the first."""
    total = counted = done = 0
    for start in range(0, len(ids), stride):
        end = min(start + window, len(ids))
        labels = torch.tensor(ids[start:end])
        labels[: -(end - done)] = -100
        new = int((labels[1:] != -100).sum())
        loss = model(torch.tensor([ids[start:end]]), labels=labels[None]).loss
        total, counted, done = total + float(loss) * new, counted + new, end
        if end == len(ids):
            break
    assert counted == len(ids) - 1
    return math.exp(total / counted)


def other_formats() -> dict[str, torch.Tensor]:
    """A random weight [16, 96], torch's int8 rows of it, and gguf's Q4_1 blocks there and back."""
    weight = torch.randn(16, 96, generator=torch.Generator().manual_seed(SEED)) / 20
    scale = weight.double().abs().amax(1) / 127
    zero = torch.zeros(16, dtype=torch.long)
    rows = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8).int_repr()
    kind = gguf.GGMLQuantizationType.Q4_1
    blocks = quantize(weight.numpy(), kind)
    back = torch.from_numpy(dequantize(blocks, kind))
    return {"weight": weight, "rows": rows, "blocks": torch.from_numpy(blocks), "from_blocks": back}


def main() -> None:
    """Write quantizer.json and quantizer.safetensors."""
    rng, entries = random.Random(SEED), []
    for name, length, window, stride in SETTINGS:
        ids = [rng.randrange(tiny_config(name)["vocab_size"]) for _ in range(length)]
        found = perplexity(model_of(name), ids, window, stride)
        entries.append({"model": name, "ids": ids, "window": window, "stride": stride,
                        "perplexity": found})  # fmt: skip
    write_text(FOLDER / "quantizer.json", json.dumps({"perplexity": entries}, indent=1) + "\n")
    save_file(other_formats(), FOLDER / "quantizer.safetensors")
    names = ["quantizer.json", "quantizer.safetensors"]
    record(names, "make_quantizer.py", SEED, ["transformers", "torch", "gguf", "safetensors"])


if __name__ == "__main__":
    main()
