"""The chat page against the real server: messages, streams, stops, settings, the keyboard."""

import httpx
from playwright.sync_api import expect

from tests.real.pages.acts import (
    SHORT,
    ask,
    await_end,
    await_text,
    meter_of,
    metric,
    number_in,
    set_up,
    text_of,
    until,
)

FOCUSED = "document.activeElement.id || document.activeElement.textContent"
LONG = "Write a long story about the sea."


def test_an_answer_grows_while_it_is_written_and_is_measured(server, visit, shot):
    page = visit(server.url)
    set_up(page, temperature=0, max_tokens=48)
    answer = ask(page, LONG)
    first = await_text(page, longer_than=0)
    second = await_text(page, longer_than=first)
    assert "Tokens" in meter_of(answer)
    shot(page, "chat-streaming")
    meter = await_end(answer)
    assert len(text_of(answer)) >= second > first > 0
    assert meter["Tokens"] == "48"
    assert meter["Ended"].startswith("length")
    assert number_in(meter["First token"]) > 0
    assert number_in(meter["Speed"]) > 0
    shot(page, "chat-answered")


def test_the_page_shows_what_the_server_says_without_a_stream(server, visit):
    page = visit(server.url)
    set_up(page, **SHORT)
    answer = ask(page, "Name three colours.")
    await_end(answer)
    messages = [{"role": "user", "content": "Name three colours."}]
    model = server.get("/v1/models").json()["data"][0]["id"]
    body = {"model": model, "messages": messages, **SHORT}
    said = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120).json()
    assert text_of(answer) == said["choices"][0]["message"]["content"]
    assert text_of(answer)


def test_the_model_list_comes_from_the_server(server, visit):
    page = visit(server.url)
    models = [model["id"] for model in server.get("/v1/models").json()["data"]]
    expect(page.locator("#model option")).to_have_text(models)


def test_settings_reach_the_server_and_empty_ones_do_not(server, visit):
    page = visit(server.url)
    wishes = {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "presence_penalty": -0.5,
        "max_tokens": 3,
        "seed": 17,
    }
    set_up(page, **wishes, system="Be brief.", stop="END\n\\n\\n")
    with page.expect_request("**/v1/chat/completions") as sent:
        answer = ask(page, "Hello")
    await_end(answer)
    body = sent.value.post_data_json
    del body["model"]
    assert body == wishes | {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
        ],
        "stop": ["END", "\n\n"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_setting_that_is_not_possible_is_shown_before_anything_is_sent(server, visit):
    page = visit(server.url)
    set_up(page, temperature=3)
    ask(page, "Hello")
    expect(page.locator("#temperature")).to_be_focused()
    expect(page.locator("#status")).to_have_text("One of the settings is not possible.")
    expect(page.locator(".message")).to_have_count(0)


def test_the_second_question_carries_the_conversation(server, visit):
    page = visit(server.url)
    set_up(page, **SHORT)
    first = ask(page, "Hello")
    await_end(first)
    with page.expect_request("**/v1/chat/completions") as sent:
        await_end(ask(page, "And now?"))
    assert sent.value.post_data_json["messages"] == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": text_of(first)},
        {"role": "user", "content": "And now?"},
    ]
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".message")).to_have_count(0)
    with page.expect_request("**/v1/chat/completions") as sent:
        await_end(ask(page, "Again"))
    assert sent.value.post_data_json["messages"] == [{"role": "user", "content": "Again"}]


def test_escape_stops_an_answer_and_its_generation(server, visit):
    stop_with(lambda page: page.keyboard.press("Escape"), visit(server.url), server)


def test_the_stop_button_stops_an_answer_and_its_generation(server, visit):
    stop_with(lambda page: page.locator("#stop-answer").click(), visit(server.url), server)


def stop_with(act, page, server):
    def cancelled():
        return metric(server, "llm_requests_total", finish_reason="cancelled")

    before = cancelled()
    set_up(page, max_tokens=2000, seed=1)
    answer = ask(page, LONG)
    await_text(page, longer_than=0)
    act(page)
    meter = await_end(answer)
    assert meter["Ended"] == "stopped by you"
    assert text_of(answer)
    until(page, lambda: cancelled() == before + 1)
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    set_up(page, **SHORT)
    await_end(ask(page, "Hello"))
    expect(page.locator(".note")).to_have_count(0)


PRESS = """([id, more]) => document.getElementById(id).dispatchEvent(
    new KeyboardEvent('keydown', { ...more, bubbles: true, cancelable: true }))"""


def test_keys_of_an_input_method_are_not_for_the_page(server, visit):
    """Safari sends the Enter that ends a composition after it, with the key code 229."""
    page = visit(server.url)
    page.route("**/v1/chat/completions", lambda route: None)
    page.locator("#prompt").fill("日本")
    for more in ({"key": "Enter", "keyCode": 229}, {"key": "Enter", "isComposing": True}):
        page.evaluate(PRESS, ["prompt", more])
    expect(page.locator(".message")).to_have_count(0)
    ask(page, "Hello")
    composed = {"key": "Escape", "isComposing": True}
    page.evaluate(PRESS, ["prompt", composed])
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.get_by_role("button", name="Settings").click()
    page.evaluate(PRESS, ["system", composed])
    expect(page.locator("#settings")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#settings")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#status")).to_have_text("Stopped.")


def test_everything_can_be_done_by_keyboard(server, visit):
    page = visit(server.url)
    press = page.keyboard.press
    expect(page.locator("#prompt")).to_be_focused()
    visited = []
    for _ in range(8):
        visited.append(page.evaluate(FOCUSED))
        press("Shift+Tab")
    assert visited[:3] == ["prompt", "log", "open-settings"]
    assert visited[3:7] == ["new", "Dashboard", "Chat", "To the message field"]
    page.locator("#open-settings").focus()
    press("Enter")
    expect(page.locator("#model")).to_be_focused()
    page.locator("#max_tokens").focus()  # by Tab; how many of them there are is of no interest here
    page.keyboard.type("2000")
    press("Escape")
    expect(page.locator("#settings")).to_be_hidden()
    expect(page.locator("#open-settings")).to_be_focused()
    press("Tab")
    press("Tab")
    page.keyboard.type("Tell me")
    press("Shift+Enter")
    page.keyboard.type("a long story.")
    press("Enter")
    await_text(page, longer_than=0)
    assert page.locator(".user .text").text_content() == "Tell me\na long story."
    press("Tab")
    expect(page.get_by_role("button", name="Stop")).to_be_focused()
    press("Space")
    assert await_end(page.locator(".answer"))["Ended"] == "stopped by you"
    expect(page.get_by_role("button", name="Send")).to_be_focused()
