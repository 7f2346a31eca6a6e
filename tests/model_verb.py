"""Run `python -m course model` as tests want it."""

import hashlib

from course import model


def sha(data: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def refused(capsys, *argv: str) -> str:
    """Run the verb, expect exit code 1, and return the one line of trouble on stderr."""
    assert model.main(list(argv)) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    lines = [line for line in lines if not line.startswith("Fetching the model (")]
    assert len(lines) == 1
    return lines[0]
