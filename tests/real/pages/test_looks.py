"""For every reader: small screens, both colour schemes, enough contrast, less motion."""

import pytest
from playwright.sync_api import expect

from course.grading import feedback
from tests.real.pages.acts import SHORT, answer_with, ask, await_end, events, piece, set_up

PHONE = {"width": 320, "height": 568}
WIDE = "A" * 300
PAGES = "/", "/dashboard"


def overflow(page) -> int:
    """By how many pixels the page, or a part of it that scrolls, is wider than its place."""
    parts = page.locator("html, #log, #settings, figure, section")
    return max(parts.evaluate_all("all => all.map(e => e.scrollWidth - e.clientWidth)"))


def filled_chat(visit, server, **options):
    """The chat page with an answer, an error and the settings in it."""
    page = visit(server.url, **options)
    answer_with(page, events(piece(f"Yes. {WIDE}"), piece("", "stop"), "[DONE]"))
    await_end(ask(page, f"No? {WIDE}"))
    answer_with(page, events(piece("Well,"), {"error": {"message": WIDE}}))
    await_end(ask(page, "Then?"))
    return page


def test_the_chat_fits_a_phone(server, visit, shot):
    page = filled_chat(visit, server, viewport=PHONE, has_touch=True)
    assert overflow(page) == 0
    shot(page, "phone-chat")
    for name in ("Send", "Settings", "New chat"):
        expect(page.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Settings").click()
    assert overflow(page) == 0
    expect(page.get_by_role("button", name="Send")).to_be_in_viewport(ratio=1)
    shot(page, "phone-settings")


def test_the_dashboard_fits_a_phone(server, visit, shot):
    page = visit(f"{server.url}/dashboard", viewport=PHONE)
    expect(page.locator("#state")).to_contain_text("Ready")
    expect(page.locator("#figures tr")).not_to_have_count(0)
    assert overflow(page) == 0
    shot(page, "phone-dashboard")


def test_the_settings_stand_beside_the_conversation_on_a_desk(server, visit, shot):
    page = visit(server.url, viewport={"width": 1280, "height": 800})
    set_up(page, **SHORT)
    await_end(ask(page, "Why is the sky blue?"))
    page.get_by_role("button", name="Settings").click()
    shot(page, "desk-settings")
    log, settings = page.locator("#log").bounding_box(), page.locator("#settings").bounding_box()
    assert log["x"] + log["width"] <= settings["x"]


TEXTS = """() => {
    const opaque = colour => !/, 0\\)$|transparent/.test(colour);
    const ground = element => {
        for (let e = element; e; e = e.parentElement) {
            const { backgroundColor } = getComputedStyle(e);
            if (opaque(backgroundColor)) return backgroundColor;
        }
        return getComputedStyle(document.documentElement).backgroundColor;
    };
    const own = e => [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim());
    return [...document.querySelectorAll('body *')]
        .filter(e => (own(e) || e.matches('input, textarea')) && e.checkVisibility())
        .map(e => {
            const style = getComputedStyle(e);
            const svg = e instanceof SVGElement;
            return [e.tagName + '.' + e.getAttribute('class') + ' ' + e.textContent.slice(0, 20),
                    svg ? style.fill : style.color, ground(e)];
        });
}"""


def luminance(colour: str) -> float:
    """Relative luminance of "rgb(r, g, b)" as WCAG 2.2 defines it."""
    red, green, blue = (float(part) / 255 for part in colour[4:-1].split(","))
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_wcag_does():
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(server, visit, shot, scheme):
    chat = filled_chat(visit, server, color_scheme=scheme)
    chat.get_by_role("button", name="Settings").click()
    dashboard = visit(f"{server.url}/dashboard", color_scheme=scheme)
    expect(dashboard.locator("#figures tr")).not_to_have_count(0)
    texts = chat.evaluate(TEXTS) + dashboard.evaluate(TEXTS)
    weak = [text for text in texts if contrast(*text[1:]) < 4.5]
    shot(chat, f"{scheme}-chat")
    shot(dashboard, f"{scheme}-dashboard")
    assert len(texts) > 60
    assert weak == []


@pytest.mark.parametrize(("motion", "animation"), [("reduce", "none"), ("no-preference", "blink")])
def test_the_cursor_blinks_only_for_those_who_like_it(server, visit, motion, animation):
    page = visit(server.url, reduced_motion=motion)
    name = page.evaluate(
        """() => {
            const box = document.createElement('article');
            box.className = 'message';
            box.setAttribute('aria-busy', 'true');
            box.append(Object.assign(document.createElement('p'), { className: 'text' }));
            document.getElementById('log').append(box);
            return getComputedStyle(box.firstChild, '::after').animationName;
        }"""
    )
    assert name == animation


@pytest.mark.parametrize("path", PAGES)
def test_every_control_has_a_name(server, visit, path):
    page = visit(server.url + path)
    if path == "/":
        page.get_by_role("button", name="Settings").click()
    nameless = page.locator("button, input, select, textarea").evaluate_all(
        "all => all.filter(e => !e.labels?.length && !e.textContent.trim()).map(e => e.id)"
    )
    assert nameless == []
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").count() == page.locator("main").count() == 1


def test_an_answer_is_announced_when_it_is_whole(server, visit):
    page = visit(server.url)
    expect(page.get_by_role("log")).to_have_attribute("aria-label", "Conversation")
    set_up(page, max_tokens=2000)
    answer = ask(page, "Tell a long story.")
    expect(answer).to_have_attribute("aria-busy", "true")
    expect(page.get_by_role("status")).to_have_text("The answer is being written.")
    page.keyboard.press("Escape")
    expect(answer).not_to_have_attribute("aria-busy", "true")
    expect(page.get_by_role("status")).to_have_text("Stopped.")


def test_the_feedback_of_a_grade_fits_a_phone(visit, tmp_path):
    title = "A_very_long_title_" * 8
    exercise = {"exercise": "4.1", "title": title, "status": "failed", "reason": "x"}
    exercise |= {"points": 0, "max_points": 2}
    found = {"submission": f"{'x' * 80}.ipynb", "notes": [], "exercises": [exercise]}
    file = tmp_path / "feedback.html"
    file.write_text(feedback.page(found), encoding="utf-8")
    page = visit(file.as_uri(), viewport=PHONE)
    expect(page.get_by_role("columnheader")).to_have_count(3)
    assert overflow(page) == 0


def test_what_the_settings_cover_takes_no_focus(server, visit):
    page = visit(server.url, viewport={"width": 400, "height": 700})
    page.get_by_role("button", name="Settings").click()
    page.locator("#close-settings").focus()
    page.keyboard.press("Tab")
    expect(page.locator("#prompt")).to_be_focused()
    page.get_by_role("button", name="Close").click()
    page.locator("#log").focus()
    expect(page.locator("#log")).to_be_focused()


def test_the_status_line_is_there_before_it_says_something(server, visit):
    """Screen readers only hear changes of a live region that they have seen before."""
    page = visit(server.url)
    expect(page.locator("#model option")).to_have_count(1)
    expect(page.locator("#status")).to_have_text("")
    expect(page.get_by_role("status")).to_have_count(1)


@pytest.mark.parametrize("path", PAGES)
def test_without_javascript_a_page_says_so(server, visit, path):
    page = visit(server.url + path, java_script_enabled=False)
    note = page.locator("noscript p")
    expect(note).to_be_visible()
    expect(note).to_contain_text("needs JavaScript")


@pytest.mark.parametrize("path", PAGES)
def test_the_pages_work_below_another_path(server, visit, path):
    """Behind a proxy that gives the server a place of its own: /llm/."""

    def proxy(route):
        route.fulfill(response=route.fetch(url=route.request.url.replace("/llm/", "/", 1)))

    def lost(route):
        route.fulfill(status=404, body="not of this server")

    def before(page):
        page.route("**/*", lost)
        page.route("**/llm/**", proxy)

    page = visit(f"{server.url}/llm{path}", before)
    if path == "/":
        expect(page.locator("#model option")).to_have_count(1)
        page.get_by_role("link", name="Dashboard").click()
    expect(page.locator("#state")).to_contain_text("Ready")
    page.get_by_role("link", name="Chat").click()
    expect(page.locator("#model option")).to_have_count(1)
