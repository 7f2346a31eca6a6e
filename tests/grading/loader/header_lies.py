"""2.1 read_header, on files that lie. Each lie is the only one in its file."""

import json

from course.cases import case
from tests.grading.loader.files import expect_refusals, new_folder, write
from tests.oracles import loader as oracle
from tests.oracles.loader import entry


def refuse(learner, rng, lies: list) -> None:
    """Each (what is wrong in words, bytes of the file, what the message must name) is refused.

    The message has to name the path too.
    """
    folder, calls = new_folder(rng), []
    for number, (what, data, names) in enumerate(lies):
        path = write(folder / f"lie{number}.safetensors", data)
        calls.append((what, path, [path, *names]))
    expect_refusals(learner, "read_header", "ValueError", calls)


def one(dtype="F32", shape=(1,), offsets=(0, 4), size: int = 4) -> bytes:
    """A file with one tensor x."""
    value = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    return oracle.file_bytes({"x": value}, bytes(size))


@case("2.1")
def header_length_that_lies(learner, rng):
    """N that reaches past the end of the file is refused, and so is a file too short for N."""
    text = b'{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    lies = [
        (f"the first 8 bytes say {n:,} and the file has {len(text) + 10}", n, [])
        for n in (len(text) + 3, 10**8, 2**31, 2**60, 2**63, 2**64 - 1)
    ]
    lies = [(what, oracle.file_bytes(text, b"ab", n), names) for what, n, names in lies]
    lies += [(f"a file of {n} bytes", bytes(n), []) for n in range(8)]
    refuse(learner, rng, lies)


@case("2.1")
def header_truncated_anywhere(learner, rng):
    """A file that was cut off is refused, wherever that was."""
    rows = [("a", "F32", (rng.randrange(1, 4), 2)), ("b", "I8", (3,))]
    header = oracle.entries(rows)
    whole = oracle.file_bytes(header, bytes(header["b"]["data_offsets"][1]))
    lies = [(f"{n} of {len(whole)} bytes are left", whole[:n], []) for n in range(len(whole))]
    refuse(learner, rng, lies)


@case("2.1")
def header_that_is_no_object(learner, rng):
    """What is not a JSON object in UTF-8 is refused, and so is a name that is there twice."""
    good = json.dumps({"x": entry("U8", (1,), 0, 1)})
    twice = '{"x": %s, "x": %s}' % ((json.dumps(entry("U8", (1,), 0, 1)),) * 2)
    within = good[:-2] + ', "dtype": "I8"}}'
    texts = {
        "a list": b"[]",
        "a number": b"3",
        "null": b"null",
        "nothing at all": b"",
        "half an object": good.encode()[:-3],
        "something behind the object": good.encode() + b"}",
        "a name in Latin-1": '{"\xe4": 1}'.encode("latin-1"),
        "UTF-16": good.encode("utf-16"),
        "a hundred thousand brackets": b"[" * 100_000,
        "the same name twice": twice.encode(),
        "an entry with two dtypes": within.encode(),
    }
    lies = [
        (f"the header is {what}", oracle.file_bytes(text, b"a"), []) for what, text in texts.items()
    ]
    refuse(learner, rng, lies)


@case("2.1")
def header_metadata_that_lies(learner, rng):
    """Metadata that is not an object of strings is refused."""
    values = ([], "text", 1, None, {"a": 1}, {"a": "b", "c": None}, {"a": {"b": "c"}}, [["a", "b"]])
    lies = []
    for value in values:
        header = {"__metadata__": value, "x": entry("U8", (1,), 0, 1)}
        lies.append((f"__metadata__ is {value!r}", oracle.file_bytes(header, b"a"), []))
    refuse(learner, rng, lies)


@case("2.1")
def header_entry_that_is_none(learner, rng):
    """An entry that is not an object, or lacks one of its three parts, is refused."""
    whole = entry("F32", (1,), 0, 4)
    values = [3, [], None, "F32", {}]
    values += [{k: v for k, v in whole.items() if k != gone} for gone in whole]
    lies = [
        (f"the entry of x is {value!r}", oracle.file_bytes({"x": value}, bytes(4)), [])
        for value in values
    ]
    refuse(learner, rng, lies)


@case("2.1")
def header_unknown_dtype(learner, rng):
    """A dtype that is not in DTYPES is refused; the message names the tensor and the dtype."""
    lies = []
    for dtype in ("F4", "F6_E2M3", "f32", "FLOAT", "Q4_1", ""):
        data = oracle.file_bytes({"the.tensor": entry(dtype, (1,), 0, 4)}, bytes(4))
        lies.append((f"a dtype {dtype!r}", data, ["the.tensor", dtype]))
    for dtype in (None, 1, ["F32"], {"F32": 1}):
        data = oracle.file_bytes({"the.tensor": entry(dtype, (1,), 0, 4)}, bytes(4))
        lies.append((f"a dtype {dtype!r}", data, ["the.tensor"]))
    refuse(learner, rng, lies)


@case("2.1")
def header_numbers_that_are_none(learner, rng):
    """Shapes and offsets that are not lists of integers from 0 to 2**63 - 1 are refused."""
    shapes = (None, 1, "1", [-1], [-1, -1], [1.0], ["1"], [True], [None], [[1]], [2**63], [1] * 65)
    lies = [(f"the shape is {s}", one(shape=s), []) for s in shapes[:-1]]
    lies.append(("the shape has 65 sizes, all 1", one(shape=shapes[-1]), []))
    offsets = (
        *(None, 4, [], [0], [4], [0, 4, 4], [False, 4], [0, 4.0], ["0", "4"], [None, 4]),
        *({"0": 4}, [[0, 4]], [-4, 0], [0, 2**63]),
    )
    lies += [(f"data_offsets are {o}", one(offsets=o), []) for o in offsets]
    lies.append(("the shape is [0, 2**63]", one("U8", [0, 2**63], [0, 0], 0), []))
    lies.append(
        ("the shape is [true] and data_offsets are [0, true]", one("U8", [True], [0, True], 1), [])
    )
    refuse(learner, rng, lies)


@case("2.1")
def header_size_that_lies(learner, rng):
    """stop - start must be the size of the dtype times the shape; also where that is immense."""
    lies = []
    for dtype, shape, start, stop, size in (
        ("F32", [1], 0, 8, 8),
        ("F32", [3], 0, 8, 8),
        ("F32", [], 0, 8, 8),
        ("F16", [2, 2], 0, 4, 4),
        ("BF16", [2], 0, 2, 2),
        ("F32", [0], 0, 4, 4),
        ("F32", [1], 4, 0, 4),
        ("F32", [0], 4, 4, 8),
        ("I64", [2**32, 2**32], 0, 8, 8),
        ("U8", [2**62, 4], 0, 0, 0),
        ("U8", [2**62], 0, 2**62, 4),
    ):
        what = f"{dtype} of shape {shape} in bytes {start} to {stop}"
        lies.append((what, one(dtype, shape, [start, stop], size), []))
    refuse(learner, rng, lies)


@case("2.1")
def header_bytes_of_two(learner, rng):
    """A byte that belongs to two tensors is refused."""
    a = rng.randrange(2, 6)
    lies = [
        ("two tensors on the same bytes", {"a": (0, a), "b": (0, a)}, a),
        ("the second tensor begins one byte early", {"a": (0, a), "b": (a - 1, a + 3)}, a + 3),
        ("one tensor lies within another", {"a": (0, a + 4), "b": (1, 2)}, a + 4),
        ("two tensors end together", {"a": (0, a + 1), "b": (1, a + 1)}, a + 1),
        ("three tensors, the last on the first", {"a": (0, 2), "b": (2, 4), "c": (1, 2)}, 4),
    ]
    refuse(learner, rng, [(what, of_bytes(places, size), []) for what, places, size in lies])


@case("2.1")
def header_bytes_of_none(learner, rng):
    """A byte that belongs to no tensor is refused: before, between and behind them."""
    a = rng.randrange(2, 6)
    lies = [
        ("the first tensor begins at byte 1", {"a": (1, a)}, a),
        ("a hole of one byte", {"a": (0, a), "b": (a + 1, a + 3)}, a + 3),
        ("one byte behind the last tensor", {"a": (0, a)}, a + 1),
        ("data, and no tensor", {}, 1),
        ("a hole as large as an overlap elsewhere", {"a": (0, 3), "b": (2, 4), "c": (5, 6)}, 6),
    ]
    refuse(learner, rng, [(what, of_bytes(places, size), []) for what, places, size in lies])


def of_bytes(places: dict, size: int) -> bytes:
    """A file of U8 tensors at these places."""
    header = {
        name: entry("U8", (stop - start,), start, stop) for name, (start, stop) in places.items()
    }
    return oracle.file_bytes(header, bytes(size))


@case("2.1")
def header_that_is_not_there(learner, rng):
    """Where there is no file, it is a FileNotFoundError that names it."""
    path = str(new_folder(rng) / "nowhere.safetensors")
    expect_refusals(learner, "read_header", "FileNotFoundError", [("no such file", path, [path])])
