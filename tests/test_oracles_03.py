"""Chapter 03's oracles, held against programs that others wrote, and its bounds as properties."""

import random

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from solutions.quantize import pack, quantize_groups, quantize_rows, unpack
from tests.oracles import forward_pass as llama
from tests.oracles import quantizer as oracle
from tests.reference.arrays import read_json, tiny_config, tiny_weights
from tests.reference.record import FOLDER


@pytest.fixture(scope="module")
def theirs() -> dict[str, np.ndarray]:
    """A weight, and what torch and gguf make of it (tests/reference/make_quantizer.py)."""
    return load_file(FOLDER / "quantizer.safetensors")


def test_row_numbers_are_those_of_torch(theirs):
    ours = oracle.quantized(theirs["weight"], 8, None)["data"].astype(int)
    assert np.abs(ours - theirs["rows"]).max() <= 1  # at a tie
    assert (ours != theirs["rows"]).mean() < 0.001


def test_groups_are_the_blocks_of_gguf(theirs):
    """Scale and minimum are its own; numbers differ only where it rounds in another way."""
    blocks = theirs["blocks"].reshape(16, 3, 20)
    parts = np.ascontiguousarray(blocks[..., :4]).view(np.float16)
    scale, minimum = oracle.group_parts(theirs["weight"], 4, 32)
    assert np.array_equal(minimum, parts[..., 1])
    assert np.abs(scale.view(np.int16) - parts[..., 0].view(np.int16)).max() <= 1
    apart = np.abs(oracle.dequantized(theirs["weight"], 4, 32) - theirs["from_blocks"])
    assert apart.max() <= scale.max() * 1.1
    assert (apart > scale.min() / 2).mean() < 0.02


def test_bytes_are_those_of_numpy():
    for bits in (2, 4, 8):
        q = np.random.default_rng(bits).integers(0, 2**bits, (3, 10), dtype=np.uint8)
        digits = np.unpackbits(q[..., None], axis=-1, bitorder="little")[..., :bits]
        expected = np.packbits(digits.reshape(3, -1), axis=-1, bitorder="little")
        assert np.array_equal(oracle.packed(q, bits), expected)


def test_perplexity_is_that_of_transformers():
    for entry in read_json("quantizer.json")["perplexity"]:
        config, weights = tiny_config(entry["model"]), tiny_weights(entry["model"])

        def logits_of(ids, config=config, weights=weights):
            return llama.logits(config, weights, ids)

        found = oracle.perplexity(logits_of, entry["ids"], entry["window"], entry["stride"])
        assert found == pytest.approx(entry["perplexity"], rel=1e-6)


# ---- bounds, over random matrices of every kind ----


def odd_matrices(count: int = 300):
    """(matrix, rng): any shape, from denormals to the end of float16, with zeros, constants and
    outliers in them."""
    for seed in range(count):
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
        rows, columns = rng.randrange(1, 5), rng.randrange(1, 50)
        array = numbers.standard_normal((rows, columns)) * 10.0 ** rng.randrange(-46, 5)
        array += rng.choice([0, 0, 10.0 ** rng.randrange(-5, 4)])
        for _ in range(rng.randrange(4)):
            row = rng.randrange(rows)
            kind = rng.choice(["zeros", "constant", "outlier", "denormal"])
            if kind == "outlier":
                array[row, rng.randrange(columns)] = rng.choice([-1, 1]) * 3e4
            else:
                value = {"zeros": 0, "constant": rng.uniform(-9, 9), "denormal": 1.4e-45}[kind]
                array[row] = value * rng.randrange(1, 9)
        yield torch.from_numpy(array.clip(-6e4, 6e4).astype(np.float32)), rng


def errors(weight: torch.Tensor, size: int, parts: tuple) -> tuple[torch.Tensor, ...]:
    """What quantize_groups is off by, the groups, and the scale: [out, G, size], [out, G, 1]."""
    q, scale, minimum = (part.double() for part in parts)
    exact = torch.tensor(np.array(oracle.filled_groups(weight, size)))
    again = q.unflatten(1, (-1, size)) * scale[..., None] + minimum[..., None]
    return (again - exact).abs(), exact, scale[..., None]


def test_rows_stay_within_half_a_step():
    for weight, _ in odd_matrices():
        q, scale = quantize_rows(weight)
        error = (weight.double() - scale.double() * q.double()).abs()
        slack = 1e-6 * weight.double().abs().amax(1, keepdim=True) + 1e-43
        assert bool((error <= scale.double() / 2 + slack).all())
        assert int(q.min()) >= -127


def test_groups_stay_within_their_bound():
    for weight, rng in odd_matrices():
        bits, size = rng.choice((2, 3, 4, 8)), rng.randrange(1, 60)
        error, exact, step = errors(weight, size, quantize_groups(weight, bits, size))
        lo, hi = exact.amin(-1, True), exact.amax(-1, True)
        moved = 2**-11 * (lo.abs() + hi - lo) + 2.0 ** (bits - 25) + 2**-25
        assert bool((error <= step / 2 + moved * (1 + 1e-6)).all())


def test_with_float32_scales_half_a_step_is_all():
    for weight, rng in odd_matrices():
        bits, size = rng.choice((2, 3, 4, 8)), rng.randrange(1, 60)
        parts = quantize_groups(weight, bits, size, torch.float32)
        error, exact, step = errors(weight, size, parts)
        slack = 1e-6 * exact.abs().amax(-1, True) + 2**bits * 1.5e-45
        assert bool((error <= step / 2 + slack).all())


def test_unpack_undoes_pack():
    for seed in range(200):
        bits, rng = (2, 3, 4, 8)[seed % 4], np.random.default_rng(seed)
        shape = rng.integers(0, 4), rng.integers(1, 22)
        q = torch.from_numpy(rng.integers(0, 2**bits, shape, dtype=np.uint8))
        assert torch.equal(unpack(pack(q, bits), bits, q.shape[1]), q)
