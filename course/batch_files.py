"""The files that `python -m course batch` opens: where requests come from and results go."""

import argparse
import contextlib
import errno
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from course import place
from course.lock import exclusive

STANDARD = "-"  # the name of standard input or output


def file_argument(text: str) -> str:
    """The type of an argument that names a file, or a dash."""
    try:
        if text.strip():
            return text if text == STANDARD else str(Path(text).expanduser())
    except RuntimeError as problem:
        raise argparse.ArgumentTypeError(f"{text!r} names no file: {problem}") from None
    raise argparse.ArgumentTypeError("the name of the file is empty")


def input_argument(text: str) -> str:
    """The same of the requests, which make leaves empty where nobody gave FILE."""
    if not text.strip():
        raise argparse.ArgumentTypeError(
            "the name of the file is empty: write its path (make batch FILE=in.jsonl)"
        )
    return file_argument(text)


def output_path(file: str, out: str | None) -> Path | None:
    """Where results go: beside FILE unless told otherwise; None is standard output."""
    if (out or file) == STANDARD:
        return None
    return Path(out) if out else Path(file).parent / f"{Path(file).stem}.results.jsonl"


@contextlib.contextmanager
def open_input(file: str, out: Path | None) -> Iterator[IO[bytes]]:
    """The requests, as something that can be read twice."""
    if file != STANDARD:
        path = Path(file)
        if not path.exists():
            raise ValueError(f"there is no file {file}")
        if out is not None and out.exists() and out.samefile(path):
            raise ValueError(f"{out} holds the requests: name another --out")
        with path.open("rb") as handle:
            yield handle
        return
    if sys.stdin is None:  # closed, `<&-`
        raise ValueError("standard input is closed: name a file")
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        yield copy


def check_output(out: Path | None) -> None:
    """Say before the work that results cannot be written. Errors: ValueError."""
    if out is None:
        return
    if not os.path.exists(out) or out.is_dir():
        place.check(out)
        return
    try:
        out.open("ab").close()
    except OSError as problem:
        reason = problem.strerror or problem
        raise ValueError(f"{out} cannot be written ({reason}): name another --out") from None


@contextlib.contextmanager
def open_output(out: Path | None) -> Iterator[Callable[[bytes], None]]:
    """A function that writes one line, whole, and at once."""
    if out is None:

        def write(line: bytes) -> None:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

        yield write
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("ab", buffering=0) as handle:
        # unbuffered: a line is one call of the system, which Ctrl-C comes before or after

        def write(line: bytes) -> None:
            if handle.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out))

        yield write


@contextlib.contextmanager
def alone(out: Path | None) -> Iterator[None]:
    """No other run writes this file meanwhile."""
    if out is None:
        yield
        return
    name = hashlib.sha256(os.fsencode(out.resolve())).hexdigest()[:16]  # any name, UTF-8 or not
    lock = Path(tempfile.gettempdir()) / f"course-batch-{name}.lock"
    with exclusive(lock, f"Another run writes {out}; waiting for it.", keep=False):
        yield


def how_to_go_on(file: str, out: Path | None) -> str:
    """What to type after a run that did not do all."""
    if out is None:
        return "Name a file with --out, and the next run goes on where one ended."
    again = "Send the same lines again" if file == STANDARD else "Type the same again"
    return f"{again} to run the rest; what is done is in {out}."
