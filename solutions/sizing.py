"""Chapter 01: how many bytes a model needs and how fast they can be read, before any is read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Sizes = Mapping[str, Any]
WIDTHS = (32, 16, 8, 4, 2)  # bits a weight
SCALE_BYTES = 4  # of a group: a float16 scale and a float16 minimum


def head_dim(config: Sizes) -> int:
    """Numbers a head has: "head_dim", or without one hidden_size // num_attention_heads.

    A model may give its heads another width than the hidden size leaves for each, so the division
    is only the default. A null counts as not given.
    """
    # exercise 1.4
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def kv_width(config: Sizes) -> int:
    """Numbers in one token's key in one layer: key/value heads times head_dim; in its value, too.

    The heads are "num_key_value_heads", fewer than the query heads where several of these share
    one (grouped-query attention). Not given, or null: as many as num_attention_heads.
    """
    # exercise 1.4
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    return heads * head_dim(config)


def matrices(config: Sizes) -> tuple[tuple[int, int], ...]:
    """[out, in] of the seven matrices of one layer: q, k, v, o, gate, up, down."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries, shared = config["num_attention_heads"] * head_dim(config), kv_width(config)
    attention = ((queries, hidden), (shared, hidden), (shared, hidden), (hidden, queries))
    return (*attention, (inner, hidden), (inner, hidden), (hidden, inner))


def weight_bytes(
    config: Sizes, bits: int = 32, group_size: int | None = None, kept_bits: int = 16
) -> int:
    """Bytes of all weights when the layers' matrices have `bits` a number.

    At 32 or 16 bits every weight has that many; the other arguments are checked, no more.
    Below, only the matrices of the layers, `matrices(config)`, are quantized. The rest has
    `kept_bits`: the embedding [vocab_size, hidden_size], the head of the same shape unless it is
    tied to the embedding, two norms of hidden_size numbers in each layer, and one at the end.

    A quantized row [in] consists of groups; the last one is filled up where group_size does not
    divide `in`, and takes the room of a whole one. All numbers of the row follow each other, and
    its last byte is filled up. To these come SCALE_BYTES for each group.

    Args:
        config: the parsed config.json of a Llama-type checkpoint. It has "vocab_size",
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", and
            may have "num_key_value_heads", "head_dim", "tie_word_embeddings": null counts as not
            given, and without the last one the head is not tied.
        bits: 32, 16, 8, 4 or 2.
        group_size: numbers of a row that share a scale and a minimum, 1 or more; None: the whole
            row is one group.
        kept_bits: 32 or 16.

    Returns:
        Bytes, a whole number.

    Errors: ValueError for other bits or kept_bits and for a group_size under 1, naming the value.
    KeyError with the name of a size that config must have and has not.
    """
    # exercise 1.4
    _check_widths(bits, group_size, kept_bits)
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    tables = 1 if config.get("tie_word_embeddings") else 2
    kept = tables * config["vocab_size"] * hidden + (2 * layers + 1) * hidden
    if bits >= 16:
        return (layers * sum(map(math.prod, matrices(config))) + kept) * bits // 8
    rows = sum(out * _row_bytes(into, bits, group_size or into) for out, into in matrices(config))
    return layers * rows + kept * kept_bits // 8


def _check_widths(bits: int, group_size: int | None, kept_bits: int) -> None:
    """Refuse a width or group that there is not."""
    if bits not in WIDTHS:
        raise ValueError(f"bits must be one of {WIDTHS}, not {bits}")
    if kept_bits not in (32, 16):
        raise ValueError(f"kept_bits must be 32 or 16, not {kept_bits}")
    if group_size is not None and group_size < 1:
        raise ValueError(f"a group has at least one number, not {group_size}")


def _row_bytes(length: int, bits: int, group: int) -> int:
    """Bytes of one quantized row."""
    groups = -(-length // group)  # -(-a // b) rounds up
    return -(-groups * group * bits // 8) + groups * SCALE_BYTES


def kv_cache_bytes(config: Sizes, length: int, batch: int = 1, bits: int = 16) -> int:
    """Bytes of the keys and values of `batch` sequences of `length` tokens.

    A token leaves a key and a value of kv_width numbers in every layer, and they stay until its
    sequence ends.

    Args:
        config: as in weight_bytes.
        length: tokens of each sequence, 0 or more.
        batch: sequences, 0 or more.
        bits: of one number: 32, 16 or 8.

    Returns:
        Bytes, a whole number.

    Errors: ValueError for a negative length or batch, and for other bits, naming the value.
    KeyError with the name of a size that is missing.
    """
    # exercise 1.5
    if length < 0 or batch < 0:
        raise ValueError(f"length and batch must be 0 or more: got {length}, {batch}")
    if bits not in (32, 16, 8):
        raise ValueError(f"a number of the cache has 32, 16 or 8 bits, not {bits}")
    return 2 * config["num_hidden_layers"] * kv_width(config) * length * batch * bits // 8


@dataclass(frozen=True)
class Prediction:
    """The speed that the roofline allows, and what sets it: "memory" or "compute"."""

    tokens_per_second: float
    bound: str


def predict_decode(
    weight_bytes: float,
    kv_bytes: float,
    parameters: float,
    bandwidth: float,
    flops: float,
    batch: int = 1,
) -> Prediction:
    """The most tokens a second that a machine can decode: the roofline.

    One step gives each of `batch` sequences one token. It reads all weights once, whatever the
    batch, and the cache of every sequence; and it does two operations (multiply, add) for each
    parameter and sequence. Reading and computing overlap, so the slower of the two sets the time.

    Args:
        weight_bytes: of all weights that a step reads.
        kv_bytes: of ONE sequence's cache.
        parameters: how many weights take part in the products.
        bandwidth: bytes a second, above 0.
        flops: operations a second, above 0.
        batch: sequences, 1 or more.

    Returns:
        Prediction(tokens_per_second of all sequences together, bound). Where both take the same
        time, the bound is "memory".

    Errors: ValueError for bandwidth or flops not above 0, for a batch under 1, and when there is
    nothing to read and nothing to compute.

    Source: Williams, Waterman and Patterson 2009, "Roofline".
    """
    # exercise 1.6
    _check_speeds(bandwidth, flops)
    if batch < 1:
        raise ValueError(f"a batch has at least one sequence, not {batch}")
    reading = (weight_bytes + batch * kv_bytes) / bandwidth
    computing = 2 * parameters * batch / flops
    step = max(reading, computing)
    if step <= 0:
        raise ValueError("nothing to read and nothing to compute: there is no speed to predict")
    return Prediction(batch / step, "memory" if reading >= computing else "compute")


def compute_bound_from(
    weight_bytes: float, kv_bytes: float, parameters: float, bandwidth: float, flops: float
) -> int | None:
    """The smallest batch at which arithmetic sets the speed of a decode step, not memory.

    Up to there one more sequence is nearly free, since the weights are read anyway. With long
    sequences the turn never comes: each brings more to read than to compute.

    Args:
        weight_bytes, kv_bytes, parameters, bandwidth, flops: as in predict_decode.

    Returns:
        The first whole batch, 1 or more, for which predict_decode says "compute"; None when it
        says "memory" for every batch. Where rounding decides between two equal times, a
        neighbour is right as well.

    Errors: ValueError for bandwidth or flops not above 0.
    """
    # exercise 1.6
    _check_speeds(bandwidth, flops)
    gain = 2 * parameters / flops - kv_bytes / bandwidth  # seconds that one more sequence closes
    turn = weight_bytes / bandwidth / gain if gain > 0 else math.inf
    return math.floor(turn) + 1 if math.isfinite(turn) else None


def _check_speeds(bandwidth: float, flops: float) -> None:
    """Refuse a machine that never finishes."""
    if not (bandwidth > 0 and flops > 0):
        raise ValueError(f"bandwidth and flops must be above 0: got {bandwidth}, {flops}")
