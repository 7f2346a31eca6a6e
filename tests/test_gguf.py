"""solutions/gguf.py against hand-made files and against transformers on the bundled model."""

import hashlib
import random
import struct

import numpy as np
import pytest

from course.model import ensure_model
from course.paths import GGUF
from solutions.gguf import (
    hf_name,
    hf_tensors,
    read_gguf,
    read_tensor,
    undo_rope_permutation,
)
from tests.reference.arrays import read_json
from tests.tiny_files import (
    BOOL,
    F32,
    I32,
    STRING,
    U32,
    gguf_file,
    gguf_pair,
    interleave,
    tiny_gguf,
)


def half(*values: float) -> bytes:
    return np.array(values, "<f2").tobytes()


@pytest.fixture
def read(tmp_path):
    """Write bytes to a file and read it as GGUF."""

    def write_and_read(data: bytes):
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return read_gguf(path)

    return write_and_read


def one_tensor(read, kind: int, raw: bytes, shape: tuple[int, ...]) -> np.ndarray:
    return read_tensor(read(gguf_file([], [("x", shape, kind, raw)])), "x")


def test_metadata_values(read):
    pairs = [
        gguf_pair("number", U32, 7),
        gguf_pair("negative", I32, -7),
        gguf_pair("fraction", F32, 0.5),
        gguf_pair("flag", BOOL, True),
        gguf_pair("text", STRING, "Ġthé 漢"),
        gguf_pair("list", STRING, ["a", "", "b c"]),
        gguf_pair("none", I32, []),
    ]
    assert read(gguf_file(pairs, [])).metadata == {
        "number": 7,
        "negative": -7,
        "fraction": 0.5,
        "flag": True,
        "text": "Ġthé 漢",
        "list": ["a", "", "b c"],
        "none": [],
    }


def test_f32_and_shape_is_row_major(read):
    values = np.arange(6, dtype="<f4")
    tensor = one_tensor(read, 0, values.tobytes(), (2, 3))
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_f16(read):
    tensor = one_tensor(read, 1, half(1.5, -2.0, 65504.0), (3,))
    assert tensor.dtype == np.float32
    assert tensor.tolist() == [1.5, -2.0, 65504.0]


def test_q8_0_by_hand(read):
    """w = d * q, with q signed: two blocks with scales 0.5 and -2."""
    first, second = range(-16, 16), [127, -128] * 16
    raw = half(0.5) + struct.pack("32b", *first) + half(-2.0) + struct.pack("32b", *second)
    expected = [0.5 * q for q in first] + [-2.0 * q for q in second]
    assert one_tensor(read, 8, raw, (2, 32)).reshape(-1).tolist() == expected


def test_q4_1_by_hand(read):
    """w = d * q + m; byte i holds weight i in its low nibble and weight i + 16 in its high one."""
    low, high = list(range(16)), [15, 3] * 8
    packed = bytes(a | b << 4 for a, b in zip(low, high, strict=True))
    expected = [0.25 * q - 1.0 for q in low + high]
    assert one_tensor(read, 3, half(0.25, -1.0) + packed, (32,)).tolist() == expected


def test_several_tensors_are_found_at_their_offsets(read):
    tensors = [(f"t{i}", (i + 1,), 0, np.full(i + 1, i, "<f4").tobytes()) for i in range(5)]
    file = read(gguf_file([], tensors))
    assert [read_tensor(file, f"t{i}").tolist() for i in range(5)] == [
        [i] * (i + 1) for i in range(5)
    ]


@pytest.mark.parametrize("alignment", [1, 64, 4096])
def test_alignment_from_the_metadata(read, alignment):
    pairs = [gguf_pair("general.alignment", U32, alignment)]
    tensors = [(name, (1,), 0, struct.pack("<f", 3.0)) for name in "xyz"]
    file = read(gguf_file(pairs, tensors, alignment=alignment))
    assert [read_tensor(file, name).tolist() for name in "xyz"] == [[3.0]] * 3


def test_undo_rope_permutation():
    weight = np.arange(24 * 5, dtype=np.float32).reshape(24, 5)
    for heads in (1, 2, 3, 6):
        assert np.array_equal(undo_rope_permutation(interleave(weight, heads), heads), weight)


def test_names():
    assert hf_name("token_embd.weight") == "model.embed_tokens.weight"
    assert hf_name("blk.12.attn_k.weight") == "model.layers.12.self_attn.k_proj.weight"
    assert hf_name("output.weight") == "lm_head.weight"
    with pytest.raises(ValueError, match=r"blk\.0\.ssm_in\.weight"):
        hf_name("blk.0.ssm_in.weight")


@pytest.mark.parametrize("name", ["blk.0.attn_q.weight", "blk.0.attn_q"])
def test_rows_are_put_back_in_order_by_name(read, name):
    weight = np.arange(8 * 3, dtype="<f4").reshape(8, 3)
    pairs = [gguf_pair("llama.attention.head_count", U32, 2)]
    file = read(gguf_file(pairs, [(name, (8, 3), 0, interleave(weight, 2).tobytes())]))
    assert (
        dict(hf_tensors(file))["model.layers.0.self_attn.q_proj.weight"].tolist() == weight.tolist()
    )


@pytest.mark.parametrize("name", ["x", "weight", ".weight"])
def test_a_tensor_of_another_model_is_named(read, name):
    pairs = [gguf_pair("llama.attention.head_count", U32, 2)]
    file = read(gguf_file(pairs, [(name, (1,), 0, struct.pack("<f", 3.0))]))
    with pytest.raises(ValueError, match=f"{name} is not a tensor of a Llama model"):
        list(hf_tensors(file))


def test_the_bundled_model_equals_transformers():
    """Every tensor, bit for bit: dequantized, renamed, and rows back in order."""
    ensure_model()
    reference = read_json("gguf.json")["tensors"]
    ours = {name: digest(weight) for name, weight in hf_tensors(read_gguf(GGUF))}
    assert ours == reference


def digest(weight: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(weight, "<f4").tobytes()).hexdigest()


# ---- files that lie ----


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "too short"),
        (b"GG", "too short"),
        (b"PK\3\4" + bytes(60), "does not start with 'GGUF'"),
        (gguf_file([], [], version=1), "version 1"),
        (gguf_file([], [("x", (32,), 99, bytes(32))]), "type number 99.*F32, F16, Q4_1, Q8_0"),
        (gguf_file([], [("x", (33,), 3, bytes(64))]), "whole blocks of 32"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60), "truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "truncated"),
        (b"GGUF" + struct.pack("<IQQQcI", 3, 0, 1, 1, b"k", 77), "unknown type 77"),
        (gguf_file([gguf_pair("general.alignment", U32, 0)], []), "general.alignment"),
    ],
)  # fmt: skip
def test_a_lie_is_refused_by_name(read, data, words):
    with pytest.raises(ValueError, match=words):
        read(data)


def test_every_truncation_is_noticed(read):
    pairs = [gguf_pair("a", STRING, "text"), gguf_pair("b", U32, [1, 2, 3])]
    whole = gguf_file(pairs, [("x", (2, 32), 8, bytes(64 + 4))])
    end = len(whole) - (-68 % 32)  # what follows is padding
    for length in range(end):
        with pytest.raises(ValueError, match=r"truncated|too short"):
            read(whole[:length])
    assert "x" in read(whole[:end]).tensors


def test_damaged_headers_end_in_a_value_error_or_in_a_readable_file(read):
    whole = tiny_gguf()
    rng = random.Random(0)
    outcomes = {True: 0, False: 0}
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[rng.randrange(len(whole) // 20)] = rng.randrange(256)
        try:
            read(bytes(damaged))
            outcomes[True] += 1
        except ValueError:
            outcomes[False] += 1
    assert outcomes[False] > 20


def test_a_name_that_is_there_twice_is_refused(read):
    pairs = [gguf_pair("general.alignment", U32, 32)]
    tensor = ("x", (1,), 0, struct.pack("<f", 3.0))
    for twice in (gguf_file(pairs * 2, [tensor]), gguf_file(pairs, [tensor] * 2)):
        with pytest.raises(ValueError, match="has a name twice"):
            read(twice)
