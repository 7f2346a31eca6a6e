"""1.4 to 1.6: sizes that are missing, refusals that say or see too little, a turn far out."""

from tests.parts import part


@part("1.4")
def missing_sizes_are_nothing(m):
    """A vocabulary that is not there has no words."""
    right = m.weight_bytes

    def weight_bytes(config, *args, **kwargs):
        return right({"vocab_size": 0, **config}, *args, **kwargs)

    m.weight_bytes = weight_bytes


@part("1.4")
def missing_sizes_are_values(m):
    """A size that is missing is a ValueError."""
    right = m.weight_bytes

    def weight_bytes(config, *args, **kwargs):
        try:
            return right(config, *args, **kwargs)
        except KeyError as missing:
            raise ValueError(*missing.args) from None

    m.weight_bytes = weight_bytes


@part("1.4")
def unused_arguments_unchecked(m):
    """A group of nothing is fine at 16 bits."""
    right = m.weight_bytes

    def weight_bytes(config, bits=32, group_size=None, kept_bits=16):
        return (
            right(config, bits) if bits in (16, 32) else right(config, bits, group_size, kept_bits)
        )

    m.weight_bytes = weight_bytes


@part("1.5")
def refused_without_the_value(m):
    """The message does not say which of the numbers is wrong."""
    right = m.kv_cache_bytes

    def kv_cache_bytes(*args, **kwargs):
        try:
            return right(*args, **kwargs)
        except ValueError:
            raise ValueError("length, batch or bits") from None

    m.kv_cache_bytes = kv_cache_bytes


@part("1.5")
def two_negatives(m):
    """Only the product is looked at, and minus times minus is plus."""
    right = m.kv_cache_bytes

    def kv_cache_bytes(config, length, batch=1, bits=16):
        if length * batch < 0:
            raise ValueError(min(length, batch))
        return right(config, abs(length), abs(batch), bits)

    m.kv_cache_bytes = kv_cache_bytes


@part("1.5")
def missing_layers_are_one(m):
    """A number of layers that is not given is 1."""
    right = m.kv_cache_bytes

    def kv_cache_bytes(config, *args, **kwargs):
        return right({"num_hidden_layers": 1, **config}, *args, **kwargs)

    m.kv_cache_bytes = kv_cache_bytes


def refusing(m, wrong):
    """predict_decode that also refuses where this says so."""
    right = m.predict_decode

    def predict_decode(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch=1):
        if wrong(weight_bytes, kv_bytes, parameters):
            raise ValueError(weight_bytes, kv_bytes, parameters)
        return right(weight_bytes, kv_bytes, parameters, bandwidth, flops, batch)

    m.predict_decode = predict_decode


@part("1.6")
def nothing_to_read_refused(m):
    """Arithmetic alone has no speed."""
    refusing(m, lambda weights, cache, parameters: weights <= 0)


@part("1.6")
def nothing_to_compute_refused(m):
    """Reading alone has no speed."""
    refusing(m, lambda weights, cache, parameters: parameters <= 0)


@part("1.6")
def speeds_by_their_product(m):
    """Two negative speeds make a positive one."""

    def check(bandwidth, flops):
        if bandwidth * flops <= 0:
            raise ValueError(bandwidth, flops)

    m._check_speeds = check


@part("1.6")
def batches_of_less_than_none(m):
    """A batch of 0 is refused, one of -2 is not."""
    right = m.predict_decode

    def predict_decode(*args, batch=1):
        *numbers, batch = args if len(args) == 6 else (*args, batch)
        return right(*numbers, abs(batch))

    m.predict_decode = predict_decode


@part("1.6")
def turn_within_a_thousand(m):
    """Tries batch after batch, up to 1000, and says never."""

    def compute_bound_from(*machine):
        m._check_speeds(*machine[-2:])
        batches = range(1, 1001)
        return next((n for n in batches if m.predict_decode(*machine, n).bound == "compute"), None)

    m.compute_bound_from = compute_bound_from


@part("1.6")
def turn_rounded_to_the_nearest(m):
    """round where floor is meant."""

    def compute_bound_from(weight_bytes, kv_bytes, parameters, bandwidth, flops):
        m._check_speeds(bandwidth, flops)
        gain = 2 * parameters / flops - kv_bytes / bandwidth
        return round(weight_bytes / bandwidth / gain) + 1 if gain > 0 else None

    m.compute_bound_from = compute_bound_from
