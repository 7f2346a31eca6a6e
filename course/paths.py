"""Where things are. Two environment variables move what is large or personal."""

import os
from pathlib import Path


def _folder(variable: str, default: Path) -> Path:
    """The folder an environment variable names, or the default when it is unset or empty."""
    value = os.environ.get(variable)
    return Path(value).expanduser().resolve() if value else default


ROOT = Path(__file__).resolve().parent.parent
WORK = _folder("COURSE_WORK", ROOT / "work")
MODELS = _folder("COURSE_MODELS", ROOT / "models")
MODEL = MODELS / "smollm2-135m-instruct"
GGUF = MODELS / "gguf" / "SmolLM2-135M-Instruct.Q4_1.gguf"
