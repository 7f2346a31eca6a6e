"""Chapter 02 by someone who thinks in numpy: memory maps, structured bytes, loops, plain tuples."""

import json
import os
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import torch

from solutions.config import Config, count, json_file, positive, token_ids

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
Entry = namedtuple("Entry", "name dtype shape start stop")
Header = namedtuple("Header", "entries metadata base")
LoadedModel = namedtuple("LoadedModel", "config weights stages")
KINDS = {
    "F64": (torch.float64, 8), "F32": (torch.float32, 4), "F16": (torch.float16, 2),
    "BF16": (torch.bfloat16, 2), "F8_E4M3": (torch.float8_e4m3fn, 1),
    "F8_E5M2": (torch.float8_e5m2, 1), "F8_E4M3FNUZ": (torch.float8_e4m3fnuz, 1),
    "F8_E5M2FNUZ": (torch.float8_e5m2fnuz, 1), "F8_E8M0": (torch.float8_e8m0fnu, 1),
    "C64": (torch.complex64, 8), "I64": (torch.int64, 8), "I32": (torch.int32, 4),
    "I16": (torch.int16, 2), "I8": (torch.int8, 1), "U64": (torch.uint64, 8),
    "U32": (torch.uint32, 4), "U16": (torch.uint16, 2), "U8": (torch.uint8, 1),
    "BOOL": (torch.bool, 1),
}  # fmt: skip


def no_twins(pairs):
    seen = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"{key} twice")
        seen[key] = value
    return seen


def natural(value):
    return type(value) is int and 0 <= value < 2**63


def read_header(path):
    if not os.path.isfile(path):
        raise FileNotFoundError(path)
    whole = os.path.getsize(path)
    if whole < 8:
        raise ValueError(f"{path} has {whole} bytes")
    length = int(np.fromfile(path, dtype="<u8", count=1)[0])
    if length > 100_000_000 or 8 + length > whole:
        raise ValueError(f"{path}: header of {length}")
    text = np.fromfile(path, dtype=np.uint8, count=length, offset=8).tobytes()
    try:
        header = json.loads(str(text, "utf-8"), object_pairs_hook=no_twins)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}")
    if type(header) is not dict:
        raise ValueError(f"{path}: {type(header)}")
    metadata = header.pop("__metadata__", {})
    if type(metadata) is not dict or any(type(v) is not str for v in metadata.values()):
        raise ValueError(f"{path}: metadata")
    found = []
    for name, value in header.items():
        if type(value) is not dict:
            raise ValueError(f"{path}: {name}")
        kind, shape, span = value.get("dtype"), value.get("shape"), value.get("data_offsets")
        if type(kind) is not str or kind not in KINDS:
            raise ValueError(f"{path}: {name} is {kind}")
        if type(shape) is not list or type(span) is not list or len(span) != 2 or len(shape) > 64:
            raise ValueError(f"{path}: {name}")
        if not all(natural(n) for n in shape + span):
            raise ValueError(f"{path}: {name}")
        size = KINDS[kind][1]
        for n in shape:
            size *= n
        if span[0] + size != span[1]:
            raise ValueError(f"{path}: {name}")
        found.append(Entry(name, kind, tuple(shape), *span))
    found.sort(key=lambda e: e[3:])
    edges = [0, *(e.stop for e in found)]
    starts = [*(e.start for e in found), whole - 8 - length]
    if edges != starts:
        raise ValueError(f"{path}: {edges} {starts}")
    return Header(found, metadata, 8 + length)


def read_safetensors(path):
    header = read_header(path)
    bytes_ = np.memmap(path, dtype=np.uint8, mode="c")
    tensors = {}
    for e in header.entries:
        dtype, size = KINDS[e.dtype]
        part = bytes_[header.base + e.start : header.base + e.stop]
        if part.size and part.ctypes.data % size:
            part = part.copy()
        if part.size:
            tensors[e.name] = torch.from_numpy(np.asarray(part)).view(dtype).reshape(e.shape)
        else:
            tensors[e.name] = torch.zeros(e.shape, dtype=dtype)
    return tensors


def check_architecture(raw):
    if raw.get("architectures"):
        if raw["architectures"] != ["LlamaForCausalLM"]:
            raise ValueError(str(raw["architectures"]))
    elif raw.get("model_type") != "llama":
        raise ValueError(str(raw.get("model_type")))
    for key in ("attention_bias", "mlp_bias", "rope_interleaved"):
        if raw.get(key):
            raise ValueError(f"{key} {raw[key]}")
    if raw.get("hidden_act") not in (None, "silu"):
        raise ValueError(f"hidden_act {raw['hidden_act']}")
    for key in ("quantization_config", "sliding_window"):
        if raw.get(key) is not None:
            raise ValueError(f"{key} {raw[key]}")


def head_sizes(raw):
    width, heads = count(raw, "hidden_size"), count(raw, "num_attention_heads")
    groups = count(raw, "num_key_value_heads", heads)
    if raw.get("head_dim") is not None:
        size = count(raw, "head_dim")
    else:
        size, rest = divmod(width, heads)
        if rest:
            raise ValueError(f"{width} over {heads}")
    if heads % groups != 0:
        raise ValueError(f"{heads} and {groups}")
    if size % 2 == 1 or size == 0:
        raise ValueError(f"head_dim {size}")
    return dict(num_attention_heads=heads, num_key_value_heads=groups, head_dim=size)


def rope_base(raw):
    box = {}
    for key in ("rope_scaling", "rope_parameters"):
        if raw.get(key):
            box = raw[key]
    if type(box) is not dict:
        raise ValueError(f"rope: {box}")
    for key in ("rope_type", "type"):
        if key in box:
            if box[key] != "default":
                raise ValueError(f"rope: {box[key]}")
            break
    for place in (box, raw):
        if place.get("rope_theta") is not None:
            return positive(place, "rope_theta", 1.0)
    return 10000.0


def end_tokens(raw, generation):
    both = [token_ids(generation, "eos_token_id"), token_ids(raw, "eos_token_id")]
    return next((ids for ids in both if len(ids)), ())


def read_config(folder):
    folder = Path(folder)
    raw = json_file(folder / "config.json")
    extra = folder / "generation_config.json"
    check_architecture(raw)
    first = token_ids(raw, "bos_token_id")
    return Config(
        vocab_size=count(raw, "vocab_size"),
        hidden_size=count(raw, "hidden_size"),
        intermediate_size=count(raw, "intermediate_size"),
        num_hidden_layers=count(raw, "num_hidden_layers"),
        max_position_embeddings=count(raw, "max_position_embeddings", 2048),
        **head_sizes(raw),
        rope_theta=rope_base(raw),
        rms_norm_eps=positive(raw, "rms_norm_eps", 1e-6),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings")),
        bos_token_id=first[0] if first else None,
        eos_token_ids=end_tokens(raw, json_file(extra) if extra.exists() else {}),
    )


def expected_tensors(c):
    names = {"model.embed_tokens.weight": (c.vocab_size, c.hidden_size)}
    e, f = c.hidden_size, c.intermediate_size
    q, k = (n * c.head_dim for n in (c.num_attention_heads, c.num_key_value_heads))
    for i in range(c.num_hidden_layers):
        p = f"model.layers.{i}."
        names[p + "input_layernorm.weight"] = (e,)
        for n, s in (("q", (q, e)), ("k", (k, e)), ("v", (k, e)), ("o", (e, q))):
            names[p + f"self_attn.{n}_proj.weight"] = s
        names[p + "post_attention_layernorm.weight"] = (e,)
        for n, s in (("gate", (f, e)), ("up", (f, e)), ("down", (e, f))):
            names[p + f"mlp.{n}_proj.weight"] = s
    names["model.norm.weight"] = (e,)
    if not c.tie_word_embeddings:
        names["lm_head.weight"] = (c.vocab_size, e)
    return names


def index_of(folder):
    weight_map = json_file(Path(folder) / INDEX).get("weight_map")
    if type(weight_map) is not dict or len(weight_map) == 0:
        raise ValueError(f"{INDEX}: weight_map")
    for file in weight_map.values():
        plain = type(file) is str and file.endswith(".safetensors") and len(file.encode()) < 256
        if not plain or any(character in file for character in ":/\\"):
            raise ValueError(f"{INDEX}: {file}")
    return weight_map


def weight_files(folder):
    folder = Path(folder)
    if (folder / SINGLE).exists():
        return [folder / SINGLE]
    if not (folder / INDEX).exists():
        raise FileNotFoundError(f"{SINGLE} or {INDEX}")
    paths = sorted({folder / file for file in index_of(folder).values()})
    gone = [str(path) for path in paths if not path.exists()]
    if gone:
        raise FileNotFoundError(" ".join(gone))
    return paths


def read_checkpoint(folder):
    tensors, where, wrong = {}, {}, []
    paths = weight_files(folder)
    for path in paths:
        for name, tensor in read_safetensors(path).items():
            if name in where:
                wrong.append(f"{name} in {where[name]} and {path.name}")
            tensors[name], where[name] = tensor, path.name
    if paths[0].name != SINGLE:
        index = index_of(folder)
        for name in set(index) | set(where):
            if index.get(name) != where.get(name):
                wrong.append(f"{name}: {index.get(name)}, {where.get(name)}")
    if wrong:
        raise ValueError(f"{folder}: " + "; ".join(wrong))
    return tensors


def match_tensors(found, config):
    lines, expected, result = [], expected_tensors(config), {}
    for name, shape in expected.items():
        if name not in found:
            lines.append(f"missing: {name}")
        elif list(found[name].shape) != list(shape):
            lines.append(f"misshapen: {name} is {list(found[name].shape)}, expected {list(shape)}")
        elif not found[name].dtype.is_floating_point:
            lines.append(f"not floating point: {name} is {found[name].dtype}")
        else:
            result[name] = found[name]
    for name in found:
        if name in expected or name.endswith("rotary_emb.inv_freq"):
            continue
        if name != "lm_head.weight":
            lines.append(f"unexpected: {name}")
    if lines:
        raise ValueError("\n".join(sorted(lines)))
    return result


def load_model(folder, dtype=torch.float32, device="cpu", clock=time.perf_counter, progress=None):
    if not dtype.is_floating_point:
        raise ValueError(f"{dtype}")
    times = [clock()]
    config = read_config(folder)
    times.append(clock())
    found = match_tensors(read_checkpoint(folder), config)
    times.append(clock())
    weights, done, total = {}, 0, 0
    for tensor in found.values():
        total += tensor.numel() * tensor.element_size()
    for name, tensor in found.items():
        tensor.reshape(-1).view(torch.uint8)[::1024].max()
        times.append(clock())
        done += tensor.numel() * tensor.element_size()
        weights[name] = tensor.to(dtype).to(device)
        if progress is not None:
            progress(done, total)
        times.append(clock())
    took = np.diff(times)
    stages = dict(zip(("config", "instantiate"), took[:2]))
    stages |= {"read": took[2::2].sum(), "move": took[3::2].sum()}
    return LoadedModel(config, weights, stages)
