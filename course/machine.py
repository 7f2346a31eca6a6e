"""What the doctor finds out about memory, disk and GPU, with the functions of chapter 01.

Like them it needs no package, and changes nothing.
"""

import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from course import paths
from solutions.fitting import GB, MemoryPlan, plan_memory
from solutions.gpu import Driver, choose_cuda, parse_nvidia_smi
from solutions.sizing import kv_cache_bytes, predict_decode, weight_bytes
from solutions.timing import bandwidth, read_through

OTHERS = 1 * GB  # of memory, for torch, JupyterLab and a browser
BLOCK = 2**27  # bytes that are read to measure the memory: more than a cache holds
CUDA_BUILDS = ("12.6", "12.9", "13.0", "13.2")  # of the torch in requirements.txt
SIZES = {  # of the bundled model, so that it can be planned for before it is there
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}
CONTEXT = 8192  # tokens that it can hold


class Finding(NamedTuple):
    """One line of the report; a `fix` makes it a problem."""

    name: str
    value: str
    fix: str = ""


def memory() -> Finding:
    """Total and available memory; the bundled model must fit, beside JupyterLab."""
    try:
        import psutil
    except ImportError:
        return Finding("memory", "unknown until the packages are installed")
    now = psutil.virtual_memory()
    value = f"{now.total / GB:.1f} GB, {now.available / GB:.1f} GB available"
    found = plan(now.available - OTHERS)
    if found.fits:
        return Finding("memory", f"{value}: the model fits with all its {CONTEXT:,} tokens")
    return Finding("memory", value, f"{'; '.join(found.reasons)} (for other programs: 1 GB)")


def plan(ram_bytes: int) -> MemoryPlan:
    """Whether the bundled model fits in that much memory, in float32 and with a full context."""
    weights = weight_bytes(SIZES, 32)
    return plan_memory(weights, weights, kv_cache_bytes(SIZES, CONTEXT, bits=32), max(0, ram_bytes))


def memory_speed() -> Finding:
    """How fast one core reads memory, and what that allows: reading sets the speed of decoding."""
    try:
        block = bytearray(b"\x01") * BLOCK  # written, for memory never written has no pages yet
        speed = bandwidth(lambda: block.find(b"\x02"), BLOCK)  # is nowhere: all of it is read
    except (MemoryError, ValueError) as problem:
        return Finding("memory speed", f"not measured: {problem or 'too little memory'}")
    weights = weight_bytes(SIZES, 32)
    limit = predict_decode(weights, 0, weights / 4, speed, math.inf).tokens_per_second
    value = f"one core reads {speed / GB:.1f} GB/s: {limit:.0f} tokens/s from the model in float32"
    return Finding("memory speed", value)


def disk_speed() -> Finding:
    """How fast the bundled model's GGUF file is read, from the disk where the system can be asked.

    Read once: after a warm-up it would come from the page cache, which is memory.
    """
    if not paths.GGUF.is_file():
        return Finding("disk speed", "measured once the model is there")
    try:
        cold, size = _forget(paths.GGUF), paths.GGUF.stat().st_size
        speed = bandwidth(lambda: read_through(paths.GGUF), size, warmup=0, repeats=1)
    except (OSError, ValueError) as problem:
        return Finding("disk speed", f"not measured: {problem}")
    source = "" if cold else ", perhaps from the page cache"
    return Finding("disk speed", f"reads {speed / GB:.2f} GB/s ({size / 1e6:.0f} MB{source})")


def _forget(path: Path) -> bool:
    """Ask the system to drop a file from its page cache; False where it cannot be asked."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def driver() -> Finding:
    """What `nvidia-smi` says; the course needs no GPU, so nothing here is a problem."""
    if not shutil.which("nvidia-smi"):
        return Finding("GPU driver", "no nvidia-smi here; the course needs no GPU")
    try:
        found = parse_nvidia_smi(_nvidia_smi())
    except (ValueError, OSError, subprocess.SubprocessError) as problem:
        return Finding("GPU driver", f"{problem}; the course needs no GPU")
    names = [
        g.name + (f" ({g.memory_bytes / GB:.1f} GB)" if g.memory_bytes else "") for g in found.gpus
    ]
    return Finding("GPU driver", f"{_carries(found)}; {', '.join(names) or 'no GPU'}")


def _nvidia_smi() -> str:
    """Its output; what it has to say when it fails comes from either stream."""
    done = subprocess.run(["nvidia-smi"], capture_output=True, timeout=20, check=False)
    return (done.stdout.strip() or done.stderr).decode("utf-8", errors="replace")


def _carries(found: Driver) -> str:
    """The CUDA version of a driver, and which build of torch fits it."""
    if found.cuda is None:
        return f"{found.version or 'there'}, CUDA unknown"
    try:
        advice = f"torch's build for CUDA {choose_cuda(found.cuda, CUDA_BUILDS)} would use it"
    except ValueError as problem:
        advice = str(problem)
    return f"{found.version or 'there'}, CUDA {found.cuda[0]}.{found.cuda[1]}; {advice}"
