"""Make `.venv` and let pip fill it; every way this fails has one sentence that says what to do."""

import importlib.util
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from course.bootstrap import SetupError

LOG = ".venv-install.log"
# A pip set to install for the user refuses to in an environment; lines must arrive as written.
PIP_ENVIRONMENT = {"PIP_USER": "0", "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
AGAIN = "then run the same command again."
NETWORK = re.compile(
    "NewConnectionError|NameResolutionError|Temporary failure in name resolution|getaddrinfo|"
    "Connection refused|Max retries|ConnectTimeout|ReadTimeout|Network is unreachable|"
    "ProxyError|SSLError|Connection broken|Connection reset",
    re.IGNORECASE,
)
NO_SPACE = re.compile("No space left on device|Errno 28|WinError 112|Disk quota", re.IGNORECASE)
STEP = re.compile(
    r"\s*(Collecting|Processing|Downloading|Installing collected packages)\b\s*([^\s:;]*)"
)


def create(root: Path, bytes_needed: int) -> None:
    """Make an empty `.venv`, in place of whatever lies there and was not finished.

    Raises:
        SetupError: no room, no venv module, a `.venv` that cannot be removed or made.
    """
    _require_room(root, bytes_needed)
    _require_venv_module()
    _remove(root / ".venv")
    command = [base_python(), "-m", "venv", str(root / ".venv")]
    print(
        f"Setting up .venv with Python {sys.version.split()[0]} (once; some minutes).", flush=True
    )
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode:
        reason = last_line(done.stdout + done.stderr)
        raise SetupError(f"Python could not make .venv ({reason}): put that right, {AGAIN}")


def base_python() -> str:
    """The Python that environments are made from, even when this process runs inside one."""
    inside_one = sys.prefix != sys.base_prefix
    return getattr(sys, "_base_executable", sys.executable) if inside_one else sys.executable


def _require_room(root: Path, needed: int) -> None:
    free = shutil.disk_usage(root).free
    if free < needed:
        raise SetupError(
            f"The packages need about {needed / 1e9:.0f} GB and the disk of {root} has "
            f"{free / 1e9:.1f} GB free: free some space or move the clone, {AGAIN}"
        )


def _require_venv_module() -> None:
    if all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        return
    package = "python{}.{}-venv".format(*sys.version_info)
    raise SetupError(
        f"{sys.executable} comes without the venv module: on Debian or Ubuntu type "
        f"`sudo apt install {package}`, elsewhere install Python from python.org, {AGAIN}"
    )


def _remove(folder: Path) -> None:
    if folder.is_symlink() or folder.is_file():
        raise SetupError(f"{folder} is not a folder that the course made: remove it, {AGAIN}")
    if not folder.exists():
        return
    print("There is a .venv that no set-up finished; making it anew.", flush=True)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise SetupError(
            f"{folder} cannot be removed ({error.strerror}): close what uses it, such as "
            f"JupyterLab or an editor's terminal, {AGAIN}"
        ) from None


def packages(root: Path, python: Path, requirements: str) -> None:
    """Let pip install a requirements file; its whole output goes to `.venv-install.log`.

    Raises:
        SetupError: pip failed; the message holds the reason that can be acted upon.
    """
    command = [str(python), "-m", "pip", "install", "--no-input", "-r", requirements]
    process = subprocess.Popen(
        command,
        cwd=root,
        env=os.environ | PIP_ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    try:
        with (root / LOG).open("w", buffering=1, encoding="utf-8") as log:
            _show(_lines_or_ticks(process.stdout), log)
        code = process.wait()
    finally:
        process.kill()  # after Ctrl-C; does nothing to one that has ended
    if code:
        output = (root / LOG).read_text(encoding="utf-8")
        raise SetupError(f"{explain(output)} (All of pip's output: {root / LOG})")


def make_importable(root: Path) -> None:
    """Let every program of the environment import `course`, an editor's notebook kernel too."""
    for packages_folder in (root / ".venv").glob("[lL]ib*/**/site-packages"):
        (packages_folder / "course.pth").write_text(f"{root}\n", encoding="utf-8")


def began(root: Path) -> bool:
    """Whether the last run of pip came as far as changing the environment."""
    return "Installing collected packages" in (root / LOG).read_text(encoding="utf-8")


def _lines_or_ticks(stream):
    """Yield each line of a stream, and None twice a second in between so that a clock can move."""
    lines = queue.SimpleQueue()

    def read():
        for line in stream:
            lines.put(line)
        lines.put("")  # the end: no line is empty, each has its newline

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=0.5)
        except queue.Empty:
            line = None
        if line == "":
            return
        yield line


def _show(lines, log) -> None:
    """Copy pip's lines to the log; on a terminal, say on one line what it does, and how long."""
    started, step, live = time.monotonic(), "starting", sys.stdout.isatty()
    if not live:
        print(f"pip installs the packages; its output goes to {LOG}", flush=True)
    width = shutil.get_terminal_size().columns - 1
    for line in lines:
        if line is not None:
            log.write(line)
            found = STEP.match(line)
            step = f"{found[1].split()[0].lower()} {Path(found[2]).name}" if found else step
        if live:
            passed = time.monotonic() - started
            text = f"  {passed // 60:.0f}:{passed % 60:02.0f}  pip: {step}"
            print("\r" + text[:width].ljust(width), end="", flush=True)
    if live:
        print("\r" + " " * width + "\r", end="", flush=True)


def explain(output: str) -> str:
    """One sentence for a failure of pip: the likely cause, and what to type next."""
    reason = last_line(output)
    if NO_SPACE.search(output):
        return f"The disk filled up while pip was installing ({reason}): free some space, {AGAIN}"
    if unreachable := NETWORK.findall(output):
        return (
            f"pip could not reach its package index ({unreachable[-1]}): check the network, and "
            f"the proxy or mirror in pip's settings (`python -m pip config list`), {AGAIN}"
        )
    if "No matching distribution" in output:
        return (
            f"pip found no build for Python {sys.version.split()[0]} on this machine ({reason}): "
            f"try another 64-bit Python from 3.11 to 3.14, {AGAIN}"
        )
    return f"pip could not install the packages ({reason}): put that right, {AGAIN}"


def last_line(output: str) -> str:
    """The last line that pip or Python marked as an error, or else the last line with text."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|Error|\w*Error)\b", line)]
    return (errors or lines or ["no output"])[-1].removeprefix("ERROR: ")


def probe(python: Path, code: str) -> str:
    """Import what the course stands on, once, in the new environment; returns what `code` prints.

    Raises:
        SetupError: a package is there but does not load, as when a system library is missing.
    """
    done = subprocess.run(
        [str(python), "-c", code], capture_output=True, encoding="utf-8", errors="replace"
    )
    if done.returncode:
        raise SetupError(
            f"The packages are installed but do not load ({last_line(done.stderr)}): "
            f"if that names a system library, install it, {AGAIN}"
        )
    return done.stdout.strip()
