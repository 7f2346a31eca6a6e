"""When things go wrong, the chat page says what and offers what helps."""

import json

import pytest
from playwright.sync_api import expect

from tests.real.pages.acts import (
    SHORT,
    answer_with,
    ask,
    await_end,
    await_text,
    events,
    metric,
    piece,
    set_up,
    text_of,
    until,
)

EVIL = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"


def test_text_of_everybody_stays_text(server, visit):
    page = visit(server.url)
    title = page.title()
    answer_with(page, events(piece(EVIL), piece("", "stop"), "[DONE]"))
    answer = ask(page, EVIL)
    await_end(answer)
    assert text_of(answer) == page.locator(".user .text").text_content() == EVIL
    answer_with(page, events({"error": {"message": EVIL}}))
    ask(page, "and now an error")
    expect(page.locator(".note p")).to_have_text(f"The server broke the answer off: {EVIL}")
    assert page.locator("#log img, #log script").count() == 0
    assert page.title() == title


def test_an_error_in_mid_stream_keeps_the_text_and_a_retry_helps(server, visit, shot):
    page = visit(server.url)
    set_up(page, **SHORT)
    answer_with(page, events(piece("Half an"), {"error": {"message": "the step failed"}}))
    answer = ask(page, "Hello")
    alert = page.get_by_role("alert")
    expect(alert).to_have_text("The server broke the answer off: the step failed")
    assert text_of(answer) == "Half an"
    shot(page, "chat-broken-off")
    page.unroute("**/v1/chat/completions")
    page.get_by_role("button", name="Retry").click()
    assert await_end(answer)["Ended"].startswith(("length", "stop"))
    assert not text_of(answer).startswith("Half an")
    expect(page.get_by_role("button", name="Send")).to_be_focused()  # it was on Retry, then Stop
    expect(alert).to_have_count(0)


def test_a_stream_that_ends_without_saying_so_is_not_taken_for_whole(server, visit):
    page = visit(server.url)
    answer_with(page, events(piece("Half an")))
    ask(page, "Hello")
    expect(page.get_by_role("alert")).to_contain_text("connection was lost")


def test_retry_waits_as_long_as_the_server_asks(server, visit, shot, forgive):
    page = visit(server.url)
    page.clock.install()
    error = {"error": {"message": "the queue is full", "type": "x", "param": None, "code": None}}
    answer_with(page, json.dumps(error), 503, **{"Retry-After": "7"})
    ask(page, "Hello")
    expect(page.get_by_role("alert")).to_have_text(
        "The server is busy or not ready: the queue is full"
    )
    button = page.locator(".note button")
    page.clock.run_for(100)
    expect(button).to_be_disabled()
    expect(button).to_have_text("Retry in 7 s")
    shot(page, "chat-busy")
    page.clock.run_for(3000)
    expect(button).to_have_text("Retry in 4 s")
    page.clock.run_for(4500)
    expect(button).to_be_enabled()
    expect(button).to_have_text("Retry")
    forgive("503")


def test_a_question_that_failed_is_not_part_of_the_conversation(server, visit, forgive):
    page = visit(server.url)
    set_up(page, **SHORT)
    answer_with(page, "no JSON at all", 502)
    await_end(ask(page, "Lost"))
    expect(page.get_by_role("alert")).to_have_text("The server answered with status 502.")
    page.unroute("**/v1/chat/completions")
    with page.expect_request("**/v1/chat/completions") as sent:
        await_end(ask(page, "Found"))
    assert sent.value.post_data_json["messages"] == [{"role": "user", "content": "Found"}]
    forgive("502")


def test_a_full_server_is_named_and_a_retry_gets_its_answer(start, visit, forgive):
    server = start(max_running=1, max_waiting=1)
    pages = [visit(server.url) for _ in range(3)]
    for page in pages:
        set_up(page, max_tokens=2000, temperature=0)
    ask(pages[0], "Tell a long story.")
    await_text(pages[0], longer_than=0)
    ask(pages[1], "Tell a long story.")
    until(pages[1], lambda: metric(server, "llm_requests_waiting") == 1)
    ask(pages[2], "Hello")
    expect(pages[2].get_by_role("alert")).to_contain_text("busy")
    for page in pages[:2]:
        page.bring_to_front()
        page.keyboard.press("Escape")
    set_up(pages[2], **SHORT)
    pages[2].get_by_role("button", name="Retry").click()
    await_end(pages[2].locator(".answer"))
    expect(pages[2].get_by_role("alert")).to_have_count(0)
    forgive("503")


def test_a_server_that_wants_a_key_gets_it(start, visit, forgive):
    server = start(api_key="open sesame")
    page = visit(server.url)
    expect(page.locator("#status")).to_contain_text("The server wants an API key")
    ask(page, "Hello")
    expect(page.get_by_role("alert")).to_contain_text("The server wants an API key")
    page.get_by_role("button", name="Enter the key").click()
    expect(page.locator("#key")).to_be_focused()
    page.keyboard.type("open sesame")
    page.keyboard.press("Escape")
    expect(page.locator("#model option")).not_to_have_count(0)
    set_up(page, **SHORT)
    page.get_by_role("button", name="Retry").click()
    await_end(page.locator(".answer"))
    assert text_of(page.locator(".answer"))
    forgive("401")


def test_a_server_that_dies_is_told_from_one_that_is_not_there(start, visit, forgive):
    server = start()
    page = visit(server.url)
    set_up(page, max_tokens=2000, temperature=0)
    ask(page, "Tell a long story.")
    length = await_text(page, longer_than=0)
    server.stop()
    expect(page.get_by_role("alert")).to_contain_text("connection was lost")
    assert len(text_of(page.locator(".answer"))) >= length
    ask(page, "Hello?")
    expect(page.get_by_role("alert").last).to_contain_text("cannot be reached")
    assert page.get_by_role("button", name="Retry").count() == 1  # only of the last question
    forgive("ERR_")


def test_a_server_that_comes_back_with_another_model_is_asked_for_that(server, visit, forgive):
    def before(page):
        models = {"object": "list", "data": [{"id": "old-model"}]}
        page.route("**/v1/models", lambda route: route.fulfill(json=models))

    page = visit(server.url, before)
    expect(page.locator("#model option")).to_have_text(["old-model"])
    page.unroute("**/v1/models")
    set_up(page, **SHORT)  # its first field is the list of models, so the focus is there
    name = server.get("/v1/models").json()["data"][0]["id"]
    expect(page.locator("#model option")).to_have_text([name])
    page.evaluate("document.getElementById('model').replaceChildren(new Option('older'))")
    answer = ask(page, "Hello")
    expect(page.get_by_role("alert")).to_contain_text("The server does not have this")
    expect(page.locator("#model option")).to_have_text([name])
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    await_end(answer)
    assert answer.locator("h2").text_content() == name
    assert text_of(answer)
    forgive("404")


@pytest.mark.parametrize("status", [400, 413])
def test_what_would_fail_again_is_not_offered_again(server, visit, forgive, status):
    page = visit(server.url)
    answer_with(page, json.dumps({"error": {"message": "too much"}}), status)
    ask(page, "Hello")
    expect(page.get_by_role("alert")).to_contain_text("too much")
    expect(page.locator(".note button")).to_have_count(0)
    forgive(str(status))


def test_a_key_that_cannot_be_sent_is_named(server, visit):
    page = visit(server.url)
    expect(page.locator("#model option")).to_have_count(1)
    set_up(page, key="ключ", **SHORT)
    expect(page.locator("#status")).to_contain_text("a key is ASCII")
    answer = ask(page, "Hello")
    expect(page.get_by_role("alert")).to_contain_text("a key is ASCII")
    page.get_by_role("button", name="Enter the key").click()
    page.locator("#key").fill("")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Retry").click()
    await_end(answer)
    assert text_of(answer)


@pytest.mark.parametrize(
    "trouble",
    [
        "Object.defineProperty(window, 'sessionStorage', { get() { throw new Error('denied'); } })",
        "sessionStorage.setItem('chat-settings', '{')",
        "sessionStorage.setItem('chat-settings', 'null')",
        "Storage.prototype.setItem = () => { throw new Error('full'); }",
    ],
)
def test_a_storage_that_fails_stops_nobody(server, visit, trouble):
    page = visit(server.url, lambda page: page.add_init_script(trouble))
    expect(page.locator("#model option")).to_have_count(1)
    set_up(page, **SHORT)
    await_end(ask(page, "Hello"))
    assert text_of(page.locator(".answer"))


def test_a_late_list_of_models_does_not_say_that_nothing_runs(server, visit):
    held = []
    page = visit(server.url, lambda page: page.route("**/v1/models", lambda r: held.append(r)))
    page.route("**/v1/chat/completions", lambda route: None)
    ask(page, "Hello")
    expect(page.locator("#status")).to_have_text("The answer is being written.")
    held[0].fulfill(json={"data": [{"id": "late"}]})
    expect(page.locator("#model option")).to_have_text(["late"])
    page.evaluate("new Promise(done => setTimeout(done))")
    expect(page.locator("#status")).to_have_text("The answer is being written.")
    page.keyboard.press("Escape")
    expect(page.locator("#status")).to_have_text("Stopped.")


WATCH_NOTES = """() => {
    window.seen = [];
    const append = Element.prototype.append;
    Element.prototype.append = function (...nodes) {
        append.apply(this, nodes);
        const isNote = nodes[0]?.className === 'note';
        if (isNote) window.seen.push(this.closest('[aria-busy]') === null);
    };
}"""


def test_an_alert_is_not_put_where_screen_readers_wait(server, visit):
    page = visit(server.url)
    page.evaluate(WATCH_NOTES)
    answer_with(page, events(piece("Half an"), {"error": {"message": "the step failed"}}))
    ask(page, "Hello")
    expect(page.get_by_role("alert")).to_have_count(1)
    assert page.evaluate("window.seen") == [True]
