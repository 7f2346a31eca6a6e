"""Chapter 02 with one part written otherwise."""

import contextlib
import json
from types import MappingProxyType

import numpy as np
import torch

from tests.parts import part


@part("2.1")
def header_of_named_parts(m):
    """Entries in a list, a size in numpy, metadata in a mapping that cannot be changed."""
    right = m.read_header

    def read_header(path):
        found = right(path)
        return m.Header(list(found.entries), MappingProxyType(found.metadata), found.base)

    m.read_header = read_header


@part("2.1")
def header_refused_by_itself(m):
    """Errors of its own class, which is a ValueError, and json.JSONDecodeError, which is too."""
    right = m.read_header

    class Lie(ValueError):
        pass

    def read_header(path):
        try:
            return right(path)
        except FileNotFoundError:
            raise
        except ValueError as problem:
            if "JSON" in str(problem):
                raise json.JSONDecodeError(str(problem), "", 0) from None
            raise Lie(f"{problem} ({path})") from problem

    m.read_header = read_header


@part("2.2")
def tensors_from_numpy(m):
    """numpy makes the view, torch takes it over."""

    def read_safetensors(path):
        header = m.read_header(path)
        data = np.memmap(path, np.uint8, "c")
        found = {}
        for e in header.entries:
            dtype = m.DTYPES[e.dtype]
            part = np.asarray(data[header.base + e.start : header.base + e.stop])
            if not part.size:
                found[e.name] = torch.zeros(e.shape, dtype=dtype)
                continue
            if part.ctypes.data % dtype.itemsize:
                part = part.copy()
            found[e.name] = torch.from_numpy(part).view(dtype).reshape(e.shape)
        return found

    m.read_safetensors = read_safetensors


@part("2.3")
def base_by_exceptions(m):
    """Asks for forgiveness instead of looking first."""

    def rope_base(raw):
        for key in ("rope_parameters", "rope_scaling", None):
            rope = raw.get(key) if key else {}
            if rope or key is None:
                break
        try:
            kind = rope["rope_type"] if "rope_type" in rope else rope["type"]
            base = rope.get("rope_theta")
        except KeyError:
            kind, base = "default", rope.get("rope_theta")
        except TypeError as problem:
            raise ValueError(f"{rope} is no object") from problem
        if isinstance(rope, list | str):
            raise ValueError(f"{rope} is no object")
        if kind != "default":
            raise ValueError(kind)
        return m.positive({"rope_theta": raw.get("rope_theta") if base is None else base},
                          "rope_theta", 1e4)  # fmt: skip

    right = m.rope_base

    def checked(raw):
        if any(
            isinstance(raw.get(k), list | str | int) for k in ("rope_parameters", "rope_scaling")
        ):
            return right(raw)
        return rope_base(raw)

    m.rope_base = checked


@part("2.5")
def shards_one_by_one(m):
    """Each name is asked for in the file that the index names, then the rest is counted."""

    def read_checkpoint(folder):
        paths = m.weight_files(folder)
        if paths[0].name == m.SINGLE:
            return m.read_safetensors(paths[0])
        index = json.loads((paths[0].parent / m.INDEX).read_text(encoding="utf-8"))["weight_map"]
        files = {path.name: m.read_safetensors(path) for path in paths}
        wrong = [f"{n} should be in {f}" for n, f in index.items() if n not in files[f]]
        wrong += [f"{n} should not be in {f}" for f in files for n in files[f] if index.get(n) != f]
        if wrong:
            raise ValueError(f"{folder}: {wrong}")
        return {n: t for f in files for n, t in files[f].items()}

    m.read_checkpoint = read_checkpoint


@part("2.6")
def report_as_json_shapes(m):
    """Shapes in the report as lists, dtypes as short names, and a sentence at the end."""
    right = m.match_tensors

    def match_tensors(found, config):
        try:
            return right(found, config)
        except ValueError as problem:
            text = str(problem).replace("(", "[").replace(",)", "]").replace(")", "]")
            raise ValueError(text.replace("torch.", "") + "\nFetch the model again.") from None

    m.match_tensors = match_tensors


@part("2.7")
def stages_in_contexts(m):
    """A context manager for each stage, and pages read by taking the largest of their bytes."""

    def load_model(folder, dtype=torch.float32, device="cpu", clock=None, progress=None):
        if not dtype.is_floating_point:
            raise ValueError(dtype)
        clock = clock or m.time.perf_counter
        stages, last = dict.fromkeys(m.STAGES, 0.0), [clock()]

        @contextlib.contextmanager
        def stage(name):
            yield
            now = clock()
            stages[name], last[0] = stages[name] + now - last[0], now

        with stage("config"):
            config = m.read_config(folder)
        with stage("instantiate"):
            found = m.stored_tensors(folder, config)
        sizes, done, weights = {name: tensor.nbytes for name, tensor in found.items()}, 0, {}
        for name, size in sizes.items():
            with stage("read"):
                found[name].view(-1).view(torch.uint8)[::1024].max()
            with stage("move"):
                weights[name] = found.pop(name).to(device=device, dtype=dtype)
                done += size
                _ = progress and progress(done, sum(sizes.values()))
        return m.LoadedModel(config, weights, stages)

    m.load_model = load_model
