"""1.4 weight_bytes, 1.5 kv_cache_bytes, 1.6 predict_decode.

Expected bytes come from lists of shapes written out by hand, not from a formula; and from published
sizes: Llama 2 13B has 13,015,864,320 parameters, SmolLM2 135M has 134,515,008.
"""

from course.cases import Wrong, case, describe, expect_equal, expect_raises

LLAMA_13B = {
    "vocab_size": 32000, "hidden_size": 5120, "intermediate_size": 13824,
    "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 40,
    "tie_word_embeddings": False,
}  # fmt: skip
SMOLLM2 = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
    "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}  # fmt: skip


def some_config(rng) -> dict:
    """Sizes that do not divide each other more than they must."""
    heads, shared = rng.choice([(6, 2), (8, 8), (9, 3), (4, 1)])
    return {
        "vocab_size": rng.randrange(100, 999), "hidden_size": heads * 10,
        "intermediate_size": rng.randrange(60, 200), "num_hidden_layers": rng.randrange(2, 6),
        "num_attention_heads": heads, "num_key_value_heads": shared, "head_dim": 14,
        "tie_word_embeddings": rng.random() < 0.5,
    }  # fmt: skip


def tensors(config: dict) -> tuple[list, list]:
    """Shapes of all that is quantized, and lengths of all that is not, one entry a tensor."""
    hidden, dim = config["hidden_size"], config["head_dim"]
    queries, shared = (config[f"num_{k}_heads"] * dim for k in ("attention", "key_value"))
    inner, vocab = config["intermediate_size"], config["vocab_size"]
    quantized, kept = [], [vocab * hidden, hidden]
    if not config["tie_word_embeddings"]:
        kept.append(vocab * hidden)
    for _ in range(config["num_hidden_layers"]):
        kept += [hidden, hidden]
        quantized += [(queries, hidden), (shared, hidden), (shared, hidden), (hidden, queries)]
        quantized += [(inner, hidden), (inner, hidden), (hidden, inner)]
    return quantized, kept


def row_bytes(length: int, bits: int, group: int) -> int:
    """Count a row group by group, the last one filled up, and then its last byte."""
    filled, scales = 0, 0
    while filled < length:
        filled += group
        scales += 2 + 2
    return (filled * bits + 7) // 8 + scales


@case("1.4")
def width_of_a_head(learner, rng):
    """head_dim is what the config says; only without it, or with null, is it a quotient."""
    config = some_config(rng)
    del config["head_dim"]
    expect_equal(learner.head_dim(config), 10)
    expect_equal(learner.head_dim({**config, "head_dim": None}), 10)
    expect_equal(learner.head_dim({**config, "head_dim": 14}), 14)
    expect_equal(learner.head_dim(SMOLLM2), 64)


@case("1.4")
def width_of_a_key(learner, rng):
    """Key/value heads times head_dim; without key/value heads there are as many as query heads."""
    config = some_config(rng)
    heads, shared = config["num_attention_heads"], config.pop("num_key_value_heads")
    for given, expected in (({"num_key_value_heads": 1}, 1),
                            ({"num_key_value_heads": shared}, shared),
                            ({}, heads), ({"num_key_value_heads": None}, heads)):  # fmt: skip
        expect_equal(learner.kv_width({**config, **given}), 14 * expected)
    expect_equal(learner.kv_width(SMOLLM2), 192)


@case("1.4")
def weights_of_published_models(learner, rng):
    """Llama 2 13B: 26.03 GB at 16 bits. SmolLM2 135M: 538,060,032 bytes at 32."""
    expect_equal(learner.weight_bytes(LLAMA_13B, 16), 2 * 13_015_864_320)
    expect_equal(learner.weight_bytes(SMOLLM2, 32), 4 * 134_515_008)
    expect_equal(learner.weight_bytes(SMOLLM2), 4 * 134_515_008, "weight_bytes by default")


@case("1.4")
def weights_unquantized(learner, rng):
    """At 32 and 16 bits everything has that width: groups and kept_bits play no part."""
    config = some_config(rng)
    quantized, kept = tensors(config)
    count = sum(out * into for out, into in quantized) + sum(kept)
    for bits in (32, 16):
        expect_equal(learner.weight_bytes(config, bits), count * bits // 8, f"{bits} bits")
        found = learner.weight_bytes(config, bits, 32, 32)
        expect_equal(found, count * bits // 8, f"{bits} bits, with a group size and kept_bits 32")


@case("1.4")
def weights_in_groups(learner, rng):
    """Each group adds a scale and a minimum of two bytes each; the last one of a row is whole."""
    config = some_config(rng)
    quantized, kept = tensors(config)
    for bits, group in (
        (8, 32),
        (4, 32),
        (4, 64),
        (2, 16),
        (2, 128),
        (4, 10),
        (4, 3),
        (2, 5),
        (8, 1),
    ):
        expected = sum(out * row_bytes(into, bits, group) for out, into in quantized)
        for kept_bits in (16, 32):
            got = learner.weight_bytes(config, bits, group, kept_bits)
            what = f"{bits} bits in groups of {group}, the rest at {kept_bits}"
            expect_equal(got, expected + sum(kept) * kept_bits // 8, what)


@case("1.4")
def weights_a_row_at_a_time(learner, rng):
    """Without a group size a row is one group, its last byte filled up."""
    config = {**some_config(rng), "intermediate_size": 77}
    quantized, kept = tensors(config)
    for bits in (8, 4, 2):
        expected = sum(out * row_bytes(into, bits, into) for out, into in quantized)
        got = learner.weight_bytes(config, bits)
        expect_equal(got, expected + sum(kept) * 2, f"{bits} bits, a group a row")


@case("1.4")
def weights_with_defaults(learner, rng):
    """head_dim, key/value heads and tying may be absent or null in config.json."""
    full = {**LLAMA_13B, "head_dim": 128}
    expected = 2 * 13_015_864_320
    for names in (["head_dim"], ["num_key_value_heads"], ["tie_word_embeddings", "head_dim"]):
        config = {name: value for name, value in full.items() if name not in names}
        expect_equal(learner.weight_bytes(config, 16), expected, f"without {' and '.join(names)}")
        nulls = {**full, **dict.fromkeys(names)}
        expect_equal(learner.weight_bytes(nulls, 16), expected, f"null: {' and '.join(names)}")


@case("1.4")
def weights_refused(learner, rng):
    """Widths and groups that there are not are a ValueError that names the number."""
    for wrong in (
        (5,),
        (64,),
        (0,),
        (3, 32),
        (8, 0),
        (4, -8),
        (4, 32, 8),
        (4, 32, 0),
        (16, 0),
        (32, 32, 8),
    ):
        odd = wrong[0] if wrong[0] in (3, 5) else wrong[-1]
        with expect_raises("ValueError", naming=[odd]):
            learner.weight_bytes(SMOLLM2, *wrong)


@case("1.4")
def weights_of_a_config_with_a_gap(learner, rng):
    """A size that is missing is a KeyError with its name: no sum is made without it."""
    for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
        config = {key: value for key, value in some_config(rng).items() if key != name}
        with expect_raises("KeyError", naming=[name]):
            learner.weight_bytes(config, 16)


@case("1.5")
def cache_of_published_models(learner, rng):
    """A token of Llama 2 13B takes 819,200 bytes at 16 bits; of SmolLM2 135M, at 32, 46,080."""
    expect_equal(learner.kv_cache_bytes(LLAMA_13B, 1), 819_200)
    expect_equal(learner.kv_cache_bytes(LLAMA_13B, 2048), 1_677_721_600)
    expect_equal(learner.kv_cache_bytes(SMOLLM2, 1, 1, 32), 46_080)


@case("1.5")
def cache_counts_everything(learner, rng):
    """Keys and values, layers, key/value heads (not query heads), tokens, sequences, bits."""
    config = some_config(rng)
    numbers = 0
    for _ in range(config["num_hidden_layers"]):
        for _ in range(config["num_key_value_heads"]):
            numbers += config["head_dim"] + config["head_dim"]
    for bits, length, batch in ((32, 7, 3), (16, 100, 1), (8, 33, 5)):
        got = learner.kv_cache_bytes(config, length, batch, bits)
        what = f"{batch} sequences of {length} tokens at {bits} bits"
        expect_equal(got, numbers * length * batch * (bits // 8), what)


@case("1.5")
def cache_with_defaults(learner, rng):
    """Without key/value heads there are as many as query heads; without head_dim it follows."""
    config = {k: v for k, v in LLAMA_13B.items() if k != "num_key_value_heads"}
    expect_equal(learner.kv_cache_bytes(config, 10), 8_192_000)
    expect_equal(learner.kv_cache_bytes({**config, "num_key_value_heads": None}, 10), 8_192_000)


@case("1.5")
def cache_of_nothing(learner, rng):
    """No tokens or no sequences take no bytes; less than none, or odd widths, are refused."""
    expect_equal(learner.kv_cache_bytes(SMOLLM2, 0, 4), 0)
    expect_equal(learner.kv_cache_bytes(SMOLLM2, 4, 0), 0)
    for wrong, odd in (
        ((-7, 1), -7),
        ((1, -7), -7),
        ((-7, -7), -7),
        ((-1, 3), -1),
        ((3, -1), -1),
        ((3, 2, 4), 4),
        ((3, 2, 64), 64),
    ):
        with expect_raises("ValueError", naming=[odd]):
            learner.kv_cache_bytes(SMOLLM2, *wrong)
    with expect_raises("KeyError", naming=["num_hidden_layers"]):
        learner.kv_cache_bytes({"num_attention_heads": 8, "hidden_size": 64}, 1)


SLOW = ((0.0, 8.0), (8.0, 0.0), (-1.0, 8.0), (8.0, -1.0), (-1.0, -1.0))  # bandwidth, flops


def expect_prediction(got, tokens: float, bound: str) -> None:
    """A Prediction with this speed, but for rounding."""
    speed = getattr(got, "tokens_per_second", None)
    if not isinstance(speed, float) or not abs(speed - tokens) <= 1e-9 * tokens:
        raise Wrong(f"tokens_per_second is {describe(speed)}, expected {describe(tokens)}")
    expect_equal(got.bound, bound, "bound")


@case("1.6")
def roofline_reading(learner, rng):
    """Alone, a sequence waits for the weights: 538 MB at 16 GB/s are 29.7 tokens a second."""
    got = learner.predict_decode(538.0e6, 0.0, 134.5e6, 16.0e9, 1.2e11)
    expect_prediction(got, 16000 / 538, "memory")


@case("1.6")
def roofline_of_a_batch(learner, rng):
    """The weights are read once for all; each sequence adds a token and its own cache."""
    weights, cache = rng.randrange(10**8, 10**9), rng.randrange(10**6, 10**7)
    got = learner.predict_decode(weights, cache, 1e6, 1e10, 1e15, 8)
    expect_prediction(got, 8 / ((weights + 8 * cache) / 1e10), "memory")


@case("1.6")
def roofline_computing(learner, rng):
    """A large batch waits for the arithmetic: two operations a parameter and sequence."""
    parameters = rng.randrange(10**8, 10**9)
    got = learner.predict_decode(4.0 * parameters, 0.0, parameters, 1e11, 1e11, 64)
    expect_prediction(got, 1e11 / (2 * parameters), "compute")


@case("1.6")
def roofline_at_the_ridge(learner, rng):
    """Where both take the same time, memory is named; one more sequence and it is compute."""
    expect_prediction(learner.predict_decode(800.0, 0.0, 100.0, 8.0, 8.0, 4), 0.04, "memory")
    expect_prediction(learner.predict_decode(800.0, 0.0, 100.0, 8.0, 8.0, 5), 0.04, "compute")


@case("1.6")
def roofline_refused(learner, rng):
    """A speed or batch that is not above 0, or nothing to do, is a ValueError."""
    for wrong in (*SLOW, (1e9, 1e9, 0), (1e9, 1e9, -2)):
        with expect_raises("ValueError"):
            learner.predict_decode(1e9, 0.0, 1e9, *wrong)
    with expect_raises("ValueError"):
        learner.predict_decode(0.0, 0.0, 0.0, 1e9, 1e9)


@case("1.6")
def roofline_of_one_wall(learner, rng):
    """Nothing to read, or nothing to compute: the other of the two sets the speed."""
    expect_prediction(learner.predict_decode(0.0, 0.0, 100.0, 8.0, 8.0, 2), 0.04, "compute")
    expect_prediction(learner.predict_decode(800.0, 0.0, 0.0, 8.0, 8.0, 2), 0.02, "memory")
    expect_prediction(learner.predict_decode(8.0, 0.0, 0.0, 0.5, 0.5), 0.0625, "memory")
    expect_prediction(learner.predict_decode(0.0, 200.0, 0.0, 8.0, 8.0, 2), 0.04, "memory")


@case("1.6")
def turn_of_a_small_machine(learner, rng):
    """By hand: 800 bytes at 8 a second, 100 parameters at 8 operations: it turns at 5 sequences."""
    expect_equal(learner.compute_bound_from(800.0, 0.0, 100.0, 8.0, 8.0), 5)
    expect_equal(learner.compute_bound_from(0.0, 0.0, 100.0, 8.0, 8.0), 1)
    expect_equal(learner.compute_bound_from(0.5, 0.0, 100.0, 8.0, 8.0), 1)
    expect_equal(learner.compute_bound_from(650.0, 0.0, 100.0, 8.0, 8.0), 4)
    expect_equal(learner.compute_bound_from(700.0, 0.0, 100.0, 8.0, 8.0), 4)
    expect_equal(learner.compute_bound_from(40000.0, 0.0, 100.0, 8.0, 800.0), 20001)


@case("1.6")
def turn_where_it_is_predicted(learner, rng):
    """The batch before is bound by memory, this one by arithmetic."""
    for _ in range(4):
        weights, parameters = (float(rng.randrange(10**8, 10**9)) for _ in range(2))
        machine = (1e10, rng.randrange(20, 90) * 1e9)
        cache = rng.randrange(10, 50) / 100 * 2 * parameters / machine[1] * machine[0]
        seconds = 2 * parameters / machine[1] - cache / machine[0]
        expected = 1
        while expected * seconds <= weights / machine[0]:
            expected += 1
        got = learner.compute_bound_from(weights, cache, parameters, *machine)
        expect_equal(got, expected)
        for batch, bound in ((expected - 1, "memory"), (expected, "compute")):
            if batch:
                found = learner.predict_decode(weights, cache, parameters, *machine, batch)
                expect_equal(found.bound, bound, f"the bound of {batch} sequences")


@case("1.6")
def turn_that_never_comes(learner, rng):
    """None where each sequence brings at least as much to read as to compute."""
    expect_equal(learner.compute_bound_from(800.0, 200.0, 100.0, 8.0, 8.0), None)
    expect_equal(learner.compute_bound_from(800.0, 300.0, 100.0, 8.0, 8.0), None)
    expect_equal(learner.compute_bound_from(0.0, 300.0, 100.0, 8.0, 8.0), None)
    for wrong in SLOW:
        with expect_raises("ValueError"):
            learner.compute_bound_from(800.0, 0.0, 100.0, *wrong)
