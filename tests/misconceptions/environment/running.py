"""Wrong versions of 1.5 kv_cache_bytes and of 1.6, the roofline."""

import math

from course.misconceptions import misconception
from solutions.sizing import Prediction, _check_speeds, head_dim, kv_width


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


@misconception("1.5", "kv_cache_bytes")
def hidden_size_in_the_cache(config, length, batch=1, bits=16):
    """You count hidden_size numbers for a key. That is right only where there are as many key/value
    heads as query heads: a key has kv_width(config) numbers.
    """
    if length < 0 or batch < 0 or bits not in (32, 16, 8):
        raise ValueError(f"got length {length}, batch {batch}, bits {bits}")
    return 2 * config["num_hidden_layers"] * config["hidden_size"] * length * batch * bits // 8


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
