"""The demo in Chromium: clicks, answers as they arrive, two at once, errors, and nothing that leaves the machine."""

import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from tests.demo.demo_project import CONTINUED, ENDLESS, EXPERIMENT, QUESTION, RECITED
from tests.demo.served import Served
from tests.demo.wanted import wanted
from tokenmill.reports.page import excerpt

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
OPTIONS += ["--disable-component-update", "--disable-sync", "--no-sandbox"]  # root has no sandbox
PATIENCE = 60_000
"""Milliseconds; a busy machine is no bug."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; `apt install chromium` brings it"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    """The page; nothing that is written on it may be run."""
    page, dialogs = opened(browser, served), list[str]()

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    yield page
    page.context.close()
    assert dialogs == []


def opened(browser: Browser, served: Served, **settings: object) -> Page:
    """The page, ready to ask."""
    context = browser.new_context(**settings)  # pyright: ignore[reportArgumentType]
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(served.url)
    expect(page.get_by_role("combobox", name="Epoch").first).to_have_value("2", timeout=PATIENCE)
    return page


def choose(page: Page, side: str, model: str, epoch: int | None = None) -> None:
    page.locator(f"#{side}-model input").click()
    page.get_by_role("option", name=model, exact=True).click()
    if epoch is not None:
        expect(page.locator(f"#{side}-epoch")).to_be_visible(timeout=PATIENCE)
        expect(page.locator(f"#{side}-epoch input")).not_to_have_value("", timeout=PATIENCE)
        page.locator(f"#{side}-epoch input").click()
        page.get_by_role("option", name=str(epoch), exact=True).click()


def ask(page: Page, prompt: str) -> None:
    page.locator("#prompt textarea").fill(prompt)
    page.get_by_role("button", name="Write").click()


def answer_is(page: Page, side: str, text: str) -> None:
    """Wait for the answer; white space as it stands."""
    words = page.locator(f"#{side}-answer .words")
    expect(words).to_have_js_property("textContent", excerpt(text, len(text)), timeout=PATIENCE)


def test_an_answer_arrives_in_pieces(page: Page, kept: Path):
    choose(page, "left", "this run", 1)
    page.evaluate("""() => {
        window.seen = [];
        const answer = document.querySelector("#left-answer");
        new MutationObserver(() => {
            const words = answer.querySelector(".words");
            if (words) window.seen.push(words.textContent);
        }).observe(answer, {childList: true, subtree: true, characterData: true});
    }""")
    ask(page, QUESTION)
    text = wanted(kept, QUESTION, epoch=1)
    answer_is(page, "left", text)
    states = list(dict.fromkeys(page.evaluate("window.seen")))
    assert len(states) >= 2
    assert all(after.startswith(before) for before, after in pairwise(states))
    expect(page.locator("#left-answer .speed")).to_have_text(re.compile(r"^\d+ tokens in [\d.]+ s, [\d,]+ tokens/s$"))
    expect(page.locator("#right-answer")).to_be_hidden()


def test_two_answer_side_by_side(page: Page, kept: Path):
    choose(page, "left", "this run", 1)
    choose(page, "right", f"experiment {EXPERIMENT}", 3)
    ask(page, "hello")
    answer_is(page, "left", wanted(kept, "hello", epoch=1))
    answer_is(page, "right", wanted(kept, "hello", rev=EXPERIMENT, epoch=3))
    left, right = (page.locator(f"#{side}-answer").bounding_box() for side in ("left", "right"))
    assert left
    assert right
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]


def test_an_error_is_a_sentence_and_the_page_lives_on(page: Page, served: Served, kept: Path):
    choose(page, "left", "folder ../damaged")
    expect(page.locator("#left-epoch")).to_be_hidden()
    ask(page, "hello")
    expect(page.locator("#left-answer [role=alert]")).to_contain_text("model.safetensors is damaged", timeout=PATIENCE)
    choose(page, "left", "this run", 2)
    ask(page, "hello")
    answer_is(page, "left", wanted(kept, "hello", epoch=2))
    assert "Traceback" not in served.log.read_text(encoding="utf-8")


def test_what_a_model_writes_is_shown_and_never_run(page: Page):
    choose(page, "left", "folder ../reciter")
    page.get_by_label("Text to continue").check()
    ask(page, "")
    answer_is(page, "left", RECITED)
    assert page.locator("#left-answer img, #left-answer b").count() == 0
    assert "⟨U+202E⟩ ␀" in page.locator("#left-answer .words").inner_text()


@pytest.mark.parametrize(
    "prompt",
    ["long " * 40_000, "👩‍👩‍👧 שלום \u202e مرحبا \x07 <script>alert(1)</script> ${1} {{1}}", "", " \n "],
    ids=["long", "odd", "empty", "blank"],
)
def test_any_prompt_is_answered(page: Page, kept: Path, prompt: str):
    ask(page, prompt)
    answer_is(page, "left", wanted(kept, prompt, epoch=2))
    left_out = page.locator("#left-answer .quiet").all_inner_texts()[:-1]
    assert bool(left_out) == (len(prompt) > 10)


def test_several_readers_at_the_same_time_get_their_own_answers(browser: Browser, served: Served, kept: Path):
    pages = [opened(browser, served) for _ in range(3)]
    prompts = ["one", "two", "three"]
    for page, prompt in zip(pages, prompts, strict=True):
        choose(page, "right", "this run", 1)
        page.locator("#prompt textarea").fill(prompt)
    for page in pages:
        page.get_by_role("button", name="Write").click()
    for page, prompt in zip(pages, prompts, strict=True):
        answer_is(page, "left", wanted(kept, prompt, epoch=2))
        answer_is(page, "right", wanted(kept, prompt, epoch=1))
        page.context.close()


def test_stop_ends_an_answer_and_leaves_what_there_is(page: Page):
    choose(page, "left", "folder ../endless")
    page.get_by_label("Text to continue").check()
    page.get_by_role("button", name="Sampling").click()
    page.get_by_label("number input for Length in tokens").fill("1024")
    page.get_by_label("number input for Length in tokens").press("Tab")
    ask(page, "")
    words = page.locator("#left-answer .words")
    expect(words).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Stop").click()
    page.wait_for_timeout(500)
    stopped = words.inner_text()
    page.wait_for_timeout(1000)
    assert words.inner_text() == stopped
    assert stopped
    assert len(stopped) < 1024
    assert (ENDLESS * 8).startswith(stopped[: len(ENDLESS)])


def test_the_prompts_of_the_evaluation_are_a_click_away(page: Page):
    for text, kind in ((CONTINUED, "Text to continue"), (QUESTION, "Question")):
        page.locator("#examples").get_by_text(text).click()
        expect(page.locator("#prompt textarea")).to_have_value(text)
        expect(page.get_by_label(kind, exact=True)).to_be_checked()


def test_nothing_is_asked_of_any_other_machine(browser: Browser, served: Served):
    context = browser.new_context()
    page = context.new_page()
    asked, refused = list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: refused.append(message.text) if message.type == "error" else None)
    page.goto(served.url)
    expect(page.get_by_role("combobox", name="Epoch").first).to_have_value("2", timeout=PATIENCE)
    ask(page, "hello")
    expect(page.locator("#left-answer .speed")).to_be_visible(timeout=PATIENCE)
    context.close()
    assert len(asked) > 20
    assert [url for url in asked if not url.startswith((f"{served.url}/", "data:", "blob:"))] == []
    assert refused == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_the_colours_of_the_reports(browser: Browser, served: Served, scheme: str):
    page = opened(browser, served, viewport={"width": 390, "height": 844}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(253, 253, 252)", "dark": "rgb(21, 22, 26)"}[scheme]
    page.context.close()
