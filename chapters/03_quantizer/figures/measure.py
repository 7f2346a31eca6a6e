"""Run the experiments of the chapter's notebook and put what they print and draw into the README.

    python chapters/03_quantizer/figures/measure.py            print, change nothing
    python chapters/03_quantizer/figures/measure.py --write    also figures/*.svg and README.md

The cells are those of notebook.py; the engine is the one in solutions/. Two results come from the
verb instead: the table of `quantize --report`, and what `quantize` says about its memory.
Run it while the machine does nothing else.
"""

import io
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from measure_kit import ROOT, main


def verbs() -> dict[str, str]:
    """What `quantize --report` prints, and what `quantize` says when it is done."""
    from course import quality_report
    from course.model import ensure_model

    out = io.StringIO()
    with redirect_stdout(out):
        quality_report.run(ensure_model())
    table = "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
    return {"every format": table, "the verb": the_verb()}


def the_verb() -> str:
    """The line about sizes and memory, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "course", "quantize", "--out", f"{folder}/made"]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True, timeout=600
        )
    return "".join(f"{line}\n" for line in done.stderr.splitlines() if "became" in line)


if __name__ == "__main__":
    main(3, verbs)
