"""Chapter 03 by someone who knows torch's corners: views of other dtypes, tables, one-liners."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from solutions.quantize import check_matrix
from solutions.quantized import Format, stored_parts
from solutions.quantizer import read_layout
from solutions.safetensors_file import read_header, read_safetensors

__all__ = ["Format"]


def quantize_rows(weight):
    check_matrix(weight)
    weight = weight.to(torch.float32)
    scale = torch.linalg.vector_norm(weight, float("inf"), dim=1, keepdim=True).div(127)
    safe = torch.where(scale == 0, float("inf"), scale)
    return torch.round(weight / safe).clamp_(-127, 127).char(), scale


def quantize_groups(weight, bits, group_size, scale_dtype=torch.float16):
    if bits not in {2, 3, 4, 8}:
        raise ValueError(f"{bits} bits")
    if group_size < 1:
        raise ValueError(f"groups of {group_size}")
    check_matrix(weight)
    out, columns = weight.shape
    count = (columns + group_size - 1) // group_size
    last = torch.arange(count * group_size).clamp(max=columns - 1)
    groups = weight.float()[:, last].view(out, count, group_size)
    lo, hi = groups.min(-1).values, groups.max(-1).values
    scale, minimum = (hi - lo).div(2**bits - 1).to(scale_dtype), lo.to(scale_dtype)
    if torch.stack((scale, minimum)).isinf().any():
        raise ValueError(f"{str(scale_dtype).split('.')[1]} is too narrow")
    safe = scale.float().masked_fill(scale == 0, float("inf"))
    q = groups.sub(minimum.float()[..., None]).div_(safe[..., None]).round_()
    q = q.clamp_(0, 2**bits - 1)
    return q.byte().view(out, -1), scale, minimum


def pack(q, bits):
    if bits not in (2, 3, 4, 8) or q.dtype != torch.uint8:
        raise ValueError(f"{bits} bits of {q.dtype}")
    for number in q.unique().tolist():
        if number >> bits:
            raise ValueError(f"{number} needs more than {bits} bits")
    if bits == 8:
        return q.clone()
    each = 2 if bits == 2 else 4
    many = 8 // each
    q = F.pad(q, (0, (many - q.shape[-1] % many) % many))
    weights = torch.tensor([1 << each * i for i in range(many)])
    return (q.unflatten(-1, (-1, many)).long() * weights).sum(-1).to(torch.uint8)


def unpack(packed, bits, count):
    if bits not in (2, 3, 4, 8):
        raise ValueError(f"{bits} bits")
    many = {2: 4, 3: 2, 4: 2, 8: 1}[bits]
    if not (packed.shape[-1] - 1) * many < count <= packed.shape[-1] * many:
        raise ValueError(f"{count} numbers cannot lie in {packed.shape[-1]} bytes")
    table = torch.tensor(
        [[b >> 8 // many * i & 2**bits - 1 for i in range(many)] for b in range(256)]
    )
    return table.to(torch.uint8)[packed.long()].flatten(-2).narrow(-1, 0, count)


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    data: torch.Tensor
    scale: torch.Tensor
    minimum: torch.Tensor | None
    bits: int
    group_size: int | None
    shape: tuple[int, int]

    @property
    def nbytes(self):
        affine = self.minimum is not None
        return self.data.nbytes + self.scale.nbytes + (self.minimum.nbytes if affine else 0)

    def dequantize(self, dtype=torch.float32):
        if self.minimum is None:
            return torch.mul(self.data, self.scale).to(dtype)
        out, groups = self.scale.shape
        q = unpack(self.data, self.bits, groups * self.group_size).view(out, groups, -1)
        wide = torch.addcmul(
            self.minimum.float()[..., None], q.float(), self.scale.float()[..., None]
        )
        return wide.view(out, -1)[:, : self.shape[1]].to(dtype, copy=True)


def quantize(weight, format):
    if format.group_size:
        q, scale, minimum = quantize_groups(weight, format.bits, format.group_size)
        q = pack(q, format.bits)
    else:
        (q, scale), minimum = quantize_rows(weight), None
    return QuantizedTensor(q, scale, minimum, format.bits, format.group_size, weight.shape)


def linear(x, weight):
    match weight:
        case QuantizedTensor(minimum=None):
            return (F.linear(x.float(), weight.data.float()) * weight.scale[:, 0]).to(x.dtype)
        case QuantizedTensor():
            return F.linear(x.float(), weight.dequantize()).to(x.dtype)
    return F.linear(x, weight)


def is_quantizable(name, shape):
    layer = name not in {"model.embed_tokens.weight", "lm_head.weight"}
    return bool(layer and name.endswith(".weight") and len(shape) == 2)


def quantize_weights(stored, format, dtype=torch.float32, progress=lambda done, total: None):
    def one(name):
        tensor = stored[name]
        if not is_quantizable(name, tensor.shape):
            return tensor.type(dtype)
        try:
            return quantize(tensor, format)
        except ValueError as error:
            raise ValueError(f"in {name}, {error}") from None

    result, tell = {}, progress or (lambda done, total: None)
    for name in stored.keys():  # noqa: SIM118
        result[name] = one(name)
        tell(len(result), len(stored))
    return result


def save_quantized(path, weights):
    path, flat, layout = Path(path), {}, {}
    for name, weight in weights.items():
        if hasattr(weight, "group_size"):
            layout[name] = [weight.bits, weight.group_size, [*weight.shape]]
            kinds = (
                ("data", "scale", "minimum") if weight.minimum is not None else ("data", "scale")
            )
            flat.update({f"{name}.{kind}": getattr(weight, kind) for kind in kinds})
        else:
            flat[name] = weight
    whole = torch.contiguous_format
    flat = {name: tensor.clone(memory_format=whole) for name, tensor in flat.items()}
    keys = ("bits", "group_size", "shape")
    text = json.dumps({name: dict(zip(keys, row, strict=True)) for name, row in layout.items()})
    about = {"format": "quantized-llama", "version": "1", "tensors": text}
    save_file(flat, f"{path}.partial", metadata=about)
    Path(f"{path}.partial").replace(path)


def load_quantized(path):
    tensors = read_safetensors(path)
    result = {}
    try:
        for name, (format, shape) in read_layout(read_header(path).metadata).items():
            wanted = stored_parts(format, shape)
            parts = {kind: tensors.pop(f"{name}.{kind}", None) for kind in wanted}
            for kind, part in parts.items():
                if part is None or (part.dtype, tuple(part.shape)) != wanted[kind]:
                    raise ValueError(f"{name}.{kind} is not {wanted[kind]}")
            rest = {"bits": format.bits, "group_size": format.group_size, "shape": shape}
            result[name] = QuantizedTensor(**{"minimum": None, **parts, **rest})
        odd = [n for n, t in tensors.items() if n in result or not torch.is_floating_point(t)]
        if odd:
            raise ValueError(f"left over: {', '.join(odd)}")
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    result.update(tensors)
    return result


def relative_error(reference, other):
    if reference.shape != other.shape:
        raise ValueError(f"{list(reference.shape)} {list(other.shape)}")
    size = reference.double().norm().item()
    error = torch.dist(reference.double(), other.double()).item()
    return error / size if size else error and float("inf")


def perplexity(logits_of, ids, window, stride):
    if len(ids) < 2 or window < 2 or stride not in range(1, window):
        raise ValueError("window, stride or ids")
    total, counted, start = torch.zeros((), dtype=torch.float64), 1, 0
    while counted < len(ids):
        part = ids[start : start + window]
        logits = logits_of(part).to(torch.float64)
        first = counted - start
        total += F.cross_entropy(logits[first - 1 : -1], part[first:].long(), reduction="sum")
        counted, start = start + len(part), start + stride
    return (total / (len(ids) - 1)).exp().item()


def agreement(reference, other):
    if reference.shape != other.shape or len(reference) == 0:
        raise ValueError("shapes")
    same = reference.max(-1).indices.eq(other.max(-1).indices)
    return same.sum().item() / same.numel()


def share_on_grid(weight, bits, group_size, tolerance=1e-3):
    q, scale, minimum = quantize_groups(weight, bits, group_size, torch.float32)
    out, count = scale.shape
    filled = weight.double()[:, torch.arange(q.shape[1]).clamp(max=weight.shape[1] - 1)]
    wide = filled.view(out, count, -1)
    places = (wide - minimum.double()[..., None]) / scale.double()[..., None]
    near = (places - places.round()).abs().nan_to_num(0.0) <= tolerance
    return near.all(-1).double().mean().item()


def noise_ratio(weight, format):
    stored = quantize(weight, format)
    error = torch.dist(stored.dequantize().double(), weight.double()).item()
    index = torch.arange(weight.shape[1]) // (format.group_size or weight.shape[1])
    expected = stored.scale.double()[:, index].norm().item() / 12**0.5
    return error / expected if expected else 0.0


def honest_formats(weights, formats, least=0.5):
    chosen = {n: w for n, w in weights.items() if is_quantizable(n, w.shape)}
    if not chosen:
        raise ValueError("no weights")
    means = ((f, [noise_ratio(w, f) for w in chosen.values()]) for f in formats)
    return [f for f, ratios in means if sum(ratios) >= least * len(ratios)]
