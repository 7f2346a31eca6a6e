"""`python -m course start 4`: a learner's own copy of a chapter, opened in JupyterLab."""

import argparse
import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path

from course import manifest, notebooks
from course.model import ModelError, ensure_model
from course.paths import ROOT, WORK
from course.progress import Progress
from course.submission import shown


def main(argv: list[str]) -> int:
    """The verb `start`; the exit code."""
    args = _parser().parse_args(argv)
    chapter = manifest.find_chapter(args.chapter) if args.chapter else _next_chapter()
    try:
        ensure_model()
    except ModelError as problem:
        print(f"start: {problem}", file=sys.stderr)
        return 1
    path = take_copy(chapter, script=args.script)
    if args.script:
        print(f"Open {shown(path)} in your editor; judge it with `python -m course check`.")
        print(f"Run it cell by cell in an editor that knows `# %%`, with {shown_python()} as its")
        print(f"Python. Once all is written, run all of it: {shown_python()} {shown(path)}")
        return 0
    return _lab(path, args.jupyter_args)


def take_copy(chapter: manifest.Chapter, script: bool = False, folder: Path = WORK) -> Path:
    """Copy a chapter's notebook to work/, unless the learner has one; never overwrites.

    Returns the learner's file, whichever kind it is.
    """
    for suffix in (".ipynb", ".py"):
        mine = folder / f"{chapter.name}{suffix}"
        if mine.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(mine))
        if mine.exists():
            print(f"Going on with {shown(mine)}")
            if script and suffix == ".ipynb":
                print("A chapter has one file: to work in a .py, move the notebook away first.")
            return mine
    text = notebooks.committed(chapter).read_text(encoding="utf-8")
    if script:
        text = notebooks.as_script(notebooks.load(text))
    path = folder / f"{chapter.name}{'.py' if script else '.ipynb'}"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = path.open("x", encoding="utf-8", newline="\n")  # x: never over an existing file
    except FileExistsError:
        print(f"Going on with {shown(path)}")
        return path
    try:
        with file:
            file.write(text)
    except BaseException:
        path.unlink(missing_ok=True)  # half of a notebook, and ours
        raise
    print(f"Your copy: {shown(path)}")
    return path


def shown_python() -> str:
    """The Python to run a learner's file with, as a person would type it."""
    python = Path(sys.executable)
    return python.relative_to(ROOT).as_posix() if python.is_relative_to(ROOT) else str(python)


def _next_chapter() -> manifest.Chapter:
    """The first chapter that has an exercise which has not passed."""
    progress = Progress()
    for chapter in manifest.chapters():
        if any(progress.get(e.id).get("status") != "passed" for e in chapter.exercises):
            return chapter
    return manifest.chapters()[-1]


def _lab(path: Path, arguments: list[str]) -> int:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments = ["--allow-root", *arguments]
    root = ROOT if path.is_relative_to(ROOT) else path.parent  # what its file browser shows
    command = [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.root_dir={root}",
        f"--LabApp.default_url=/lab/tree/{path.relative_to(root).as_posix()}",
        "--ServerApp.log_level=WARN",  # the address is still printed
        "--LanguageServerManager.autodetect=False",
        *arguments,
    ]
    try:
        return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode
    except KeyboardInterrupt:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course start", description="Open your copy of a chapter in JupyterLab."
    )
    parser.add_argument("chapter", nargs="?", help="its number; default: the first unfinished one")
    parser.add_argument("--jupyter-args", type=_words, default="", help="passed on to JupyterLab")
    parser.add_argument(
        "--script", action="store_true", help="make a .py file for an editor instead"
    )
    return parser


def _words(text: str) -> list[str]:
    """The arguments in one string, as a shell would split them."""
    try:
        return shlex.split(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be split: {problem}") from None
