"""The authors' verbs (dev, lint, reference, bench, integration, mutants) and clean: work that needs
no command line of its own, and that must not run inside an environment which it is about to change.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from course import bootstrap

CACHES = (".pytest_cache", ".ruff_cache", ".hypothesis", "*.egg-info", "__pycache__")


def dev(root: Path, argv: list[str]) -> int:
    """Install what authors need on top of the learner's packages (requirements-dev.txt)."""
    python = _author_python(root)
    print(f"Ready: {python}")
    return 0


def lint(root: Path, argv: list[str]) -> int:
    """Check rules and format with ruff; `--fix` rewrites what can be rewritten."""
    fix = "--fix" in argv
    ruff = [str(_author_python(root)), "-m", "ruff"]
    rules = subprocess.run([*ruff, "check", *(["--fix"] if fix else []), "."], cwd=root)
    form = subprocess.run([*ruff, "format", *([] if fix else ["--check"]), "."], cwd=root)
    return 1 if rules.returncode or form.returncode else 0


def reference(root: Path, argv: list[str]) -> int:
    """Remake the expected values: run each `tests/reference/make_*.py`, or only those named.

    They use the real model, so that is made first.
    """
    python = _author_python(root)
    scripts = sorted((root / "tests" / "reference").glob("make_*.py"))
    wanted = [s for s in scripts if not argv or s.stem.removeprefix("make_") in argv]
    if not wanted:
        names = ", ".join(s.stem.removeprefix("make_") for s in scripts) or "none"
        print(f"No reference of that name; there are: {names}.", file=sys.stderr)
        return 1
    commands = [["-m", "course", "model"], *([str(s.relative_to(root))] for s in wanted)]
    environment = os.environ | {"PYTHONPATH": str(root)}
    for command in commands:
        print(" ".join(command), flush=True)
        done = subprocess.run([str(python), *command], cwd=root, env=environment)
        if done.returncode:
            return done.returncode
    return 0


def bench(root: Path, argv: list[str]) -> int:
    """Run each `benchmarks/NAME.py`, or only those named, beside their peers."""
    scripts = sorted((root / "benchmarks").glob("*.py"))
    scripts = [script for script in scripts if script.stem not in ("__init__", "kit", "fake")]
    names = [script.stem for script in scripts]
    if unknown := [name for name in argv if name not in names]:
        print(f"bench: no {', '.join(unknown)}; there are: {', '.join(names)}.", file=sys.stderr)
        return 2
    python, environment = _author_python(root), os.environ | {"PYTHONPATH": str(root)}
    codes = [
        subprocess.run([str(python), str(script)], cwd=root, env=environment).returncode
        for script in scripts
        if not argv or script.stem in argv
    ]
    return next((code for code in codes if code), 0)


def integration(root: Path, argv: list[str]) -> int:
    """Run tests/real: the server beside real clients, a real Prometheus and a real browser.

    What of these the machine lacks is named by the test that needs it. Options go to pytest.
    """
    python = _author_python(root)
    commands = [["-m", "course", "model"], ["-m", "pytest", *(argv or ["tests/real"])]]
    for command in commands:
        code = subprocess.run([str(python), *command], cwd=root).returncode
        if code:
            return code
    return 0


def mutants(root: Path, argv: list[str]) -> int:
    """Change our answers in small ways, one at a time: the grading cases must find out.

    The expected values need the real model, so that is made first. Options: see course/mutants.py.
    """
    python = str(_author_python(root))
    wants_help = "-h" in argv or "--help" in argv
    commands = [] if wants_help else [["-m", "course", "model"]]
    for command in [*commands, ["-m", "course.mutants", *argv]]:
        code = subprocess.run([python, *command], cwd=root).returncode
        if code:
            return code
    return 0


def clean(root: Path, argv: list[str]) -> int:
    """Remove `.venv` and caches; `work/` and `models/` are never touched."""
    shutil.rmtree(root / ".venv", ignore_errors=True)
    for name in (".venv.lock", ".venv-install.log"):
        (root / name).unlink(missing_ok=True)
    for folder in (root, *(root / name for name in ("course", "solutions", "tests", "chapters"))):
        for pattern in CACHES:
            for cache in folder.glob(pattern if folder == root else f"**/{pattern}"):
                shutil.rmtree(cache, ignore_errors=True)
    if (root / ".venv").exists():
        print(f"{root / '.venv'} is in use: close what runs from it, then type this again.")
        return 1
    print("Removed .venv and caches. work/ and models/ are as they were.")
    return 0


def _author_python(root: Path) -> Path:
    """The Python with the authors' packages: the course's, or this one under COURSE_NO_VENV."""
    if os.environ.get("COURSE_NO_VENV"):
        return Path(sys.executable)
    return bootstrap.ensure(root, dev=True)


VERBS = {
    "dev": dev,
    "lint": lint,
    "reference": reference,
    "bench": bench,
    "integration": integration,
    "mutants": mutants,
    "clean": clean,
}
