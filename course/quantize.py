"""`python -m course quantize --bits 4 --group-size 32`: a checkpoint folder in fewer bits.

The folder that it makes has everything that the engine needs: config, tokenizer, the quantized
weights and a manifest. The full-size model is never in memory: each tensor is mapped, quantized and
unmapped before the next one.
"""

import argparse
import contextlib
import ctypes
import errno
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from safetensors import SafetensorError
from torch import Tensor
from tqdm import tqdm

from course import paths
from course.assemble import QUANTIZED
from course.lock import exclusive
from course.model import ModelError, ensure_model
from course.model_files import (
    is_complete,
    read_manifest,
    require_room,
    resolved,
    whole_or_nothing,
    write_manifest,
)
from course.model_local import copy_texts
from solutions.integrity import sha256_file
from solutions.loader import read_config, read_safetensors, stored_tensors, weight_files
from solutions.quantize import GROUP_BITS
from solutions.quantized import Format
from solutions.quantizer import is_quantizable, quantize_weights, save_quantized
from solutions.safetensors_file import read_header

DEFAULT = Format(4, 32)


class OneByOne(Mapping):
    """The tensors of a checkpoint, each mapped anew when it is asked for.

    A map of the whole file keeps every page that was ever touched. One map a tensor goes when the
    tensor goes, and its pages with it, so the resident memory stays as small as the counted one.
    """

    def __init__(self, folder: Path):
        tensors = stored_tensors(folder, read_config(folder))  # checks all of them
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        self.file_of = {
            entry.name: path for path in weight_files(folder) for entry in read_header(path).entries
        }

    def __getitem__(self, name: str) -> Tensor:
        tensor = read_safetensors(self.file_of[name])[name]
        return tensor.clone() if tensor.ndim < 2 else tensor  # a norm is smaller than its map

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def main(argv: list[str]) -> int:
    """The verb; the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        format = _format(args)
    except ValueError as problem:
        parser.error(str(problem))
    try:
        if args.report:
            from course import quality_report

            return quality_report.run(args.model or ensure_model())
        folder = ensure_quantized(args.model, format, args.out)
    except (ModelError, ValueError, FileNotFoundError) as problem:
        print(f"quantize: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nquantize: interrupted; nothing half-made was kept.", file=sys.stderr)
        return 130
    shown = f'"{folder}"' if " " in str(folder) else folder
    print(f"{folder} is in place. Try: python -m course generate --quantized {shown} Hi")
    return 0


def ensure_quantized(
    source: Path | None = None, format: Format = DEFAULT, out: Path | None = None
) -> Path:
    """The folder with this model in this format, made first if it is not there and whole.

    Errors: ModelError; ValueError and FileNotFoundError for a source that is no checkpoint.
    """
    source = resolved(source or ensure_model())
    folder = resolved(out or paths.MODELS / f"{source.name}-{_suffix(format)}")
    if folder == source:
        raise ModelError(f"{folder} is the model itself: give --out another folder")
    if (source / QUANTIZED).is_file():
        raise ModelError(f"{source} is quantized already: name the folder that it was made from")
    about = _about(source, format)
    try:
        with exclusive(paths.MODELS / ".lock", "Another run is at the models; waiting for it."):
            if not _is_made(folder, about):
                _make(source, folder, format, about)
    except OSError as problem:
        if problem.errno == errno.ENOSPC:
            raise ModelError("the disk is full; free some room, then run it again.") from None
        raise
    except SafetensorError as problem:  # the package has no OSError of its own
        raise ModelError(f"{folder} cannot be written: {problem}") from None
    return folder


def _suffix(format: Format) -> str:
    """The end of the folder's name: q4-g32, or int8-rows."""
    return "int8-rows" if format.group_size is None else f"q{format.bits}-g{format.group_size}"


def _about(source: Path, format: Format) -> dict:
    """Where the folder comes from, for its manifest: with the weights' hashes where known."""
    try:
        manifest = read_manifest(source)
    except ValueError:  # put there by hand
        manifest = {"licence": "not checked: a local copy", "files": {}}
    weights = {n: e["sha256"] for n, e in manifest["files"].items() if n.endswith(".safetensors")}
    return {
        "source": f"{source}, quantized to {format}",
        "source_weights": weights,
        "licence": manifest["licence"],
    }


def _is_made(folder: Path, about: dict) -> bool:
    """Whether the folder is whole and was made from these weights; another's is refused."""
    if is_complete(folder) is not None:
        return False
    manifest = read_manifest(folder)
    if manifest["source"] != about["source"]:
        raise ModelError(
            f"{folder} already holds another model ({manifest['source']}); "
            "give --out another folder, or delete this one."
        )
    return (
        bool(about["source_weights"]) and manifest.get("source_weights") == about["source_weights"]
    )


def _make(source: Path, folder: Path, format: Format, about: dict) -> None:
    """Quantize into a partial folder, which takes its name when everything is in it."""
    stored = OneByOne(source)
    _refuse_long_groups(stored, format)
    size = sum(path.stat().st_size for path in weight_files(source))
    folder.parent.mkdir(parents=True, exist_ok=True)
    require_room(folder.parent, size)
    before = psutil.Process().memory_info().rss
    with large_blocks_given_back(), whole_or_nothing(folder) as partial:
        peak = _write(stored, format, partial / QUANTIZED)
        hashes = copy_texts(source, partial) | {QUANTIZED: sha256_file(partial / QUANTIZED)}
        write_manifest(partial, about, hashes)
    made = (folder / QUANTIZED).stat().st_size
    print(
        f"{format}: {size / 1e6:.0f} MB became {made / 1e6:.0f} MB; "
        f"resident memory, looked at after each tensor, rose by {(peak - before) / 1e6:.0f} MB",
        file=sys.stderr,  # `generate --quantized` prints text on stdout
    )


def _refuse_long_groups(stored: OneByOne, format: Format) -> None:
    """A group longer than every row is filled up with copies: with gigabytes, if it is long."""
    rows = [shape[1] for name, shape in stored.shapes.items() if is_quantizable(name, shape)]
    if format.group_size and format.group_size > max(rows, default=format.group_size):
        raise ModelError(
            f"--group-size {format.group_size} is longer than any row; the longest has {max(rows)}"
        )


@contextlib.contextmanager
def large_blocks_given_back() -> Iterator[None]:
    """Inside, every block of 128 kB or more returns to the system as soon as it is freed.

    glibc learns to keep blocks of up to 32 MB for later. The small results of quantizing then come
    to lie between the large blocks of its arithmetic, the gaps fit nothing any more, and the
    process holds two to four times the bytes that are alive.

    Afterwards it keeps them again: decoding asks for blocks of the same sizes with every token, and
    fresh ones from the system cost as much time as the arithmetic. Does nothing with another C
    library.
    """
    _keep_blocks_below(128 << 10)
    try:
        yield
    finally:
        _keep_blocks_below(32 << 20)


def _keep_blocks_below(size: int) -> None:
    """Tell glibc which freed blocks to keep, and how much of them at the end of its memory."""
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, mallopt(3)
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(trim_threshold, 2 * size)  # twice, as glibc itself has it
        mallopt(mmap_threshold, size)


def _write(stored: Mapping[str, Tensor], format: Format, path: Path) -> int:
    """Quantize and save; the highest resident memory seen after a tensor, in bytes."""
    process, peak = psutil.Process(), 0
    with tqdm(total=len(stored), desc="quantizing", unit="tensor", disable=None) as bar:

        def progress(done: int, total: int) -> None:
            nonlocal peak
            peak = max(peak, process.memory_info().rss)
            bar.update(done - bar.n)

        weights = quantize_weights(stored, format, progress=progress)
    save_quantized(path, weights)
    return max(peak, process.memory_info().rss)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course quantize", description="Put a model into fewer bits."
    )
    parser.add_argument("--bits", type=int, default=None, choices=GROUP_BITS, help="default: 4")
    parser.add_argument(
        "--group-size", type=int, metavar="N", help="numbers that share a scale (default: 32)"
    )
    parser.add_argument(
        "--rows", action="store_true", help="symmetric int8 with one scale a row, no groups"
    )
    parser.add_argument(
        "--model", type=paths.folder_argument, metavar="DIR", help="another checkpoint folder"
    )
    parser.add_argument(
        "--out", type=paths.folder_argument, metavar="DIR", help="default: beside the model"
    )
    parser.add_argument(
        "--report", action="store_true", help="make nothing; measure what each format costs"
    )
    return parser


def _format(args: argparse.Namespace) -> Format:
    """The format that the arguments ask for. ValueError when they contradict each other."""
    if not args.rows:
        size = 32 if args.group_size is None else args.group_size
        return Format(args.bits or 4, size)
    if args.bits not in (None, 8) or args.group_size is not None:
        raise ValueError("--rows is int8 without groups: leave --bits and --group-size out")
    return Format(8)
