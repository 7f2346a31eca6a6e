"""Run the experiments of the chapter's notebook and put what they print and draw into the README.

    python chapters/07_server/figures/measure.py            print, change nothing
    python chapters/07_server/figures/measure.py --write    also figures/*.svg and README.md

The cells are those of notebook.py; the engine is the one in solutions/. The section "Running it"
comes from here: the server is started on a free port, and the README's own commands are run
against it. The `openai` package is needed for that (requirements-dev.txt), and curl.
Run it while the machine does nothing else.
"""

import io
import re
import subprocess
import sys
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from measure_kit import ROOT, main

FOLDER = Path(__file__).resolve().parents[1]
SHOWN = "http://127.0.0.1:8000"  # what the README says


def running() -> dict[str, str]:
    """What the server prints, and what the README's commands get from it."""
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    with served() as (greeting, address):
        curl = code(readme, "sh").replace(SHOWN, address)
        call = code(readme, "python").replace(SHOWN, address)
        return {
            "what serve prints": greeting.strip("\n")
            .replace(address, SHOWN)
            .replace("port = 0", "all defaults")
            + "\n",
            "with curl": printed_by(curl),
            "with the openai client": printed_by_python(call),
        }


@contextmanager
def served():
    """The server on a free port: what it printed, and its address; drained at the end."""
    command = [sys.executable, "-m", "course", "serve", "--port", "0"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8")
    try:
        lines = []
        while not (lines and lines[-1].startswith("A line of figures")):
            lines.append(server.stdout.readline())
            if not lines[-1]:
                raise SystemExit("the server did not start")
        greeting = "".join(lines)
        yield greeting, re.search(r"http://[\d.:]+", greeting)[0]
    finally:
        server.terminate()
        server.wait()


def code(readme: str, language: str) -> str:
    """The only block of the README in that language."""
    return re.search(rf"^```{language}\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)[1]


def printed_by(command: str) -> str:
    """What a shell command prints, the long id cut."""
    done = subprocess.run(command, shell=True, capture_output=True, encoding="utf-8", check=True)
    return re.sub(r"(chatcmpl-\w{4})\w+", r"\1…", done.stdout).strip("\n") + "\n"


def printed_by_python(source: str) -> str:
    """What a piece of Python prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(source, "README.md", "exec"), {})
    return out.getvalue()


if __name__ == "__main__":
    main(7, running)
