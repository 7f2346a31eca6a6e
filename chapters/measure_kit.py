"""What the chapters' measure.py do: run a notebook's experiments, put the results into the README.

The cells are those of notebook.py; the layers are those in solutions/. So a reader's notebook
and the README come from the same lines.
"""

import argparse
import io
import os
import platform
import re
import sys
import types
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import date
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import psutil
import torch
from figure_kit import replace
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
SKIP = ("# include:", "from course.notebook", "check(", "progress(")


def main(number: int, more: Callable[[], dict[str, str]] = dict) -> None:
    """Run every experiment of a chapter in order, print the results, write them when asked to.

    Args:
        number: the chapter's.
        more: gives further results by name, those that no cell of the notebook prints.
    """
    parser = argparse.ArgumentParser(description=f"Run the experiments of chapter {number:02d}.")
    parser.add_argument("--write", action="store_true", help="replace figures and README blocks")
    write = parser.parse_args().write
    sys.path.insert(0, str(ROOT))
    from course.manifest import find_chapter

    chapter = find_chapter(number)
    plt.rcParams.update({"svg.hashsalt": f"{number:02d}", "svg.fonttype": "path"})
    figures = chapter.folder / "figures" if write else None
    results = {"the machine": machine()} | run(chapter, figures) | more()
    for name, printed in results.items():
        print(f"--- {name}\n{printed}")
    if write:
        readme = chapter.folder / "README.md"
        replace(readme, filled(readme.read_text(encoding="utf-8"), results))


def machine() -> str:
    """Processor, cores, memory and versions: a number without them means little."""
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}\n"
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, "
        f"{date.today():%B %Y}\n"
    )


def _processor() -> str:
    """The processor's name: Linux keeps it in a file, others tell `platform`."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cells(path: Path) -> list[str]:
    """The code cells of a percent-format file that need no course tool to run."""
    parts = re.split(r"^# %%(.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    code = [body for title, body in pairs if "[markdown]" not in title]
    return [body for body in code if not body.startswith(SKIP)]


def engine(chapter) -> types.ModuleType:
    """All of the chapter's modules in one namespace, as in a notebook."""
    from course.notebooks import reference_source

    module = types.ModuleType(f"chapter_{chapter.number:02d}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(reference_source(chapter), module.__dict__)
    return module


def run(chapter, figures: Path | None) -> dict[str, str]:
    """Execute the cells; what each "# Experiment: name" printed, by name.

    Args:
        figures: the folder that the plots are saved in; None keeps none.
    """
    namespace, printed = engine(chapter).__dict__, {}
    sources = cells(chapter.folder / "notebook.py")
    for source in tqdm(sources, unit="cell", disable=None):
        title = re.match(r"# Experiment: (.*)", source)
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(source, title[1] if title else "cell", "exec"), namespace)
        if title:
            printed[title[1]] = out.getvalue()
        _keep_figures(figures)
    return printed


def _keep_figures(folder: Path | None) -> None:
    """Save every open figure under the name it was given, and close it."""
    for number in plt.get_fignums():
        figure = plt.figure(number)
        if folder:
            path = folder / f"{figure.get_label()}.svg"
            partial = path.with_name(path.name + ".partial")
            figure.savefig(partial, format="svg", metadata={"Date": None}, bbox_inches="tight")
            partial.replace(path)
        plt.close(figure)


def filled(text: str, results: dict[str, str]) -> str:
    """The README with each `<!-- measured: name -->` followed by what that experiment printed."""

    def block(found: re.Match) -> str:
        if found[1] not in results:
            raise SystemExit(f"README.md asks for {found[1]!r}, which no experiment is called")
        return f"<!-- measured: {found[1]} -->\n```text\n{results[found[1]]}```\n"

    return re.sub(r"<!-- measured: (.*?) -->\n(?:```text\n.*?```\n)?", block, text, flags=re.DOTALL)
