"""3.5 is_quantizable and quantize_weights."""

import torch

from course.cases import Wrong, case, expect_equal, expect_raises, expect_tensor, randn
from tests.grading.forward_pass.driving import drive
from tests.grading.quantizer.checks import BF16, F16, F32, weight_of
from tests.grading.quantizer.weights import floats_of
from tests.oracles import quantizer as oracle

LAYER = {
    "input_layernorm": (24,),
    "self_attn.q_proj": (24, 24),
    "self_attn.k_proj": (8, 24),
    "self_attn.v_proj": (8, 24),
    "self_attn.o_proj": (24, 24),
    "post_attention_layernorm": (24,),
    "mlp.gate_proj": (40, 24),
    "mlp.up_proj": (40, 24),
    "mlp.down_proj": (24, 40),
}
OUTER = ("model.embed_tokens.weight", "lm_head.weight")


def names_and_shapes(layers: int) -> dict:
    """Every tensor of a small untied Llama."""
    shapes = dict.fromkeys(OUTER, (50, 24)) | {"model.norm.weight": (24,)}
    for layer in range(layers):
        for name, shape in LAYER.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return shapes


def checkpoint(rng, layers: int = 2, dtype=F32) -> dict:
    """Random tensors of such a model, in a random order."""
    tensors = {n: randn(rng, *s).mul(0.1).to(dtype) for n, s in names_and_shapes(layers).items()}
    names = list(tensors)
    rng.shuffle(names)
    return {name: tensors[name] for name in names}


def is_matrix_of_a_layer(name: str) -> bool:
    """Said otherwise than the engine does: a projection inside a layer."""
    return name.endswith("_proj.weight") and ".layers." in name


@case("3.5")
def quantizable_names(learner, rng):
    """The seven matrices of a layer, yes; norms, the embedding and the head, no."""
    for name, shape in names_and_shapes(3).items():
        expect_equal(learner.is_quantizable(name, shape), is_matrix_of_a_layer(name), f"of {name}")
    big = "model.layers.117.mlp.down_proj.weight"
    for name, shape in ((big, (8192, 28672)), ("adapter.up.weight", (2, 3)), ("a.weight", (1, 1))):
        expect_equal(learner.is_quantizable(name, shape), True, f"of {name} {list(shape)}")


@case("3.5")
def quantizable_shapes(learner, rng):
    """Only matrices named .weight: no bias, no buffer, nothing of one or three dimensions."""
    prefix = "model.layers.0.self_attn."
    for name, shape in (
        (f"{prefix}q_proj.bias", (24,)),
        (f"{prefix}q_proj.weight", (24,)),
        (f"{prefix}q_proj.weight", (2, 24, 24)),
        (f"{prefix}rotary_emb.inv_freq", (4, 8)),
        (f"{prefix}q_proj.weight_scale", (24, 1)),
        (f"{prefix}q_proj.old_weight", (24, 24)),
    ):
        expect_equal(learner.is_quantizable(name, shape), False, f"of {name} {list(shape)}")


@case("3.5")
def weights_of_a_checkpoint(learner, rng):
    """Matrices of layers are quantized in the format, the rest is left alone; names in order."""
    for bits, size in ((8, None), (4, 16), (2, 8)):
        tensors = checkpoint(rng)
        found = drive(learner, "quantize_checkpoint", tensors, bits, size, None)
        expect_equal(found["order"], list(tensors), "the order of the names")
        for name, weight in found["weights"].items():
            if not is_matrix_of_a_layer(name):
                expect_tensor(weight, tensors[name], atol=0, what=name)
                continue
            if not isinstance(weight, dict):
                raise Wrong(f"{name} is not quantized")
            kept = {key: weight[key] for key in ("bits", "group_size", "shape")}
            shape = list(tensors[name].shape)
            expect_equal(kept, {"bits": bits, "group_size": size, "shape": shape}, name)
            check_scale(weight, tensors[name], bits, size, name)


def check_scale(weight: dict, tensor, bits: int, size: int | None, name: str) -> None:
    """The scale is that of this tensor and no other."""
    expected = torch.from_numpy(oracle.quantized(tensor, bits, size)["scale"])
    expect_tensor(weight["scale"], expected, atol=6e-8, rtol=1.1e-3, what=f"scale of {name}")


@case("3.5")
def weights_left_alone(learner, rng):
    """What is left alone has the dtype asked for, float32 if none; no copy without need."""
    kinds = ((F32, None), (BF16, None), (BF16, "bfloat16"), (F16, "float32"), (F32, "float16"))
    for stored, asked in kinds:
        tensors = checkpoint(rng, 1, stored)
        found = drive(learner, "quantize_checkpoint", tensors, 4, 8, asked)
        dtype = getattr(torch, asked or "float32")
        for name in (n for n in tensors if not is_matrix_of_a_layer(n)):
            expect_tensor(found["weights"][name], tensors[name].to(dtype), atol=0, what=name)
            if stored == dtype and name not in found["shared"]:
                raise Wrong(f"{name} has the dtype asked for, and was copied all the same")


@case("3.5")
def weights_of_16_bits(learner, rng):
    """A checkpoint is quantized from its own numbers, whatever dtype the rest is asked for in."""
    for dtype, asked in ((BF16, None), (F16, None), (F32, "bfloat16")):
        tensors = checkpoint(rng, 1, dtype)
        found = drive(learner, "quantize_checkpoint", tensors, 4, 8, asked)
        for name, weight in found["weights"].items():
            if is_matrix_of_a_layer(name):
                check_scale(weight, tensors[name], 4, 8, name)


@case("3.5")
def weights_and_progress(learner, rng):
    """progress is called after each tensor: 1 of N, 2 of N, ... N of N."""
    tensors = checkpoint(rng, 1)
    found = drive(learner, "quantize_checkpoint", tensors, 4, 8, None)
    expected = [[done, len(tensors)] for done in range(1, len(tensors) + 1)]
    expect_equal(found["progress"], expected, "the calls of progress")


@case("3.5")
def weights_one_at_a_time(learner, rng):
    """Each tensor is asked for once, reported, and forgotten before the next one is asked for."""
    shapes = {name: list(shape) for name, shape in names_and_shapes(3).items()}
    found = drive(learner, "quantize_on_demand", shapes, 4, 8, "float16")
    expect_equal(sorted(found["asked"]), sorted(shapes), "the names asked for")
    steps = list(range(1, len(shapes) + 1))
    expect_equal(found["told_after"], steps, "the number of tensors asked for at each progress()")
    if found["alive"] > 1:
        raise Wrong(f"{found['alive']} stored tensors were alive at the same time, expected 1")


@case("3.5")
def weights_in_bounded_memory(learner, rng):
    """At no time more memory than the result so far and eight float32 copies of one matrix."""
    rows, columns = 256, rng.choice([256, 320])
    shapes = {f"model.layers.{i}.mlp.up_proj.weight": [rows, columns] for i in range(60)}
    room = 8 * 4 * rows * columns + 200_000  # the interpreter's own small things
    found = drive(learner, "quantize_within", shapes, 4, 32, room)
    if found["over"]:
        raise Wrong(
            f"too much memory was taken at once: the result has {found['size']:,} bytes and "
            f"{room:,} more are allowed; of tensors alone {found['tensors']:,} were alive. (The "
            f"whole checkpoint in float32 would be {60 * 4 * rows * columns:,}.)"
        )


@case("3.5")
def weights_that_cannot_be_quantized(learner, rng):
    """The ValueError for an infinity names the tensor."""
    tensors = checkpoint(rng, 3)
    layer = rng.randrange(3)
    name = f"model.layers.{layer}.mlp.up_proj.weight"
    tensors[name][5, 3] = float("inf")
    for bits, size in ((4, 8), (8, None)):
        with expect_raises("ValueError", naming=[name]):
            drive(learner, "quantize_checkpoint", tensors, bits, size, None)


@case("3.5")
def weights_multiply_as_before(learner, rng):
    """Each quantized weight is close to its own tensor."""
    tensors = {f"model.layers.{i}.mlp.up_proj.weight": weight_of(rng, 6, 16) for i in range(4)}
    found = drive(learner, "quantize_checkpoint", tensors, 8, 16, None)
    for name, weight in found["weights"].items():
        step = weight["scale"].float()
        q = weight["data"].float() * step + weight["minimum"].float()
        what = f"{name}, read back,"
        expect_tensor(q, floats_of(tensors[name], 8, 16).float(), atol=2e-3, what=what)
