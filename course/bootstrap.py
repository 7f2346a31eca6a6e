"""The virtual environment: made once, found again in milliseconds, never half-made.

The standard library only, because this runs before any package is installed. `.venv/.course-ready`
is written last and says what was installed; a `.venv` without it is not trusted and is made anew.
Pip's own settings (its environment variables and pip.conf) are honoured.
"""

import contextlib
import hashlib
import json
import os
import sys
from pathlib import Path

from course.lock import exclusive
from course.paths import ROOT

BYTES_NEEDED = 3 * 10**9  # torch, JupyterLab and pip's room to unpack them
RESTARTED = "COURSE_RESTARTED"
NO_PACKAGES_NEEDED = {"doctor", "help", "-h", "--help"}
PROBE = (
    "import sys, ipykernel, jupyterlab, matplotlib, numpy, pytest, safetensors, tokenizers, torch;"
    "print('%d.%d' % sys.version_info[:2])"
)


class SetupError(Exception):
    """What went wrong with the environment and what to type next, in one sentence."""


def main(argv: list[str]) -> int:
    """Run one verb in the course's environment, which is made first if need be; the exit code."""
    try:
        return _dispatch(argv)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Nothing half-made will be used.", file=sys.stderr)
        return 130


def _dispatch(argv: list[str]) -> int:
    from course import chores

    verb = argv[0] if argv else "help"
    if verb in chores.VERBS:
        return chores.VERBS[verb](ROOT, argv[1:])
    if os.environ.get("COURSE_NO_VENV"):
        if verb not in NO_PACKAGES_NEEDED:
            _require_packages()
        return _run_here(argv)
    if inside(ROOT):
        os.environ.pop(RESTARTED, None)
        if is_ready(ROOT):
            return _run_here(argv)
    if verb in NO_PACKAGES_NEEDED and not is_ready(ROOT):
        return _run_here(argv)
    return _restart(ensure(ROOT), argv)


def _run_here(argv: list[str]) -> int:
    from course import cli

    return cli.main(argv)


def _restart(python: Path, argv: list[str]) -> int:
    """Run the same verb with the environment's Python, in this process's place if possible."""
    if os.environ.get(RESTARTED):
        raise SetupError(
            f"{python} does not run inside {ROOT / '.venv'}: type `make clean`, or delete .venv, "
            "then run the same command again."
        )
    environment = os.environ | {RESTARTED: "1"}
    command = [str(python), "-m", "course", *argv]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(python, command, environment)
    import subprocess

    with subprocess.Popen(command, env=environment) as process:
        while True:  # Ctrl-C reaches the child too, and is the child's to answer
            with contextlib.suppress(KeyboardInterrupt):
                return process.wait()


# --- is the environment ready? ------------------------------------------------------------------


def python_of(root: Path) -> Path:
    """The environment's Python, whether or not it exists."""
    return root / ".venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def inside(root: Path) -> bool:
    """Whether this very process runs in the environment of `root`."""
    return Path(sys.prefix).resolve() == (root / ".venv").resolve()


def digest(path: Path) -> str:
    """SHA-256 of a text file, the same whatever line endings git gave it."""
    return hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()


def marker_of(root: Path) -> dict | None:
    """What a finished installation wrote about itself, or None where nothing can be trusted.

    Nothing can be trusted without the marker, without the Python that the environment was made
    from (an upgrade of the system removes it), or when that Python has become another version.
    """
    try:
        marker = json.loads((root / ".venv" / ".course-ready").read_text(encoding="utf-8"))
        text = (root / ".venv" / "pyvenv.cfg").read_text(encoding="utf-8")
        version = marker["python"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    settings = dict(line.partition(" = ")[::2] for line in text.splitlines())
    home = settings.get("home")
    if not (home and Path(home).exists() and python_of(root).exists()):
        return None
    if inside(root) and version != "{}.{}".format(*sys.version_info):
        return None
    return marker


def is_ready(root: Path, dev: bool = False) -> bool:
    """Whether the environment has what the requirements files say today (a few milliseconds)."""
    marker = marker_of(root)
    return marker is not None and all(
        marker.get(name) == digest(root / name) for name in requirement_files(dev)
    )


def requirement_files(dev: bool) -> list[str]:
    """The files that must have been installed; the authors' file is on top of the learner's."""
    return ["requirements.txt", "requirements-dev.txt"] if dev else ["requirements.txt"]


def read_pins(path: Path) -> dict[str, str]:
    """Package name to pinned version, from the lines `name==version` of a requirements file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.strip().split("==", 1) for line in lines if "==" in line)


def _require_packages() -> None:
    from importlib.metadata import PackageNotFoundError, version

    for name in read_pins(ROOT / "requirements.txt"):
        try:
            version(name)
        except PackageNotFoundError:
            raise SetupError(
                f"COURSE_NO_VENV is set but {name} is not installed here: type "
                f"`{sys.executable} -m pip install -r requirements.txt`, or unset COURSE_NO_VENV."
            ) from None


# --- making it ----------------------------------------------------------------------------------


def ensure(root: Path, dev: bool = False) -> Path:
    """Make or update the environment unless it is ready; returns its Python.

    A lock lets two first runs at once end well: the second waits and finds the work done.

    Raises:
        SetupError: no room, no network, no venv module, a folder that cannot be written.
    """
    if is_ready(root, dev):
        return python_of(root)
    try:
        with exclusive(root / ".venv.lock", "Another run is setting up .venv; waiting for it."):
            if not is_ready(root, dev):
                _make(root, dev)
    except OSError as error:
        raise SetupError(
            f"The environment cannot be written ({error}): free some space, or move the clone "
            "to a folder of your own, then run the same command again."
        ) from None
    return python_of(root)


def _make(root: Path, dev: bool) -> None:
    from course import install

    ready = root / ".venv" / ".course-ready"
    old = marker_of(root)
    if old is None:
        install.create(root, BYTES_NEEDED)
    ready.unlink(missing_ok=True)  # from here to the end, nothing is to be trusted
    try:
        install.packages(root, python_of(root), requirement_files(dev)[-1])
    except SetupError:
        if old and not install.began(root):  # no network, say: what was whole still is
            _write_marker(ready, old)
        raise
    install.make_importable(root)
    version = install.probe(python_of(root), PROBE)
    made = {name: digest(root / name) for name in requirement_files(dev)}
    _write_marker(ready, (old or {}) | made | {"python": version})


def _write_marker(path: Path, marker: dict) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)
