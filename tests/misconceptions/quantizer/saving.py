"""Wrong versions of 3.6 save_quantized and load_quantized."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from course.misconceptions import misconception
from solutions.quantized import Format, QuantizedTensor, stored_parts
from solutions.quantizer import (
    FORMAT_NAME,
    VERSION,
    _assembled,
    _check_left_alone,
    _unshare,
    read_layout,
)
from solutions.safetensors_file import read_header, read_safetensors


@misconception("3.6", "save_quantized")
def written_in_place(path, weights):
    """You write to the path itself. When the disk is full or somebody pulls the plug, half a file
    stands where a whole one was: write to a .partial name beside it and rename in the end.
    """
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
    save_file(tensors, path, metadata)


@misconception("3.6", "save_quantized")
def version_forgotten(path, weights):
    """You write no version. The day the layout changes, an old reader has no way to know that it
    should refuse, and reads nonsense.
    """
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
    partial = path.with_name(f"{path.name}.partial")
    save_file(tensors, partial, {"format": FORMAT_NAME, "tensors": json.dumps(layout)})
    partial.replace(path)


@misconception("3.6", "save_quantized")
def only_what_is_quantized(path, weights):
    """You save the quantized weights and forget those that were left alone: without embedding and
    norms the file is no model.
    """
    path = Path(path)
    tensors, layout = {}, {}
    for name, weight in weights.items():
        if isinstance(weight, Tensor):
            continue
        parts = {"data": weight.data, "scale": weight.scale, "minimum": weight.minimum}
        tensors |= {f"{name}.{k}": p.contiguous() for k, p in parts.items() if p is not None}
        layout[name] = {k: getattr(weight, k) for k in ("bits", "group_size", "shape")}
    _unshare(tensors)
    metadata = {"format": FORMAT_NAME, "version": str(VERSION), "tensors": json.dumps(layout)}
    partial = path.with_name(f"{path.name}.partial")
    save_file(tensors, partial, metadata)
    partial.replace(path)


@misconception("3.6", "save_quantized")
def partial_left_behind(path, weights):
    """You copy the .partial file and leave it lying there. Rename it: that is one step which
    happens whole or not at all, and leaves nothing behind.
    """
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
    save_file(tensors, partial, metadata)
    path.write_bytes(partial.read_bytes())


@misconception("3.6", "save_quantized")
def paths_must_be_path(path, weights):
    """You use the path as a Path object without making it one. People pass a str as well: begin
    with path = Path(path).
    """
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
    save_file(tensors, partial, metadata)
    partial.replace(path)


@misconception("3.6", "save_quantized")
def shared_numbers_refused(path, weights):
    """You hand over tensors that share memory, as a tied head does with the embedding, and the
    safetensors package refuses. contiguous() copies nothing that is contiguous: clone one of them.
    """
    path = Path(path)
    tensors, layout = {}, {}
    for name, weight in weights.items():
        if isinstance(weight, Tensor):
            tensors[name] = weight.contiguous()
            continue
        parts = {"data": weight.data, "scale": weight.scale, "minimum": weight.minimum}
        tensors |= {f"{name}.{k}": p.contiguous() for k, p in parts.items() if p is not None}
        layout[name] = {k: getattr(weight, k) for k in ("bits", "group_size", "shape")}
    metadata = {"format": FORMAT_NAME, "version": str(VERSION), "tensors": json.dumps(layout)}
    partial = path.with_name(f"{path.name}.partial")
    try:
        save_file(tensors, partial, metadata)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@misconception("3.6", "load_quantized")
def metadata_believed(path):
    """You believe the metadata and do not compare it with the parts. A lying or damaged file then
    gives a weight that fails, or answers nonsense, deep inside the model.
    """
    path = Path(path)
    tensors = read_safetensors(path)
    try:
        for name, (format, shape) in read_layout(read_header(path).metadata).items():
            kinds = stored_parts(format, shape)
            missing = [k for k in kinds if f"{name}.{k}" not in tensors]
            if missing:
                raise ValueError(f"{name}.{missing[0]} is missing")
            parts = {k: tensors.pop(f"{name}.{k}") for k in kinds}
            minimum = parts.get("minimum")
            tensors[name] = QuantizedTensor(
                parts["data"], parts["scale"], minimum, format.bits, format.group_size, shape
            )
        _check_left_alone(tensors)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return tensors


@misconception("3.6", "load_quantized")
def shapes_without_dtypes(path):
    """You compare the shapes of the parts but not their dtypes. float32 where float16 belongs
    multiplies well enough to hide, and integers in its place do not.
    """
    path = Path(path)
    tensors = read_safetensors(path)
    try:
        for name, (format, shape) in read_layout(read_header(path).metadata).items():
            if name in tensors:
                raise ValueError(f"{name} is there twice")
            parts = {}
            for kind, (_, expected) in stored_parts(format, shape).items():
                part = tensors.pop(f"{name}.{kind}", None)
                if part is None or tuple(part.shape) != expected:
                    raise ValueError(f"{name}.{kind} does not fit")
                parts[kind] = part
            minimum = parts.get("minimum")
            tensors[name] = QuantizedTensor(
                parts["data"], parts["scale"], minimum, format.bits, format.group_size, shape
            )
        _check_left_alone(tensors)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return tensors


@misconception("3.6", "load_quantized")
def any_version_taken(path):
    """You read a file of a newer version as if it were this one's. What has changed in it, nobody
    can know from here: refuse it, with its number.
    """
    path = Path(path)
    tensors = read_safetensors(path)
    metadata = {**read_header(path).metadata, "version": str(VERSION)}
    try:
        for name, (format, shape) in read_layout(metadata).items():
            tensors[name] = _assembled(name, tensors, format, shape)
        _check_left_alone(tensors)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return tensors


@misconception("3.6", "load_quantized")
def any_format_taken(path):
    """You never ask whether the file is one of yours. A plain checkpoint has no such metadata, and
    another program's may mean something else by the same names.
    """
    path = Path(path)
    tensors = read_safetensors(path)
    metadata = {"tensors": "{}", **read_header(path).metadata, "format": FORMAT_NAME}
    metadata.setdefault("version", str(VERSION))
    try:
        for name, (format, shape) in read_layout(metadata).items():
            tensors[name] = _assembled(name, tensors, format, shape)
        _check_left_alone(tensors)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return tensors


@misconception("3.6", "load_quantized")
def leftovers_taken(path):
    """You do not look at what is left when every weight of the metadata has its parts. A stray part
    or a weight of integers means that the file is not what it says.
    """
    path = Path(path)
    tensors = read_safetensors(path)
    try:
        for name, (format, shape) in read_layout(read_header(path).metadata).items():
            tensors[name] = _assembled(name, tensors, format, shape)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return tensors


@misconception("3.6", "load_quantized")
def copied_on_loading(path):
    """You copy every tensor, which reads the whole file at once and holds it in memory for good.
    Views of the mapped file cost nothing until they are used.
    """
    path = Path(path)
    tensors = {name: tensor.clone() for name, tensor in read_safetensors(path).items()}
    try:
        for name, (format, shape) in read_layout(read_header(path).metadata).items():
            tensors[name] = _assembled(name, tensors, format, shape)
        _check_left_alone(tensors)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    return tensors


@misconception("3.6", "load_quantized")
def other_exceptions(path):
    """You let a damaged file raise whatever it raises: SafetensorError, KeyError, JSONDecodeError.
    Somebody who calls this can catch one kind, ValueError, and needs the file's name in it.
    """
    from safetensors.torch import load_file

    tensors = load_file(path)
    layout = json.loads(read_header(path).metadata["tensors"])
    for name, entry in layout.items():
        parts = {k: tensors.pop(f"{name}.{k}", None) for k in ("data", "scale", "minimum")}
        format = Format(entry["bits"], entry["group_size"])
        tensors[name] = QuantizedTensor(
            *parts.values(), format.bits, format.group_size, tuple(entry["shape"])
        )
    assert all(isinstance(w, QuantizedTensor | torch.Tensor) for w in tensors.values())
    return tensors
