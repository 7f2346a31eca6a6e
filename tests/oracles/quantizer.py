"""What chapter 03 should compute, in numpy and float64, one row or one group at a time.

Written to be unlike the engine: loops, whole numbers in text of zeros and ones, no torch.
"""

import math

import numpy as np

IN_A_BYTE = {2: 4, 3: 2, 4: 2, 8: 1}


def wide(values) -> np.ndarray:
    """Any tensor (also bfloat16, which numpy lacks) or array as a float64 array."""
    return values.double().numpy() if hasattr(values, "double") else np.asarray(values, float)


def row_scales(weight) -> np.ndarray:
    """[out, 1]: the largest absolute value of each row, divided by 127."""
    return np.array([[max(abs(number) for number in row) / 127] for row in wide(weight)])


def filled_groups(weight, size: int) -> list[list[np.ndarray]]:
    """For each row its groups of `size` numbers; the last number of the row fills the last one."""
    rows = []
    for row in wide(weight):
        missing = math.ceil(len(row) / size) * size - len(row)
        rows.append(np.split(np.append(row, [row[-1]] * missing), (len(row) + missing) // size))
    return rows


def group_parts(weight, bits: int, size: int, dtype=np.float16) -> tuple[np.ndarray, np.ndarray]:
    """(scale, minimum), each [out, G]: of the numbers as they are, then rounded to dtype."""
    groups = filled_groups(weight, size)
    scale = [[(max(g) - min(g)) / (2**bits - 1) for g in row] for row in groups]
    return np.array(scale).astype(dtype), np.array([[min(g) for g in r] for r in groups], dtype)


def rounded(quotient: float, most: int) -> int:
    """To the nearest whole number from 0 to most, a half to the even one (as Python rounds)."""
    return min(max(round(quotient), 0), most)


def group_numbers(weight, bits: int, size: int, scale, minimum) -> np.ndarray:
    """q [out, G * size] for a given scale and minimum [out, G]."""
    rows = []
    for row, scales, lows in zip(filled_groups(weight, size), scale, minimum, strict=True):
        numbers = []
        for group, step, low in zip(row, map(float, scales), map(float, lows), strict=True):
            numbers += [rounded((n - low) / step, 2**bits - 1) if step else 0 for n in group]
        rows.append(numbers)
    return np.array(rows, dtype=np.uint8)


def packed(numbers, bits: int) -> np.ndarray:
    """[out, N] whole numbers as bytes: written out in zeros and ones, the first on the right."""
    each = 8 // IN_A_BYTE[bits]
    rows = []
    for row in np.asarray(numbers):
        digits = [format(int(n), f"0{each}b") for n in row]
        digits += ["0" * each] * (-len(digits) % IN_A_BYTE[bits])
        parts = [digits[i : i + IN_A_BYTE[bits]] for i in range(0, len(digits), IN_A_BYTE[bits])]
        rows.append([int("".join(reversed(part)), 2) for part in parts])
    return np.array(rows, dtype=np.uint8).reshape(len(rows), -1)


def quantized(weight, bits: int, size: int | None) -> dict:
    """The fields of a QuantizedTensor, as numpy arrays and numbers."""
    shape = tuple(weight.shape)
    if size is None:
        scale = row_scales(weight).astype(np.float32)
        quotient = wide(weight) / np.where(scale == 0, 1, scale)
        q = np.clip(np.rint(quotient), -127, 127).astype(np.int8)
        return {"data": q, "scale": scale, "minimum": None, "bits": 8, "group_size": None,
                "shape": shape}  # fmt: skip
    scale, minimum = group_parts(weight, bits, size)
    data = packed(group_numbers(weight, bits, size, scale, minimum), bits)
    return {"data": data, "scale": scale, "minimum": minimum, "bits": bits, "group_size": size,
            "shape": shape}  # fmt: skip


def dequantized(weight, bits: int, size: int | None) -> np.ndarray:
    """A weight [out, in] after it was quantized and read back, in float64."""
    if size is None:
        fields = quantized(weight, bits, size)
        return fields["data"] * fields["scale"].astype(float)
    scale, minimum = group_parts(weight, bits, size)
    q = group_numbers(weight, bits, size, scale, minimum).astype(float)
    out, columns = weight.shape
    again = q.reshape(out, -1, size) * wide(scale)[..., None] + wide(minimum)[..., None]
    return again.reshape(out, -1)[:, :columns]


def relative_error(reference, other) -> float:
    """The length of the difference over the length of the reference, as vectors."""
    reference, other = wide(reference).ravel(), wide(other).ravel()
    return math.sqrt(math.fsum((other - reference) ** 2) / math.fsum(reference**2))


def perplexity(logits_of, ids: list[int], window: int, stride: int) -> float:
    """Token by token: which window is the first to hold it with another token before it?

    logits_of takes a list of ids and gives an array [t, V].
    """
    losses = []
    for place in range(1, len(ids)):
        start = max(0, math.ceil((place + 1 - window) / stride) * stride)
        last = logits_of(ids[start : start + window])[place - 1 - start]
        exponents = np.exp(last - last.max())
        losses.append(-math.log(exponents[ids[place]] / exponents.sum()))
    return math.exp(math.fsum(losses) / len(losses))


def share_on_grid(weight, bits: int, size: int, tolerance: float) -> float:
    """The share of groups whose numbers are all within tolerance steps of equally spaced ones."""
    fits = []
    for row in filled_groups(weight, size):
        for group in row:
            step = (max(group) - min(group)) / (2**bits - 1)
            places = (group - min(group)) / (step or 1)
            fits.append(all(abs(place - round(place)) <= tolerance for place in places))
    return sum(fits) / len(fits)


def noise_ratio(weight, bits: int, size: int | None) -> float:
    """Root mean square of the error, over that of step / sqrt(12)."""
    error = dequantized(weight, bits, size) - wide(weight)
    if size is None:
        steps = np.broadcast_to(wide(quantized(weight, bits, None)["scale"]), error.shape)
    else:
        scale = wide(group_parts(weight, bits, size)[0])
        steps = np.array([[s[i // size] for i in range(error.shape[1])] for s in scale])
    expected = math.sqrt((steps**2).mean() / 12)
    return math.sqrt((error**2).mean()) / expected if expected else 0.0
