"""2.1 read_header, on files that tell the truth."""

import torch
from safetensors.torch import save

from course.cases import Wrong, case, expect_equal, randn
from tests.grading.loader.files import drive, new_folder, write, write_sparse
from tests.oracles import loader as oracle


def expect_header(found: dict, entries: list[tuple], metadata: dict, base: int) -> None:
    """Every field, in this order of entries."""
    expect_equal(found["base"], base, "base")
    expect_equal(found["metadata"], metadata, "metadata")
    names, wanted = [e[0] for e in found["entries"]], [e[0] for e in entries]
    if names != wanted:
        raise Wrong(f"the entries are {names}, expected {wanted}")
    for got, want in zip(found["entries"], entries, strict=True):
        expect_equal(got, want, f"(name, dtype, shape, start, stop) of {want[0]}")


def rows(header: dict) -> list[tuple]:
    """The entries of a header as the Header should have them, by their bytes."""
    found = [
        (name, e["dtype"], tuple(e["shape"]), *e["data_offsets"])
        for name, e in header.items()
        if name != "__metadata__"
    ]
    return sorted(found, key=lambda row: row[3:])


@case("2.1")
def header_of_two_tensors(learner, rng):
    """A file of two tensors, made by hand: names, dtypes, shapes, offsets, where data begins."""
    text = b'{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},'
    text += b'"b":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]}}'
    path = write(new_folder(rng) / "two.safetensors", oracle.file_bytes(text, bytes(28)))
    found = drive(learner, "headers", [path])[0]
    expect_header(found, [("a", "F32", (2, 3), 0, 24), ("b", "BF16", (2,), 24, 28)], {}, 121)


@case("2.1")
def header_by_the_package(learner, rng):
    """Files written by the safetensors package: random names, dtypes and shapes, and metadata."""
    kinds = {
        "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
        "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
        "U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64, "U16": torch.uint16,
    }  # fmt: skip
    folder = new_folder(rng)
    for number in range(4):
        chosen = {}
        for dtype in rng.sample(list(kinds), 6):
            shape = tuple(rng.randrange(1, 5) for _ in range(rng.randrange(0, 4)))
            chosen[f"{rng.choice('xyzäß')}.{dtype}"] = dtype, shape
        made = {n: torch.zeros(s).to(kinds[d]) for n, (d, s) in chosen.items()}
        metadata = {"format": "pt", "quote": '"{}\\', "größe": "1"} if number % 2 else None
        data = save(made, metadata)
        path = write(folder / f"{number}.safetensors", data)
        found = drive(learner, "headers", [path])[0]
        expect_package(found, data, chosen, metadata or {})


def expect_package(found: dict, data: bytes, chosen: dict, metadata: dict) -> None:
    """The header of the package's file: its tensors in whatever order, without gap, to the end."""
    base = 8 + int.from_bytes(data[:8], "little")
    expect_equal(found["base"], base, "base")
    expect_equal(found["metadata"], metadata, "metadata")
    got = {name: (dtype, shape) for name, dtype, shape, _, _ in found["entries"]}
    expect_equal(got, chosen, "{name: (dtype, shape)}")
    at = 0
    for name, dtype, shape, start, stop in found["entries"]:
        expect_equal(start, at, f"start of {name}")
        at += torch.Size(shape).numel() * oracle.ITEM[dtype]
        expect_equal(stop, at, f"stop of {name}")
    expect_equal(at, len(data) - base, "stop of the last entry")


@case("2.1")
def header_in_the_order_of_bytes(learner, rng):
    """Entries come in the order of their bytes, whatever the order in the JSON; a tensor without
    numbers stands where its bytes would.
    """
    shape = (rng.randrange(1, 5), rng.randrange(1, 5))
    tensors = [("z", "I16", shape), ("e", "F32", (0, 7)), ("a", "U8", (3,)), ("m", "F64", ())]
    header = oracle.entries(tensors)
    size = max(e["data_offsets"][1] for e in header.values())
    folder, items = new_folder(rng), list(header.items())
    for number, order in enumerate((items, items[::-1], rng.sample(items, len(items)))):
        data = oracle.file_bytes(dict(order), bytes(size), spaces=rng.randrange(9))
        path = write(folder / f"{number}.safetensors", data)
        found = drive(learner, "headers", [path])[0]
        expect_header(found, rows(header), {}, len(data) - size)


@case("2.1")
def header_with_more_in_it(learner, rng):
    """Keys of an entry that the format does not know mean nothing, and of all names only
    "__metadata__" means something; a file may have no tensor.
    """
    folder = new_folder(rng)
    header = {"x": oracle.entry("U8", (1,), 0, 1) | {"comment": [1, {"deep": None}]}}
    header |= {"__data__": oracle.entry("U8", (1,), 1, 2)}
    first = oracle.file_bytes(header, b"ab")
    only = {"__metadata__": {"version": "3", "note": ""}}
    second = oracle.file_bytes(only)
    paths = [write(folder / "a", first), write(folder / "b", second)]
    found = drive(learner, "headers", [*paths, write(folder / "c", oracle.file_bytes({}))], True)
    expect_header(found[0], rows(header), {}, len(first) - 2)
    expect_header(found[1], [], only["__metadata__"], len(second))
    expect_header(found[2], [], {}, 10)


@case("2.1")
def header_at_the_limits(learner, rng):
    """Every dtype of DTYPES is known, 64 dimensions are allowed, and so is a size of 2**63 - 1."""
    tensors = [(dtype, dtype, (rng.randrange(1, 4),)) for dtype in oracle.ITEM]
    header = oracle.entries([*tensors, ("64 dimensions", "F32", (1,) * 64)])
    size = header["64 dimensions"]["data_offsets"][1]
    header["wide"] = oracle.entry("U8", (0, 2**63 - 1), size, size)
    data = oracle.file_bytes(header, bytes(size))
    found = drive(learner, "headers", [write(new_folder(rng) / "x.safetensors", data)])[0]
    expect_header(found, rows(header), {}, len(data) - size)


@case("2.1")
def header_of_what_is_there_now(learner, rng):
    """A file that was replaced under the same name has its new header."""
    path = new_folder(rng) / "x.safetensors"
    for name in "ab":
        header = {name: oracle.entry("U8", (3,), 0, 3)}
        found = drive(learner, "headers", [write(path, oracle.file_bytes(header, b"abc"))])[0]
        expect_header(found, rows(header), {}, len(oracle.file_bytes(header)))


@case("2.1")
def header_reads_no_data(learner, rng):
    """Of the data nothing is read: a file of 64 MB costs no more than its header."""
    header = {"x": oracle.entry("F32", (16_000_000,), 0, 64_000_000)}
    head = oracle.file_bytes(header)
    path = write_sparse(new_folder(rng) / "x.safetensors", head, len(head) + 64_000_000)
    answer = drive(learner, "header_memory", path, False)
    expect_header(answer["found"], rows(header), {}, len(head))
    if answer["MB"] > 2:
        raise Wrong(f"{answer['MB']} MB were allocated to read a header of {len(head)} bytes")


@case("2.1")
def header_allocates_nothing_for_a_lie(learner, rng):
    """A length over MAX_HEADER is refused before anything is read, even where the file is as large
    as that; so is one that the file has no room for.
    """
    folder = new_folder(rng)
    for number, (length, size) in enumerate(
        ((150_000_000, 150_000_100), (2**64 - 1, 150_000_100), (99_000_000, 200))
    ):
        head = length.to_bytes(8, "little") + b'{"a":' + b" " * 100
        path = write_sparse(folder / f"{number}.safetensors", head, size)
        answer = drive(learner, "header_memory", path, True)
        what = f"a header of {length:,} bytes in a file of {size:,}"
        if "ValueError" not in answer["found"].get("raised", ()):
            raise Wrong(
                f"{what}: expected ValueError, because it may not reach past the end of the file, "
                f"nor be over MAX_HEADER, which is 100,000,000; it did {answer['found']}"
            )
        if answer["MB"] > 10:
            raise Wrong(f"{what}: {answer['MB']} MB were allocated before it was refused")


@case("2.1")
def header_of_many_tensors(learner, rng):
    """A file with hundreds of tensors is read in one go."""
    tensors = [(f"t{i}", "U8", (1,)) for i in range(800)]
    header, values = oracle.entries(tensors), randn(rng, 800)
    data = oracle.file_bytes(header, bytes((values.abs() * 50).byte().tolist()))
    found = drive(learner, "headers", [write(new_folder(rng) / "x.safetensors", data)])[0]
    expect_header(found, rows(header), {}, len(data) - 800)
