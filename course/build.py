"""`python -m course notebooks`: build the notebooks, check them, or run the solved ones."""

import argparse
import difflib
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from course import manifest, notebooks
from course.paths import ROOT

CELL_SECONDS = 300  # nothing should need 20; a slow machine may
AT_ONCE = 2  # solved notebooks; each has a kernel with one thread, and a model in memory


def main(argv: list[str]) -> int:
    """The verb `notebooks`; the exit code."""
    args = _parser().parse_args(argv)
    chapters = [manifest.find_chapter(args.chapter)] if args.chapter else manifest.chapters()
    if args.execute:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return max(pool.map(execute, chapters))
    return max(map(check if args.check else build, chapters))


def build(chapter: manifest.Chapter) -> int:
    """Write notebooks/NN_slug.ipynb."""
    path = notebooks.committed(chapter)
    path.parent.mkdir(exist_ok=True)
    notebooks.write(notebooks.build_notebook(chapter), path)
    print(f"built {path.relative_to(ROOT).as_posix()}")
    return 0


def check(chapter: manifest.Chapter) -> int:
    """Compare the committed notebook with a rebuild; 1 when they differ."""
    path = notebooks.committed(chapter)
    old = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    new = notebooks.dump(notebooks.build_notebook(chapter))
    if old == new:
        print(f"{path.name} is what its sources make")
        return 0
    for line in list(
        difflib.unified_diff(old.split("\n"), new.split("\n"), "committed", "rebuilt", n=1)
    )[:40]:
        print(line)
    print(
        f"{path.name} differs from its sources: run `python -m course notebooks`", file=sys.stderr
    )
    return 1


def execute(chapter: manifest.Chapter) -> int:
    """Run all cells of the solved notebook, from clean, in an empty work folder; 1 on an error."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{chapter.name}.ipynb"
        notebooks.write(notebooks.build_notebook(chapter, solved=True), path)
        sheet = nbformat.read(path, as_version=4)
        one_thread = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}  # others run too
        environment = {
            **os.environ,
            "COURSE_WORK": folder,
            "PYTHONPATH": str(ROOT),
            "MPLBACKEND": "agg",
            **one_thread,
        }
        client = NotebookClient(
            sheet, timeout=CELL_SECONDS, resources={"metadata": {"path": folder}}
        )
        began = time.perf_counter()
        try:
            client.execute(env=environment)
        except CellExecutionError as error:
            print(error, file=sys.stderr)
            return 1
        failed = _failed_checks(sheet)
    print(f"{chapter.name}: {len(sheet.cells)} cells ran in {time.perf_counter() - began:.0f} s")
    for text in failed:
        print(text, file=sys.stderr)
    return 1 if failed else 0


def _failed_checks(sheet) -> list[str]:
    """What the cells that call check printed, where it was not a pass."""
    texts = []
    for cell in sheet.cells:
        checks = len(re.findall(r"^check\(", cell.source, re.MULTILINE))
        if cell.cell_type == "code" and checks:
            text = "".join(output.get("text", "") for output in cell.outputs)
            if text.count(": passed, ") != checks:
                texts.append(f"{cell.source}\n{text}")
    return texts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course notebooks", description="Build the notebooks from their sources."
    )
    parser.add_argument("chapter", nargs="?", help="only this one")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="say whether a rebuild would differ")
    what.add_argument("--execute", action="store_true", help="run the solved notebooks from clean")
    return parser
