"""2.7 load_model. Its clock never shows seconds here, but calls, bytes, or what the case says."""

import itertools
import math

import torch

from course.cases import Wrong, case, expect_equal
from tests.grading.loader.files import (
    aligned_head,
    drive,
    expect_refusal,
    model_sizes,
    model_tensors,
    new_folder,
    write_config,
    write_sparse,
    write_tensors,
)
from tests.oracles import loader as oracle

STAGES = ("config", "instantiate", "read", "move")
MB = 1_000_000


def model(rng, dtype=torch.float32, **changes) -> tuple[str, dict, dict]:
    """A small model in a folder: its path, sizes and tensors."""
    folder, sizes = new_folder(rng), model_sizes(rng, **changes)
    tensors = model_tensors(rng, sizes, dtype)
    write_config(folder, sizes)
    write_tensors(folder / "model.safetensors", tensors)
    return str(folder), sizes, tensors


def big_model(rng, dtype: str) -> tuple[str, int, int]:
    """A model of zeros: its path, the bytes of its tensors, and those of the largest."""
    folder = new_folder(rng)
    sizes = model_sizes(rng, vocab_size=2000, hidden_size=512, intermediate_size=2048)
    sizes |= {"num_hidden_layers": 4, "num_attention_heads": 8, "head_dim": 64}
    sizes |= {"num_key_value_heads": 8}
    write_config(folder, sizes)
    header = oracle.entries([(n, dtype, shape) for n, shape in oracle.expected_shapes(sizes)])
    spans = [stop - start for start, stop in (e["data_offsets"] for e in header.values())]
    head = aligned_head(header)
    write_sparse(folder / "model.safetensors", head, len(head) + sum(spans))
    return str(folder), sum(spans), max(spans)


def converted(tensor, dtype: torch.dtype):
    """float32 or bfloat16 in another dtype, by bits."""
    values = tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
    if tensor.dtype == torch.bfloat16:
        values = oracle.from_bfloat16(values)
    if dtype == torch.bfloat16:
        return torch.from_numpy(oracle.to_bfloat16(values)).view(torch.bfloat16)
    name = str(dtype).removeprefix("torch.")
    return torch.from_numpy(values.astype(name))


def expect_weights(got: list, tensors: dict, sizes: dict, dtype) -> None:
    """Names, order, dtype, shapes and bits."""
    names = [name for name, _ in oracle.expected_shapes(sizes)]
    wanted = {name: converted(tensors[name], dtype) for name in names}
    expect_equal([row[0] for row in got], names, "the names of the weights")
    for name, kind, shape, data in got:
        right = wanted[name]
        short = str(dtype).removeprefix("torch.")
        expect_equal([kind, shape], [short, list(right.shape)], f"[dtype, shape] of {name}")
        if bytes(data.tolist()) != oracle.raw_bytes(right):
            raise Wrong(f"{name} in {short} has other numbers than {tensors[name].dtype} has")


@case("2.7")
def load_as_it_is(learner, rng):
    """Without a dtype weights are float32; the config and the four stages come with them."""
    folder, sizes, tensors = model(rng)
    for as_path in (False, True):
        found = drive(learner, "load", folder, None, as_path)
        expect_weights(found["weights"], tensors, sizes, torch.float32)
        expect_equal(found["stages"], sorted(STAGES), "the names of the stages")
        right = sizes | {"eos_token_ids": (2,), "rope_theta": 10000.0, "rms_norm_eps": 1e-5}
        for name, value in right.items():
            expect_equal(found["config"].fields[name], value, f"config.{name}")


@case("2.7")
def load_in_any_dtype(learner, rng):
    """float32 and bfloat16 files in float32, bfloat16, float16 and float64: every number the one
    nearest to what the file has.
    """
    for stored in (torch.float32, torch.bfloat16):
        folder, sizes, tensors = model(rng, stored, tie_word_embeddings=False)
        for dtype in ("float32", "bfloat16", "float16", "float64"):
            found = drive(learner, "load", folder, dtype)
            expect_weights(found["weights"], tensors, sizes, getattr(torch, dtype))


@case("2.7")
def load_to_a_device(learner, rng):
    """Every weight is on the device that was asked for, by its name or as a torch.device, in the
    dtype that was asked for, an 8-bit one too.
    """
    folder, *_ = model(rng)
    for device, dtype, as_name in (
        ("cpu", "float16", True),
        ("meta", "float16", True),
        ("meta", "bfloat16", False),
        ("cpu", "float8_e5m2", True),
    ):
        got = drive(learner, "load_devices", folder, dtype, device, as_name)
        expect_equal(got, [(device, dtype)], f"(device, dtype) of the weights for {device!r}")


@case("2.7")
def load_tells_of_progress(learner, rng):
    """progress is called once for each tensor, with bytes as they are stored; what it takes belongs
    to "move".
    """
    for stored in (torch.float32, torch.bfloat16):
        folder, _, tensors = model(rng, stored)
        found = drive(learner, "load_progress", folder, "float32")
        sizes = sorted(tensor.nbytes for tensor in tensors.values())
        total, told = sum(sizes), found["told"]
        expect_equal([row[1] for row in told], [total] * len(sizes), "total, in each call")
        done = [0, *(row[0] for row in told)]
        steps = [b - a for a, b in itertools.pairwise(done)]
        expect_equal(sorted(steps), sizes, "the bytes that each call adds to done, sorted")
        expected = dict.fromkeys(STAGES, 0.0) | {"move": float(len(sizes))}
        expect_equal(found["stages"], expected, "stages by a clock that only progress moves")


@case("2.7")
def load_goes_tensor_by_tensor(learner, rng):
    """read and move alternate, tensor by tensor; progress is called for each when it is where it
    shall be.
    """
    folder, *_ = model(rng)
    rows = drive(learner, "load_step_by_step", folder)
    for number, (there, _) in enumerate(rows, 1):
        if there < number:
            raise Wrong(
                f"progress was called for tensor number {number} when {there} had been converted: "
                "call it when a tensor is where it shall be"
            )
    for number, ((_, before), (_, after)) in enumerate(itertools.pairwise(rows), 1):
        if after - before < 2:
            raise Wrong(
                f"between progress for tensor {number} and for tensor {number + 1} the clock was "
                f"read {after - before} times. A read and a move end there: take the next "
                "tensor from the disk when the one before has been moved"
            )


@case("2.7")
def load_loses_no_time(learner, rng):
    """Everything between the first and the last reading of the clock is in exactly one stage, and
    every stage has some.
    """
    folder, *_ = model(rng)
    steps = [rng.uniform(0.5, 3.0) for _ in range(7)]
    found = drive(learner, "load_clock", folder, steps)
    stages = found["stages"]
    expect_equal(sorted(stages), sorted(STAGES), "the names of the stages")
    whole, parts = found["last"] - found["first"], sum(stages.values())
    if not math.isclose(whole, parts, rel_tol=1e-9):
        raise Wrong(
            f"the stages add up to {parts:.3f}, but {whole:.3f} passed between the first and the "
            f"last reading of the clock: {stages}"
        )
    if not all(value > 0 for value in stages.values()):
        raise Wrong(f"a stage took no time by a clock that moves at each reading: {stages}")


@case("2.7")
def load_really_reads(learner, rng):
    """The pages of the file are in memory afterwards, and came there during "read": the clock shows
    resident memory here.
    """
    folder, size, _ = big_model(rng, "F32")
    found = drive(learner, "load_resident", folder)
    if found["when used"] > 0:
        raise Wrong(
            f"about {found['when used']:.0%} of {size / MB:.0f} MB of weights came into memory "
            "only when the loaded weights were used: their pages had not been read"
        )
    if found["in all"] > found["read"]:
        raise Wrong(
            f"about {found['in all']:.0%} of {size / MB:.0f} MB of weights became resident, but "
            f'{found["read"]:.0%} during "read"; all stages: {found}'
        )


@case("2.7")
def load_peak_from_half(learner, rng):
    """A bfloat16 file in float32 needs the result, the bytes of the file and one more tensor, not
    more.
    """
    expect_peak(learner, *big_model(rng, "BF16"), "float32", 2)


@case("2.7")
def load_peak_to_half(learner, rng):
    """A float32 file in bfloat16 needs the result, the bytes of the file and one more tensor."""
    expect_peak(learner, *big_model(rng, "F32"), "bfloat16", 0.5)


@case("2.7")
def load_peak_of_16_bits(learner, rng):
    """A bfloat16 file in float16, without a float32 copy of it all in between."""
    expect_peak(learner, *big_model(rng, "BF16"), "float16", 1)


def expect_peak(learner, folder: str, size: int, largest: int, dtype: str, factor: float) -> None:
    """The peak is at most result + file + the largest tensor in the wider of the two dtypes."""
    found = drive(learner, "load_memory", folder, dtype)
    result, file, one = (n / MB for n in (size * factor, size, largest * max(factor, 2)))
    expect_equal(found["result"], round(result), "megabytes of the weights")
    if found["peak"] > result + file + one + 2:
        raise Wrong(
            f"{found['peak']} MB were alive at once: more than the result ({result:.0f}), the file "
            f"({file:.0f}) and one tensor ({one:.0f}) together"
        )


@case("2.7")
def load_refuses(learner, rng):
    """A dtype that is not floating is a ValueError that names it, before a file is looked for; a
    folder without weights or config says what is missing, and tensors that do not fit are in the
    report.
    """
    folder, sizes, tensors = model(rng)
    empty, torn = new_folder(rng), new_folder(rng)
    write_config(torn, sizes | {"num_hidden_layers": sizes["num_hidden_layers"] + 1})
    write_tensors(torn / "model.safetensors", tensors)
    new = f"model.layers.{sizes['num_hidden_layers']}.mlp.up_proj.weight"
    half = new_folder(rng)
    write_config(half, sizes)
    for name in ("int8", "int64", "bool", "complex64"):
        for place, where in ((folder, "a good folder"), (str(empty), "an empty folder")):
            [found] = learner.scenario("load_failures", [[place, name, [name]]])
            expect_refusal(found, "ValueError", f"dtype torch.{name}, {where}", [])
    for path, kind, names in (
        (empty, "FileNotFoundError", ["config.json"]),
        (half, "FileNotFoundError", ["model.safetensors"]),
        (torn, "ValueError", [f"missing: {new}"]),
    ):
        [found] = learner.scenario("load_failures", [[str(path), "float32", names]])
        expect_refusal(found, kind, f"a folder that lacks {names[0]}", [])
