"""The dashboard against the real server: it moves, it survives a restart, it says what it sees."""

import httpx
from playwright.sync_api import expect

from tests.real.pages.acts import metric, number_in

QUESTION = [{"role": "user", "content": "Tell a story about the sea."}]

LOOKS = """paths => paths.map(path => {
    const { stroke, strokeDasharray } = getComputedStyle(path);
    return [stroke, strokeDasharray];
})"""


def write(server, tokens: int) -> None:
    """Let the server write this many tokens (or fewer) for another client."""
    body = {"messages": QUESTION, "max_tokens": tokens, "temperature": 0}
    body["model"] = server.get("/v1/models").json()["data"][0]["id"]
    httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120).raise_for_status()


def cell(page, row: str, column: int):
    """A cell of the page's tables by the name of its row."""
    return page.get_by_role("row").filter(has_text=row).locator("td").nth(column)


def test_the_dashboard_moves_when_requests_come(server, visit, shot):
    page = visit(f"{server.url}/dashboard")
    expect(page.locator("#state")).to_contain_text("Ready")
    page.locator("#window").select_option("60")
    before = metric(server, "llm_requests_total", finish_reason="length")
    for _ in range(3):
        write(server, 24)
    expect(cell(page, "length", 0)).to_have_text(str(int(before) + 3))
    for name in ("first token, p50", "first token, p95", "latency, p50", "latency, p95"):
        expect(cell(page, name, 0)).to_contain_text("s")
        assert number_in(cell(page, name, 0).text_content()) > 0
    assert number_in(cell(page, "Throughput, written", 0).text_content()) > 0
    assert number_in(cell(page, "KV cache, in use", 2).text_content()) > 0
    assert "iB" in cell(page, "Memory: bytes", 0).text_content()
    shot(page, "dashboard")


def test_running_requests_are_seen_while_they_run(server, visit, shot):
    page = visit(f"{server.url}/dashboard")
    other = visit(server.url)
    other.locator("#prompt").fill("Tell a very long story.")
    other.keyboard.press("Enter")
    expect(cell(page, "Queue, running", 0)).to_have_text("1")
    assert "running 1" in page.get_by_role("img", name="Queue").get_attribute("aria-label")
    other.bring_to_front()
    other.keyboard.press("Escape")
    expect(cell(page, "Queue, running", 0)).to_have_text("0")
    shot(page, "dashboard-after-a-stop")


def test_lines_differ_in_colour_and_in_dashes(server, visit):
    page = visit(f"{server.url}/dashboard")
    write(server, 8)
    expect(page.locator(".chart path.line-2").first).to_be_attached()
    paths = page.locator("figure").first.locator(".chart path")
    looks = paths.evaluate_all(LOOKS)
    assert len(looks) == 2
    assert looks[0][0] != looks[1][0]
    assert looks[0][1] != looks[1][1]


def test_a_server_that_goes_and_comes_back(start, visit, shot, forgive):
    server = start()
    page = visit(f"{server.url}/dashboard")
    state = page.locator("#state")
    expect(state).to_contain_text("Ready")
    write(server, 8)
    expect(cell(page, "length", 0)).to_have_text("1")
    server.stop()
    expect(state).to_contain_text("The server cannot be reached")
    shot(page, "dashboard-unreachable")
    again = start(port=int(server.url.rsplit(":", 1)[1]))
    expect(state).to_contain_text("Ready")
    write(again, 8)
    expect(cell(page, "length", 0)).to_have_text("1")
    expect(page.locator(".chart .restart").first).to_be_attached()
    assert not any("-" in text for text in page.locator("#figures td").all_text_contents())
    shot(page, "dashboard-restarted")
    forgive("ERR_")
    forgive("503", possible=True)  # while it loads the model


def test_nobody_is_asked_while_nobody_looks(server, visit):
    page = visit(f"{server.url}/dashboard")
    expect(page.locator("#state")).to_contain_text("Ready")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    look(page, hidden=True)
    page.wait_for_timeout(1500)  # what was on its way comes home
    asked.clear()
    page.wait_for_timeout(3000)
    assert asked == []
    with page.expect_request("**/metrics"):
        look(page, hidden=False)


def look(page, hidden: bool) -> None:
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
            document.dispatchEvent(new Event('visibilitychange'));
        }""",
        hidden,
    )


def test_a_server_that_is_not_ready_is_not_called_ready(server, visit, forgive):
    def drain(page):
        answer = {"status": 503, "json": {"status": "draining"}}
        page.route("**/health", lambda route: route.fulfill(**answer))

    page = visit(f"{server.url}/dashboard", drain)
    expect(page.locator("#state")).to_contain_text("The engine takes no requests: draining.")
    forgive("503")


def test_one_error_does_not_end_the_dashboard(server, visit, forgive):
    page = visit(f"{server.url}/dashboard")
    expect(page.locator("#figures tr")).not_to_have_count(0)
    page.evaluate(
        """() => {
            const find = document.getElementById.bind(document);
            let times = 0;
            document.getElementById = id => {
                if (id === 'figures' && times++ === 0) throw new Error('only once');
                return find(id);
            };
        }"""
    )
    with page.expect_event("pageerror"):
        pass
    with page.expect_request("**/metrics"):
        pass
    forgive("only once")


SLOW_HEALTH = """(() => {
    let times = 0;
    window.fetch = async path => {
        if (path.endsWith('metrics')) {
            return new Response(`llm_generation_tokens_total ${performance.now() / 10}\\n`);
        }
        const wait = times++ % 2 ? 1500 : 0;
        await new Promise(done => setTimeout(done, wait));
        return new Response('{"status": "ready"}');
    };
})()"""


def test_a_reading_is_as_old_as_the_metrics_and_not_as_the_health(server, visit):
    """The page's clock is the counter: 100 tokens a second, however long /health takes."""
    page = visit(f"{server.url}/dashboard", lambda page: page.add_init_script(SLOW_HEALTH))
    page.wait_for_timeout(6000)
    for column in (1, 2):
        rate = number_in(cell(page, "Throughput, written", column).text_content())
        assert 90 < rate < 110


def test_what_is_read_or_selected_stays_while_numbers_change(server, visit):
    page = visit(f"{server.url}/dashboard")
    expect(page.locator("#figures tr")).not_to_have_count(0)
    expect(page.locator(".legend li")).not_to_have_count(0)
    write(server, 8)
    page.evaluate(
        """() => {
            const all = selector => [...document.querySelectorAll(selector)];
            window.kept = all('#figures th, #figures td, #ended td, .legend b, .legend li');
            const cell = document.querySelector('#figures th').firstChild;
            getSelection().setBaseAndExtent(cell, 2, cell, 7);
            window.words = getSelection().toString();
        }"""
    )
    before = number_in(cell(page, "length", 0).text_content())
    write(server, 8)
    expect(cell(page, "length", 0)).to_have_text(str(int(before) + 1))
    assert page.evaluate("window.kept.length > 20 && window.kept.every(node => node.isConnected)")
    assert page.evaluate("[getSelection().toString(), window.words]") == ["me to", "me to"]
