"""Expected values of chapter 05: what the logits processors of transformers make of some logits.

Each row of logits is for one setting; "hidden" is what the processors, in the order of the course,
leave of it (after the temperature), in float64.
"""

import json

import torch
from safetensors.torch import save_file
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tests.reference.record import FOLDER, record, write_text

SEED, VOCABULARY, SEEN = 20240505, 60, 12
SETTINGS = [
    {"temperature": 0.7},
    {"temperature": 1.9},
    {"top_k": 1},
    {"top_k": 7},
    {"top_p": 0.3},
    {"top_p": 0.92},
    {"min_p": 0.05},
    {"min_p": 0.6},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"temperature": 0.5, "top_p": 0.85},
    {"temperature": 1.5, "top_k": 20, "top_p": 0.6},
    {"temperature": 1.4, "top_k": 30, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.2},
]


def processors(wish: dict) -> list:
    """Those that the setting asks for: penalties, temperature, top-k, top-p, min-p."""
    kinds = {
        "repetition_penalty": RepetitionPenaltyLogitsProcessor,
        "temperature": TemperatureLogitsWarper,
        "top_k": TopKLogitsWarper,
        "top_p": TopPLogitsWarper,
        "min_p": MinPLogitsWarper,
    }
    return [kind(wish[name]) for name, kind in kinds.items() if name in wish]


def main() -> None:
    """Write sampler.json and sampler.safetensors."""
    generator = torch.Generator().manual_seed(SEED)
    shape = len(SETTINGS), VOCABULARY
    logits = 3 * torch.randn(shape, generator=generator, dtype=torch.float64).float()
    seen = torch.randint(VOCABULARY, (len(SETTINGS), SEEN), generator=generator)
    found = []
    for row, wish in enumerate(SETTINGS):
        scores = logits[row : row + 1].double()
        for processor in processors(wish):
            scores = processor(seen[row : row + 1], scores)
        found.append(scores[0])
    arrays = {"logits": logits, "seen": seen, "hidden": torch.stack(found)}
    save_file(arrays, FOLDER / "sampler.safetensors")
    write_text(FOLDER / "sampler.json", json.dumps({"settings": SETTINGS}, indent=1) + "\n")
    names = ["sampler.json", "sampler.safetensors"]
    record(names, "make_sampler.py", SEED, ["transformers", "torch", "safetensors"])


if __name__ == "__main__":
    main()
