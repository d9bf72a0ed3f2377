"""The demo in Chromium: an answer as it arrives, escaped, and no request to another machine."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import IN_CHROMIUM, PATIENCE
from tests.demo.demo_project import QUESTION, RECITED
from tests.demo.served import Served
from tests.demo.wanted import wanted
from tokenmill.words.units import visible

OBSERVE = """() => {
    window.seen = [];
    const answer = document.querySelector("#left-answer");
    new MutationObserver(() => {
        const words = answer.querySelector(".words");
        if (words) window.seen.push(words.textContent);
    }).observe(answer, {childList: true, subtree: true, characterData: true});
}"""
"""Note every state of the left answer."""

pytestmark = IN_CHROMIUM


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    """The page, ready to ask; no request leaves this machine."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    requests = list[str]()
    page.on("request", lambda request: requests.append(request.url))
    page.goto(served.url)
    expect(page.get_by_role("combobox", name="Epoch").first).to_have_value("2", timeout=PATIENCE)
    yield page
    context.close()
    assert [
        url for url in requests if not url.startswith((f"{served.url}/", "data:", "blob:"))
    ] == []


def ask(page: Page, prompt: str, answer: str) -> None:
    """Write a prompt, and wait for the answer in the left column."""
    page.locator("#prompt textarea").fill(prompt)
    page.get_by_role("button", name="Write").click()
    words = page.locator("#left-answer .words")
    expect(words).to_have_js_property("textContent", visible(answer), timeout=PATIENCE)


def test_answer_arrives_in_pieces(page: Page, kept: Path):
    page.evaluate(OBSERVE)
    ask(page, QUESTION, wanted(kept, QUESTION, epoch=2))
    states = list(dict.fromkeys(page.evaluate("window.seen")))
    assert len(states) >= 2
    assert all(after.startswith(before) for before, after in pairwise(states))
    expect(page.locator("#right-answer")).to_be_hidden()


def test_click_on_an_example_asks_it_and_the_chat_continues(page: Page, kept: Path):
    page.locator("#examples").get_by_text(QUESTION).click()
    answer = visible(wanted(kept, QUESTION, epoch=2))
    words = page.locator("#left-answer .words")
    expect(words).to_have_js_property("textContent", answer, timeout=PATIENCE)
    page.locator("#prompt textarea").fill("And then?")
    page.locator("#prompt textarea").press("Enter")
    expect(page.locator("#left-answer .asked")).to_have_text(
        [QUESTION, "And then?"], timeout=PATIENCE
    )
    expect(page.locator("#left-answer .speed")).to_have_count(2, timeout=PATIENCE)
    expect(page.locator("#prompt textarea")).to_have_value("")
    page.get_by_role("button", name="New conversation").click()
    expect(page.locator("#left-answer .turn")).to_have_count(0, timeout=PATIENCE)


def test_markup_in_an_answer_is_shown_as_text(page: Page):
    page.locator("#left-model input").click()
    page.get_by_role("option", name="folder ../reciter", exact=True).click()
    page.get_by_label("Text to continue").check()
    ask(page, "", RECITED)
    assert page.locator("#left-answer img, #left-answer b").count() == 0
