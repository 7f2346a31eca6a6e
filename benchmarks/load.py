"""Load time and peak memory of the bundled model: ours beside transformers' from_pretrained.

python -m course bench load
"""

import json
import sys
import time

from benchmarks import kit

ROUNDS = 5
DTYPES = ("float32", "bfloat16")
CONTENDERS = ("ours", "transformers")


def main() -> None:
    """Each dtype in turns, a process of its own each time; then a table of medians and ratios."""
    from course.model import ensure_model

    folder = str(ensure_model())
    tables = {dtype: _measure(folder, dtype) for dtype in DTYPES}
    kit.say_machine()
    print(f"{ROUNDS} rounds each, medians; the file is in the page cache; import time left out\n")
    head = "seconds", "spread", "peak MB"
    print(f"{'dtype':10}{'contender':14}{head[0]:>9}{head[1]:>8}{head[2]:>9}  beyond imports")
    for dtype, found in tables.items():
        for name in CONTENDERS:
            _print_row(dtype, name, found[name])
    if any(
        kit.spread(runs, "seconds") > 0.2 for found in tables.values() for runs in found.values()
    ):
        print("A spread over 20 %: something else used the machine. Measure again.")
    print()
    ratios = {dtype: _ratios(found) for dtype, found in tables.items()}
    for dtype, ratio in ratios.items():
        print(
            f"{dtype}: transformers needs {ratio['seconds']:.1f} times our seconds and "
            f"{ratio['beyond']:.2f} times our memory beyond the imports"
        )
    kit.save("load", {"rounds": ROUNDS, "runs": tables, "ratios": ratios})


def _measure(folder: str, dtype: str) -> dict:
    return kit.in_turns(
        CONTENDERS, lambda name: kit.child(__file__, "--child", name, folder, dtype), ROUNDS
    )


def _print_row(dtype: str, name: str, results: list) -> None:
    seconds, apart = kit.median(results, "seconds"), kit.spread(results, "seconds")
    peak, beyond = (kit.median(results, key) / 1e6 for key in ("peak", "beyond"))
    print(f"{dtype:10}{name:14}{seconds:9.3f}{apart:8.0%}{peak:9.0f}{beyond:16.0f}")


def _ratios(found: dict) -> dict[str, float]:
    """transformers over ours."""
    keys = "seconds", "peak", "beyond"
    ours, theirs = (found[name] for name in CONTENDERS)
    return {key: kit.median(theirs, key) / kit.median(ours, key) for key in keys}


# ---- in the child ----


def run_child(name: str, folder: str, dtype: str) -> None:
    """Load once and print what it took: seconds, peak bytes, and those beyond the imports."""
    import psutil
    import torch

    load = {"ours": _ours, "transformers": _transformers}[name]()
    before = psutil.Process().memory_info().rss
    began = time.perf_counter()
    tensors = load(folder, getattr(torch, dtype))
    for tensor in tensors:  # a mapped page that was never touched has not been loaded
        tensor.flatten().view(torch.uint8)[::4096].sum()
    seconds, peak = time.perf_counter() - began, kit.peak_bytes()
    print(json.dumps({"seconds": seconds, "peak": peak, "beyond": peak - before}))


def _ours():
    from solutions.forward_pass import Llama
    from solutions.loader import load_model

    def load(folder, dtype):
        loaded = load_model(folder, dtype)
        return list(Llama(loaded.config, loaded.weights).weights.values())

    return load


def _transformers():
    from transformers import LlamaForCausalLM

    def load(folder, dtype):
        return [*LlamaForCausalLM.from_pretrained(folder, dtype=dtype).parameters()]

    return load


if __name__ == "__main__":
    run_child(*sys.argv[2:]) if "--child" in sys.argv[1:2] else main()
