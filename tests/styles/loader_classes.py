"""Chapter 02 by someone who makes a class of everything and lets torch map the file."""

import io
import struct
import time
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import torch

from solutions.config import (
    ARCHITECTURE,
    PLAIN,
    Config,
    count,
    field_sizes,
    generation_config,
    is_int,
    json_file,
    json_object,
    positive,
    token_ids,
)
from solutions.safetensors_file import DTYPES, MAX_HEADER


@dataclass
class Entry:
    name: str
    dtype: str
    shape: tuple
    start: int
    stop: int


@dataclass
class Header:
    entries: list = field(default_factory=list)
    metadata: dict = field(default_factory=dict)
    base: int = 8


class HeaderReader:
    def __init__(self, path):
        self.path = Path(path)
        self.size = self.path.stat().st_size

    def fail(self, why):
        raise ValueError(f"{self.path}: {why}")

    def text(self):
        with io.FileIO(self.path) as file:
            start = file.read(8)
            if len(start) != 8:
                self.fail("no length")
            (length,) = struct.unpack("<Q", start)
            if length > MAX_HEADER or length > self.size - 8:
                self.fail(f"length {length} of {self.size}")
            data = b""
            while len(data) < length:
                data += file.read(length - len(data))
            return data

    def entry(self, name, about):
        try:
            dtype, shape, (start, stop) = about["dtype"], about["shape"], about["data_offsets"]
            numbers = [*shape, start, stop]
            known = dtype in DTYPES
        except (TypeError, KeyError, ValueError) as problem:
            self.fail(f"{name}: {about!r} ({problem!r})")
        lists = isinstance(shape, list) and isinstance(about["data_offsets"], list)
        if not known or not lists or len(shape) > 64:
            self.fail(f"{name}: {dtype} {shape!r:.50}")
        if any(not is_int(n) or n < 0 or n.bit_length() > 63 for n in numbers):
            self.fail(f"{name}: {numbers!r:.50}")
        if stop - start != DTYPES[dtype].itemsize * prod(shape):
            self.fail(f"{name}: {about}")
        return Entry(name, dtype, tuple(shape), start, stop)

    def read(self):
        text = self.text()
        raw = json_object(text, self.path)
        metadata = raw.get("__metadata__", {})
        strings = isinstance(metadata, dict) and {type(v) for v in metadata.values()} <= {str}
        if not strings:
            self.fail("metadata")
        entries = [self.entry(n, about) for n, about in raw.items() if n != "__metadata__"]
        entries = sorted(entries, key=lambda entry: (entry.start, entry.stop))
        header = Header(entries, metadata, 8 + len(text))
        self.check(header)
        return header

    def check(self, header):
        place = header.base
        for entry in header.entries:
            if header.base + entry.start != place:
                self.fail(f"{entry.name} begins at {entry.start}")
            place = header.base + entry.stop
        if place != self.size:
            self.fail(f"{place} and {self.size} bytes")


def read_header(path):
    return HeaderReader(path).read()


class Mapped:
    """A file as one tensor of bytes, mapped privately by torch."""

    def __init__(self, path):
        self.header = read_header(path)
        size = Path(path).stat().st_size
        self.bytes = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)

    def tensor(self, entry):
        dtype, start = DTYPES[entry.dtype], self.header.base + entry.start
        if entry.start == entry.stop:
            return torch.empty(entry.shape, dtype=dtype)
        part = self.bytes[start : self.header.base + entry.stop]
        if start % dtype.itemsize:
            part = part.clone()
        return part.view(dtype).unflatten(0, entry.shape) if entry.shape else part.view(dtype)[0]

    def tensors(self):
        return {entry.name: self.tensor(entry) for entry in self.header.entries}


def read_safetensors(path):
    return Mapped(path).tensors()


def check_architecture(raw):
    given = raw.get("architectures") or []
    named = given == [ARCHITECTURE] if given else raw.get("model_type") == "llama"
    if not named:
        raise ValueError(f"{given} {raw.get('model_type')}")
    odd = {k: raw[k] for k, plain in PLAIN.items() if raw.get(k) is not None and raw[k] != plain}
    if odd:
        raise ValueError(f"not supported: {odd}")


def head_sizes(raw):
    given = {name: raw.get(name) is not None for name in ("head_dim", "num_key_value_heads")}
    hidden, heads = count(raw, "hidden_size"), count(raw, "num_attention_heads")
    if not given["head_dim"] and hidden != hidden // heads * heads:
        raise ValueError(f"{hidden} and {heads}")
    result = {
        "num_attention_heads": heads,
        "num_key_value_heads": count(raw, "num_key_value_heads")
        if given["num_key_value_heads"]
        else heads,
        "head_dim": count(raw, "head_dim") if given["head_dim"] else hidden // heads,
    }
    if result["head_dim"] & 1 or result["head_dim"] < 1:
        raise ValueError(f"head_dim: {result}")
    if heads % result["num_key_value_heads"]:
        raise ValueError(f"{result}")
    return result


def rope_base(raw):
    rope = next((raw[k] for k in ("rope_parameters", "rope_scaling") if raw.get(k)), {})
    try:
        kind = rope.get("rope_type") if "rope_type" in rope else rope.get("type", "default")
    except (AttributeError, TypeError):
        raise ValueError(f"no object: {rope}") from None
    if kind != "default":
        raise ValueError(f"rope type {kind}")
    merged = {"rope_theta": raw.get("rope_theta")}
    merged.update({k: v for k, v in rope.items() if v is not None})
    return positive(merged, "rope_theta", 10_000)


def end_tokens(raw, generation):
    wanted = token_ids(generation, "eos_token_id")
    return wanted if wanted else token_ids(raw, "eos_token_id")


def read_config(folder):
    raw = json_file(Path(folder) / "config.json")
    check_architecture(raw)
    rest = {
        "rope_theta": rope_base(raw),
        "rms_norm_eps": positive(raw, "rms_norm_eps", 1e-6),
        "tie_word_embeddings": raw.get("tie_word_embeddings", False),
        "bos_token_id": (*token_ids(raw, "bos_token_id"), None)[0],
        "eos_token_ids": end_tokens(raw, generation_config(Path(folder))),
    }
    return Config(**field_sizes(raw), **head_sizes(raw), **rest)


class Expected:
    def __init__(self, config):
        self.c, self.found = config, {}
        self.wide = config.num_attention_heads * config.head_dim
        self.narrow = config.num_key_value_heads * config.head_dim

    def add(self, name, *shape):
        self.found[name + ".weight"] = shape

    def layer(self, prefix):
        width, inner = self.c.hidden_size, self.c.intermediate_size
        self.add(f"{prefix}.input_layernorm", width)
        self.add(f"{prefix}.self_attn.q_proj", self.wide, width)
        self.add(f"{prefix}.self_attn.k_proj", self.narrow, width)
        self.add(f"{prefix}.self_attn.v_proj", self.narrow, width)
        self.add(f"{prefix}.self_attn.o_proj", width, self.wide)
        self.add(f"{prefix}.post_attention_layernorm", width)
        self.add(f"{prefix}.mlp.gate_proj", inner, width)
        self.add(f"{prefix}.mlp.up_proj", inner, width)
        self.add(f"{prefix}.mlp.down_proj", width, inner)

    def all(self):
        self.add("model.embed_tokens", self.c.vocab_size, self.c.hidden_size)
        for number in range(self.c.num_hidden_layers):
            self.layer(f"model.layers.{number}")
        self.add("model.norm", self.c.hidden_size)
        if self.c.tie_word_embeddings is False:
            self.add("lm_head", self.c.vocab_size, self.c.hidden_size)
        return self.found


def expected_tensors(config):
    return Expected(config).all()


class Folder:
    def __init__(self, folder):
        self.path = Path(folder)
        self.single = self.path / "model.safetensors"
        self.index = self.path / "model.safetensors.index.json"

    def map(self):
        files = json_file(self.index).get("weight_map", None)
        if not isinstance(files, dict) or not files:
            raise ValueError(f"{self.index}: {files!r:.50}")
        for file in files.values():
            if not isinstance(file, str) or Path(file.replace("\\", "/")).name != file:
                raise ValueError(f"{self.index}: {file!r:.50}")
            if len(file.encode()) > 255 or ":" in file or Path(file).suffix != ".safetensors":
                raise ValueError(f"{self.index}: {file!r:.50}")
        return files

    def files(self):
        if self.single.is_file():
            return [self.single]
        if not self.index.is_file():
            raise FileNotFoundError(f"{self.single}, {self.index}")
        files = [self.path / file for file in sorted(set(self.map().values()))]
        if not all(file.is_file() for file in files):
            raise FileNotFoundError(str([file.name for file in files if not file.is_file()]))
        return files

    def tensors(self):
        places, tensors = [], {}
        for file in self.files():
            for name, tensor in read_safetensors(file).items():
                places.append((name, file.name))
                tensors[name] = tensor
        if not self.single.is_file():
            differ = set(places).symmetric_difference(self.map().items())
            if differ:
                raise ValueError(f"{self.path}: {sorted(differ)}")
        return tensors


def weight_files(folder):
    return Folder(folder).files()


def read_checkpoint(folder):
    return Folder(folder).tensors()


def match_tensors(found, config):
    expected = expected_tensors(config)
    report = []
    for name in {*found, *expected}:
        tensor, shape = found.get(name), expected.get(name)
        if tensor is None:
            report.append(f"missing: {name}")
        elif shape is None:
            known = name == "lm_head.weight" or name.endswith("rotary_emb.inv_freq")
            report += [] if known else [f"unexpected: {name}"]
        elif tensor.size() != torch.Size(shape):
            report.append(f"misshapen: {name} is {list(tensor.size())}, expected {list(shape)}")
        elif not torch.is_floating_point(tensor):
            report.append(f"not floating point: {name} is {tensor.dtype}")
    if report:
        raise ValueError("wrong tensors\n" + "\n".join(sorted(report)))
    return {name: found[name] for name in expected}


@dataclass
class LoadedModel:
    config: Config
    weights: dict
    stages: dict


class Loader:
    """Reads each tensor into memory of its own, instead of leaving it a view."""

    def __init__(self, clock):
        self.clock, self.stage = clock, None
        self.stages = dict.fromkeys(("move", "read", "instantiate", "config"), 0)

    def enter(self, stage):
        now = self.clock()
        if self.stage is not None:
            self.stages[self.stage] += now - self.since
        self.stage, self.since = stage, now

    def load(self, folder, dtype, device, progress):
        self.enter("config")
        config = read_config(folder)
        self.enter("instantiate")
        tensors = match_tensors(read_checkpoint(folder), config)
        total = sum(t.element_size() * t.nelement() for t in tensors.values())
        done, weights = 0, {}
        for name, tensor in tensors.items():
            self.enter("read")
            read = tensor.clone()
            self.enter("move")
            weights[name] = read.to(dtype=dtype, device=device)
            done += read.element_size() * read.nelement()
            if progress:
                progress(done, total)
        self.enter(None)
        return LoadedModel(config, weights, self.stages)


def load_model(folder, dtype=torch.float32, device="cpu", clock=time.perf_counter, progress=None):
    if "float" not in str(dtype):
        raise ValueError(f"{dtype} is no floating dtype")
    return Loader(clock).load(folder, dtype, device, progress)
