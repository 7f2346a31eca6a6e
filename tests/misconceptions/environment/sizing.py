"""Wrong versions of 1.4 weight_bytes and its widths, 1.5 kv_cache_bytes, 1.6 the roofline."""

import math

from course.misconceptions import misconception
from solutions.sizing import (
    SCALE_BYTES,
    Prediction,
    _check_speeds,
    _check_widths,
    _row_bytes,
    head_dim,
    kv_width,
    matrices,
)


@misconception("1.4", "head_dim")
def head_dim_always_divided(config):
    """You divide, whatever the config says. Many models give their heads another width than
    hidden_size leaves for each: "head_dim" goes first.
    """
    return config["hidden_size"] // config["num_attention_heads"]


@misconception("1.4", "head_dim")
def null_is_a_width(config):
    """You give back a null. In config.json a value that is not given may be there as null, None in
    Python: the default of config.get is not used then.
    """
    return config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])


@misconception("1.4", "kv_width")
def keys_for_all_heads(config):
    """You give the keys and values as many heads as the queries. With grouped-query attention there
    are num_key_value_heads of them, and k_proj, v_proj and the cache are that much smaller.
    """
    return config["num_attention_heads"] * head_dim(config)


@misconception("1.4", "kv_width")
def keys_of_hidden_size(config):
    """You take hidden_size. That is the width of a token between the layers; a key has as many
    numbers as its heads have together.
    """
    return config["hidden_size"]


@misconception("1.4", "_row_bytes")
def no_group_overhead(length, bits, group):
    """You count the numbers and forget what they share. Each group has a scale and a minimum of two
    bytes each: in groups of 32 that is a whole bit a number.
    """
    groups = -(-length // group)
    return -(-groups * group * bits // 8)


@misconception("1.4", "_row_bytes")
def scale_without_minimum(length, bits, group):
    """You count two bytes a group. A group has a scale and a minimum, float16 each: four bytes."""
    groups = -(-length // group)
    return -(-groups * group * bits // 8) + groups * SCALE_BYTES // 2


@misconception("1.4", "_row_bytes")
def last_group_cut_off(length, bits, group):
    """You divide the row by the group size and drop the rest. The last group of a row is there too,
    filled up: round up, -(-a // b).
    """
    groups = length // group
    return -(-groups * group * bits // 8) + groups * SCALE_BYTES


@misconception("1.4", "_row_bytes")
def last_group_not_filled(length, bits, group):
    """You count the numbers of the row, and not those that fill its last group. A group is stored
    whole: groups times group_size numbers.
    """
    return -(-length * bits // 8) + -(-length // group) * SCALE_BYTES


@misconception("1.4", "weight_bytes")
def groups_over_the_matrix(config, bits=32, group_size=None, kept_bits=16):
    """You count the groups of a matrix as if it were one long row. Groups do not reach from one row
    to the next: each row has its own, and its last one is filled up.
    """
    _check_widths(bits, group_size, kept_bits)
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    tables = 1 if config.get("tie_word_embeddings") else 2
    kept = tables * config["vocab_size"] * hidden + (2 * layers + 1) * hidden
    if bits >= 16:
        return (layers * sum(map(math.prod, matrices(config))) + kept) * bits // 8
    sizes = (_row_bytes(out * into, bits, group_size or into) for out, into in matrices(config))
    return layers * sum(sizes) + kept * kept_bits // 8


@misconception("1.4", "weight_bytes")
def everything_quantized(config, bits=32, group_size=None, kept_bits=16):
    """You give the embedding and the head the bits of the layers. They stay as they are, at
    kept_bits: in a small model they are a large part of the file.
    """
    _check_widths(bits, group_size, kept_bits)
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    tables = 1 if config.get("tie_word_embeddings") else 2
    table, norms = config["vocab_size"] * hidden, (2 * layers + 1) * hidden
    if bits >= 16:
        every = layers * sum(map(math.prod, matrices(config))) + tables * table + norms
        return every * bits // 8
    rows = sum(out * _row_bytes(into, bits, group_size or into) for out, into in matrices(config))
    return layers * rows + tables * table * bits // 8 + norms * kept_bits // 8


@misconception("1.4", "weight_bytes")
def head_always_counted(config, bits=32, group_size=None, kept_bits=16):
    """You count a head where there is none. With tie_word_embeddings the head is the embedding
    itself, used twice and stored once.
    """
    _check_widths(bits, group_size, kept_bits)
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    kept = 2 * config["vocab_size"] * hidden + (2 * layers + 1) * hidden
    if bits >= 16:
        return (layers * sum(map(math.prod, matrices(config))) + kept) * bits // 8
    rows = sum(out * _row_bytes(into, bits, group_size or into) for out, into in matrices(config))
    return layers * rows + kept * kept_bits // 8


@misconception("1.4", "weight_bytes")
def norms_forgotten(config, bits=32, group_size=None, kept_bits=16):
    """You forget the norms: two of hidden_size in each layer, and one at the end. They are few
    numbers, but the sum must be exact to be compared with the file.
    """
    _check_widths(bits, group_size, kept_bits)
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    kept = (1 if config.get("tie_word_embeddings") else 2) * config["vocab_size"] * hidden
    if bits >= 16:
        return (layers * sum(map(math.prod, matrices(config))) + kept) * bits // 8
    rows = sum(out * _row_bytes(into, bits, group_size or into) for out, into in matrices(config))
    return layers * rows + kept * kept_bits // 8


@misconception("1.5", "kv_cache_bytes")
def keys_without_values(config, length, batch=1, bits=16):
    """You count keys or values, not both. A token leaves two vectors in each layer: times 2."""
    if length < 0 or batch < 0 or bits not in (32, 16, 8):
        raise ValueError(f"got length {length}, batch {batch}, bits {bits}")
    return config["num_hidden_layers"] * kv_width(config) * length * batch * bits // 8


@misconception("1.5", "kv_cache_bytes")
def cache_of_one_layer(config, length, batch=1, bits=16):
    """You count one layer. Each layer has keys and values of its own: times num_hidden_layers."""
    if length < 0 or batch < 0 or bits not in (32, 16, 8):
        raise ValueError(f"got length {length}, batch {batch}, bits {bits}")
    return 2 * kv_width(config) * length * batch * bits // 8


@misconception("1.5", "kv_cache_bytes")
def cache_by_query_heads(config, length, batch=1, bits=16):
    """You count query heads. Keys and values are kept for num_key_value_heads only: sharing them
    is what grouped-query attention is for.
    """
    if length < 0 or batch < 0 or bits not in (32, 16, 8):
        raise ValueError(f"got length {length}, batch {batch}, bits {bits}")
    wide = config["num_attention_heads"] * head_dim(config)
    return 2 * config["num_hidden_layers"] * wide * length * batch * bits // 8


@misconception("1.5", "kv_cache_bytes")
def bits_for_bytes(config, length, batch=1, bits=16):
    """You give bits. The answer is in bytes: divide by 8 at the end."""
    if length < 0 or batch < 0 or bits not in (32, 16, 8):
        raise ValueError(f"got length {length}, batch {batch}, bits {bits}")
    return 2 * config["num_hidden_layers"] * kv_width(config) * length * batch * bits


@misconception("1.5", "kv_cache_bytes")
def cache_of_one_sequence(config, length, batch=1, bits=16):
    """You count one sequence. Each of the batch has its own keys and values: times batch."""
    if length < 0 or batch < 0 or bits not in (32, 16, 8):
        raise ValueError(f"got length {length}, batch {batch}, bits {bits}")
    return 2 * config["num_hidden_layers"] * kv_width(config) * length * bits // 8


@misconception("1.6", "predict_decode")
def weights_read_for_each(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch=1):
    """You read the weights again for every sequence. One step reads them once for all: this is why
    batching pays.
    """
    _check_speeds(bandwidth, flops)
    if batch < 1:
        raise ValueError(f"a batch has at least one sequence, not {batch}")
    reading = batch * (weight_bytes + kv_bytes) / bandwidth
    computing = 2 * parameters * batch / flops
    step = max(reading, computing)
    if step <= 0:
        raise ValueError("nothing to read and nothing to compute: there is no speed to predict")
    return Prediction(batch / step, "memory" if reading >= computing else "compute")


@misconception("1.6", "predict_decode")
def one_token_a_step(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch=1):
    """You give the steps a second. One step gives a token to every sequence: times batch."""
    _check_speeds(bandwidth, flops)
    if batch < 1:
        raise ValueError(f"a batch has at least one sequence, not {batch}")
    reading = (weight_bytes + batch * kv_bytes) / bandwidth
    computing = 2 * parameters * batch / flops
    step = max(reading, computing)
    if step <= 0:
        raise ValueError("nothing to read and nothing to compute: there is no speed to predict")
    return Prediction(1 / step, "memory" if reading >= computing else "compute")


@misconception("1.6", "predict_decode")
def both_times_added(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch=1):
    """You add the two times. Reading and computing overlap: the slower one sets the time, max."""
    _check_speeds(bandwidth, flops)
    if batch < 1:
        raise ValueError(f"a batch has at least one sequence, not {batch}")
    reading = (weight_bytes + batch * kv_bytes) / bandwidth
    computing = 2 * parameters * batch / flops
    step = reading + computing
    if step <= 0:
        raise ValueError("nothing to read and nothing to compute: there is no speed to predict")
    return Prediction(batch / step, "memory" if reading >= computing else "compute")


@misconception("1.6", "predict_decode")
def one_operation_a_parameter(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch=1):
    """You count one operation for each parameter. It is multiplied and added: two."""
    _check_speeds(bandwidth, flops)
    if batch < 1:
        raise ValueError(f"a batch has at least one sequence, not {batch}")
    reading = (weight_bytes + batch * kv_bytes) / bandwidth
    computing = parameters * batch / flops
    step = max(reading, computing)
    if step <= 0:
        raise ValueError("nothing to read and nothing to compute: there is no speed to predict")
    return Prediction(batch / step, "memory" if reading >= computing else "compute")


@misconception("1.6", "predict_decode")
def one_cache_for_all(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch=1):
    """You read one cache. Every sequence has its own and reads it in each step: times batch."""
    _check_speeds(bandwidth, flops)
    if batch < 1:
        raise ValueError(f"a batch has at least one sequence, not {batch}")
    reading = (weight_bytes + kv_bytes) / bandwidth
    computing = 2 * parameters * batch / flops
    step = max(reading, computing)
    if step <= 0:
        raise ValueError("nothing to read and nothing to compute: there is no speed to predict")
    return Prediction(batch / step, "memory" if reading >= computing else "compute")


@misconception("1.6", "predict_decode")
def arithmetic_of_one(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch=1):
    """You compute for one sequence. The weights are read once for all, but every sequence is
    multiplied with them: times batch.
    """
    _check_speeds(bandwidth, flops)
    if batch < 1:
        raise ValueError(f"a batch has at least one sequence, not {batch}")
    reading = (weight_bytes + batch * kv_bytes) / bandwidth
    computing = 2 * parameters / flops
    step = max(reading, computing)
    if step <= 0:
        raise ValueError("nothing to read and nothing to compute: there is no speed to predict")
    return Prediction(batch / step, "memory" if reading >= computing else "compute")


@misconception("1.6", "compute_bound_from")
def cache_left_out_of_the_turn(weight_bytes, kv_bytes, parameters, bandwidth, flops):
    """You leave the caches out. Every further sequence brings its own to be read, so the turn comes
    later; where it brings more reading than arithmetic, never.
    """
    _check_speeds(bandwidth, flops)
    gain = 2 * parameters / flops
    return math.floor(weight_bytes / bandwidth / gain) + 1


@misconception("1.6", "compute_bound_from")
def last_batch_of_memory(weight_bytes, kv_bytes, parameters, bandwidth, flops):
    """You round down. That is the last batch that waits for memory; asked for is the first one
    that waits for arithmetic, one more.
    """
    _check_speeds(bandwidth, flops)
    gain = 2 * parameters / flops - kv_bytes / bandwidth
    return math.floor(weight_bytes / bandwidth / gain) if gain > 0 else None


@misconception("1.6", "compute_bound_from")
def turn_rounded_up(weight_bytes, kv_bytes, parameters, bandwidth, flops):
    """You round up. Where the quotient is a whole number, both take equally long at that batch, and
    predict_decode still says "memory": the turn is one later.
    """
    _check_speeds(bandwidth, flops)
    gain = 2 * parameters / flops - kv_bytes / bandwidth
    return max(1, math.ceil(weight_bytes / bandwidth / gain)) if gain > 0 else None
