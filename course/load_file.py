"""The benchmark file that a run writes: settings, machine, and every figure of every repetition.

Two of them, from before and after a change, are what an upgrade is judged by; that is why the
values of each repetition are kept and not their mean: how far they lie apart is the noise.
"""

import datetime
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import psutil

from course import place
from course.load_figures import FIGURES, figures
from course.load_report import Round

SCHEMA = "course.bench/1"
PACKAGES = ("torch", "numpy", "fastapi", "uvicorn", "httpx")


def document(
    rounds: Sequence[Round],
    settings: Mapping,
    model: str,
    server: str,
    made: str,
    here: Mapping,
    packages: Mapping,
) -> dict:
    """What the file holds.

    Figures are named as in FIGURES; where there were several rates, with the rate behind an @, as
    in first_token_p95@0.5. A figure that some repetition could not measure is left out.

    Args:
        made: when, in UTC, as in 2026-11-30T12:00:00Z.
        here: what `machine` says: where the generator ran, and the server too if that is local.
        packages: what `packages` says. Not a part of the machine: they are what an upgrade changes,
            and files are compared only if the machine is the same.
    """
    rates = list(dict.fromkeys(made_.rate for made_ in rounds))
    found = {}
    for rate in rates:
        runs = [figures(made_.outcomes) for made_ in rounds if made_.rate == rate]
        for name, (unit, better) in FIGURES.items():
            values = [run[name] for run in runs]
            if None not in values:
                label = name if len(rates) == 1 else f"{name}@{rate:g}"
                found[label] = {"unit": unit, "better": better, "values": values}
    return {
        "schema": SCHEMA,
        "made": made,
        "machine": dict(here),
        "packages": dict(packages),
        "model": model,
        "server": server,
        "settings": dict(settings),
        "figures": found,
    }


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def machine() -> dict:
    """Where the generator runs. Memory is rounded: a kernel keeps a little more or less of it."""
    return {
        "processor": _processor(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
    }


def packages() -> dict[str, str]:
    """The versions here of Python and of what matters to a server."""
    found = {name: metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version()} | found


def _processor() -> str:
    """Its name, which only Linux tells in a file."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or "unknown"


def free_place(path: Path) -> None:
    """Say before the run that a file cannot be written after it. Errors: ValueError."""
    if os.path.exists(path):  # unlike Path's, false where one may not look
        raise ValueError(f"{path} is there already: move it, or name another file")
    place.check(path)


def write(path: Path, found: dict) -> None:
    """The figures as a file. Errors: ValueError, as `place.put`."""
    text = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    place.put(path, text.encode())
