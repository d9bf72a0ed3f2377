"""The demo in Chromium: the greedy answers of PyTorch, of any model, and of two side by side."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import IN_CHROMIUM, PATIENCE
from tests.demo.demo_project import RECITED, index_training_text
from tests.demo.served import SAMPLING, Served, pages_of, served_by_a_thread
from tests.publish.test_talk import BEYOND, panel, written
from tokenmill.runs.find import find_model
from tokenmill.runs.writer import Writer
from tokenmill.words.units import visible

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
    yield page
    context.close()
    assert [url for url in requests if not url.startswith((f"{served.url}/", "blob:"))] == []


def choose(page: Page, model: Path) -> None:
    """A folder, whose texts shall be continued up to their end."""
    page.locator("#talk-left").select_option(label=str(model))
    page.get_by_label("a text to continue").check()
    page.get_by_text("How it writes").click()
    page.locator("#talk-max_new_tokens").fill("128")


def greedy(model: Path) -> str:
    """What the library writes."""
    writer = Writer.load(find_model(model.parent, model=model), "cpu")
    return visible("".join(writer.stream("hello", SAMPLING, chat=True)))


def test_models_of_two_tokenizers_answer_as_the_library(page: Page, project: Path):
    other = project.parent / "other"
    page.locator("#talk-right").select_option(label=str(other))
    page.get_by_role("button", name="hello").click()
    assert written(page, 1) == greedy(other)
    expect(panel(page, 0).locator("table")).to_be_visible(timeout=PATIENCE)
    writer = Writer.load(find_model(project, epoch=2), "cpu")
    answer = "".join(writer.stream("hello", SAMPLING, chat=True))
    assert written(page, 0) == visible(answer).strip()
    assert page.get_by_role("button", name="training text").count() == 0  # no index here


def test_markup_and_damage_are_shown_as_text(page: Page, project: Path):
    choose(page, project.parent / "reciter")
    page.get_by_role("button", name="Write").click()
    assert written(page) == visible(RECITED)
    assert page.locator(".talk-words img, .talk-words b").count() == 0
    page.locator("#talk-left").select_option(label=str(project.parent / "damaged"))
    page.get_by_role("button", name="Write").click()
    expect(page.get_by_role("alert")).to_contain_text("model.safetensors is damaged")


def test_an_answer_shows_where_it_stands_in_the_text(browser: Browser, project: Path, copy: Path):
    shutil.copytree(project.parent / "reciter", copy.parent / "reciter")
    index_training_text(copy)
    with served_by_a_thread(pages_of(copy, "reciter")) as served:
        page = browser.new_page()
        page.goto(served.url)
        choose(page, copy.parent / "reciter")
        page.get_by_role("button", name="Write").click()
        button = page.get_by_role("button", name="training text")
        button.press("Enter", timeout=PATIENCE)
        phrase = page.locator(".traced mark").first
        expect(phrase).to_have_text("img src=x onerror=alert(1)>", timeout=PATIENCE)
        expect(page.locator(".spans .passage mark").first).to_have_text(
            "img src=x onerror=alert(1)>"
        )
        expect(page.locator(".spans .passage .faded").first).to_have_text("b.txt, document 2")
        expect(page.locator("[role=status]").filter(has=phrase)).to_be_focused()
        expect(button).to_have_count(0)
        page.close()


def test_a_demo_that_has_ended_is_told_of_with_its_command(browser: Browser, copy: Path):
    page = browser.new_page()
    with served_by_a_thread(pages_of(copy)) as served:
        page.goto(served.url)
    page.locator("#talk-left").select_option(label="epoch 1")
    page.get_by_role("button", name="hello").click()
    alert = page.get_by_role("alert")
    expect(alert.locator("code")).to_have_text("tokenmill demo", timeout=PATIENCE)
    assert "`" not in alert.inner_text()
    page.close()


@pytest.mark.parametrize("width", [320, 768])
def test_long_names_of_models_widen_no_page(page: Page, width: int):
    page.set_viewport_size({"width": width, "height": 800})
    assert page.locator(".talk *").evaluate_all(BEYOND) == []
