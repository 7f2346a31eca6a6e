"""Chapter 03: a whole checkpoint in few bits, made layer by layer, saved, and read back.

The file is a .safetensors file like any other. A quantized weight `a.weight` lies in it as
`a.weight.data`, `a.weight.scale` and, for groups, `a.weight.minimum`; what was left alone keeps
its name. The file's metadata says what belongs together:

    {"format": "quantized-llama", "version": "1",
     "tensors": '{"a.weight": {"bits": 4, "group_size": 32, "shape": [1536, 576]}, ...}'}
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from solutions.config import is_int, json_object
from solutions.quantized import Format, QuantizedTensor, quantize, stored_parts
from solutions.safetensors_file import read_header, read_safetensors

FORMAT_NAME = "quantized-llama"
VERSION = 1  # of the layout above; raised when an older reader would misread a newer file


def is_quantizable(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor of a checkpoint is one of those that lose little and weigh much.

    Yes for the matrices of the layers. No for norms: a few numbers that scale everything, so
    there is nothing to win. No for the embedding and the head: the embedding is looked up, not
    multiplied, and the head decides between tens of thousands of logits that lie close together.
    (They may be one and the same tensor.)

    Args:
        name: in the checkpoint, such as "model.layers.3.mlp.up_proj.weight".
        shape: of the tensor.

    Returns:
        True where the name ends in ".weight", there are two dimensions, and it is neither
        "model.embed_tokens.weight" nor "lm_head.weight".
    """
    # exercise 3.5
    left_alone = ("model.embed_tokens.weight", "lm_head.weight")
    return len(shape) == 2 and name.endswith(".weight") and name not in left_alone


def quantize_weights(
    stored: Mapping[str, Tensor],
    format: Format,
    dtype: torch.dtype = torch.float32,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Tensor | QuantizedTensor]:
    """A checkpoint in few bits, one tensor at a time: the full-size model is never in memory.

    Reading everything first and quantizing then needs the room of the whole model at 32 bits, just
    to end with a fraction of it.

    Args:
        stored: floating-point tensors by name, as chapter 02 maps them or any other mapping that
            makes a tensor when it is asked for it. Each is asked for once, and forgotten before
            the next one is asked for.
        format: for the tensors that `is_quantizable` names.
        dtype: of those that are left alone. One that has this dtype already is not copied.
        progress: called after each tensor with how many are done and how many there are.

    Returns:
        the names of stored in the same order, each with a QuantizedTensor or a Tensor. At no time
        is more memory taken than for the result so far and eight float32 copies of the largest
        matrix that is quantized.

    Errors: ValueError of `quantize`, with the name of the tensor in front.
    """
    # exercise 3.5
    result: dict[str, Tensor | QuantizedTensor] = {}
    for done, name in enumerate(stored, 1):
        result[name] = _converted(name, stored[name], format, dtype)
        if progress is not None:
            progress(done, len(stored))
    return result


def _converted(name: str, tensor: Tensor, format: Format, dtype: torch.dtype):
    """One tensor: quantized, or left alone in another dtype."""
    if not is_quantizable(name, tuple(tensor.shape)):
        return tensor.to(dtype)
    try:
        return quantize(tensor, format)
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from None


def save_quantized(path: str | Path, weights: Mapping[str, Tensor | QuantizedTensor]) -> None:
    """Write weights to one .safetensors file, with what is needed to read them back.

    The layout: the parts of a QuantizedTensor under its name and ".data", ".scale", ".minimum"
    (not for rows), a Tensor under its own name, and the metadata "format" (FORMAT_NAME), "version"
    (VERSION, as text) and "tensors", a JSON object that has, by the name of every QuantizedTensor,
    an object with its "bits", "group_size" (null for rows) and "shape".

    The bytes go to a file of that name with ".partial" behind it, which takes the name in the end:
    whenever the program stops, the path holds a whole file, the old or the new, or none. Such a
    .partial from a run that was stopped is overwritten.

    Args:
        path: of the file, in a folder that exists. A file already there is replaced (on Windows
            `Path.rename` would refuse to; `Path.replace` does it everywhere).
        weights: by name. Tensors need not be contiguous. They may be views, also of the same
            numbers, as a head is that is tied to the embedding: each is written in full.

    Errors: whatever the package or the system raises when the file cannot be written; the path then
    holds what it held before.
    """
    # exercise 3.6
    path = Path(path)
    tensors, layout = {}, {}
    for name, weight in weights.items():
        if isinstance(weight, Tensor):
            tensors[name] = weight.contiguous()
            continue
        parts = {"data": weight.data, "scale": weight.scale, "minimum": weight.minimum}
        tensors |= {f"{name}.{k}": p.contiguous() for k, p in parts.items() if p is not None}
        layout[name] = {k: getattr(weight, k) for k in ("bits", "group_size", "shape")}
    _unshare(tensors)
    metadata = {"format": FORMAT_NAME, "version": str(VERSION), "tensors": json.dumps(layout)}
    partial = path.with_name(f"{path.name}.partial")
    try:
        save_file(tensors, partial, metadata)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _unshare(tensors: dict[str, Tensor]) -> None:
    """Copy what shares bytes with another tensor: the safetensors package refuses to write it."""
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_ptr()):
        if tensor.data_ptr() < end:
            tensors[name] = tensor.clone()
        end = max(end, tensor.data_ptr() + tensor.nbytes)


def load_quantized(path: str | Path) -> dict[str, Tensor | QuantizedTensor]:
    """The weights that `save_quantized` wrote, as views of the mapped file.

    Nothing of a file is believed before it is checked: a wrong shape found here is a sentence,
    found in the model it is a puzzle.

    Args:
        path: of the file.

    Returns:
        every weight by its name, bit for bit as it was saved. Nothing is copied: pages are read
        when arithmetic first touches them.

    Errors: FileNotFoundError. ValueError, naming the file and what is wrong: not a safetensors
    file, or a damaged one; not written by `save_quantized`; of a newer version, with its number;
    metadata that does not say what it should; a part that is missing, or has another dtype or
    shape than `stored_parts` calls for; a name that is there both whole and quantized; a tensor
    without metadata that is not floating point. The last four name the tensor.
    """
    # exercise 3.6
    path = Path(path)
    tensors = read_safetensors(path)
    try:
        for name, (format, shape) in read_layout(read_header(path).metadata).items():
            tensors[name] = _assembled(name, tensors, format, shape)
        _check_left_alone(tensors)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return tensors


def read_layout(metadata: Mapping[str, str]) -> dict[str, tuple[Format, tuple[int, int]]]:
    """What a file's metadata says of its quantized weights: the format and the shape of each.

    Args:
        metadata: of a .safetensors file.

    Returns:
        (format, (out, in)) by the name of the weight.

    Errors: ValueError when it is not the metadata of `save_quantized`, is of a newer version, or
    says of a weight what none can have.
    """
    if metadata.get("format") != FORMAT_NAME:
        raise ValueError(
            "not a quantized checkpoint of this engine: quantize the model's folder first"
        )
    if metadata.get("version") != str(VERSION):
        raise ValueError(
            f"it has version {metadata.get('version')!r}, and this engine reads {VERSION}: "
            "update the engine, or quantize again"
        )
    tensors = json_object(metadata.get("tensors", "").encode(), "the metadata of its tensors")
    return {name: layout_entry(name, entry) for name, entry in tensors.items()}


def layout_entry(name: str, entry: Any) -> tuple[Format, tuple[int, int]]:
    """One entry of the metadata, believed only if it has the right types."""
    if not isinstance(entry, dict) or entry.keys() != {"bits", "group_size", "shape"}:
        raise ValueError(f"the metadata of {name} is {entry!r:.80}")
    shape = entry["shape"]
    sizes = shape if isinstance(shape, list) else []
    if len(sizes) != 2 or not all(is_int(n) and n > 0 for n in sizes):
        raise ValueError(f"the metadata of {name} has the shape {shape!r:.80}")
    try:
        return Format(entry["bits"], entry["group_size"]), (shape[0], shape[1])
    except ValueError as problem:
        raise ValueError(f"the metadata of {name}: {problem}") from None


def _assembled(
    name: str, tensors: dict[str, Tensor], format: Format, shape: tuple[int, int]
) -> QuantizedTensor:
    """Take the parts of one weight out of tensors, if they are what its format calls for."""
    if name in tensors:
        raise ValueError(f"{name} is there twice, quantized and whole")
    parts: dict[str, Tensor] = {}
    for kind, (dtype, expected) in stored_parts(format, shape).items():
        part = tensors.pop(f"{name}.{kind}", None)
        if part is None:
            raise ValueError(f"{name}.{kind} is missing")
        if tuple(part.shape) != expected or part.dtype != dtype:
            raise ValueError(
                f"{name}.{kind} is {part.dtype} {list(part.shape)}, but {format} of {list(shape)} "
                f"take {dtype} {list(expected)}"
            )
        parts[kind] = part
    minimum = parts.get("minimum")
    return QuantizedTensor(
        parts["data"], parts["scale"], minimum, format.bits, format.group_size, shape
    )


def _check_left_alone(tensors: Mapping[str, Tensor | QuantizedTensor]) -> None:
    """A part that belongs to nothing, or a weight of integers, is no weight of a model."""
    for name, weight in tensors.items():
        if isinstance(weight, Tensor) and not weight.is_floating_point():
            raise ValueError(f"{name} is {weight.dtype}, and no part of a quantized weight")
