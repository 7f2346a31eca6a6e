"""The oracles of chapter 02 against the safetensors package, torch and transformers."""

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load

from tests.oracles import loader as oracle
from tests.reference.arrays import read_json

KINDS = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip


def test_a_file_by_hand_is_one_to_the_package(tmp_path):
    tensors = {f"t{d}": torch.ones(2, 3).to(dtype) for d, dtype in KINDS.items()}
    rows = [(f"t{dtype}", dtype, (2, 3)) for dtype in KINDS]
    data = b"".join(map(oracle.raw_bytes, tensors.values()))
    for spaces in (0, 1, 8):
        whole = oracle.file_bytes(oracle.entries(rows), data, spaces=spaces)
        found = load(whole)
        assert found.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype
            assert oracle.raw_bytes(found[name]) == oracle.raw_bytes(tensor)
        path = tmp_path / "x.safetensors"
        path.write_bytes(whole)
        with safe_open(path, "pt") as file:
            assert set(file.keys()) == tensors.keys()


@pytest.mark.parametrize(
    "places", [{"a": (0, 2), "b": (1, 3)}, {"a": (0, 2), "b": (3, 4)}, {"a": (0, 2)}]
)
def test_the_package_refuses_such_lies_too(places):
    header = {n: oracle.entry("U8", (b - a,), a, b) for n, (a, b) in places.items()}
    with pytest.raises(SafetensorError):
        load(oracle.file_bytes(header, bytes(4)))


def test_bfloat16_by_bits_is_torch_s():
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=generator, dtype=torch.int64)
    values = bits.to(torch.int32).view(torch.float32)
    values = values[values.isfinite()]
    tensor = values.to(torch.bfloat16)
    got = oracle.to_bfloat16(values.numpy())
    assert np.array_equal(got, tensor.view(torch.uint16).numpy())
    assert np.array_equal(oracle.from_bfloat16(got), tensor.float().numpy())


@pytest.mark.parametrize("name", sorted(read_json("loader.json")["configs"]))
def test_shapes_are_those_of_transformers(name):
    stored = read_json("loader.json")["configs"][name]
    shapes = dict(oracle.expected_shapes(stored["config"]))
    assert {n: list(s) for n, s in shapes.items()} == stored["shapes"]
