"""Run the experiments of the chapter's notebook and put what they print and draw into the README.

    python chapters/08_monitoring/figures/measure.py            print, change nothing
    python chapters/08_monitoring/figures/measure.py --write    also figures/* and README.md

The cells are those of notebook.py; the layers are those in solutions/. The section "Running it"
comes from here: the server is started on a free port, asked the running example, put under load
twice, and its logs are drawn. Run it while the machine does nothing else.
"""

import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import httpx
from measure_kit import ROOT, main

HERE = Path(__file__).resolve().parent
SHOWN = "http://127.0.0.1:8000"  # what the README says
LOAD = "--rate 0.5 --requests 10 --repeat 3 --prompt-tokens 32 --output-tokens 16 --ignore-eos"
QUESTION = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}


def running() -> dict[str, str]:
    """What the README's commands print, and the picture that `report` draws of the logs."""
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), every=3.0) as address:
        body = QUESTION | {"temperature": 0, "max_tokens": 16}
        httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60).raise_for_status()
        exposed = httpx.get(f"{address}/metrics").text
        for name in ("before", "after"):
            command("load", "--url", address, "--out", f"{name}.json", *LOAD.split(), at=folder)
        judged = command("gate", "before.json", "after.json", at=folder)
        printed = (Path(folder) / "printed").read_text(encoding="utf-8")
        picture = HERE / "report.png" if "--write" in sys.argv else Path(folder) / "report.png"
        told = command("report", str(Path(folder) / "logs"), "--out", str(picture), at=folder)
        requests = next((Path(folder) / "logs").glob("requests-*")).read_text(encoding="utf-8")
        lines = [line for line in printed.splitlines(keepends=True) if " llm " in line]
        return {
            "what /metrics has": exposition(exposed),
            "a line of the request log": requests.splitlines(keepends=True)[0],
            "plain lines": "".join(lines[2:5]),
            "what report says": told.split("plots:")[0].strip("\n").replace(folder, "") + "\n",
            "the gate between two runs of one version": judged,
        }


@contextmanager
def server(folder: Path, every: float, *options: str):
    """The server on a free port, its logs in a folder: its address; drained at the end."""
    said = folder / "said"
    arguments = ["--port", "0", "--log-dir", str(folder / "logs"), "--log-seconds", str(every)]
    with said.open("wb") as out, (folder / "printed").open("wb") as errors:
        started = subprocess.Popen(
            [sys.executable, "-m", "course", "serve", *arguments, *options],
            cwd=ROOT,
            stdout=out,
            stderr=errors,
        )
        try:
            while "Ctrl-C" not in said.read_text(encoding="utf-8"):
                if started.poll() is not None:
                    raise SystemExit("the server did not start")
            yield re.search(r"http://[\d.:]+", said.read_text(encoding="utf-8"))[0]
        finally:
            started.terminate()
            started.wait()


def command(*arguments: str, at: str) -> str:
    """What a verb of the course prints; its exit code may be any, as that of the gate."""
    done = subprocess.run(
        [sys.executable, "-m", "course", *arguments],
        cwd=at,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
    )
    if not done.stdout:
        raise SystemExit(f"{arguments[0]} printed nothing: {done.stderr}")
    return done.stdout


def exposition(text: str) -> str:
    """The series that are not 0, without the buckets."""
    kept = [
        line
        for line in text.splitlines(keepends=True)
        if not line.startswith("#") and "_bucket" not in line and not line.endswith(" 0.0\n")
    ]
    return "".join(kept)


if __name__ == "__main__":
    main(8, running)
