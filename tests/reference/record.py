"""Write a file of expected values and say in manifest.json where it came from."""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
MANIFEST = FOLDER / "manifest.json"


def write_text(path: Path, text: str) -> None:
    """Write through a partial file: an interrupted run leaves the old file whole."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(path)


def record(names: list[str], made_by: str, seed: int | None, packages: list[str]) -> None:
    """Put the SHA-256 of these files into the manifest, with what made them."""
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8")) if MANIFEST.exists() else {}
    for name in names:
        data = (FOLDER / name).read_bytes()
        manifest[name] = {
            "sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
            "made_by": made_by,
            "seed": seed,
            "versions": {package: version(package) for package in packages},
        }
    write_text(MANIFEST, json.dumps(dict(sorted(manifest.items())), indent=2) + "\n")
