"""What a reader does on the chat page, and what the tests read there."""

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect
from prometheus_client.parser import text_string_to_metric_families

from tests.real.conftest import Server

PATIENCE = 120_000  # milliseconds for one answer; only a guard against waiting for ever
SHORT = {"temperature": 0, "max_tokens": 24}


def set_up(page: Page, **settings: object) -> None:
    """Write into the settings panel."""
    page.get_by_role("button", name="Settings").click()
    for name, value in settings.items():
        page.locator(f"#{name}").fill(str(value))
    page.get_by_role("button", name="Close").click()


def ask(page: Page, question: str) -> Locator:
    """Send a message by Enter; returns the box of its answer."""
    answers = page.locator(".answer")
    before = answers.count()
    page.get_by_label("Message", exact=True).fill(question)
    page.keyboard.press("Enter")
    return answers.nth(before)


def text_of(answer: Locator) -> str:
    return answer.locator(".text").text_content()


def await_end(answer: Locator) -> dict[str, str]:
    """Wait until an answer is whole; returns its meter."""
    expect(answer).not_to_have_attribute("aria-busy", "true", timeout=PATIENCE)
    return meter_of(answer)


def await_text(page: Page, longer_than: int) -> int:
    """Wait until the last answer has more characters; returns how many."""
    script = """least => {
        const length = [...document.querySelectorAll('.answer .text')].at(-1)?.textContent.length;
        return length > least && length;
    }"""
    return page.wait_for_function(script, arg=longer_than, timeout=PATIENCE).json_value()


def until(page: Page, holds: Callable[[], bool]) -> None:
    """Wait for something that only the server knows."""
    for _ in range(PATIENCE // 50):
        if holds():
            return
        page.wait_for_timeout(50)
    pytest.fail("it never came to hold")


def meter_of(answer: Locator) -> dict[str, str]:
    names = answer.locator("dt").all_text_contents()
    return dict(zip(names, answer.locator("dd").all_text_contents(), strict=True))


def number_in(text: str) -> float:
    return float(re.search(r"\d+(\.\d+)?", text).group())


def metric(server: Server, name: str, **labels: str) -> float:
    """The sum of a server's samples of a name that carry these labels, read as Prometheus does."""
    families = text_string_to_metric_families(server.get("/metrics").text)
    samples = (sample for family in families for sample in family.samples)
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


def events(*chunks: dict | str) -> str:
    """The body of a stream of server-sent events."""
    texts = (c if isinstance(c, str) else json.dumps(c, ensure_ascii=False) for c in chunks)
    return "".join(f"data: {text}\n\n" for text in texts)


def piece(text: str, finish_reason: str | None = None) -> dict:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}]}


def answer_with(page: Page, body: str, status: int = 200, **headers: str) -> None:
    """Let the chat completions of a page be answered like this, instead of by the server."""
    kind = "text/event-stream" if status == 200 else "application/json"
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(
            status=status, body=body, headers={"Content-Type": kind, **headers}
        ),
    )
