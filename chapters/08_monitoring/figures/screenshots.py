"""Take the picture of a queue storm: python chapters/08_monitoring/figures/screenshots.py

Starts the server with two rows and eight places to wait in, lets more requests come than it can
serve after a quiet beginning, and takes a picture of the dashboard. Needs the `playwright` package
(requirements-dev.txt) and a Chromium: the one on the PATH, or Playwright's own.
"""

import contextlib
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measure import QUESTION, server

HERE = Path(__file__).resolve().parent
SMALL = ("--max-running", "2", "--max-waiting", "8")
QUIET, STORM = (8, 3.0), (60, 0.6)  # requests, seconds from one to the next


def main() -> None:
    """One picture, whole or not at all."""
    with (
        tempfile.TemporaryDirectory() as folder,
        server(Path(folder), 5.0, *SMALL) as address,
        sync_playwright() as play,
    ):
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
        browser = play.chromium.launch(executable_path=path)
        page = browser.new_page(viewport={"width": 900, "height": 1118})
        page.goto(f"{address}/dashboard")
        for count, distance in (QUIET, STORM):
            come(page, address, count, distance)
        partial = HERE / "storm.partial.png"
        page.screenshot(path=partial)
        partial.replace(HERE / "storm.png")
        print("wrote storm.png")
        browser.close()


def come(page, address: str, count: int, distance: float) -> None:
    """So many requests, each when it is due; the page goes on drawing."""
    began = time.monotonic()
    for n in range(count):
        threading.Thread(target=ask, args=(address,), daemon=True).start()
        page.wait_for_timeout(max(0.0, 1000 * (began + (n + 1) * distance - time.monotonic())))


def ask(address: str) -> None:
    """One request; whoever asks does not care for the answer, nor for a refusal."""
    body = QUESTION | {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
    with contextlib.suppress(httpx.HTTPError):
        httpx.post(f"{address}/v1/chat/completions", json=body, timeout=120)


if __name__ == "__main__":
    main()
