"""`python -m course.drills.server NAME LOGS`: the server of a drill, a process of its own.

A line on stdin begins the incident; the end of stdin ends the server, so that it never outlives
whoever started it.
"""

import sys
import threading
from pathlib import Path

from course.background import follow_stdin
from course.drills import COMMON, DRILLS
from course.model import ensure_model
from course.serve import serve
from solutions.settings import Settings


def main(name: str, logs: str) -> int:
    """Serve until stdin ends; the exit code."""
    drill, begun = DRILLS[name], threading.Event()
    parts = drill.fault(begun)
    follow_stdin(begun.set)
    settings = Settings(**COMMON | {"log_dir": logs} | dict(drill.settings))
    Path(logs).mkdir(parents=True, exist_ok=True)
    return serve(settings, ensure_model(), wrap=lambda name, part: parts.get(name, _keep)(part))


def _keep(part):
    return part


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
