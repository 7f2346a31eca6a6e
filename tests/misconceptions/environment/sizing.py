"""Wrong versions of 1.4 weight_bytes and its widths."""

import math

from course.misconceptions import misconception
from solutions.sizing import (
    SCALE_BYTES,
    _check_widths,
    _row_bytes,
    head_dim,
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


@misconception("1.4", "weight_bytes")
def bits_times_parameters(config, bits=32, group_size=None, kept_bits=16):
    """You multiply all parameters by the bits. Below 16 bits only the matrices of the layers are
    quantized: embedding, head and norms keep kept_bits, and each group adds a scale and a minimum.
    """
    _check_widths(bits, group_size, kept_bits)
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    tables = 1 if config.get("tie_word_embeddings") else 2
    kept = tables * config["vocab_size"] * hidden + (2 * layers + 1) * hidden
    return (layers * sum(map(math.prod, matrices(config))) + kept) * bits // 8
