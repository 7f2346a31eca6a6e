"""What the benchmarks share: children that measure, turns, and a result that names its machine.

A benchmark is benchmarks/NAME.py with a `main()`. Its contenders run in processes of their own,
because memory once taken is not given back and a second import costs nothing; and in turns, because
a machine that gets warm or busy would otherwise slow the last one only.
"""

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"  # of this machine; not committed


def child(script: str, *args: str) -> dict:
    """Run `python script ARGS` and take the last line that it prints, which is a JSON object.

    Errors: SystemExit, with what it wrote on stderr, when it fails.
    """
    root = FOLDER.parent
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, script, *args],
        cwd=root,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode:
        raise SystemExit(f"{Path(script).name} {' '.join(args)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def in_turns(contenders: Sequence[str], measure: Callable[[str], dict], rounds: int) -> dict:
    """{contender: [what measure gave, one a round]}; a first round of each warms up, uncounted."""
    found: dict[str, list] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name in contenders if turn % 2 else reversed(contenders):
            result = measure(name)
            if turn:
                found[name].append(result)
            _say(f"round {turn} of {rounds}: {name}")
    return found


def median(results: Sequence[dict], key: str) -> float:
    """The middle of one figure over all rounds."""
    return statistics.median(result[key] for result in results)


def spread(results: Sequence[dict], key: str) -> float:
    """How far the rounds lie apart, as a part of their median."""
    values = [result[key] for result in results]
    return (max(values) - min(values)) / statistics.median(values)


def peak_bytes() -> int:
    """The most memory that this process has had resident so far, mapped files included."""
    status = Path("/proc/self/status")
    if status.is_file():  # Linux; its getrusage also remembers the process that started this one
        lines = status.read_text(encoding="utf-8").splitlines()
        found = [line.split()[1] for line in lines if line.startswith("VmHWM")]
        if found:
            return int(found[0]) * 1024
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def machine() -> dict:
    """What the figures belong to."""
    from importlib import metadata

    import psutil

    names = "torch", "transformers", "numpy"
    return {
        "processor": _processor(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in names},
        "date": datetime.date.today().isoformat(),
    }


def _processor() -> str:
    """Its name, which only Linux tells in a file."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or "unknown"


def save(name: str, figures: dict) -> Path:
    """Write results/NAME.json, with the machine in it, and say where."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    text = json.dumps({"machine": machine(), **figures}, indent=2, ensure_ascii=False) + "\n"
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(path)
    print(f"written to {path.relative_to(FOLDER.parent).as_posix()}")
    return path


def say_machine() -> None:
    """One line above a table."""
    here = machine()
    packages = ", ".join(f"{name} {version}" for name, version in here["packages"].items())
    print(
        f"{here['processor']}, {here['cores']} cores, {here['memory_gb']} GB, {here['system']}, "
        f"Python {here['python']}, {packages}"
    )


def _say(text: str) -> None:
    """Progress for a person; none where nobody watches."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
