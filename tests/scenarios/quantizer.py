"""Chapter 03's live objects, driven beside the code under test.

Every function takes the module under test first and returns plain data. An exception that a case
does not expect is let through: it then names the line that raised it. `fields` are those of a
QuantizedTensor, by name.
"""

import weakref
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from tests.scenarios.helpers import Unusable, call_unchanged, in_words, told
from tests.scenarios.memory import peak_of
from tests.scenarios.quantizer_files import *  # noqa: F403
from tests.scenarios.quantizer_values import fields_of, plain_of, tensor_of, weight_of


@told
def groups(module, weight, bits: int, group_size: int, *scale_dtype):
    """quantize_groups, which leaves the weight as it was; a dtype travels by its name."""
    given = [getattr(torch, name) for name in scale_dtype]
    return call_unchanged(
        "quantize_groups",
        lambda weight: module.quantize_groups(weight, bits, group_size, *given),
        weight=weight,
    )


def on_transposed(module, name: str, tensor, *args):
    """A function on a tensor that lies in memory column by column."""
    return getattr(module, name)(tensor.T.contiguous().T, *args)


# --- 3.4 ---


@told
def quantize_only(module, weight, bits: int, group_size: int | None) -> dict:
    """The fields of what quantize makes."""
    return fields_of(module.quantize(weight, module.Format(bits, group_size)))


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
    plain = fields_of(found)
    weight.fill_(77.0)
    return {**plain, "nbytes": found.nbytes, "floats": found.dequantize()}


@told
def dequantize(module, fields: dict, dtype: str | None):
    """[dequantize(dtype), nbytes] of a QuantizedTensor made of these fields."""
    given = () if dtype is None else (getattr(torch, dtype),)
    weight = tensor_of(module, fields)
    kept = {k: v.clone() for k, v in fields.items() if isinstance(v, Tensor)}
    found = weight.dequantize(*given)
    if not isinstance(found, Tensor):
        raise Unusable(f"dequantize should return a tensor, but returned {in_words(found)}")
    answer = [found.clone(), weight.nbytes]
    found.fill_(77.0)  # must not reach the weight
    for name, value in kept.items():
        if not torch.equal(value, fields[name]):
            raise Unusable(f"writing to what dequantize returned changed {name} of the weight")
    if not torch.equal(weight.dequantize(*given), answer[0]):
        raise Unusable(
            "writing to what dequantize returned changed what it returns the next time: "
            "it keeps that tensor"
        )
    return answer


@told
def product(module, x, weight):
    """linear(x, weight), with a weight that is a tensor or the fields of a quantized one."""
    weight = weight_of(module, weight)
    return call_unchanged("linear", lambda x: module.linear(x, weight), x=x)


@told
def product_twice(module, x, fields: dict) -> list:
    """linear(x, weight) before and after scale and minimum of the weight are doubled in place."""
    weight = weight_of(module, fields)
    before = module.linear(x, weight).clone()
    for part in (weight.scale, weight.minimum):
        if part is not None:
            part.mul_(2)
    return [before, module.linear(x, weight)]


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
    weights = plain_of(found)
    shared = [
        name
        for name, weight in weights.items()
        if isinstance(weight, Tensor) and weight.data_ptr() == tensors[name].data_ptr()
    ]
    return {"weights": weights, "order": list(weights), "progress": calls, "shared": shared}


@told
def quantize_on_demand(module, shapes: dict, bits: int, group_size: int, dtype: str) -> dict:
    """quantize_weights of a checkpoint made on demand: what was asked for, how many stored tensors
    were alive at the same time, and how many had been asked for at each call of progress."""
    stored, told_after = OnDemand(shapes, getattr(torch, dtype)), []
    found = module.quantize_weights(
        stored,
        module.Format(bits, group_size),
        progress=lambda *_: told_after.append(len(stored.asked)),
    )
    plain_of(found)
    return {"asked": stored.asked, "alive": stored.most, "told_after": told_after}


@told
def quantize_within(module, shapes: dict, bits: int, group_size: int, room: int) -> dict:
    """quantize_weights of such a checkpoint: the bytes of the result, those of the tensors alive
    at most, and whether all memory was over the result and so much room.

    Python's own small things vary by some bytes, so how far it was over is not told."""
    stored = OnDemand(shapes, torch.float32)

    def call():
        return module.quantize_weights(stored, module.Format(bits, group_size))

    found, peak = peak_of(call)
    weights = plain_of(found)
    parts = [p for w in weights.values() for p in (w.values() if isinstance(w, dict) else [w])]
    size = sum(part.nbytes for part in parts if isinstance(part, Tensor))
    return {"size": size, "tensors": peak.torch, "over": peak.total > size + room}


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

    found = call_unchanged(
        "perplexity",
        lambda ids: module.perplexity(logits_of, ids, window, stride),
        ids=torch.tensor(ids),
    )
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
