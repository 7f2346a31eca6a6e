"""1.4 to 1.7: bytes, the roofline and the plan."""

import dataclasses

from tests.parts import part


@part("1.4")
def groups_rounded_by_a_float(m):
    """Bytes come out as a float."""
    right = m.weight_bytes
    m.weight_bytes = lambda *args, **kwargs: float(right(*args, **kwargs))


@part("1.4")
def one_head_for_nothing(m):
    """0 is taken for the default."""

    def kv_width(config):
        return config.get("num_key_value_heads", 1) * m.head_dim(config)

    m.kv_width = kv_width


@part("1.4")
def bytes_filled_by_the_group(m):
    """Every group ends with a whole byte: chapter 03 fills up the row, not the group."""

    def row(length, bits, group):
        return -(-length // group) * (-(-group * bits // 8) + m.SCALE_BYTES)

    m._row_bytes = row


@part("1.4")
def norms_at_full_width(m):
    """The norms always have 32 bits."""
    right = m.weight_bytes

    def weight_bytes(config, bits=32, group_size=None, kept_bits=16):
        width = bits if bits >= 16 else kept_bits
        norms = (2 * config["num_hidden_layers"] + 1) * config["hidden_size"]
        return right(config, bits, group_size, kept_bits) + norms * (32 - width) // 8

    m.weight_bytes = weight_bytes


@part("1.5")
def hidden_size_for_heads(m):
    """Keys as wide as the queries where there is no head_dim."""
    right = m.kv_cache_bytes

    def kv_cache_bytes(config, length, batch=1, bits=16):
        wide = config if config.get("head_dim") else config | {"num_key_value_heads": None}
        return right(wide, length, batch, bits)

    m.kv_cache_bytes = kv_cache_bytes


@part("1.6")
def speed_of_a_whole_number(m):
    """Tokens a second are rounded."""
    right = m.predict_decode

    def predict_decode(*args, **kwargs):
        found = right(*args, **kwargs)
        return dataclasses.replace(found, tokens_per_second=float(round(found.tokens_per_second)))

    m.predict_decode = predict_decode


@part("1.6")
def compute_at_the_ridge(m):
    """Where both take the same time, it says compute."""
    right = m.predict_decode

    def predict_decode(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch=1):
        found = right(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch)
        reading = (weight_bytes + batch * kv_bytes) / bandwidth
        even = reading == 2 * parameters * batch / flops
        return dataclasses.replace(found, bound="compute") if even else found

    m.predict_decode = predict_decode


@part("1.6")
def turn_at_nought(m):
    """Where one sequence is bound by arithmetic already, it says 0."""
    right = m.compute_bound_from

    def compute_bound_from(*args):
        found = right(*args)
        return 0 if found == 1 else found

    m.compute_bound_from = compute_bound_from


@part("1.7")
def headroom_of_the_device_only(m):
    """Without a device the whole RAM may be filled."""
    right = m.plan_memory

    def plan_memory(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
        if device_bytes is None:
            device_bytes = ram_bytes * 5 // 4
        return right(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes)

    m.plan_memory = plan_memory


@part("1.7")
def loading_not_asked_with_a_device(m):
    """With a device the RAM is not looked at."""
    right = m.plan_memory

    def plan_memory(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
        wide = ram_bytes if device_bytes is None or ram_bytes < 0 else 10**15
        return right(file_bytes, weight_bytes, kv_bytes, wide, device_bytes)

    m.plan_memory = plan_memory


@part("1.7")
def weights_and_cache_one_by_one(m):
    """Each of them fits; the two together were not asked."""
    right = m.plan_memory

    def plan_memory(file_bytes, weight_bytes, kv_bytes, ram_bytes, device_bytes=None):
        if min(weight_bytes, kv_bytes) < 0:
            raise ValueError(min(weight_bytes, kv_bytes))
        larger = max(weight_bytes, kv_bytes)
        return right(file_bytes, larger, 0, ram_bytes, device_bytes)

    m.plan_memory = plan_memory
