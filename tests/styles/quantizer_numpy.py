"""Chapter 03 by someone who thinks in numpy: round trips, divmod for the bits, rows in a loop."""

import json
import math
import os
from dataclasses import dataclass

import numpy as np
import safetensors.torch
import torch

from solutions.quantize import check_matrix
from solutions.quantized import Format, stored_parts
from solutions.quantizer import read_layout
from solutions.safetensors_file import read_header, read_safetensors

__all__ = ["Format"]
NUMBERS = {2: 4, 3: 2, 4: 2, 8: 1}


def quantize_rows(weight):
    check_matrix(weight)
    array = weight.float().numpy()
    scales = np.zeros((len(array), 1), dtype=np.float32)
    q = np.zeros(array.shape, dtype=np.int8)
    for index, row in enumerate(array):
        scales[index, 0] = np.abs(row).max() / np.float32(127)
        if scales[index, 0] > 0:
            q[index] = np.clip(np.rint(row / scales[index, 0]), -127, 127)
    return torch.from_numpy(q), torch.from_numpy(scales)


def quantize_groups(weight, bits, group_size, scale_dtype=torch.float16):
    check_matrix(weight)
    if bits not in NUMBERS or group_size <= 0:
        raise ValueError(f"{bits} bits in groups of {group_size}")
    array = weight.float().numpy()
    extra = math.ceil(array.shape[1] / group_size) * group_size - array.shape[1]
    array = np.pad(array, ((0, 0), (0, extra)), mode="edge")
    groups = array.reshape(len(array), -1, group_size)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        step = (groups.max(-1) - groups.min(-1)) / np.float32(2**bits - 1)
        scale = torch.from_numpy(step).to(scale_dtype)
        minimum = torch.from_numpy(groups.min(-1)).to(scale_dtype)
        if not (torch.isfinite(scale).all() and torch.isfinite(minimum).all()):
            raise ValueError(f"too large for {scale_dtype}")
        steps, lows = (t.float().numpy()[..., None] for t in (scale, minimum))
        q = np.rint((groups - lows) / steps)
    q = np.clip(np.where(steps == 0, 0, q), 0, 2**bits - 1).astype(np.uint8)
    return torch.from_numpy(q.reshape(len(q), -1)), scale, minimum


def pack(q, bits):
    if bits not in NUMBERS:
        raise ValueError(bits)
    if q.dtype is not torch.uint8:
        raise ValueError(q.dtype)
    array, count = q.numpy().astype(int), NUMBERS[bits]
    if array.size and array.max() > 2**bits - 1:
        raise ValueError(f"{array.max()} is too large for {bits} bits")
    base = 2 ** (8 // count)
    out = np.zeros((*array.shape[:-1], -(-array.shape[-1] // count)), dtype=int)
    for column in range(array.shape[-1]):
        out[..., column // count] += array[..., column] * base ** (column % count)
    return torch.from_numpy(out.astype(np.uint8))


def unpack(packed, bits, count):
    if bits not in NUMBERS:
        raise ValueError(bits)
    if packed.shape[-1] != math.ceil(count / NUMBERS[bits]):
        raise ValueError(f"{packed.shape[-1]} bytes for {count} numbers")
    array = packed.numpy().astype(int)
    base = 2 ** (8 // NUMBERS[bits])
    out = np.zeros((*array.shape[:-1], count), dtype=np.uint8)
    for column in range(count):
        place = column % NUMBERS[bits]
        out[..., column] = array[..., column // NUMBERS[bits]] // base**place % base % 2**bits
    return torch.from_numpy(out)


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    data: torch.Tensor
    scale: torch.Tensor
    minimum: torch.Tensor | None
    bits: int
    group_size: int | None
    shape: tuple

    @property
    def nbytes(self):
        total = self.data.numel() * self.data.element_size()
        total += self.scale.numel() * self.scale.element_size()
        if self.minimum is not None:
            total += self.minimum.numel() * self.minimum.element_size()
        return total

    def dequantize(self, dtype=torch.float32):
        scale = self.scale.float().numpy()
        if self.minimum is None:
            return torch.from_numpy(self.data.numpy() * scale).to(dtype)
        size = self.group_size
        q = unpack(self.data, self.bits, scale.shape[1] * size).numpy()
        floats = q * np.repeat(scale, size, axis=1)
        floats = floats + np.repeat(self.minimum.float().numpy(), size, axis=1)
        return torch.from_numpy(floats[:, : self.shape[1]].copy()).to(dtype)


def quantize(weight, format):
    out, columns = weight.shape
    if format.group_size is None:
        return QuantizedTensor(*quantize_rows(weight), None, 8, None, (out, columns))
    q, scale, minimum = quantize_groups(weight, format.bits, format.group_size)
    data = pack(q, format.bits)
    return QuantizedTensor(data, scale, minimum, format.bits, format.group_size, (out, columns))


def linear(x, weight):
    if not isinstance(weight, torch.Tensor):
        weight = weight.dequantize(x.dtype)
    return x @ weight.T


def is_quantizable(name, shape):
    if any(part in name for part in ("embed_tokens", "lm_head")):
        return False
    return name.rpartition(".")[2] == "weight" and len(tuple(shape)) == 2


def quantize_weights(stored, format, dtype=torch.float32, progress=None):
    names = list(stored)
    result = {}
    for name in names:
        tensor = stored[name]
        if is_quantizable(name, tensor.shape):
            try:
                result[name] = quantize(tensor, format)
            except ValueError as error:
                raise ValueError(name + ": " + str(error)) from error
        elif tensor.dtype == dtype:
            result[name] = tensor
        else:
            result[name] = tensor.to(dtype)
        tensor = None
        if progress:
            progress(len(result), len(names))
    return result


def save_quantized(path, weights):
    everything, about = {}, {}
    for name in weights:
        weight = weights[name]
        if isinstance(weight, torch.Tensor):
            everything[name] = weight.clone(memory_format=torch.contiguous_format)
            continue
        about[name] = dict(bits=weight.bits, group_size=weight.group_size, shape=list(weight.shape))
        everything[name + ".data"] = weight.data
        everything[name + ".scale"] = weight.scale
        if weight.minimum is not None:
            everything[name + ".minimum"] = weight.minimum
    header = {"tensors": json.dumps(about), "version": "1", "format": "quantized-llama"}
    blob = safetensors.torch.save(everything, metadata=header)
    with open(str(path) + ".partial", "wb") as file:
        file.write(blob)
    os.replace(str(path) + ".partial", path)


def load_quantized(path):
    left = read_safetensors(path)
    found = {}

    def wrong(text):
        raise ValueError(f"{path}: {text}")

    try:
        layout = read_layout(read_header(path).metadata)
    except ValueError as error:
        wrong(error)
    for name, (format, shape) in layout.items():
        parts = []
        for kind, (dtype, size) in stored_parts(format, shape).items():
            full = f"{name}.{kind}"
            if full not in left or left[full].dtype != dtype or left[full].shape != size:
                wrong(f"{full} is missing or not {dtype} {size}")
            parts.append(left.pop(full))
        if len(parts) == 2:
            parts.append(None)
        found[name] = QuantizedTensor(*parts, format.bits, format.group_size, shape)
    for name, tensor in left.items():
        if name in found or not tensor.dtype.is_floating_point:
            wrong(f"{name} should not be there")
    return {**left, **found}


def relative_error(reference, other):
    if tuple(reference.shape) != tuple(other.shape):
        raise ValueError(f"{tuple(reference.shape)} is not {tuple(other.shape)}")
    a, b = reference.double().numpy().ravel(), other.double().numpy().ravel()
    error, size = np.linalg.norm(b - a), np.linalg.norm(a)
    if size == 0:
        return float("inf") if error > 0 else 0.0
    return float(error / size)


def perplexity(logits_of, ids, window, stride):
    if len(ids) < 2:
        raise ValueError("too short")
    if window < 2 or stride < 1 or stride > window - 1:
        raise ValueError(f"window {window}, stride {stride}")
    losses = {}
    start = 0
    while True:
        part = ids[start : start + window]
        logits = logits_of(part).double().numpy()
        for i in range(len(part) - 1):
            if start + i + 1 not in losses:
                row = logits[i]
                top = row.max()
                losses[start + i + 1] = (
                    np.log(np.exp(row - top).sum()) + top - row[int(part[i + 1])]
                )
        if start + window >= len(ids):
            break
        start += stride
    return float(np.exp(np.mean(list(losses.values()))))


def agreement(reference, other):
    if reference.shape != other.shape or reference.shape[0] == 0:
        raise ValueError("shapes")
    one, two = (np.argmax(t.double().numpy(), axis=1) for t in (reference, other))
    return float(np.count_nonzero(one == two) / len(one))


def share_on_grid(weight, bits, group_size, tolerance=1e-3):
    quantize_groups(weight, bits, group_size, torch.float32)
    array, fits, count = weight.double().numpy(), 0, 0
    for row in array:
        for start in range(0, len(row), group_size):
            group = row[start : start + group_size]
            step = np.ptp(group) / (2**bits - 1)
            places = (group - group.min()) / step if step else np.zeros(1)
            fits += bool(np.all(np.abs(places - np.round(places)) <= tolerance))
            count += 1
    return fits / count


def noise_ratio(weight, format):
    stored = quantize(weight, format)
    error = stored.dequantize().double().numpy() - weight.double().numpy()
    size = format.group_size or weight.shape[1]
    total = 0.0
    for row in stored.scale.double().numpy():
        for index, step in enumerate(row):
            total += step**2 / 12 * min(size, weight.shape[1] - index * size)
    return math.sqrt((error**2).sum() / total) if total else 0.0


def honest_formats(weights, formats, least=0.5):
    names = [name for name in weights if is_quantizable(name, weights[name].shape)]
    if len(names) == 0:
        raise ValueError("nothing to measure on")
    found = []
    for format in formats:
        mean = np.mean([noise_ratio(weights[name], format) for name in names])
        if mean >= least:
            found.append(format)
    return found
