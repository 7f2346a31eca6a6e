"""Quantizing the bundled model: speed beside the same arithmetic written plainly, and the peak.

python -m course bench quantize
"""

import contextlib
import json
import math
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import kit

ROUNDS = 5
CONTENDERS = ("ours", "plain numpy", "read first")
BITS, GROUP = 4, 32


def main() -> None:
    """All contenders in turns, a process of its own each time; then medians, ratios, the bound."""
    from course.model import ensure_model

    folder = str(ensure_model())
    found = kit.in_turns(
        CONTENDERS, lambda name: kit.child(__file__, "--child", name, folder), ROUNDS
    )
    kit.say_machine()
    print(f"{BITS} bits, groups of {GROUP}; {ROUNDS} rounds, medians; one thread each\n")
    print(
        f"{'contender':14}{'seconds':>9}{'spread':>8}{'MB/s in':>9}{'rise MB':>9}{'result MB':>11}"
    )
    for name in CONTENDERS:
        _print_row(name, found[name])
    ratios = {name: _ratios(found[name], found["ours"]) for name in CONTENDERS[1:]}
    print()
    for name, ratio in ratios.items():
        print(
            f"{name}: {ratio['seconds']:.1f} times our seconds, "
            f"{ratio['rise']:.2f} times our rise of memory"
        )
    _print_bound(found["ours"])
    kit.save("quantize", {"rounds": ROUNDS, "runs": found, "ratios": ratios})


def _print_row(name: str, results: list) -> None:
    seconds = kit.median(results, "seconds")
    rise, size = (kit.median(results, key) / 1e6 for key in ("rise", "result"))
    speed = kit.median(results, "read") / 1e6 / seconds
    apart = kit.spread(results, "seconds")
    print(f"{name:14}{seconds:9.2f}{apart:8.0%}{speed:9.0f}{rise:9.0f}{size:11.0f}")


def _ratios(theirs: list, ours: list) -> dict[str, float]:
    return {key: kit.median(theirs, key) / kit.median(ours, key) for key in ("seconds", "rise")}


def _print_bound(ours: list) -> None:
    """What chapter 03 promises: the peak stays under the quantized size plus two layers."""
    rise, size, layer = (kit.median(ours, key) for key in ("rise", "result", "layer"))
    verdict = "under" if rise < size + 2 * layer else "OVER"
    print(
        f"\nours: the process grew by {rise / 1e6:.0f} MB, {verdict} the result plus two layers: "
        f"{size / 1e6:.0f} + 2 * {layer / 1e6:.1f} MB"
    )


# ---- in the child ----


def run_child(name: str, folder: str) -> None:
    """Quantize and save once; print seconds, the rise of resident memory, and the sizes."""
    import psutil
    import torch

    from course.quantize import large_blocks_given_back

    torch.set_num_threads(1)
    work = {"ours": _ours, "plain numpy": _plain_numpy, "read first": _read_first}[name]
    _warm_up()
    before = psutil.Process().memory_info().rss
    naive = name == "read first"  # and so it leaves memory to glibc, as whoever writes it does
    with contextlib.nullcontext() if naive else large_blocks_given_back():
        began = time.perf_counter()
        weights = work(Path(folder))
        seconds = time.perf_counter() - began
        result = _save(weights)
    print(json.dumps({"seconds": seconds, "rise": kit.peak_bytes() - before, **result}))


def _warm_up() -> None:
    """The first call of each operation loads code from disk, which is no memory of the model's."""
    import torch

    from solutions.quantized import Format
    from solutions.quantizer import quantize_weights, save_quantized

    with tempfile.TemporaryDirectory() as folder:
        weights = quantize_weights({"a.weight": torch.ones(64, 64)}, Format(BITS, GROUP))
        save_quantized(Path(folder) / "a.safetensors", weights)


def _save(weights: dict) -> dict[str, int]:
    """Save as the verb does; the bytes of the result, of what was read, and of one layer there."""
    from solutions.quantizer import save_quantized

    with tempfile.TemporaryDirectory() as folder:
        save_quantized(Path(folder) / "a.safetensors", weights)
    sizes = {name: 4 * math.prod(weight.shape) for name, weight in weights.items()}
    layer = sum(size for name, size in sizes.items() if ".layers.0." in name)
    result = sum(weight.nbytes for weight in weights.values())
    return {"result": result, "read": sum(sizes.values()), "layer": layer}


def _ours(folder: Path) -> dict:
    from course.quantize import OneByOne
    from solutions.quantized import Format
    from solutions.quantizer import quantize_weights

    return quantize_weights(OneByOne(folder), Format(BITS, GROUP))


def _read_first(folder: Path) -> dict:
    """Naive dynamic quantization: the whole float32 model in memory, then the same arithmetic."""
    from solutions.loader import read_config, stored_tensors
    from solutions.quantized import Format
    from solutions.quantizer import quantize_weights

    stored = stored_tensors(folder, read_config(folder))
    model = {name: tensor.clone() for name, tensor in stored.items()}
    return quantize_weights(model, Format(BITS, GROUP))


def _plain_numpy(folder: Path) -> dict:
    """Tensor by tensor as ours, the formula line by line in numpy."""
    import numpy as np
    import torch

    from course.quantize import OneByOne
    from solutions.quantized import QuantizedTensor
    from solutions.quantizer import is_quantizable

    def one(name: str, tensor):
        if not is_quantizable(name, tuple(tensor.shape)):
            return tensor
        groups = tensor.numpy().reshape(len(tensor), -1, GROUP)
        lo, hi = groups.min(-1), groups.max(-1)
        scale = ((hi - lo) / (2**BITS - 1)).astype(np.float16)
        minimum = lo.astype(np.float16)
        steps = scale.astype(np.float32)[..., None]
        steps[steps == 0] = np.inf
        q = np.round((groups - minimum.astype(np.float32)[..., None]) / steps)
        q = np.clip(q, 0, 2**BITS - 1).astype(np.uint8).reshape(len(tensor), -1)
        parts = (q[:, 0::2] | q[:, 1::2] << 4, scale, minimum)
        parts = (torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
        return QuantizedTensor(*parts, BITS, GROUP, tuple(tensor.shape))

    stored, weights = OneByOne(folder), {}
    for name in stored:
        weights[name] = one(name, stored[name])
    return weights


if __name__ == "__main__":
    run_child(*sys.argv[2:]) if "--child" in sys.argv[1:2] else main()
