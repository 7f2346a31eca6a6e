"""A headless Chromium that notices what it must not see: errors, and requests to elsewhere."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

NAMES = "chromium", "chromium-browser", "google-chrome"
expect.set_options(timeout=30_000)  # milliseconds; only a guard against waiting for ever


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.fail(f"none of {', '.join(NAMES)} is on the PATH; on Debian: apt install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path)
        yield running
        running.close()


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """What the browser's console and the pages complained of; must be empty after the test."""
    found: list[str] = []
    yield found
    assert not found


@pytest.fixture
def visit(browser: Browser, complaints: list[str]) -> Iterator[Callable[..., Page]]:
    """Open an address in a browser of its own; every request must stay with that server.

    `before` is called with the page before it goes there.
    """
    contexts = []

    def open_page(url: str, before: Callable[[Page], object] = id, **options: object) -> Page:
        origin = "/".join(url.split("/")[:3]) + "/"
        context = browser.new_context(**options)
        contexts.append(context)
        context.on("request", lambda request: leaves(request.url, origin))
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
        before(page)
        page.goto(url)
        return page

    def leaves(url: str, origin: str) -> None:
        if not url.startswith((origin, "data:")):
            complaints.append(f"request to elsewhere: {url}")

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{message.type}: {message.text}")

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def shot(tmp_path: Path) -> Callable[[Page, str], None]:
    """Save a picture of a page, to the folder that PAGES_SHOTS names, if it does."""
    folder = Path(os.environ.get("PAGES_SHOTS", tmp_path))

    def save(page: Page, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}.png", full_page=True)

    return save


@pytest.fixture
def forgive(complaints: list[str]) -> Callable[..., None]:
    """Take away the complaints that hold a text; there must be one, if it is not just possible."""

    def drop(text: str, possible: bool = False) -> None:
        kept = [complaint for complaint in complaints if text not in complaint]
        assert possible or len(kept) < len(complaints), f"{text!r} is not in {complaints}"
        complaints[:] = kept

    return drop
