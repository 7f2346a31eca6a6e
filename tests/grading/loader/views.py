"""2.2 read_safetensors."""

import torch
from safetensors.torch import save

from course.cases import Wrong, case, expect_equal, randn
from tests.grading.loader.files import (
    aligned_head,
    drive,
    expect_cheap,
    expect_refusals,
    expect_rows,
    new_folder,
    write,
    write_sparse,
    write_tensors,
)
from tests.oracles import loader as oracle

FLOATS = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64),
)
INTEGERS = (
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint8, torch.uint16, torch.uint32, torch.bool),
)
RARE = {
    "U64": torch.uint64,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
}


def some(rng, dtype) -> torch.Tensor:
    """A tensor of random bytes (of 0 and 1 for bool), so that NaN and the like are among them."""
    shape = tuple(rng.randrange(1, 5) for _ in range(rng.randrange(0, 4)))
    count = torch.Size(shape).numel() * dtype.itemsize
    data = [rng.randrange(2 if dtype is torch.bool else 256) for _ in range(count)]
    return torch.tensor(data, dtype=torch.uint8).view(dtype).view(shape)


@case("2.2")
def views_of_every_float(learner, rng):
    """Every floating dtype that the safetensors package writes comes back bit for bit, bfloat16,
    8-bit and complex ones too.
    """
    of_the_package(learner, rng, FLOATS)


@case("2.2")
def views_of_every_integer(learner, rng):
    """Every integer dtype, unsigned ones and bool too, comes back bit for bit."""
    of_the_package(learner, rng, INTEGERS)


def of_the_package(learner, rng, dtypes) -> None:
    made = {str(dtype).removeprefix("torch."): some(rng, dtype) for dtype in dtypes}
    path = write(new_folder(rng) / "x.safetensors", save(made))
    expect_rows(drive(learner, "tensors", path), made, "the result", ordered=False)


@case("2.2")
def views_of_rare_dtypes(learner, rng):
    """The dtypes of DTYPES that hardly a file has come back bit for bit too."""
    made = {name: some(rng, dtype) for name, dtype in RARE.items()}
    header = oracle.entries([(name, name, tuple(t.shape)) for name, t in made.items()])
    data = b"".join(map(oracle.raw_bytes, made.values()))
    path = write(new_folder(rng) / "x.safetensors", oracle.file_bytes(header, data))
    expect_rows(drive(learner, "tensors", path), made, "the result")


@case("2.2")
def views_in_the_order_of_bytes(learner, rng):
    """The dict has its tensors in the order of their bytes; str and Path are both paths."""
    names = rng.sample("abcdefgh", 5)
    made = {name: randn(rng, rng.randrange(1, 6), 2) for name in names}
    rows = [(name, "F32", tuple(t.shape)) for name, t in made.items()]
    header = dict(rng.sample(list(oracle.entries(rows).items()), 5))
    data = b"".join(map(oracle.raw_bytes, made.values()))
    path = write(new_folder(rng) / "x.safetensors", oracle.file_bytes(header, data))
    expect_rows(drive(learner, "tensors", path), made, "the result")
    expect_rows(drive(learner, "tensors", path, True), made, "the result for a Path")


@case("2.2")
def views_of_little(learner, rng):
    """A tensor of one number and no dimension, tensors without a number, a file without tensors."""
    made = {
        "first": torch.empty(0, 3, dtype=torch.bfloat16),
        "scalar": randn(rng, 1).view(()),
        "none": torch.empty(2, 0, 5),
        "one": randn(rng, 1, 1, dtype=torch.float16),
        "last": torch.empty(0, dtype=torch.int64),
    }
    folder = new_folder(rng)
    expect_rows(drive(learner, "tensors", write_tensors(folder / "a", made)), made, "the result")
    empty = {"none": torch.empty(4, 0)}
    path = write_tensors(folder / "b", empty)
    expect_rows(drive(learner, "tensors", path), empty, "the result for a file without data")
    path = write(folder / "c", oracle.file_bytes({}))
    expect_rows(drive(learner, "tensors", path), {}, "the result for a file without tensors")


@case("2.2")
def views_at_odd_addresses(learner, rng):
    """The format promises no alignment. A tensor that begins at an odd byte of the file has the
    right numbers all the same, and an address that is a multiple of its dtype's size.
    """
    folder = new_folder(rng)
    made = {
        "byte": torch.tensor([rng.randrange(100)], dtype=torch.int8),
        "four": randn(rng, 3),
        "two": randn(rng, 5, dtype=torch.bfloat16),
        "eight": randn(rng, 2, dtype=torch.float64),
        "four again": randn(rng, 2, 2),
    }
    for spaces in range(8):
        path = write_tensors(folder / f"{spaces}.safetensors", made, spaces)
        for name, past, data in drive(learner, "addresses", path):
            what = f"{name}, with a header longer by {spaces}"
            if past:
                raise Wrong(f"{what}: its address is {past} past a multiple of its dtype's size")
            right = list(oracle.raw_bytes(made[name]))
            expect_equal(data.tolist(), right, f"{what}: its bytes")


@case("2.2")
def views_outlive_the_call(learner, rng):
    """A tensor is good after the function has returned, the others are gone and the file too."""
    made = {name: randn(rng, 300, 40) for name in "abc"}
    folder = new_folder(rng)
    for number, name in enumerate(made):
        path = write_tensors(folder / f"{number}.safetensors", made)
        row = drive(learner, "one_outlives", path, name, True)
        expect_rows([[name, *row]], {name: made[name]}, "what is left")


@case("2.2")
def views_never_write_to_the_file(learner, rng):
    """Writing to a tensor is allowed, is seen in that tensor only, and never reaches the file."""
    made = {
        "a": randn(rng, 40, 30),
        "b": randn(rng, 7),
        "c": randn(rng, 64, dtype=torch.bfloat16),
        "d": torch.tensor(3.0),
    }
    path = write_tensors(new_folder(rng) / "x.safetensors", made)
    found = drive(learner, "spoilt", path)
    if not found["file is as before"]:
        raise Wrong("a tensor was written to, and the file has changed")
    for number, name in enumerate(made):
        got = set(found["kept"][name].tolist())
        expect_equal(got, {number + 1}, f"the bytes of {name}, all set to {number + 1}")
        right = list(oracle.raw_bytes(made[name]))
        got = found["again"][name].tolist()
        expect_equal(got, right, f"{name} in a second reading, after the first was written to")


@case("2.2")
def views_let_go(learner, rng):
    """When the last tensor is gone, the file is no longer mapped."""
    path = write_tensors(new_folder(rng) / "x.safetensors", {n: randn(rng, 500, 9) for n in "ab"})
    if drive(learner, "still_mapped", path):
        raise Wrong(
            "all tensors of a file are gone, and it is still mapped: something else keeps the map, "
            "so a server that changes its model would never let go of the old one"
        )


@case("2.2")
def views_are_no_copies(learner, rng):
    """Opening a file of 124 MB allocates next to nothing, and reads next to nothing of it, also
    where the data begins at 4 past a multiple of 8: that is good enough for F32 and BF16. Where
    one small tensor is misaligned, that one is copied, and nothing of the others.
    """
    rows = [(f"t{i}", "F32", (10_000, 1000)) for i in range(3)]
    rows += [(f"s{i}", "BF16", (1000, 1000)) for i in range(2)]
    header = oracle.entries(rows)
    folder, size = new_folder(rng), header["s1"]["data_offsets"][1]
    for past in (0, 4):
        head = aligned_head(header, spaces=past)
        path = write_sparse(folder / f"{past}.safetensors", head, len(head) + size)
        what = f"a file of {size / 1e6:.0f} MB whose data begins at {past} past a multiple of 8"
        expect_cheap(drive(learner, "opening_memory", path), what)
    rows = [("byte", "U8", (1,)), ("misaligned", "F32", (2,)), ("bytes", "U8", (40_000_000,))]
    header = oracle.entries(rows)
    head = aligned_head(header)
    path = write_sparse(folder / "odd.safetensors", head, len(head) + 40_000_009)
    what = "a file of 40 MB with one misaligned tensor of 8 bytes"
    expect_cheap(drive(learner, "opening_memory", path), what)


@case("2.2")
def views_of_a_lie(learner, rng):
    """What read_header refuses is refused here too."""
    good = {"x": oracle.entry("F32", (2,), 0, 8)}
    hole = {"x": oracle.entry("F32", (1,), 4, 8)}
    lies = {
        "truncated data": oracle.file_bytes(good, bytes(7)),
        "a hole": oracle.file_bytes(hole, bytes(8)),
        "an unknown dtype": oracle.file_bytes({"x": oracle.entry("F4", (2,), 0, 1)}, bytes(1)),
        "an empty file": b"",
    }
    folder = new_folder(rng)
    calls = [
        (what, write(folder / f"{number}.safetensors", data), [f"{number}.safetensors"])
        for number, (what, data) in enumerate(lies.items())
    ]
    expect_refusals(learner, "read_safetensors", "ValueError", calls)
    path = str(folder / "nowhere.safetensors")
    expect_refusals(learner, "read_safetensors", "FileNotFoundError", [("no file", path, [path])])
