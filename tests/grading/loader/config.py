"""2.3 check_architecture, head_sizes, rope_base, end_tokens; and read_config, which calls them."""

from course.cases import Wrong, case, describe, expect_equal
from tests.grading.loader.files import drive, expect_refusals, new_folder, write_json
from tests.reference.arrays import read_json

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}


@case("2.3")
def architecture_of_llamas(learner, rng):
    """Every spelling of a plain Llama is accepted: by architectures or by model_type, variants
    absent, null or off.
    """
    off = {
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rope_interleaved": False,
        "quantization_config": None,
        "sliding_window": None,
    }
    raws = [
        LLAMA,
        {"architectures": ["LlamaForCausalLM"]},
        {"model_type": "llama"},
        {"architectures": None, "model_type": "llama"},
        {"architectures": [], "model_type": "llama"},
        LLAMA | off,
        LLAMA | dict.fromkeys(off),
        LLAMA | {"vocab_size": -3, "anything": ["else"]},
        LLAMA | {"model_type": "another"},
    ]
    for raw in raws:
        learner.check_architecture(raw)


@case("2.3")
def architecture_of_others(learner, rng):
    """Another architecture is refused by its name, a variant by its key and value."""
    lies = [
        (f"config.json has {raw}", raw, names)
        for raw, names in (
            ({"architectures": ["MambaForCausalLM"]}, ["MambaForCausalLM"]),
            ({"architectures": ["MistralForCausalLM"], "model_type": "llama"}, ["Mistral"]),
            ({"architectures": ["LlamaModel"], "model_type": "llama"}, ["LlamaModel"]),
            ({"architectures": ["LlamaForCausalLM", "Other"]}, ["Other"]),
            ({"architectures": None, "model_type": "gpt2"}, ["gpt2"]),
            ({"model_type": "qwen2"}, ["qwen2"]),
            ({}, []),
            ({"architectures": "LlamaForCausalLM", "model_type": "llama"}, []),
            ({"architectures": ["llama"], "model_type": "llama"}, ["llama"]),
            ({"model_type": "LlamaForCausalLM"}, []),
            (LLAMA | {"hidden_act": "gelu"}, ["hidden_act", "gelu"]),
            (LLAMA | {"attention_bias": True}, ["attention_bias", "True"]),
            (LLAMA | {"mlp_bias": True}, ["mlp_bias", "True"]),
            (LLAMA | {"rope_interleaved": True}, ["rope_interleaved", "True"]),
            (LLAMA | {"quantization_config": {"bits": 4}}, ["quantization_config", "bits"]),
            (LLAMA | {"quantization_config": {}}, ["quantization_config"]),
            (LLAMA | {"sliding_window": 4096}, ["sliding_window", "4096"]),
            (LLAMA | {"sliding_window": 0}, ["sliding_window", "0"]),
        )
    ]
    expect_refusals(learner, "check_architecture", "ValueError", lies)


def expect_heads(learner, raw: dict, heads: int, shared: int, head_dim: int) -> None:
    """head_sizes of this config."""
    expected = {
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "head_dim": head_dim,
    }
    expect_equal(dict(learner.head_sizes(raw)), expected, f"head_sizes({raw})")


@case("2.3")
def heads_with_everything_given(learner, rng):
    """head_dim counts where it is given, whether or not the heads divide hidden_size."""
    heads, head_dim = rng.choice([4, 6, 8]), rng.randrange(2, 60) * 2
    for hidden in (heads * head_dim, heads * head_dim + heads, heads * 7 + 1):
        raw = {"hidden_size": hidden, "num_attention_heads": heads}
        raw |= {"num_key_value_heads": heads // 2, "head_dim": head_dim}
        expect_heads(learner, raw, heads, heads // 2, head_dim)


@case("2.3")
def heads_with_defaults(learner, rng):
    """Absent and null are alike: head_dim is then hidden_size over the heads, and every query head
    has a key head of its own.
    """
    heads, head_dim = rng.choice([3, 5, 9]), rng.randrange(1, 60) * 2
    raw = {"hidden_size": heads * head_dim, "num_attention_heads": heads}
    for more in ({}, {"head_dim": None}, {"num_key_value_heads": None}):
        expect_heads(learner, raw | more, heads, heads, head_dim)
    expect_heads(learner, raw | {"num_key_value_heads": 1}, heads, 1, head_dim)


@case("2.3")
def heads_that_do_not_divide(learner, rng):
    """Heads that do not divide are refused, naming both numbers; an odd head_dim by its name."""
    base = {"hidden_size": 36, "num_attention_heads": 6}
    lies = [
        ("hidden_size 33, 6 heads, no head_dim", base | {"hidden_size": 33}, [33, 6]),
        ("the same, head_dim null", base | {"hidden_size": 33, "head_dim": None}, [33, 6]),
        ("6 heads, 4 key/value heads", base | {"num_key_value_heads": 4}, [6, 4]),
        ("6 heads, 12 key/value heads", base | {"num_key_value_heads": 12}, [6, 12]),
        ("head_dim 7", base | {"head_dim": 7}, ["head_dim"]),
        ("hidden_size 30, 6 heads", base | {"hidden_size": 30}, ["head_dim"]),
    ]
    expect_refusals(learner, "head_sizes", "ValueError", lies)


@case("2.3")
def heads_that_are_no_numbers(learner, rng):
    """A size that is not a positive integer is refused by the field's name."""
    base = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    lies = []
    for name in base:
        for value in (0, -4, 4.0, "4", True, [4], 10**30):
            lies.append((f"{name} is {value!r}", base | {name: value}, [name]))
    for name in ("hidden_size", "num_attention_heads"):
        lies.append((f"{name} is null", base | {name: None}, [name]))
        lies.append((f"{name} is absent", {k: v for k, v in base.items() if k != name}, [name]))
    expect_refusals(learner, "head_sizes", "ValueError", lies)


def expect_base(learner, raw: dict, expected: float) -> None:
    """rope_base of this config, a float."""
    expect_equal(learner.rope_base(raw), float(expected), f"rope_base({raw})")


@case("2.3")
def base_in_either_place(learner, rng):
    """The base is found at the top level, in rope_parameters and in rope_scaling; the object wins
    over the top level, the first object over the second.
    """
    a, b, c = rng.sample(range(1000, 900_000), 3)
    expect_base(learner, {"rope_theta": a}, a)
    expect_base(learner, {"rope_theta": a + 0.5}, a + 0.5)
    expect_base(learner, {"rope_parameters": {"rope_theta": a, "rope_type": "default"}}, a)
    expect_base(learner, {"rope_parameters": {"rope_theta": a}}, a)
    expect_base(learner, {"rope_scaling": {"rope_theta": a, "type": "default"}}, a)
    expect_base(learner, {"rope_theta": b, "rope_parameters": {"rope_theta": a}}, a)
    expect_base(learner, {"rope_theta": b, "rope_parameters": {"rope_type": "default"}}, b)
    expect_base(learner, {"rope_theta": b, "rope_scaling": {"type": "default"}}, b)
    both = {"rope_parameters": {"rope_theta": a}, "rope_scaling": {"rope_theta": c}}
    expect_base(learner, both | {"rope_theta": b}, a)
    bare = {"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"rope_theta": c}}
    expect_base(learner, bare | {"rope_theta": b}, b)
    scaled = {"rope_parameters": {"rope_theta": a}, "rope_scaling": {"type": "linear"}}
    expect_base(learner, scaled, a)


@case("2.3")
def base_absent_or_null(learner, rng):
    """Null and an empty object count as absent; with the base nowhere it is 10,000."""
    base = rng.randrange(1000, 900_000)
    for raw in (
        {},
        {"rope_theta": None},
        {"rope_scaling": None, "rope_parameters": None},
        {"rope_parameters": {}},
        {"rope_parameters": {"rope_type": "default"}},
        {"rope_parameters": {"rope_theta": None}, "rope_theta": None},
    ):
        expect_base(learner, raw, 10000.0)
    expect_base(learner, {"rope_theta": base, "rope_scaling": None}, base)
    expect_base(learner, {"rope_theta": base, "rope_parameters": {"rope_theta": None}}, base)
    expect_base(learner, {"rope_parameters": {}, "rope_scaling": {"rope_theta": base}}, base)


@case("2.3")
def base_scaled(learner, rng):
    """A scaled rotary embedding is refused by the name of its type, old spelling or new."""
    lies = []
    for kind in ("linear", "dynamic", "yarn", "llama3", "longrope"):
        for key in ("rope_type", "type"):
            for place in ("rope_parameters", "rope_scaling"):
                raw = {"rope_theta": 1e4, place: {key: kind, "factor": 2.0}}
                lies.append((f"{place} has {key} {kind!r}", raw, [kind]))
    raw = {"rope_scaling": {"type": "linear", "factor": 2.0, "rope_theta": 5.0}}
    lies.append(("rope_scaling has type 'linear' and a base", raw, ["linear"]))
    raw = {"rope_parameters": {"rope_type": "yarn"}, "rope_scaling": {"rope_theta": 5.0}}
    lies.append(("rope_parameters has rope_type 'yarn' and nothing else", raw, ["yarn"]))
    expect_refusals(learner, "rope_base", "ValueError", lies)


@case("2.3")
def base_that_is_none(learner, rng):
    """A base that is not a positive number, and an object that is none, are refused."""
    wrong = (0, -1.0, "10000", True, [1e4], {"a": 1}, 10**400, float("inf"), float("nan"))
    lies = [(f"rope_theta is {str(v)[:20]}", {"rope_theta": v}, ["rope_theta"]) for v in wrong]
    for value in wrong:
        raw = {"rope_parameters": {"rope_theta": value}}
        lies.append((f"rope_theta in rope_parameters is {str(value)[:20]}", raw, []))
    lies += [(f"rope_parameters is {v!r}", {"rope_parameters": v}, []) for v in ([1], "x", 3, True)]
    lies += [(f"rope_scaling is {v!r}", {"rope_scaling": v}, []) for v in ([1], "x", 3)]
    expect_refusals(learner, "rope_base", "ValueError", lies)


@case("2.3")
def ends_one_or_many(learner, rng):
    """One id or a list, in either file; generation_config.json wins when it names any."""
    a, b, c = rng.sample(range(1, 129_000), 3)
    for raw, generation, expected in (
        ({"eos_token_id": a}, {}, (a,)),
        ({"eos_token_id": [a, b]}, {}, (a, b)),
        ({"eos_token_id": [b, a]}, {}, (b, a)),
        ({"eos_token_id": 0}, {}, (0,)),
        ({"eos_token_id": a}, {"eos_token_id": b}, (b,)),
        ({"eos_token_id": a}, {"eos_token_id": [c, b]}, (c, b)),
        ({"eos_token_id": [a, b]}, {"eos_token_id": 0}, (0,)),
        ({"eos_token_id": [a, b]}, {"temperature": 0.6}, (a, b)),
        ({"eos_token_id": a}, {"eos_token_id": None}, (a,)),
        ({"eos_token_id": a}, {"eos_token_id": []}, (a,)),
        ({}, {"eos_token_id": [b]}, (b,)),
        ({"eos_token_id": None}, {}, ()),
        ({}, {}, ()),
    ):
        got = learner.end_tokens(raw, generation)
        expect_equal(got, expected, f"end_tokens({raw}, {generation})")


@case("2.3")
def ends_that_are_none(learner, rng):
    """What is no token id is refused, in either file."""
    wrong = (-1, 2.0, "2", True, [2, "3"], [2, None], [[2]], {"id": 2}, [True])
    calls = [[[{"eos_token_id": v}, {}], []] for v in wrong]
    calls += [[[{"eos_token_id": 2}, {"eos_token_id": v}], []] for v in wrong]
    for found, (args, _) in zip(
        learner.scenario("attempts", "end_tokens", calls), calls, strict=True
    ):
        what = f"end_tokens({args[0]}, {args[1]})"
        if "raised" not in found:
            raise Wrong(f"{what} returned {found['returned']}, expected ValueError")
        if "ValueError" not in found["raised"]:
            raise Wrong(f"{what} raised {found['raised'][0]}, expected ValueError")


@case("2.3")
def config_is_only_read(learner, rng):
    """None of the four changes the config that it is given: whoever reads it next needs it."""
    raw = {"hidden_size": 32, "num_attention_heads": 4, "rope_theta": None, "eos_token_id": [2, 3]}
    raw |= LLAMA | {"num_key_value_heads": None, "rope_parameters": {}, "sliding_window": None}
    raw |= {"rope_scaling": {"rope_type": "default"}, "attention_bias": False}
    drive(learner, "only_reads", raw, {"eos_token_id": [5], "temperature": 0.6})


@case("2.3")
def config_as_in_transformers(learner, rng):
    """read_config, which calls your functions, takes from a file what transformers takes."""
    folder = new_folder(rng)
    for number, (what, stored) in enumerate(read_json("loader.json")["configs"].items()):
        (folder / str(number)).mkdir(exist_ok=True)
        write_json(folder / str(number) / "config.json", stored["raw"])
        got = learner.scenario("config_of_folder", str(folder / str(number)))
        if not hasattr(got, "fields"):
            raise Wrong(f"read_config should return a Config, but returned {describe(got)}")
        expected = stored["config"] | {"eos_token_ids": tuple(stored["config"]["eos_token_ids"])}
        expect_equal(got.fields, expected, f"the config of the file {what!r}")
