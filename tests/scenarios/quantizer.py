"""Chapter 03's live objects, driven beside the code under test.

Every function takes the module under test first and returns plain data. An exception that a case
does not expect is let through: it then names the line that raised it. `fields` are those of a
QuantizedTensor, by name.
"""

import gc
import json
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tests.scenarios.helpers import Unusable, attempt, call_unchanged, in_words, told
from tests.scenarios.memory import peak_of

FIELDS = ("data", "scale", "minimum", "bits", "group_size", "shape")


def groups(module, weight, bits: int, group_size: int, *scale_dtype):
    """quantize_groups; a dtype travels by its name."""
    return module.quantize_groups(
        weight, bits, group_size, *(getattr(torch, d) for d in scale_dtype)
    )


def on_transposed(module, name: str, tensor, *args):
    """A function on a tensor that lies in memory column by column."""
    return getattr(module, name)(tensor.T.contiguous().T, *args)


def _fields(found) -> dict:
    """The fields of a QuantizedTensor as plain data; an int subclass or torch.Size is as good."""
    if not all(hasattr(found, name) for name in FIELDS):
        raise Unusable(
            f"a QuantizedTensor with {', '.join(FIELDS)} is needed, not {in_words(found)}"
        )
    plain = {name: getattr(found, name) for name in FIELDS}
    if not isinstance(plain["shape"], tuple):
        raise Unusable(f"shape should be a tuple of ints, but is {plain['shape']!r:.80}")
    plain["shape"] = [int(n) for n in plain["shape"]]
    return plain


def _tensor(module, fields: dict):
    """The module's QuantizedTensor with these fields."""
    return module.QuantizedTensor(**{**fields, "shape": tuple(fields["shape"])})


def _weight(module, value):
    return _tensor(module, value) if isinstance(value, dict) else value


# --- 3.4 ---


@told
def quantize(module, weight, bits: int, group_size: int | None) -> dict:
    """The fields of what quantize makes, its nbytes and float32 values, before and after the
    weight itself has been spoilt."""
    weight = weight.clone()
    found = call_unchanged(
        "quantize",
        lambda weight: module.quantize(weight, module.Format(bits, group_size)),
        weight=weight,
    )
    plain = _fields(found)
    weight.fill_(77.0)
    return {**plain, "nbytes": found.nbytes, "floats": found.dequantize()}


@told
def dequantize(module, fields: dict, dtype: str | None):
    """[dequantize(dtype), nbytes] of a QuantizedTensor made of these fields."""
    given = () if dtype is None else (getattr(torch, dtype),)
    weight = _tensor(module, fields)
    kept = {k: v.clone() for k, v in fields.items() if isinstance(v, Tensor)}
    found = weight.dequantize(*given)
    if not isinstance(found, Tensor):
        raise Unusable(f"dequantize should return a tensor, but returned {in_words(found)}")
    answer = [found.clone(), weight.nbytes]
    found.fill_(77.0)  # must not reach the weight
    for name, value in kept.items():
        if not torch.equal(value, fields[name]):
            raise Unusable(f"writing to what dequantize returned changed {name} of the weight")
    return answer


@told
def product(module, x, weight):
    """linear(x, weight), with a weight that is a tensor or the fields of a quantized one."""
    weight = _weight(module, weight)
    return call_unchanged("linear", lambda x: module.linear(x, weight), x=x)


# --- 3.5 ---


class OnDemand(Mapping):
    """A checkpoint that makes each tensor when it is asked for it, and knows which still live."""

    def __init__(self, shapes: dict, dtype):
        self.shapes, self.dtype = shapes, dtype
        self.asked: list[str] = []
        self.alive: list[weakref.ref] = []
        self.most = 0

    def __getitem__(self, name: str) -> Tensor:
        self.asked.append(name)
        tensor = made(name, self.shapes[name]).to(self.dtype)
        self.alive = [ref for ref in self.alive if ref() is not None] + [weakref.ref(tensor)]
        self.most = max(self.most, len(self.alive))
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def made(name: str, shape: list[int]) -> Tensor:
    """The float32 numbers of an OnDemand tensor: its name is their seed."""
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    return torch.randn(*shape, generator=generator) / 10


def _plain_weights(weights) -> dict:
    """{name: tensor or fields} of a mapping of weights, in its order."""
    if not isinstance(weights, dict):
        raise Unusable(f"a dict of weights is needed, not {in_words(weights)}")
    return {n: w if isinstance(w, Tensor) else _fields(w) for n, w in weights.items()}


@told
def quantize_checkpoint(
    module, tensors: dict, bits: int, group_size: int | None, dtype: str | None
) -> dict:
    """quantize_weights of these tensors: the weights, their order, and the calls of progress."""
    given = () if dtype is None else (getattr(torch, dtype),)
    calls: list = []
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    found = module.quantize_weights(
        tensors,
        module.Format(bits, group_size),
        *given,
        progress=lambda *numbers: calls.append(list(numbers)),
    )
    for name, tensor in kept.items():
        if name not in tensors or not torch.equal(tensors[name].nan_to_num(), tensor.nan_to_num()):
            raise Unusable(f"quantize_weights changed {name} of what is stored")
    weights = _plain_weights(found)
    shared = [
        name
        for name, weight in weights.items()
        if isinstance(weight, Tensor) and weight.data_ptr() == tensors[name].data_ptr()
    ]
    return {"weights": weights, "order": list(weights), "progress": calls, "shared": shared}


@told
def quantize_on_demand(module, shapes: dict, bits: int, group_size: int, dtype: str) -> dict:
    """quantize_weights of a checkpoint made on demand: what was asked for, and how many stored
    tensors were alive at the same time."""
    stored = OnDemand(shapes, getattr(torch, dtype))
    _plain_weights(module.quantize_weights(stored, module.Format(bits, group_size)))
    return {"asked": stored.asked, "alive": stored.most}


@told
def quantize_within(module, shapes: dict, bits: int, group_size: int, room: int) -> dict:
    """quantize_weights of such a checkpoint: the bytes of the result, those of the tensors alive
    at most, and whether all memory was over the result and so much room.

    Python's own small things vary by some bytes, so how far it was over is not told."""
    stored = OnDemand(shapes, torch.float32)

    def call():
        return module.quantize_weights(stored, module.Format(bits, group_size))

    found, peak = peak_of(call)
    weights = _plain_weights(found)
    parts = [p for w in weights.values() for p in (w.values() if isinstance(w, dict) else [w])]
    size = sum(part.nbytes for part in parts if isinstance(part, Tensor))
    return {"size": size, "tensors": peak.torch, "over": peak.total > size + room}


# --- 3.6: files travel as uint8 tensors, and lie in a folder of the scenario's own ---


@contextmanager
def _folder() -> Iterator[Path]:
    """An empty folder; Windows cannot remove a file that is still mapped, and need not."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield Path(name)


def _as_given(path: Path, kind: str) -> str | Path:
    return path if kind == "Path" else str(path)


def _content(path: Path) -> dict | None:
    """What the safetensors package finds in a file, and its metadata; None where there is none.

    The bytes themselves differ from one run to the next: the package writes metadata in any order.
    """
    if not path.is_file():
        return None
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name).clone() for name in sorted(file.keys())}
    return {"tensors": tensors, "metadata": {key: metadata[key] for key in sorted(metadata)}}


def _file(folder: Path, data: Tensor) -> Path:
    path = folder / "quantized.safetensors"
    path.write_bytes(data.numpy().tobytes())
    return path


@told
def save(module, weights: dict, kind: str, old: Tensor | None = None) -> dict:
    """save_quantized of tensors and fields: the files of the folder, and what is in the file."""
    live = {name: _weight(module, value) for name, value in weights.items()}
    with _folder() as folder:
        path = folder / "quantized.safetensors" if old is None else _file(folder, old)
        module.save_quantized(_as_given(path, kind), live)
        return {"files": sorted(f.name for f in folder.iterdir()), "content": _content(path)}


@told
def save_views(module, tensor: Tensor):
    """save_quantized of a transposed view and of two halves of one tensor: what is in the file."""
    half = len(tensor) // 2
    weights = {"turned": tensor.T, "first": tensor[:half], "second": tensor[half:]}
    with _folder() as folder:
        module.save_quantized(folder / "views.safetensors", weights)
        return _content(folder / "views.safetensors")


@told
def save_on_a_full_disk(module, weights: dict, old: Tensor) -> dict:
    """save_quantized over an old file while the safetensors package writes half of the bytes:
    what it raised, and whether the path still holds the old file."""
    right = safetensors.torch.serialize_file

    def half(tensors, filename, *args, **kwargs):
        right(tensors, filename, *args, **kwargs)
        file = Path(filename)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        raise OSError(28, "No space left on device", "the file")

    live = {name: _weight(module, value) for name, value in weights.items()}
    with _folder() as folder:
        path = _file(folder, old)
        safetensors.torch.serialize_file = half
        try:
            raised = attempt(lambda: module.save_quantized(path, live), [])
        finally:
            safetensors.torch.serialize_file = right
        kept = path.is_file() and path.read_bytes() == old.numpy().tobytes()
        return {**raised, "old_kept": kept}


@told
def load(module, data: Tensor, kind: str) -> dict:
    """load_quantized of a file with these bytes: {name: tensor or fields}."""
    with _folder() as folder:
        found = _plain_weights(module.load_quantized(_as_given(_file(folder, data), kind)))
        return {name: _cloned(weight) for name, weight in found.items()}


def _cloned(weight):
    """The same in memory of its own: the file goes."""
    if isinstance(weight, Tensor):
        return weight.clone()
    return {k: v.clone() if isinstance(v, Tensor) else v for k, v in weight.items()}


@told
def load_refused(module, data: Tensor | None, names: list[str]) -> dict:
    """What load_quantized raises for these bytes, or for no file, and which names it leaves out."""
    with _folder() as folder:
        path = folder / "none.safetensors" if data is None else _file(folder, data)
        try:
            module.load_quantized(path)
        except (NotImplementedError, Unusable):
            raise
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            wanted = [path.name, *names]
            return {"raised": kinds, "unnamed": [n for n in wanted if n not in str(error)]}
    return {}


@told
def load_mapped(module, columns: int) -> dict:
    """load_quantized of a file with [4096, columns] int8 rows that the safetensors package wrote:
    whether it took memory for the numbers, and their sum, read when the call is long over."""
    data = torch.arange(columns).remainder(100).to(torch.int8).repeat(4096, 1)
    layout = {"w.weight": {"bits": 8, "group_size": None, "shape": [4096, columns]}}
    metadata = {"format": "quantized-llama", "version": "1", "tensors": json.dumps(layout)}
    parts = {"w.weight.data": data, "w.weight.scale": torch.ones(4096, 1)}
    with _folder() as folder:
        path = folder / "large.safetensors"
        safetensors.torch.save_file(parts, path, metadata)
        weights, peak = peak_of(lambda: module.load_quantized(path))
        fields = _plain_weights(weights)["w.weight"]
        del weights
        gc.collect()
        copied = peak.total > data.nbytes // 8
        return {"copied": copied, "sum": int(fields["data"].sum()), "expected": int(data.sum())}


# --- 3.7 ---


@told
def perplexity(module, table: Tensor, ids: list[int], window: int, stride: int, dtype: str):
    """perplexity of a model whose logits after a token are the token's row of the table, plus a
    little of every row before it in the window; and the windows it was asked for."""
    asked: list = []

    def logits_of(part):
        if not isinstance(part, Tensor) or part.ndim != 1 or part.is_floating_point():
            raise Unusable(f"logits_of takes ids [t], not {in_words(part)}")
        asked.append(part.tolist())
        return mixed(table, part).to(getattr(torch, dtype))

    found = module.perplexity(logits_of, torch.tensor(ids), window, stride)
    return [found, asked]


def mixed(table: Tensor, ids: Tensor) -> Tensor:
    """The logits of that model, [t, V]: they depend on all ids up to each place."""
    rows = table[ids.long()]
    return rows + 0.5 * rows.cumsum(0) / torch.arange(1, len(rows) + 1)[:, None]


@told
def perplexity_of_windows(module, rows: list, ids: list[int], window: int, stride: int):
    """perplexity of a model that was asked before: rows are its logits for each window."""
    starts = {tuple(ids[k * stride : k * stride + window]): r for k, r in enumerate(rows)}

    def logits_of(part):
        if tuple(part.tolist()) not in starts:
            raise Unusable(f"logits_of was asked for {part.tolist()}, which is no window")
        return starts[tuple(part.tolist())]

    return module.perplexity(logits_of, torch.tensor(ids), window, stride)


# --- 3.8 ---


@told
def noise_ratio(module, weight, bits: int, group_size: int | None):
    """noise_ratio of one weight."""
    return call_unchanged(
        "noise_ratio",
        lambda weight: module.noise_ratio(weight, module.Format(bits, group_size)),
        weight=weight,
    )


@told
def honest_formats(module, weights: dict, formats: list, *least) -> list:
    """honest_formats as [bits, group_size] pairs; the formats are an iterator, used up once."""
    found = module.honest_formats(weights, (module.Format(*pair) for pair in formats), *least)
    if not isinstance(found, list) or not all(hasattr(f, "group_size") for f in found):
        raise Unusable(f"honest_formats should return a list of Formats, not {in_words(found)}")
    return [[f.bits, f.group_size] for f in found]
