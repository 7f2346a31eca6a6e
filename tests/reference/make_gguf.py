"""SHA-256 of each tensor of the bundled GGUF file as transformers reads it, for test_gguf.py.

    pip install torch==2.13.0 transformers==5.24.0 gguf==0.19.0 accelerate
    PYTHONPATH=. python tests/reference/make_gguf.py

transformers dequantizes with the `gguf` package, renames, and undoes the row permutation of q_proj
and k_proj with its own code, so nothing of ours takes part in these numbers.
"""

import hashlib
import json

import torch
from transformers import AutoModelForCausalLM

from course.paths import GGUF
from tests.reference.record import FOLDER, record, write_text

OUT = FOLDER / "gguf.json"


def digest(tensor: torch.Tensor) -> str:
    """SHA-256 of a tensor's float32 bytes, little-endian, row by row."""
    return hashlib.sha256(tensor.contiguous().numpy().astype("<f4").tobytes()).hexdigest()


def main() -> None:
    model = AutoModelForCausalLM.from_pretrained(
        GGUF.parent, gguf_file=GGUF.name, dtype=torch.float32
    )
    tensors = {n: digest(t) for n, t in model.state_dict().items() if n != "lm_head.weight"}
    made = {
        "gguf_sha256": hashlib.sha256(GGUF.read_bytes()).hexdigest(),
        "tensors": tensors,
    }
    write_text(OUT, json.dumps(made, indent=1) + "\n")
    record([OUT.name], "make_gguf.py", None, ["torch", "transformers", "gguf"])
    print(f"{OUT}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
