"""Files for the cases of chapter 02, and what is said about calls that should have failed."""

import atexit
import json
import os
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch

from course.cases import Wrong, describe, randn
from tests.grading.forward_pass.driving import drive
from tests.oracles import loader as oracle

__all__ = ["drive"]


@cache
def _root() -> Path:
    """One temporary folder for this process, removed at its end."""
    root = Path(tempfile.mkdtemp(prefix="course-files-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def new_folder(rng: random.Random) -> Path:
    """A folder for a case. The same seed gives the same folder, so that messages agree."""
    folder = _root() / f"{rng.getrandbits(40):010x}"
    folder.mkdir(exist_ok=True)
    return folder


def write(path: Path, data: bytes) -> str:
    """Write a file, unless it is there already: somebody may have it mapped. Returns its path."""
    if not path.is_file() or path.read_bytes() != data:
        partial = path.with_name(path.name + ".partial")
        partial.write_bytes(data)
        partial.replace(path)
    return str(path)


def write_sparse(path: Path, head: bytes, size: int) -> str:
    """A file of `size` bytes that begins with head; the rest is zeros and takes no room."""
    if not path.is_file():
        path.write_bytes(head)
        os.truncate(path, size)
    return str(path)


def write_json(path: Path, value) -> str:
    """JSON in UTF-8."""
    return write(path, json.dumps(value).encode("utf-8"))


def write_tensors(path: Path, tensors: dict, spaces: int = 0) -> str:
    """Tensors in the dtypes of NAMES as a file, written by hand.

    Without spaces the data begins at a multiple of 8, as other programs have it.
    """
    rows = [(name, NAMES[t.dtype], tuple(t.shape)) for name, t in tensors.items()]
    data = b"".join(map(oracle.raw_bytes, tensors.values()))
    return write(path, aligned_head(oracle.entries(rows), spaces) + data)


def aligned_head(header: dict, spaces: int = 0) -> bytes:
    """Length and JSON, filled up to a multiple of 8 and by some more spaces."""
    text = oracle.file_bytes(header)
    return oracle.file_bytes(header, spaces=-len(text) % 8 + spaces)


NAMES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float64: "F64",
    torch.int8: "I8",
    torch.int64: "I64",
}


def model_sizes(rng: random.Random, **changes) -> dict:
    """The sizes of a small Llama: no two widths alike, and H D is not E."""
    heads, shared = rng.choice([(4, 2), (6, 3), (6, 1)])
    sizes = {
        "vocab_size": rng.randrange(40, 60),
        "hidden_size": rng.randrange(10, 14),
        "intermediate_size": rng.randrange(25, 35),
        "num_hidden_layers": rng.randrange(2, 4),
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "head_dim": rng.choice([4, 8]),
        "tie_word_embeddings": True,
    }
    return {**sizes, **changes}


def model_tensors(rng: random.Random, sizes: dict, dtype=torch.float32) -> dict:
    """Random numbers for every tensor there must be."""
    shapes = oracle.expected_shapes(sizes)
    return {name: randn(rng, *shape, dtype=dtype) for name, shape in shapes}


def write_config(folder: Path, sizes: dict) -> None:
    """config.json for these sizes."""
    raw = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "max_position_embeddings": 64,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "eos_token_id": 2,
    }
    write_json(folder / "config.json", raw | sizes)


def expect_refusal(found, kind: str, what: str, names: list) -> None:
    """One answer of the scenario `attempts`: this kind of exception, and what it must name."""
    if not isinstance(found, dict) or "raised" not in found:
        returned = found.get("returned", "") if isinstance(found, dict) else describe(found)
        raise Wrong(f"{what}: it returned {returned}, expected {kind}")
    if kind not in found["raised"]:
        raise Wrong(f"{what}: it raised {found['raised'][0]}, expected {kind}")
    if found["unnamed"]:
        missing = " and ".join(map(str, found["unnamed"]))
        raise Wrong(f"{what}: the message of the {kind} does not name {missing}")


def expect_refusals(learner, function: str, kind: str, lies: list) -> None:
    """Each of (what is wrong in words, argument, what the message must name) is refused."""
    calls = [[[argument], list(map(str, names))] for _, argument, names in lies]
    answers = learner.scenario("attempts", function, calls)
    for (what, _, names), found in zip(lies, answers, strict=True):
        expect_refusal(found, kind, what, names)


def expect_cheap(cost: dict, what: str) -> None:
    """Opening it neither copied nor read its data."""
    if cost["copied"] > 2:
        raise Wrong(f"{cost['copied']} MB were allocated to open {what}: it was copied")
    if cost["resident"] > 16:
        raise Wrong(
            f"about {cost['resident']} MB became resident when {what} was opened, and nobody has "
            "used a number yet"
        )


def expect_rows(got: list, expected: dict, what: str, ordered: bool = True) -> None:
    """Rows of [name, dtype, shape, bytes] are these tensors, bit for bit."""
    names, wanted = [row[0] for row in got], list(expected)
    if sorted(names) != sorted(wanted):
        raise Wrong(f"{what} has the names {sorted(names)}, expected {sorted(wanted)}")
    if ordered and names != wanted:
        raise Wrong(f"{what} has its names in the order {names}, expected {wanted}")
    for name, dtype, shape, data in got:
        _expect_row(f"{what}: {name}", dtype, shape, data, expected[name])


def _expect_row(what: str, dtype: str, shape: list, data, tensor) -> None:
    want = str(tensor.dtype).removeprefix("torch.")
    if dtype != want:
        raise Wrong(f"{what} has dtype {dtype}, expected {want}")
    if list(shape) != list(tensor.shape):
        raise Wrong(f"{what} has shape {list(shape)}, expected {list(tensor.shape)}")
    got, right = bytes(data.tolist()), oracle.raw_bytes(tensor)
    if got != right:
        at = next(i for i, (a, b) in enumerate(zip(got, right, strict=True)) if a != b)
        raise Wrong(
            f"{what} has other numbers than the file: byte {at} is {got[at]}, expected {right[at]}"
        )
