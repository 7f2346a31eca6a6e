"""Take the pictures of the two pages: python chapters/07_server/figures/screenshots.py

Starts the server on a free port, asks the running example in the chat page with the browser, and
gives the dashboard something to draw. Needs the `playwright` package (requirements-dev.txt) and a
Chromium: the one on the PATH, or Playwright's own.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measure import served

HERE = Path(__file__).resolve().parent
SIZES = {"chat": {"width": 900, "height": 620}, "dashboard": {"width": 900, "height": 1118}}
ASKED = ("What is the capital of France?", "Name three colours.", "Write a poem about rain.")


def main() -> None:
    """Both pictures."""
    with served() as (_, address), sync_playwright() as play:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
        browser = play.chromium.launch(executable_path=path)
        chat, dashboard = (browser.new_page(viewport=size) for size in SIZES.values())
        dashboard.goto(f"{address}/dashboard")
        chat.goto(address)
        for name, value in {"temperature": 0, "max_tokens": 120}.items():
            chat.evaluate(f"document.getElementById('{name}').value = {value}")
        ask(chat, ASKED[0])
        keep(chat, "chat")
        for question in ASKED[1:]:
            ask(chat, question)
        keep(dashboard, "dashboard")
        browser.close()


def ask(page: Page, question: str) -> None:
    """Type a question, send it, and wait until its answer is complete."""
    page.fill("#prompt", question)
    page.keyboard.press("Enter")
    stop = page.locator("#stop-answer")  # it is there while an answer is being written
    stop.wait_for(state="visible")
    stop.wait_for(state="hidden", timeout=120_000)


def keep(page: Page, name: str) -> None:
    """A picture of the page, whole or not at all."""
    partial = HERE / f"{name}.partial.png"
    page.screenshot(path=partial)
    partial.replace(HERE / f"{name}.png")
    print(f"wrote {name}.png")


if __name__ == "__main__":
    main()
