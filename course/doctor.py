"""`python -m course doctor`: what this machine has, and for every problem the exact fix.

It installs and changes nothing, and runs before the packages are there.
"""

import argparse
import importlib
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from course import bootstrap, paths
from course.machine import GB, Finding, disk_speed, driver, memory, memory_speed

PACKAGES = ("torch", "numpy", "safetensors", "tokenizers", "jupyterlab")
MODEL_BYTES = 1 * GB  # the download, the GGUF file and the converted weights
FIRST_PORT, PORTS = 8888, 50  # where JupyterLab looks, upwards


def main(argv: list[str]) -> int:
    """Print the report; 1 if anything in it needs mending, else 0."""
    argparse.ArgumentParser(
        prog="python -m course doctor",
        description="What this machine has, and for every problem the exact fix. Changes nothing.",
    ).parse_args(argv)
    findings = list(examine())
    print(report(findings))
    return 1 if any(finding.fix for finding in findings) else 0


def examine() -> Iterator[Finding]:
    """Every finding, in the order of the report."""
    yield python()
    yield environment()
    pins = bootstrap.read_pins(paths.ROOT / "requirements.txt")
    yield from (package(name, pins[name]) for name in PACKAGES if name in pins)
    yield Finding("cores", f"{os.cpu_count()} ({platform.machine()}, {platform.system()})")
    yield memory()
    yield memory_speed()
    yield disk()
    yield disk_speed()
    yield driver()
    yield device()
    yield model(paths.MODEL)
    yield work_folder(paths.WORK)
    yield port()


def report(findings: list[Finding]) -> str:
    """The findings as text, then each different fix once, with what it mends."""
    lines = [f"{'PROBLEM' if f.fix else 'ok':8} {f.name:12} {f.value}" for f in findings]
    fixes: dict[str, list[str]] = {}
    for finding in findings:
        if finding.fix:
            fixes.setdefault(finding.fix, []).append(finding.name)
    if not fixes:
        return "\n".join([*lines, "", "All is well."])
    mend = [f"  {', '.join(names)}: {fix}" for fix, names in fixes.items()]
    return "\n".join([*lines, "", "To mend", *mend])


def python() -> Finding:
    """This Python; the entry has already turned away one that is too old."""
    return Finding("Python", f"{platform.python_version()} ({sys.executable})")


def environment() -> Finding:
    """Whether `.venv` was made whole and fits requirements.txt."""
    folder = paths.ROOT / ".venv"
    if os.environ.get("COURSE_NO_VENV"):
        return Finding("environment", f"{sys.prefix} (COURSE_NO_VENV is set)")
    if bootstrap.is_ready(paths.ROOT):
        return Finding("environment", str(folder))
    if bootstrap.marker_of(paths.ROOT) is not None:
        return Finding("environment", f"{folder} is older than requirements.txt", set_up())
    state = "is not whole" if folder.exists() else "is not there yet"
    return Finding("environment", f"{folder} {state}", set_up())


def set_up() -> str:
    """What to type to get the packages."""
    if os.environ.get("COURSE_NO_VENV"):
        return f"type `{sys.executable} -m pip install -r requirements.txt`"
    if bootstrap.inside(paths.ROOT) and bootstrap.is_ready(paths.ROOT):
        return "type `make clean`, then `make start` (or the same after `python -m course`)"
    return "type `make start` (or `python -m course start`)"


def package(name: str, pinned: str) -> Finding:
    """The installed version beside the pinned one; a local part such as `+cpu` is no difference."""
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, f"not installed (the course uses {pinned})", set_up())
    if found.partition("+")[0] != pinned:
        return Finding(name, f"{found}, but the course uses {pinned}", set_up())
    return Finding(name, found)


def disk() -> Finding:
    """Free room on the disk of the clone, against what is still to be fetched."""
    free = shutil.disk_usage(paths.ROOT).free
    needed = GB // 5
    if not (os.environ.get("COURSE_NO_VENV") or bootstrap.is_ready(paths.ROOT)):
        needed += bootstrap.BYTES_NEEDED
    value = f"{free / GB:.1f} GB free"
    if not paths.MODEL.exists():
        place = next(one for one in (paths.MODELS, *paths.MODELS.parents) if one.exists())
        if place.stat().st_dev == paths.ROOT.stat().st_dev:
            needed += MODEL_BYTES
        elif (there := shutil.disk_usage(place).free) < MODEL_BYTES:
            fix = f"free some space, or set COURSE_MODELS: {MODEL_BYTES / GB:.1f} GB needed"
            return Finding("disk", f"{value}, {there / GB:.1f} GB at {place}", fix)
    fix = f"free some space or move the clone: {needed / GB:.1f} GB needed"
    return Finding("disk", value, "" if free >= needed else fix)


def device() -> Finding:
    """Where tensors can live: a CUDA device, Apple's MPS, or the CPU, which is enough."""
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        return Finding("device", "unknown until torch is installed", set_up())
    except Exception as error:  # a broken binary raises OSError, ImportError, RuntimeError ...
        return Finding("device", f"torch does not load: {error}", set_up())
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        return Finding(
            "device", f"CUDA {torch.version.cuda}: {gpu.name}, {gpu.total_memory / GB:.0f} GB"
        )
    if torch.backends.mps.is_available():
        return Finding("device", "Apple MPS (the course runs on the CPU)")
    built = f" (this torch is for CUDA {torch.version.cuda})" if torch.version.cuda else ""
    return Finding("device", f"CPU, {torch.get_num_threads()} threads{built}")


def model(folder: Path) -> Finding:
    """Whether the bundled model is in place and whole."""
    try:
        from course.model import is_complete

        reason = is_complete(folder)
    except ImportError as error:
        return Finding("model", f"cannot be examined without {error.name}", set_up())
    if reason is None:
        return Finding("model", str(folder))
    return Finding("model", reason, "type `make model` (or `python -m course model`)")


def work_folder(folder: Path) -> Finding:
    """Whether the learner's files can be written, tried with a file that vanishes again."""
    place = next(p for p in (folder, *folder.parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        fix = "make it yours to write, or set COURSE_WORK to a folder that is"
        return Finding("work folder", f"{folder}: {error.strerror}", fix)
    return Finding("work folder", str(folder) + ("" if place == folder else " (made when needed)"))


def port() -> Finding:
    """The first port that JupyterLab would find free on this machine."""
    for number in range(FIRST_PORT, FIRST_PORT + PORTS):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", number))
            except OSError:
                continue
            return Finding("port", f"{number} is free for JupyterLab")
    return Finding(
        "port",
        f"none free from {FIRST_PORT} to {FIRST_PORT + PORTS - 1}",
        'close other servers, or type `make start JUPYTER_ARGS="--port 9999"`',
    )
