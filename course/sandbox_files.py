"""What a worker in the sandbox can see: Python, its packages, and of the course what it imports.

No cases, oracles, other people's work, git history, and no solution of the chapter being judged or
of a later one.
"""

import ast
import os
import sys
from functools import cache
from pathlib import Path

from course import manifest
from course.manifest import Chapter
from course.paths import ROOT

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/localtime")


@cache
def visible(chapter: Chapter) -> tuple[str, ...]:
    """Files and folders to be shown read-only in the place where they are."""
    return tuple(dict.fromkeys([*python(), *map(str, course_files(chapter))]))


def course_files(chapter: Chapter) -> list[Path]:
    """The worker, the chapter's scenarios, what they import, and the solutions before the chapter.

    Errors: ValueError when a scenario imports a solution that must stay hidden.
    """
    hidden = _hidden_solutions(chapter)
    needed = _imported(["course.worker", chapter.scenarios])
    if shown := sorted(path.stem for path in needed & hidden):
        raise ValueError(f"{chapter.scenarios} imports solutions.{', '.join(shown)}: it may not")
    files = (needed | set((ROOT / "solutions").glob("*.py"))) - hidden
    texts = [path.read_text(encoding="utf-8") for path in files if "tests" in path.parts]
    stored = (p for p in (ROOT / "tests" / "reference").iterdir() if p.suffix != ".py")
    return sorted(files | {p for p in stored if any(f'"{p.name}"' in text for text in texts)})


def _hidden_solutions(chapter: Chapter) -> set[Path]:
    later = [c for c in manifest.chapters() if c.number >= chapter.number]
    return {ROOT / "solutions" / f"{module}.py" for c in later for module in c.modules}


def python() -> list[str]:
    """The system's libraries, and this Python with its packages, wherever they lie."""
    places = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(sys.executable)}
    chosen = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # may be anything of the user's
    packages = [path for path in sys.path if path and path not in chosen]
    places |= {path for path in packages if not Path(path).is_relative_to(ROOT)}
    places |= {os.path.realpath(place) for place in places}
    found = [place for place in sorted(places) if os.path.exists(place)]
    outer = [p for p in found if not any(p != o and Path(p).is_relative_to(o) for o in found)]
    return [*(p for p in SYSTEM if os.path.exists(p)), *(p for p in outer if p != "/")]


def _imported(names: list[str]) -> set[Path]:
    """The files of the repository that these modules import at their top, and those of these."""
    files: set[Path] = set()
    waiting = list(names)
    while waiting:
        path = _file_of(waiting.pop())
        if path is None or path in files:
            continue
        files.add(path)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        for parent in path.parents:
            if parent == ROOT:
                break
            if (parent / "__init__.py").is_file():
                files.add(parent / "__init__.py")
    return files


def _file_of(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None
