"""Chapter 01 by someone who takes numpy for numbers, one pattern for a table, and generators."""

import itertools
import os
import re
import statistics
import time
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from hashlib import file_digest, sha256
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROW = re.compile(
    r"^\|[ ]+\d+[ ]+(?P<name>.+?)[ ]+\S+[ ]*\|[ ]*[0-9a-fA-F]+:[0-9a-fA-F]+:.*\n"
    r"(?P<below>.*)",
    re.MULTILINE,
)


class Gpu(NamedTuple):
    name: str
    memory_bytes: int | None
    used_bytes: int | None


class Driver(NamedTuple):
    version: str | None
    cuda: tuple | None
    gpus: tuple


class Prediction(NamedTuple):
    tokens_per_second: float
    bound: str


class MemoryPlan(NamedTuple):
    fits: bool
    reasons: tuple


@dataclass
class Timing:
    runs: tuple

    @property
    def median(self):
        return float(np.median(self.runs))

    @property
    def spread(self):
        return float(np.ptp(self.runs)) / self.median if self.median > 0 else 0.0


class Refused(ValueError):
    pass


def mebibytes(text):
    found = re.match(r"\s*(\d+)", text or "")
    return None if found is None else int(found.group(1)) << 20


def digits_first(text):
    return text if re.match(r"\d", text or "") else None


def read_csv(head, *lines):
    keys = re.split(r"\s*,\s*", head.strip())
    table = [dict(zip(keys, re.split(r"\s*,\s*", line.strip()), strict=False)) for line in lines]
    total, used = "memory.total [MiB]", "memory.used [MiB]"
    gpus = [Gpu(r["name"], mebibytes(r.get(total)), mebibytes(r.get(used))) for r in table]
    version = next((r.get("driver_version") for r in table), None)
    return Driver(digits_first(version), None, tuple(gpus))


def parse_nvidia_smi(text):
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise Refused("there is nothing to read")
    if lines[0].strip() == "No devices were found":
        return Driver(None, None, ())
    if re.search(r"\bname\b", lines[0]) and "memory.total" in lines[0]:
        return read_csv(*lines)
    named = dict(re.findall(r"(Driver|KMD|CUDA|CUDA UMD) Version: *([^ |]+)", text))
    version = named.get("Driver") or named.get("KMD")
    if version is None:
        raise Refused("neither a table nor CSV: " + lines[0])
    cuda = named.get("CUDA") or named.get("CUDA UMD") or ""
    parts = tuple(map(int, re.findall(r"\d+", cuda)))
    gpus = []
    for row in ROW.finditer("\n".join(line.strip() for line in lines) + "\n"):
        pair = re.search(r"(\d+)MiB */ *(\d+)MiB", row["below"])
        used, total = pair.groups() if pair else ("", "")
        gpus.append(Gpu(row["name"], mebibytes(total), mebibytes(used)))
    return Driver(digits_first(version), parts[:2] or None, tuple(gpus))


def choose_cuda(supported, available):
    ranked = []
    for place, text in enumerate(available):
        found = re.match(r"(\d+)\.(\d+)(\.\d+)*$", text)
        if not found:
            raise Refused(f"{text} is not a version")
        ranked.append(((int(found[1]), int(found[2])), -place, text))
    good = sorted(row for row in ranked if row[0] <= (supported[0], supported[1]))
    if not good:
        names = [text for *_, text in ranked]
        raise Refused("nothing for {}.{} among {}".format(*supported, names))
    return good[-1][2]


def time_call(call, clock=time.perf_counter, warmup=1, repeats=5):
    if warmup < 0 or repeats <= 0:
        raise Refused(f"{warmup} {repeats}")
    for _ in itertools.repeat(None, warmup):
        call()
    stamps = np.empty((repeats, 2))
    for row in stamps:
        row[0] = clock()
        call()
        row[1] = clock()
    return Timing(tuple(np.diff(stamps, axis=1).ravel().tolist()))


def bandwidth(transfer, nbytes, clock=time.perf_counter, warmup=1, repeats=5):
    if nbytes < 1:
        raise Refused(nbytes)
    middle = statistics.median(time_call(transfer, clock, warmup, repeats).runs)
    try:
        return nbytes / middle
    except ZeroDivisionError:
        raise Refused("no time passed") from None


def read_through(path, chunk=2**20):
    if chunk < 1:
        raise Refused(chunk)
    with Path(path).open("rb") as file:
        return sum(map(len, iter(lambda: file.read(chunk), b"")))


def head_dim(config):
    given = config.get("head_dim")
    return given if given else int(config["hidden_size"] / config["num_attention_heads"])


def kv_width(config):
    heads = (config.get("num_key_value_heads"), config["num_attention_heads"])
    return next(h for h in heads if h is not None) * head_dim(config)


def weight_bytes(config, bits=32, group_size=None, kept_bits=16):
    if bits not in {2**n for n in range(1, 6)}:
        raise Refused(f"bits {bits}")
    if kept_bits != 16 and kept_bits != 32:
        raise Refused(f"kept {kept_bits}")
    if group_size is not None and not group_size >= 1:
        raise Refused(f"group {group_size}")
    e, f, v = (config[k] for k in ("hidden_size", "intermediate_size", "vocab_size"))
    q, kv = config["num_attention_heads"] * head_dim(config), kv_width(config)
    outs = np.array([q, kv, kv, e, f, f, e], dtype=np.int64)
    ins = np.array([e, e, e, q, e, e, f], dtype=np.int64)
    layers = config["num_hidden_layers"]
    kept = v * e * (2 - bool(config.get("tie_word_embeddings"))) + e * (1 + 2 * layers)
    if bits > 8:
        return int((layers * (outs @ ins) + kept) * bits // 8)
    sizes = ins if group_size is None else np.full_like(ins, group_size)
    groups = np.ceil(ins / sizes).astype(np.int64)
    rows = np.ceil(groups * sizes * bits / 8).astype(np.int64) + 4 * groups
    return int(layers * (outs @ rows)) + kept * kept_bits // 8


def kv_cache_bytes(config, length, batch=1, bits=16):
    if length < 0 or batch < 0:
        raise Refused(f"{length} {batch}")
    try:
        size = {8: 1, 16: 2, 32: 4}[bits]
    except KeyError:
        raise Refused(f"{bits}") from None
    shape = (2, config["num_hidden_layers"], batch, length, kv_width(config))
    return int(np.prod(shape, dtype=np.int64)) * size


def step_times(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch):
    reading = weight_bytes / bandwidth + kv_bytes * batch / bandwidth
    return reading, parameters * batch / flops * 2


def predict_decode(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch=1):
    if not min(bandwidth, flops, batch) > 0:
        raise Refused("machine")
    times = step_times(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch)
    if not any(times):
        raise Refused("idle")
    return Prediction(batch / max(times), ("memory", "compute")[times[1] > times[0]])


def compute_bound_from(weight_bytes, kv_bytes, parameters, bandwidth, flops):
    if not min(bandwidth, flops) > 0:
        raise Refused("machine")
    w, k, p = map(Fraction, (weight_bytes, kv_bytes, parameters))
    slope = 2 * p / Fraction(flops) - k / Fraction(bandwidth)
    if slope <= 0:
        return None
    turn = w / Fraction(bandwidth) / slope
    return ceil(turn) + (turn.denominator == 1)


def plan_memory(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
    given = [n for n in (file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes) if n]
    if any(n < 0 for n in given):
        raise Refused(f"negative: {min(given)}")
    place = ram_bytes if device_bytes is None else device_bytes
    rules = (
        (2 * file_bytes, Fraction(ram_bytes), "the file twice takes {}, {} are free: quantize it"),
        (weight_bytes + kv_bytes, Fraction(4 * place, 5), "{} for weights and cache, of {}"),
    )
    broken = [
        words.format(f"{need / 1e9:.2f} GB", f"{float(room) / 1e9:.2f} GB")
        for need, room, words in rules
        if need > room
    ]
    return MemoryPlan(not broken, tuple(broken))


def sha256_file(path, chunk=2**20, progress=None):
    if chunk <= 0:
        raise Refused(chunk)
    if progress is None and chunk == 2**20:
        with open(path, "rb") as file:
            return file_digest(file, "sha256").hexdigest()
    total = sha256()
    with open(path, "rb") as file:
        while piece := file.read(chunk):
            total.update(piece)
            (progress or len)(len(piece) if progress else piece)
    return total.hexdigest()


def check_manifest(folder, files, ignore=("manifest.json",), progress=None):
    skip = frozenset(ignore)
    wanted = {name: about for name, about in files.items() if name not in skip}
    for name in wanted:
        if not name or re.search(r"^/|[:\\]|(^|/)\.\.(/|$)", name):
            raise Refused(f"name {name}")
    if not os.path.isdir(folder):
        raise FileNotFoundError(folder)
    there = {p.relative_to(folder).as_posix() for p in Path(folder).glob("**/*") if p.is_file()}
    kinds = Counter()
    for name in wanted.keys() | (there - skip):
        if name not in wanted:
            kinds[f"unlisted: {name}"] += 1
        elif not (Path(folder) / name).exists():
            kinds[f"missing: {name}"] += 1
        elif name not in there or not holds(Path(folder) / name, wanted[name], progress):
            kinds[f"changed: {name}"] += 1
    return sorted(kinds)


def holds(path, about, progress):
    if path.stat().st_size != about.get("bytes", path.stat().st_size):
        return False
    return int(sha256_file(path, progress=progress), 16) == int(about["sha256"], 16)


def essence(text):
    return " ".join(
        word
        for word in re.findall(r"[^\W_]+(?:[.+]+[^\W_]*)*|[.+]+\w*", text.casefold())
        if word not in ("the", "license", "licence", "version")
    )


def check_licence(licence, allowed):
    allowed, meant = list(allowed), essence(licence)
    fits = [entry for entry in allowed if meant and essence(entry) == meant]
    if not fits:
        raise Refused(f"{licence if meant else 'no licence'}: allowed are {', '.join(allowed)}")
    return fits[0]
