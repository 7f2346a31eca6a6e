"""2.5 weight_files, read_checkpoint."""

import json

import torch

from course.cases import Wrong, case, expect_equal, randn
from course.wire import Raised
from tests.grading.loader.files import (
    aligned_head,
    drive,
    expect_cheap,
    expect_refusals,
    expect_rows,
    new_folder,
    write,
    write_json,
    write_sparse,
    write_tensors,
)
from tests.oracles import loader as oracle

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def shard(number: int, of: int = 3) -> str:
    """The name that transformers gives a shard."""
    return f"model-{number:05}-of-{of:05}.safetensors"


def three_shards(rng) -> dict:
    """Tensors for three shards: {file: {name: tensor}}."""
    names = rng.sample([f"layers.{i}.{part}" for i in range(4) for part in "abc"], 9)
    return {shard(n + 1): {name: randn(rng, 2, n + 1) for name in names[n::3]} for n in range(3)}


def save_shards(folder, files: dict, changes: dict | None = None) -> None:
    """Shards and their index, which `changes` change; None takes a tensor out of it."""
    for file, tensors in files.items():
        write_tensors(folder / file, tensors)
    index = {name: file for file, tensors in files.items() for name in sorted(tensors)}
    index |= changes or {}
    write_index(folder, {name: file for name, file in index.items() if file})


def sharded(rng, folder, changes: dict | None = None) -> dict:
    """Both at once."""
    files = three_shards(rng)
    save_shards(folder, files, changes)
    return files


def write_index(folder, weight_map) -> None:
    """An index as transformers writes it."""
    write_json(folder / INDEX, {"metadata": {"total_size": 1}, "weight_map": weight_map})


def expect_files(learner, folder, names: list[str], as_path: bool = False) -> None:
    """weight_files gives these names in the folder."""
    expected = [[name, True] for name in names]
    got = drive(learner, "files", str(folder), as_path)
    expect_equal(got, expected, "[name, whether it is a path in the folder] of each path")


@case("2.5")
def files_of_one(learner, rng):
    """One file of weights is all, also where there is an index beside it."""
    folder = new_folder(rng)
    tensors = {"x": randn(rng, 3)}
    write_tensors(folder / SINGLE, tensors)
    expect_files(learner, folder, [SINGLE])
    expect_files(learner, folder, [SINGLE], as_path=True)
    for text in (b'{"weight_map": {"x": "other.safetensors"}}', b"not JSON"):
        write(folder / INDEX, text)
        expect_files(learner, folder, [SINGLE])
        expect_rows(drive(learner, "checkpoint", str(folder)), tensors, "read_checkpoint")


@case("2.5")
def files_of_many(learner, rng):
    """Every shard of the index once, in the order of their names; other files are left alone."""
    folder = new_folder(rng)
    files = sharded(rng, folder)
    write_tensors(folder / "adapter.safetensors", {"layers.0.a": randn(rng, 1)})
    expect_files(learner, folder, sorted(files))


@case("2.5")
def files_of_any_name(learner, rng):
    """A plain name is good whatever it looks like; names are ordered as text."""
    folder = new_folder(rng)
    names = [f"model-{rng.randrange(2, 9)}", f"model-1{rng.randrange(10)}", "weights..v2", "ä b"]
    names = [f"{name}.safetensors" for name in (*names, "x" * 120)]
    for name in names:
        write_tensors(folder / name, {name: randn(rng, 1)})
    write_index(folder, {name: name for name in names})
    expect_files(learner, folder, sorted(names))


@case("2.5")
def files_missing(learner, rng):
    """All missing shards are named in one FileNotFoundError."""
    folder = new_folder(rng)
    sharded(rng, folder, {"x": shard(7), "y": shard(5), "z": shard(6)})
    lies = [("three shards are missing", str(folder), [shard(5), shard(6), shard(7)])]
    expect_refusals(learner, "weight_files", "FileNotFoundError", lies)
    expect_refusals(learner, "read_checkpoint", "FileNotFoundError", lies)
    folder = new_folder(rng)
    longest = "x" * 243 + ".safetensors"
    write_index(folder, {"x": longest})
    lies = [("a shard with a name of 255 bytes is missing", str(folder), [longest])]
    expect_refusals(learner, "weight_files", "FileNotFoundError", lies)


@case("2.5")
def files_none(learner, rng):
    """A folder with neither a file of weights nor an index: the error names both."""
    folder = new_folder(rng)
    write(folder / "pytorch_model.bin", b"a pickle")
    lies = [("no weights in the folder", str(folder), [SINGLE, INDEX])]
    expect_refusals(learner, "weight_files", "FileNotFoundError", lies)
    try:
        learner.weight_files(str(folder))
    except Raised as error:
        if error.message.count(SINGLE) < 2:  # the longer name has the shorter one in it
            raise Wrong(f"the message names {INDEX} only, not {SINGLE}") from error


@case("2.5")
def files_elsewhere(learner, rng):
    """A name in the index that leads out of the folder, or to a pickle, is refused, even where
    there is such a file.
    """
    folder = new_folder(rng)
    inside, outside = folder / "checkpoint", "outside.safetensors"
    (inside / "sub").mkdir(parents=True, exist_ok=True)
    for path in (folder / outside, inside / "sub" / "x.safetensors", inside / "good.safetensors"):
        write_tensors(path, {"x": torch.ones(1)})
    write(inside / "model.bin", b"a pickle")
    names = [f"../{outside}", str(folder / outside), "sub/x.safetensors", "./good.safetensors"]
    names += ["..\\outside.safetensors", "sub\\x.safetensors", "model.bin", "", ".."]
    names += ["goodsafetensors", "C:good.safetensors", "x" * 250 + ".safetensors"]
    names += ["x" * 244 + ".safetensors", "ä" * 150 + ".safetensors"]
    lies = refusals_of(folder, inside, [{"a": "good.safetensors", "x": name} for name in names])
    long = "262 characters", "256 characters", "162 characters, 312 bytes"
    for number, what in enumerate(long, -len(long)):
        lies[number] = (f"weight_map has a name of {what}", *lies[number][1:])
    expect_refusals(learner, "weight_files", "ValueError", lies)


@case("2.5")
def files_of_no_index(learner, rng):
    """An index whose weight_map is not an object of file names, or is empty, is refused."""
    folder = new_folder(rng)
    (folder / "checkpoint").mkdir(exist_ok=True)
    maps = (None, {}, [], "x", 3, {"x": 3}, {"x": None}, {"x": ["a.safetensors"]}, [["x", "a"]])
    lies = refusals_of(folder, folder / "checkpoint", maps)
    expect_refusals(learner, "weight_files", "ValueError", lies)


@case("2.5")
def files_of_a_damaged_index(learner, rng):
    """An index that is not JSON, or is not the object it should be, is refused by its name."""
    folder = new_folder(rng)
    files = sharded(rng, folder)
    twice = json.dumps({"weight_map": {"a": min(files)}})[:-2] + f', "a": "{max(files)}"}}}}'
    texts = (b"", b"not JSON", b"[]", b"{}", b'{"weight_map": {"a": "\xe4"}}', twice.encode())
    lies = []
    for number, text in enumerate(texts):
        place = folder / str(number)
        place.mkdir(exist_ok=True)
        for name in files:
            write(place / name, (folder / name).read_bytes())
        write(place / INDEX, text)
        lies.append((f"the index is {text[:80]!r}", str(place), [INDEX]))
    expect_refusals(learner, "weight_files", "ValueError", lies)


def refusals_of(root, inside, maps) -> list:
    """A folder for each weight_map, with the files of `inside`: (words, folder, what to name)."""
    lies = []
    for number, weight_map in enumerate(maps):
        folder = root / f"index{number}"
        folder.mkdir(exist_ok=True)
        for path in inside.iterdir():
            if path.is_file():
                write(folder / path.name, path.read_bytes())
        write_index(folder, weight_map)
        lies.append((f"weight_map is {str(weight_map)[:80]}", str(folder), [INDEX]))
    return lies


@case("2.5")
def checkpoint_of_shards(learner, rng):
    """The tensors of all shards together, file after file, bit for bit."""
    folder = new_folder(rng)
    files = sharded(rng, folder)
    expected = {name: t for file in sorted(files) for name, t in files[file].items()}
    expect_rows(drive(learner, "checkpoint", str(folder)), expected, "read_checkpoint")


@case("2.5")
def checkpoint_against_its_index(learner, rng):
    """Every tensor that is not where the index puts it, and every one that the index does not know,
    is named in one ValueError, with the file.
    """
    folder, files = new_folder(rng), three_shards(rng)
    moved, dropped = (min(files[shard(number)]) for number in (1, 2))
    move = {moved: shard(3)}, [moved, shard(3), shard(1)]
    add = {"ghost": shard(2)}, ["ghost", shard(2)]
    drop = {dropped: None}, [dropped, shard(2)]
    every = {**move[0], **add[0], **drop[0]}, [*move[1], *add[1], *drop[1]]
    lies = []
    for what, (changes, names) in (
        ("the index puts a tensor in another shard", move),
        ("the index has a tensor that no shard has", add),
        ("a shard has a tensor that the index does not know", drop),
        ("all three at once", every),
    ):
        place = folder / str(len(lies))
        place.mkdir(exist_ok=True)
        save_shards(place, files, changes)
        lies.append((what, str(place), [str(place), *names]))
    expect_refusals(learner, "read_checkpoint", "ValueError", lies)


@case("2.5")
def checkpoint_with_a_tensor_twice(learner, rng):
    """A tensor that two shards have is refused, by its name, whichever of them the index names."""
    for number in (1, 2):
        folder = new_folder(rng)
        tensors = {"a": randn(rng, 2), "b": randn(rng, 3)}
        write_tensors(folder / shard(1), {"twice": randn(rng, 2), "a": tensors["a"]})
        write_tensors(folder / shard(2), {"twice": randn(rng, 2), "b": tensors["b"]})
        write_index(folder, {"a": shard(1), "b": shard(2), "twice": shard(number)})
        names = ["twice", shard(3 - number)]
        lies = [(f"a tensor in two shards, the index names number {number}", str(folder), names)]
        expect_refusals(learner, "read_checkpoint", "ValueError", lies)


@case("2.5")
def checkpoint_with_a_damaged_shard(learner, rng):
    """A shard that was cut off is refused by its name."""
    folder = new_folder(rng)
    files = sharded(rng, folder)
    place = folder / "cut"
    place.mkdir(exist_ok=True)
    for name in [*files, INDEX]:
        data = (folder / name).read_bytes()
        write(place / name, data[:-1] if name == shard(2) else data)
    lies = [("the second shard lacks its last byte", str(place), [shard(2)])]
    expect_refusals(learner, "read_checkpoint", "ValueError", lies)


@case("2.5")
def checkpoint_copies_nothing(learner, rng):
    """Two shards of 40 MB are opened for next to nothing."""
    folder = new_folder(rng)
    index = {}
    for number in (1, 2):
        header = oracle.entries([(f"{number}", "F32", (10_000, 1000))])
        head = aligned_head(header)
        write_sparse(folder / shard(number, 2), head, len(head) + 40_000_000)
        index[f"{number}"] = shard(number, 2)
    write_index(folder, index)
    expect_cheap(drive(learner, "checkpoint_memory", str(folder)), "two shards of 40 MB")
