"""3.6 save_quantized and load_quantized."""

import contextlib
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save

from tests.parts import part


def saved_elsewhere(m, place) -> None:
    """The bytes go to place(path) first, which then takes the name."""
    right = m.save_quantized

    def save_quantized(path, weights):
        first = place(Path(path))
        right(first, weights)
        first.replace(path)

    m.save_quantized = save_quantized


@part("3.6")
def another_suffix(m):
    """.partial takes the place of the suffix, so two files can want the same one."""
    saved_elsewhere(m, lambda path: path.with_suffix(".partial"))


@part("3.6")
def another_name(m):
    """.tmp is put behind the name, and a .partial of an earlier run stays for ever."""
    saved_elsewhere(m, lambda path: path.with_name(f"{path.name}.tmp"))


@part("3.6")
def copied_from_elsewhere(m):
    """The file is made in another folder and copied to its place, which can stop half way."""
    right = m.save_quantized

    def save_quantized(path, weights):
        with tempfile.TemporaryDirectory() as folder:
            right(Path(folder) / "made", weights)
            shutil.copy(Path(folder) / "made", path)

    m.save_quantized = save_quantized


@part("3.6")
def bytes_in_place(m):
    """The bytes of the whole file are made first and written to the path itself."""

    def save_file(tensors, partial, metadata):
        path = Path(partial).with_name(Path(partial).name.removesuffix(".partial"))
        path.write_bytes(save(tensors, metadata))
        Path(partial).write_bytes(path.read_bytes())

    m.save_file = save_file


@part("3.6")
def full_disks_kept_quiet(m):
    """When the disk is full, nothing is saved and nothing is said."""
    right = m.save_quantized

    def save_quantized(path, weights):
        with contextlib.suppress(Exception):
            right(path, weights)

    m.save_quantized = save_quantized


@part("3.6")
def tied_tensors_once(m):
    """A tensor under a second name is left out."""
    right = m.save_quantized

    def save_quantized(path, weights):
        seen, kept = set(), {}
        for name, weight in weights.items():
            key = (weight.data_ptr(), weight.shape) if isinstance(weight, torch.Tensor) else name
            if key not in seen:
                kept[name] = weight
            seen.add(key)
        right(path, kept)

    m.save_quantized = save_quantized


@part("3.6")
def only_stray_bytes_refused(m):
    """Of what belongs to no weight only uint8 and int8 are refused."""
    right = m._check_left_alone
    m._check_left_alone = lambda tensors: right(
        {n: t for n, t in tensors.items() if t.shape and getattr(t, "dtype", 0) != torch.int64}
    )


@part("3.6")
def left_alone_copied(m):
    """What was left alone is copied."""
    right = m.load_quantized

    def load_quantized(path):
        found = right(path)
        return {n: w.clone() if isinstance(w, torch.Tensor) else w for n, w in found.items()}

    m.load_quantized = load_quantized


@part("3.6")
def scales_copied(m):
    """The scales are copied."""
    right = m._assembled

    def assembled(*args):
        found = right(*args)
        object.__setattr__(found, "scale", found.scale.clone())
        return found

    m._assembled = assembled


@part("3.6")
def nothing_else_in_the_metadata(m):
    """A further key in the metadata is refused."""
    right = m.read_layout

    def read_layout(metadata):
        if metadata.keys() - {"format", "version", "tensors"}:
            raise ValueError("unknown metadata")
        return right(metadata)

    m.read_layout = read_layout
