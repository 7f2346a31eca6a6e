"""Chapter 01 in another style: loops and plain string methods, no regular expressions."""

import hashlib
import os
import time
from dataclasses import dataclass


@dataclass
class Gpu:
    name: str
    memory_bytes: object
    used_bytes: object


@dataclass
class Driver:
    version: object
    cuda: object
    gpus: tuple


@dataclass
class Timing:
    runs: tuple

    @property
    def median(self):
        ordered, half = sorted(self.runs), len(self.runs) // 2
        return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2

    @property
    def spread(self):
        ordered, middle = sorted(self.runs), self.median
        return 0.0 if middle == 0 else (ordered[-1] - ordered[0]) / middle


@dataclass
class Prediction:
    tokens_per_second: float
    bound: str


@dataclass
class MemoryPlan:
    fits: bool
    reasons: tuple


def after(line, label):
    return number(line.split(label, 1)[1].split()[0])


def number(word):
    return word if word[:1].isdigit() else None


def mib(text):
    digits = text.strip().replace("MiB", "").strip()
    return int(digits) * 1048576 if digits.isdigit() else None


def memory(line):
    for column in line.split("|"):
        if column.count("MiB") == 2 and "/" in column:
            used, total = column.split("/")
            return mib(total), mib(used)
    return None, None


def from_csv(lines):
    titles = [cell.strip() for cell in lines[0].split(",")]
    rows = [dict(zip(titles, map(str.strip, line.split(",")), strict=True)) for line in lines[1:]]
    version = number(rows[0].get("driver_version", "")) if rows else None
    total, used = "memory.total [MiB]", "memory.used [MiB]"
    gpus = [Gpu(r["name"], mib(r[total]), mib(r.get(used, ""))) for r in rows]
    return Driver(version, None, tuple(gpus))


def parse_nvidia_smi(text):
    lines = [line for line in text.splitlines() if line.strip()]
    if [line.strip() for line in lines] == ["No devices were found"]:
        return Driver(None, None, ())
    if lines and "memory.total" in lines[0]:
        return from_csv(lines)
    version, cuda, gpus, known = None, None, [], False
    for i, line in enumerate(lines):
        for label in ("Driver Version:", "KMD Version:"):
            if label in line:
                version, known = after(line, label), True
        for label in ("CUDA Version:", "CUDA UMD Version:"):
            if label in line and after(line, label):
                cuda = tuple(int(n) for n in after(line, label).split("."))
        columns = line.split("|")
        if len(columns) > 3 and ":" in columns[2] and columns[1].split()[:1]:
            words = columns[1].split()
            if words[0].isdigit() and len(words) > 2:
                name = columns[1].strip()[len(words[0]) :].strip()[: -len(words[-1])].strip()
                gpus.append(Gpu(name, *memory(lines[i + 1])))
    if not known:
        raise ValueError("cannot read: " + (lines[0].strip() if lines else "nothing"))
    return Driver(version, cuda, tuple(gpus))


def choose_cuda(supported, available):
    best, listed = None, list(available)
    for text in listed:
        parts = text.split(".")
        if len(parts) < 2 or not all(part.isdigit() for part in parts):
            raise ValueError("no version: " + text)
        number = [int(parts[0]), int(parts[1])]
        if number <= list(supported) and (best is None or number > best[0]):
            best = number, text
    if best is None:
        raise ValueError(f"{supported[0]}.{supported[1]} is below all of {listed}")
    return best[1]


def time_call(call, clock=time.perf_counter, warmup=1, repeats=5):
    if repeats <= 0:
        raise ValueError("repeats")
    if warmup < 0:
        raise ValueError("warmup")
    while warmup:
        call()
        warmup -= 1
    runs = []
    while len(runs) < repeats:
        start = clock()
        call()
        end = clock()
        runs.append(end - start)
    return Timing(tuple(runs))


def bandwidth(transfer, nbytes, clock=time.perf_counter, warmup=1, repeats=5):
    if nbytes <= 0:
        raise ValueError("nbytes")
    seconds = time_call(transfer, clock, warmup, repeats).median
    if seconds == 0:
        raise ValueError("too fast for the clock")
    return float(nbytes) / seconds


def read_through(path, chunk=1 << 20):
    if chunk < 1:
        raise ValueError("chunk")
    handle = os.open(path, os.O_RDONLY)
    total = 0
    try:
        while True:
            piece = os.read(handle, chunk)
            if not piece:
                return total
            total += len(piece)
            del piece
    finally:
        os.close(handle)


def head_dim(config):
    if config.get("head_dim") is None:
        return config["hidden_size"] // config["num_attention_heads"]
    return config["head_dim"]


def kv_width(config):
    heads = config.get("num_key_value_heads")
    return head_dim(config) * (config["num_attention_heads"] if heads is None else heads)


def weight_bytes(config, bits=32, group_size=None, kept_bits=16):
    if bits not in (2, 4, 8, 16, 32):
        raise ValueError(f"bits {bits}")
    if kept_bits not in (16, 32):
        raise ValueError(f"kept_bits {kept_bits}")
    if group_size is not None and group_size <= 0:
        raise ValueError(f"group_size {group_size}")
    e, f = config["hidden_size"], config["intermediate_size"]
    h = config["num_attention_heads"]
    d, shared = head_dim(config), kv_width(config)
    kept = config["vocab_size"] * e + e + 2 * e * config["num_hidden_layers"]
    if not config.get("tie_word_embeddings"):
        kept += config["vocab_size"] * e
    rows = [e] * (h * d + 2 * shared + 2 * f) + [h * d] * e + [f] * e
    if bits in (16, 32):
        return (kept + sum(rows) * config["num_hidden_layers"]) * (bits // 8)
    total = 0
    for length in rows:
        group = group_size if group_size is not None else length
        groups = length // group + (1 if length % group else 0)
        total += (groups * group * bits + 7) // 8 + 4 * groups
    return total * config["num_hidden_layers"] + kept * (kept_bits // 8)


def kv_cache_bytes(config, length, batch=1, bits=16):
    if min(length, batch) < 0 or bits not in {8, 16, 32}:
        raise ValueError(f"length {length}, batch {batch} or bits {bits}")
    h = config["num_attention_heads"]
    d = config.get("head_dim") or config["hidden_size"] // h
    numbers = (config.get("num_key_value_heads") or h) * d * config["num_hidden_layers"]
    return (numbers + numbers) * (bits // 8) * length * batch


def predict_decode(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch=1):
    if bandwidth <= 0 or flops <= 0 or batch < 1:
        raise ValueError("machine or batch")
    memory_time = weight_bytes / bandwidth + batch * kv_bytes / bandwidth
    compute_time = parameters * (2 * batch) / flops
    if memory_time <= 0 and compute_time <= 0:
        raise ValueError("no work")
    if compute_time > memory_time:
        return Prediction(batch / compute_time, "compute")
    return Prediction(batch / memory_time, "memory")


def compute_bound_from(weight_bytes, kv_bytes, parameters, bandwidth, flops):
    if bandwidth <= 0 or flops <= 0:
        raise ValueError("machine")
    if 2 * parameters / flops <= kv_bytes / bandwidth:
        return None
    low, high = 0, 1
    while not turned(high, weight_bytes, kv_bytes, parameters, bandwidth, flops):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if turned(middle, weight_bytes, kv_bytes, parameters, bandwidth, flops):
            high = middle
        else:
            low = middle
    return high


def turned(batch, weight_bytes, kv_bytes, parameters, bandwidth, flops):
    return 2 * parameters * batch / flops > (weight_bytes + batch * kv_bytes) / bandwidth


def plan_memory(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
    for number in (file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes):
        if number is not None and number < 0:
            raise ValueError(f"{number} bytes")
    reasons = []
    if file_bytes * 2 > ram_bytes:
        text = "twice the file is {:.2f} GB, there are {:.2f} GB: take a smaller one"
        reasons.append(text.format(file_bytes * 2 / 1e9, ram_bytes / 1e9))
    place = ram_bytes if device_bytes is None else device_bytes
    if 5 * (weight_bytes + kv_bytes) > 4 * place:
        text = "weights and cache take {:.2f} GB of {:.2f} GB: shorten the context"
        reasons.append(text.format((weight_bytes + kv_bytes) / 1e9, place * 0.8 / 1e9))
    return MemoryPlan(len(reasons) == 0, tuple(reasons))


def sha256_file(path, chunk=1 << 20, progress=None):
    if chunk < 1:
        raise ValueError("chunk")
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(chunk), b""):
            digest.update(piece)
            if progress is not None:
                progress(len(piece))
    return digest.hexdigest()


def check_manifest(folder, files, ignore=("manifest.json",), progress=None):
    names = [name for name in files if name not in ignore]
    for name in names:
        flat = name.replace("\\", "/")
        if (
            flat == ""
            or "\\" in name
            or flat.startswith("/")
            or ":" in flat
            or ".." in flat.split("/")
        ):
            raise ValueError(f"bad name {name}")
    if not os.path.isdir(folder):
        raise FileNotFoundError(str(folder))
    report, seen = [], set()
    for place, _, inside in os.walk(folder):
        for file in inside:
            relative = os.path.relpath(os.path.join(place, file), folder)
            seen.add(relative.replace(os.sep, "/"))
    for name in names:
        path = os.path.join(folder, *name.split("/"))
        if os.path.isdir(path):
            report.append("changed: " + name)
        elif name not in seen:
            report.append("missing: " + name)
        elif "bytes" in files[name] and os.path.getsize(path) != files[name]["bytes"]:
            report.append("changed: " + name)
        elif sha256_file(path, progress=progress) != files[name]["sha256"].lower():
            report.append("changed: " + name)
    for name in seen:
        if name not in names and name not in ignore:
            report.append("unlisted: " + name)
    report.sort()
    return report


def words_of(text):
    words = [""]
    for character in text.lower():
        if character.isalpha() or character.isdigit() or character in ".+":
            words[-1] += character
        else:
            words.append("")
    return [w for w in words if w and w not in {"the", "license", "licence", "version"}]


def check_licence(licence, allowed):
    allowed = list(allowed)
    table = {tuple(words_of(choice)): choice for choice in reversed(allowed)}
    if words_of(licence) and tuple(words_of(licence)) in table:
        return table[tuple(words_of(licence))]
    raise ValueError(f"{licence if words_of(licence) else 'no licence'} is none of {allowed}")
