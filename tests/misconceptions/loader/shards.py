"""Wrong versions of 2.5 weight_files, read_checkpoint."""

from pathlib import Path

from course.misconceptions import misconception
from solutions.checkpoint import INDEX, SINGLE, _lines, _weight_map, weight_files
from solutions.config import json_file
from solutions.safetensors_file import read_safetensors


@misconception("2.5", "weight_files")
def first_missing_only(folder):
    """You stop at the first shard that is missing. With ten shards of 5 GB a person wants to know
    of all of them before the next download: collect them first.
    """
    folder = Path(folder)
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(f"{folder} has neither {SINGLE} nor {INDEX}")
    paths = [folder / name for name in sorted(set(_weight_map(folder / INDEX).values()))]
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing")
    return paths


@misconception("2.5", "weight_files")
def index_first(folder):
    """You look at the index first. Where there is one file of weights that is all, as in
    transformers: the index may be left over from before the shards were put together.
    """
    folder = Path(folder)
    if not (folder / INDEX).is_file():
        if not (folder / SINGLE).is_file():
            raise FileNotFoundError(f"{folder} has neither {SINGLE} nor {INDEX}")
        return [folder / SINGLE]
    names = sorted(set(_weight_map(folder / INDEX).values()))
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}")
    return [folder / name for name in names]


@misconception("2.5", "weight_files")
def every_file_in_the_folder(folder):
    """You take every .safetensors file in the folder. An adapter or an older version may lie beside
    the shards: the index says which files belong to the model.
    """
    folder = Path(folder)
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(f"{folder} has neither {SINGLE} nor {INDEX}")
    names = sorted(set(_weight_map(folder / INDEX).values()))
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}")
    return sorted(folder.glob("*.safetensors"))


@misconception("2.5", "_weight_map")
def names_believed(index):
    """You open whatever the index names. A name such as ../../other/model.safetensors leads out of
    the folder, and a pickle runs code: accept plain names of .safetensors files only.
    """
    files = json_file(index).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise ValueError(f"{index}: weight_map must be an object")
    if not all(isinstance(name, str) for name in files.values()):
        raise ValueError(f"{index}: weight_map must map names to names")
    return files


@misconception("2.5", "read_checkpoint")
def last_shard_wins(folder):
    """You put the shards into one dict without comparing them with the index: of two tensors of one
    name the last wins, and shards of two versions load without a word.
    """
    found = {}
    for path in weight_files(folder):
        found |= read_safetensors(path)
    return found


@misconception("2.5", "read_checkpoint")
def names_without_files(folder):
    """You compare the names in the index with those in all shards together. Compare pairs, name and
    file: a tensor can be there, twice even, and not where the index puts it.
    """
    found = {}
    for path in weight_files(folder):
        found |= read_safetensors(path)
    if not (Path(folder) / SINGLE).is_file():
        listed = _weight_map(Path(folder) / INDEX)
        wrong = [f"{name} in {listed.get(name)}" for name in listed.keys() ^ found.keys()]
        if wrong:
            raise ValueError(f"the index and the shards of {folder} differ:{_lines(wrong)}")
    return found


@misconception("2.5", "read_checkpoint")
def strangers_accepted(folder):
    """You look for each tensor where the index puts it, and accept what else a shard holds. A
    tensor that the index does not know is one that another version of the model left there.
    """
    files = {path.name: read_safetensors(path) for path in weight_files(folder)}
    held = {(name, file) for file, tensors in files.items() for name in tensors}
    listed = held if SINGLE in files else set(_weight_map(Path(folder) / INDEX).items())
    problems = [f"{name} is not in {file}" for name, file in listed - held]
    if problems:
        raise ValueError(f"the index and the shards of {folder} differ:{_lines(problems)}")
    return {name: tensor for tensors in files.values() for name, tensor in tensors.items()}
