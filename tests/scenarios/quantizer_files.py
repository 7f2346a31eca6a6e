"""Chapter 03's files, written and read beside the code under test.

Files travel as uint8 tensors, and lie in a folder of the scenario's own.
"""

import gc
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tests.scenarios.helpers import Unusable, attempt, told
from tests.scenarios.memory import peak_of
from tests.scenarios.quantizer_values import plain_of, weight_of


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
    live = {name: weight_of(module, value) for name, value in weights.items()}
    with _folder() as folder:
        path = folder / "quantized.safetensors" if old is None else _file(folder, old)
        if old is not None:  # from a run that was stopped
            (folder / f"{path.name}.partial").write_bytes(b"half of a file")
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
def save_shared(module, tensor: Tensor):
    """save_quantized of one tensor under two names, and of its front: what is in the file."""
    weights = {"embed": tensor, "head": tensor, "front": tensor[:4]}
    with _folder() as folder:
        module.save_quantized(folder / "shared.safetensors", weights)
        return _content(folder / "shared.safetensors")


@contextmanager
def _full_disk(most: int) -> Iterator[None]:
    """Files end at so many bytes: the system refuses to write more.

    Windows has no such limit: there the safetensors package writes half and fails.
    """
    try:
        import resource
    except ImportError:
        with _half_written():
            yield
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def _half_written() -> Iterator[None]:
    right = safetensors.torch.serialize_file

    def half(tensors, filename, *args, **kwargs):
        right(tensors, filename, *args, **kwargs)
        file = Path(filename)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        raise OSError(28, "No space left on device", "the file")

    safetensors.torch.serialize_file = half
    try:
        yield
    finally:
        safetensors.torch.serialize_file = right


@told
def save_on_a_full_disk(module, weights: dict, old: Tensor) -> dict:
    """save_quantized over an old file on a disk with room for a part of the bytes: what it raised,
    and whether the path still holds the old file."""
    live = {name: weight_of(module, value) for name, value in weights.items()}
    with _folder() as folder:
        path = _file(folder, old)
        with _full_disk(1000):
            raised = attempt(lambda: module.save_quantized(path, live), [])
        kept = path.is_file() and path.read_bytes() == old.numpy().tobytes()
        return {**raised, "old_kept": kept}


@told
def load(module, data: Tensor, kind: str) -> dict:
    """load_quantized of a file with these bytes: {name: tensor or fields}."""
    with _folder() as folder:
        found = plain_of(module.load_quantized(_as_given(_file(folder, data), kind)))
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
    """load_quantized of a file with megabytes of data, scales, minimums and of a tensor left alone:
    whether it took memory for any of them, and the sum of all, read when the call is long over."""
    shape = (2048, 4 * columns)  # a scale and a minimum for each 4 numbers
    data = torch.arange(shape[1]).remainder(100).to(torch.uint8).repeat(shape[0], 1)
    layout = {"w.weight": {"bits": 8, "group_size": 4, "shape": shape}}
    metadata = {"format": "quantized-llama", "version": "1", "tensors": json.dumps(layout)}
    ones = torch.ones(2048, columns, dtype=torch.float16)
    parts = {"w.weight.data": data, "w.weight.scale": ones, "w.weight.minimum": ones.clone()}
    parts["left.alone"] = ones.clone()
    with _folder() as folder:
        path = folder / "large.safetensors"
        safetensors.torch.save_file(parts, path, metadata)
        weights, peak = peak_of(lambda: module.load_quantized(path))
        plain = plain_of(weights)
        del weights
        gc.collect()
        fields, alone = plain["w.weight"], plain["left.alone"]
        found = [fields["data"], fields["scale"], fields["minimum"], alone]
        return {
            "copied": peak.total > ones.nbytes // 4,
            "sum": sum(int(part.double().sum()) for part in found),
            "expected": int(data.double().sum()) + 3 * ones.numel(),
        }
