"""Chapter 03 with one part written otherwise."""

import json

import torch

from tests.parts import part


@part("3.1")
def rows_by_the_inverse(m):
    """Multiplied by 127 / absmax instead of divided by the scale."""

    def quantize_rows(weight):
        m.check_matrix(weight)
        top = weight.double().abs().amax(1, keepdim=True)
        scale = (top / 127).float()
        q = (weight.double() * (127 / top)).where(scale > 0, 0).round().clamp(-127, 127)
        return q.to(torch.int8), scale

    m.quantize_rows = quantize_rows


@part("3.2")
def groups_in_float64(m):
    """Everything in float64, group after group of columns."""

    def quantize_groups(weight, bits, group_size, scale_dtype=torch.float16):
        m.check_matrix(weight)
        if bits not in (2, 3, 4, 8) or group_size < 1:
            raise ValueError(f"{bits} {group_size}")
        found = []
        for start in range(0, weight.shape[1], group_size):
            group = weight[:, start : start + group_size].double()
            missing = group_size - group.shape[1]
            group = torch.cat([group] + [group[:, -1:]] * missing, dim=1)
            lo, hi = group.amin(1), group.amax(1)
            scale, low = ((hi - lo) / (2**bits - 1)).to(scale_dtype), lo.to(scale_dtype)
            if not torch.isfinite(scale + low).all():
                raise ValueError(f"more than {str(scale_dtype)[6:]} holds")
            q = (group - low.double()[:, None]) / scale.double()[:, None]
            q = q.round().clamp(0, 2**bits - 1).masked_fill(scale[:, None] == 0, 0)
            found.append((q.to(torch.uint8), scale[:, None], low[:, None]))
        return tuple(torch.cat(parts, dim=1) for parts in zip(*found, strict=True))

    m.quantize_groups = quantize_groups


@part("3.3")
def unpacked_column_by_column(m):
    """Columns with a stride instead of a stack."""

    def unpack(packed, bits, count):
        many = {2: 4, 3: 2, 4: 2, 8: 1}
        if bits not in many or (count + many[bits] - 1) // many[bits] != packed.shape[-1]:
            raise ValueError(f"{count} numbers of {bits} bits, {packed.shape[-1]} bytes")
        out = packed.new_empty((*packed.shape[:-1], packed.shape[-1] * many[bits]))
        for place in range(many[bits]):
            out[..., place :: many[bits]] = packed.bitwise_right_shift(8 // many[bits] * place)
        return out.bitwise_and_(2**bits - 1)[..., :count].contiguous()

    m.unpack = unpack


@part("3.4")
def product_group_by_group(m):
    """x is multiplied with the unscaled numbers of each group, then scale and minimum come in."""
    right = m.linear

    def linear(x, weight):
        if isinstance(weight, torch.Tensor) or weight.minimum is None:
            return right(x, weight)
        groups, size = weight.scale.shape[1], weight.group_size
        q = m.unpack(weight.data, weight.bits, groups * size).view(-1, groups, size).double()
        filled = torch.nn.functional.pad(x.double(), (0, groups * size - x.shape[-1]))
        parts = filled.unflatten(-1, (groups, size))
        scaled = torch.einsum("...gs,ogs,og->...o", parts, q, weight.scale.double())
        return (scaled + parts.sum(-1) @ weight.minimum.double().T).to(x.dtype)

    m.linear = linear


@part("3.5")
def comprehension_with_pop(m):
    """One expression, and a list of names to take from."""

    def quantize_weights(stored, format, dtype=torch.float32, progress=None):
        names, total = list(stored)[::-1], len(stored)
        result = {}
        while names:
            name = names.pop()
            result[name] = m._converted(name, stored[name], format, dtype)
            progress and progress(total - len(names), total)
        return result

    m.quantize_weights = quantize_weights


@part("3.6")
def more_metadata(m):
    """Further keys in the metadata, and JSON with other spaces, are nobody's business."""
    right = m.save_file

    def save_file(tensors, path, metadata):
        layout = json.dumps(json.loads(metadata["tensors"]), indent=2, sort_keys=True)
        right(tensors, path, {**metadata, "tensors": layout, "made_by": "somebody"})

    m.save_file = save_file


@part("3.7")
def loss_by_logsumexp(m):
    """log p as the logit less the logarithm of the sum, one token at a time."""

    def perplexity(logits_of, ids, window, stride):
        if len(ids) < 2 or window < 2 or not 0 < stride < window:
            raise ValueError("no")
        losses, start = [], 0
        while len(losses) < len(ids) - 1:
            part = ids[start : start + window].tolist()
            logits = logits_of(torch.tensor(part)).double()
            for place in range(len(losses) - start, len(part) - 1):
                row = logits[place]
                losses.append(float(row.logsumexp(0) - row[part[place + 1]]))
            start += stride
        return float(torch.tensor(losses, dtype=torch.float64).mean().exp())

    m.perplexity = perplexity
