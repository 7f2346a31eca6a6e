"""What travels between judge and worker comes out as it went in, and nothing else does."""

import io
import struct
from dataclasses import dataclass

import pytest
import torch

from course import wire


def travel(value):
    stream = io.BytesIO()
    wire.send(stream, value)
    stream.seek(0)
    return wire.receive(stream)


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2.5, "é\n😀", [1, [2]], (1, "a"), {"a": 1, 2: [3]}, {}, [], (), float("inf")],
)
def test_plain_data_survives(value):
    back = travel(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_tensors_survive(dtype, shape):
    tensor = torch.randn(shape).to(dtype)
    back = travel({"t": tensor, "again": [tensor, 1]})
    assert torch.equal(back["t"], tensor)
    assert torch.equal(back["again"][0], tensor)
    assert back["t"].dtype == dtype
    assert back["t"].shape == torch.Size(shape)


def test_a_view_arrives_as_its_own_values():
    tensor = torch.arange(12).reshape(3, 4).T[1:, ::2]
    assert torch.equal(travel(tensor), tensor)


def test_records_keep_their_fields_and_lose_their_class():
    @dataclass
    class Answer:
        ids: list
        why: str

    back = travel(Answer([1, 2], "stop"))
    assert (back.type, back.ids, back.why) == ("Answer", [1, 2], "stop")
    with pytest.raises(AttributeError):
        _ = back.nothing


def test_anything_else_arrives_as_its_name():
    back = travel([object(), len])
    assert back[0].type == "object"
    assert back[1].type == "builtin_function_or_method"


def test_an_exception_keeps_its_kinds_and_message():
    raised = wire.Raised("KeyError", ["KeyError", "LookupError"], "no", 3)
    assert str(travel({"raised": raised})["raised"]) == "KeyError: no"


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        lambda: torch.ones(2, 2).to_sparse(),
        lambda: torch.ones(2, device="meta"),
        lambda: torch.ones(2).to(torch.float8_e4m3fn),
    ],
    ids=["quantized", "sparse", "meta", "float8"],
)
def test_a_tensor_that_bytes_cannot_make_arrives_as_its_name(make):
    assert travel([make()])[0].type == "Tensor"


def test_conjugated_and_negated_views_arrive_as_their_values():
    tensor = torch.tensor([1 + 2j, 3 - 1j])
    assert torch.equal(travel(tensor.conj()), tensor.conj().resolve_conj())
    assert torch.equal(travel(tensor.conj().imag), torch.tensor([-2.0, 1.0]))


def test_a_dict_with_other_keys_arrives_as_its_name():
    assert travel({(1, 2): 3}).type == "dict"


def test_lists_of_a_subclass_arrive_as_lists():
    class Mine(list):
        pass

    assert travel(Mine([1])) == [1]


@pytest.mark.parametrize("size", [0, 3, 8, 20])
def test_a_broken_message_is_an_error(size):
    stream = io.BytesIO()
    wire.send(stream, {"a": torch.zeros(4)})
    with pytest.raises(EOFError):
        wire.receive(io.BytesIO(stream.getvalue()[:size]))


def test_a_huge_length_is_refused_before_anything_is_read():
    with pytest.raises(wire.TooLarge):
        wire.receive(io.BytesIO(struct.pack("<II", 2**31, 2**31)))


def test_a_huge_message_is_not_sent(monkeypatch):
    monkeypatch.setattr(wire, "LIMIT", 100)
    stream = io.BytesIO()
    with pytest.raises(wire.TooLarge):
        wire.send(stream, "x" * 200)
    assert not stream.getvalue()


@pytest.mark.parametrize("dtype", ["load", "Tensor", "no_such"])
def test_a_forged_dtype_is_refused(dtype):
    text = b'{"$": "tensor", "dtype": "%s", "shape": [1], "size": 4}' % dtype.encode()
    with pytest.raises(KeyError, match=dtype):
        wire.receive(io.BytesIO(struct.pack("<II", len(text), 4) + text + b"abcd"))
