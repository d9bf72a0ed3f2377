"""The published page in Chromium: it answers as the library does, shows what the model thought, and
asks nothing of anybody."""

import functools
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.browser import IN_CHROMIUM, PATIENCE
from tests.publish.site_project import CONTEXT, QUESTION, SAMPLING, TEXT, greedy, make_project
from tests.reports.data_material import HOSTILE
from tokenmill.core.files import write_json
from tokenmill.publish import parts, talk
from tokenmill.publish import site as module
from tokenmill.publish.site import publish
from tokenmill.words.units import visible

BEYOND = """elements => elements.filter(
    each => each.getBoundingClientRect().right > innerWidth).map(each => each.className)"""
"""Elements that reach beyond the window."""

CONTRASTS = """elements => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const luminance = (...colours) => {
        for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((byte) => {
            const part = byte / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const paper = getComputedStyle(document.querySelector(".talk-asked")).backgroundColor;
    return elements.map((each) => {
        const { color, backgroundColor } = getComputedStyle(each);
        const both = [luminance(color), luminance(paper, backgroundColor)].sort((a, b) => b - a);
        return (both[0] + 0.05) / (both[1] + 0.05);
    });
}"""
"""How much text and background differ (WCAG 2.2, contrast ratio) if these tokens are a prompt's."""

pytestmark = IN_CHROMIUM

MISSING_FILE = "ERR_FILE_NOT_FOUND"
"""What Chromium notes when a test has removed the weights."""


@pytest.fixture(scope="module", params=("gpt2", "modern"))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, published once with its weights in the page and once beside it."""
    root = make_project(tmp_path_factory.mktemp(request.param) / "project", request.param)
    publish(root, root / "site", SAMPLING, precision="float16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "INLINE_BYTES", 0)
        patch.setattr(parts, "PART_BYTES", 50_000)
        publish(root, root / "beside", SAMPLING, precision="float16")
    return root


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page; nothing but files may be asked for, and nothing may go wrong."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    requests, errors = list[str](), list[str]()
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    yield page
    context.close()
    assert [url for url in requests if not url.startswith(("file:", "blob:"))] == []
    assert [error for error in errors if MISSING_FILE not in error] == []


AT_ONCE = """
addEventListener("DOMContentLoaded", () => new MutationObserver((_, watch) => {
  if (!(WHEN)) return;
  watch.disconnect();
  WHAT;
}).observe(document.body, { attributes: true, childList: true, subtree: true }));"""
"""Do something in the page as soon as a condition holds."""
WRITES = "document.querySelectorAll('.talk-speed')[TURN]?.dataset.tokens > 5"
"""Whether the answer of a turn is being written."""
CLICK_A_TOKEN = "document.querySelectorAll('.talk-words .talk-token')[2].click()"


def at_once(page: Page, when: str, what: str) -> None:
    page.add_init_script(AT_ONCE.replace("WHEN", when).replace("WHAT", what))


def open_at(page: Page, folder: Path, **address: str | int) -> None:
    page.goto(f"{(folder / 'index.html').as_uri()}?{urlencode(address)}")


def written(page: Page, column: int = 0) -> str:
    """The answer in a column, once it is complete."""
    expect(panel(page, column).locator("table")).to_be_visible(timeout=PATIENCE)
    words = page.locator(".talk-column").nth(column).locator(".talk-words")
    return words.evaluate(
        """answer => {
            const copy = answer.cloneNode(true);
            for (const end of copy.querySelectorAll(".talk-end")) end.remove();
            return copy.textContent;
        }"""
    ).strip()


def column(page: Page, number: int = 0) -> Locator:
    return page.locator(".talk-column").nth(number)


def panel(page: Page, number: int = 0) -> Locator:
    """The likeliest tokens of a column."""
    return page.locator(".talk-panel").nth(number)


def test_two_epochs_answer_as_the_library(page: Page, made: Path):
    open_at(page, made / "site", epoch=2, beside=1, temperature=0, ask=QUESTION)
    for number, epoch in enumerate((2, 1)):
        assert written(page, number) == visible(greedy(made, QUESTION, epoch))
    expect(column(page, 1).locator(".talk-note").first).to_contain_text("same")
    expect(column(page, 0).locator(".talk-report")).to_have_js_property(
        "textContent", visible(HOSTILE)
    )
    assert page.locator(".talk img, .talk b, .talk script").count() == 0


def test_weights_beside_the_page_continue_a_text(page: Page, made: Path, tmp_path: Path):
    folder = tmp_path / "beside"
    shutil.copytree(made / "beside", folder)
    open_at(page, folder, epoch=1, temperature=0, text=TEXT)
    assert written(page) == visible(greedy(made, TEXT, 1, chat=False)).strip()
    shutil.rmtree(folder / "weights")
    open_at(page, folder, text=TEXT)
    expect(page.get_by_role("alert")).to_contain_text("weights/", timeout=PATIENCE)


def test_white_space_around_a_text_is_no_difference(page: Page, made: Path):
    open_at(page, made / "site", epoch=2, temperature=0, text=TEXT)
    written(page)
    expect(column(page).locator(".talk-note").first).to_contain_text("same")
    expect(column(page).locator(".talk-report")).to_have_count(0)


def test_likeliest_tokens_of_both_epochs_are_shown(page: Page, made: Path):
    open_at(page, made / "site", epoch=2, temperature=0, ask=QUESTION)
    written(page)
    tokens = column(page).locator(".talk-words .talk-token")
    tokens.nth(1).hover()
    expect(tokens.nth(1)).to_have_attribute("aria-pressed", "true")
    rows = panel(page).locator("tbody tr")
    expect(rows).to_have_count(10)
    shares = panel(page).locator("td")
    expect(shares.nth(1)).to_contain_text("%", timeout=PATIENCE)  # the epoch before has read it
    assert shares.count() == 20
    expect(rows.first).to_have_class("talk-taken")  # the likeliest was taken
    tokens.nth(1).focus()
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(2)).to_be_focused()
    expect(tokens.nth(2)).to_have_attribute("aria-pressed", "true")
    assert "probability" in (tokens.nth(2).get_attribute("aria-label") or "")
    assert page.locator(".talk *").evaluate_all(BEYOND) == []


def test_a_conversation_goes_on_and_begins_anew(page: Page, made: Path):
    open_at(page, made / "site")
    expect(page.get_by_label("a question")).to_be_checked()
    page.locator("#talk-examples button").first.click()
    written(page)
    page.locator("#talk-prompt").fill("And then?")
    page.locator("#talk-prompt").press("Enter")
    expect(column(page).locator(".talk-asked")).to_have_text([QUESTION, "And then?"])
    expect(page.locator("#talk-write")).to_be_enabled(timeout=PATIENCE)
    page.get_by_role("button", name="New conversation").click()
    expect(column(page).locator(".talk-turn")).to_have_count(0)


@pytest.mark.parametrize("width", [390, 1400])
def test_after_each_answer_the_box_is_in_sight(page: Page, made: Path, width: int):
    page.set_viewport_size({"width": width, "height": 700})
    open_at(page, made / "site", temperature=0)
    box = page.locator("#talk-prompt")
    for turn in range(1, 4):
        box.fill(QUESTION)
        box.press("Enter")
        expect(column(page).locator(".talk-speed:not(:empty)")).to_have_count(turn)
        expect(page.locator("#talk-write")).to_be_enabled(timeout=PATIENCE)
        expect(box).to_be_in_viewport(ratio=1)
        expect(column(page).locator(".talk-words").last).to_be_in_viewport()
    column(page).locator(".talk-token").first.hover()
    if width > 1000:  # the tokens stay beside the conversation
        expect(panel(page)).to_be_in_viewport(ratio=1)


def test_a_reader_who_scrolls_is_left_alone(page: Page, made: Path):
    open_at(page, made / "site", max_new_tokens=1024, temperature=2, top_k=0, text="a")
    expect(column(page).locator(".talk-speed")).to_contain_text("tokens")
    page.evaluate("scrollTo(0, 0)")
    expect(page.locator("#talk-write")).to_be_enabled(timeout=PATIENCE)
    assert page.evaluate("scrollY") == 0


def test_what_is_refused_is_said(page: Page, made: Path):
    open_at(page, made / "site", temperature=9, ask=QUESTION)
    field = page.locator("#talk-temperature")
    expect(field).to_be_focused()  # so it is not folded
    field.fill("0")
    page.locator("#talk-prompt").fill(QUESTION)
    page.locator("#talk-prompt").press("Enter")
    written(page)
    open_at(page, made / "site", epoch=7, ask=QUESTION)
    expect(page.get_by_role("alert")).to_contain_text("epoch 7")
    expect(page.locator(".talk-turn")).to_have_count(0)


def test_a_question_is_read_as_the_text_was_cleaned(page: Page, made: Path):
    open_at(page, made / "site", temperature=0, text="The\u00a0river, it’s")
    written(page)
    expect(column(page).locator(".talk-asked")).to_have_text("The river, it's")


def test_a_long_answer_is_stopped(page: Page, made: Path):
    open_at(page, made / "site", max_new_tokens=1024, temperature=2, top_k=0, text="a")
    speed = column(page).locator(".talk-speed")
    expect(speed).to_contain_text("tokens")
    page.locator("#talk-prompt").press("Escape")
    expect(page.locator("#talk-write")).to_be_enabled(timeout=PATIENCE)
    assert 0 < int(speed.get_attribute("data-tokens") or 0) <= 1024
    page.locator("#talk-prompt").fill("c")
    page.get_by_role("button", name="Write").click()
    page.keyboard.press("Escape")
    expect(page.locator("#talk-write")).to_be_focused(timeout=PATIENCE)
    page.locator("#talk-prompt").fill("d")
    page.locator("#talk-prompt").press("Enter")
    page.locator("#talk-left").select_option("epoch 1")  # ends the answer of the other one
    expect(page.locator("#talk-write")).to_be_enabled(timeout=PATIENCE)
    expect(page.locator(".talk-turn")).to_have_count(0)
    page.locator("#talk-prompt").fill("b")
    page.locator("#talk-prompt").press("Enter")
    page.get_by_role("button", name="New conversation").click()
    expect(page.locator("#talk-write")).to_be_enabled(timeout=PATIENCE)
    expect(page.locator(".talk-turn, .talk-panel table")).to_have_count(0)


def test_stopping_while_weights_are_read_writes_nothing(page: Page, made: Path):
    held = list[Route]()

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/weights/*", hold, times=1)
    with page.expect_request("**/weights/*"):
        page.goto(f"{(made / 'beside/index.html').as_uri()}?text=a", wait_until="commit")
    page.get_by_role("button", name="Stop").click()
    held.pop().continue_()
    expect(page.locator("#talk-write")).to_be_enabled(timeout=PATIENCE)
    tokens = column(page).locator(".talk-turn").first.locator(".talk-token")
    expect(tokens).to_have_count(0)
    page.locator("#talk-prompt").fill("b")
    page.locator("#talk-prompt").press("Enter")
    expect(panel(page).locator("table")).to_be_visible(timeout=PATIENCE)
    expect(column(page).locator(".talk-turn")).to_have_count(2)
    expect(tokens).to_have_count(0)


def test_a_token_chosen_while_it_writes_is_compared_later(page: Page, made: Path):
    at_once(page, WRITES.replace("TURN", "0"), CLICK_A_TOKEN)
    open_at(page, made / "site", epoch=2, max_new_tokens=300, temperature=2, top_k=0, text="a")
    expect(page.locator("#talk-write")).to_be_enabled(timeout=PATIENCE)
    column(page).locator(".talk-words .talk-token").last.hover()
    expect(panel(page).locator("td").nth(1)).to_contain_text("%", timeout=PATIENCE)


def test_a_new_conversation_hears_nothing_of_the_old_one(page: Page, made: Path):
    compared = "document.querySelectorAll('.talk-panel td')[1]?.textContent.includes('%')"
    at_once(
        page, compared, "document.getElementById('talk-anew').click(); document.body.id = 'began'"
    )
    open_at(page, made / "site", epoch=2, max_new_tokens=900, temperature=2, top_k=0, text="a")
    expect(page.locator("#began")).to_be_attached(timeout=PATIENCE)
    page.wait_for_timeout(500)
    assert page.locator(".talk-turn, .talk-panel table").count() == 0


def test_a_comparison_that_fails_ends_no_answer(
    page: Page, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As with large weights: they write slowly, and are compared when a token is clicked."""
    read = talk._file
    large = {
        r"AUTOMATIC = [0-9_]+": "AUTOMATIC = 0",
        "yield step;": "for (const began = Date.now(); Date.now() < began + 10;); yield step;",
    }

    def changed(name: str) -> str:
        return functools.reduce(lambda text, pair: re.sub(*pair, text), large.items(), read(name))

    monkeypatch.setattr(talk, "_file", changed)
    monkeypatch.setattr(module, "INLINE_BYTES", 0)
    publish(made, tmp_path / "site", SAMPLING)
    for weights in (tmp_path / "site/weights").glob("epoch-1-*"):
        weights.unlink()
    at_once(page, WRITES.replace("TURN", "1"), CLICK_A_TOKEN)
    open_at(page, tmp_path / "site", epoch=2, max_new_tokens=99, temperature=0, text=TEXT)
    written(page)
    page.locator("#talk-prompt").fill(TEXT)
    page.locator("#talk-prompt").press("Enter")
    speed = column(page).locator(".talk-speed").nth(1)
    expect(speed).to_contain_text("tokens")
    expect(page.locator("#talk-write")).to_be_enabled(timeout=PATIENCE)
    tokens = speed.get_attribute("data-tokens")
    expect(page.get_by_role("alert")).to_contain_text("weights/", timeout=PATIENCE)
    page.wait_for_timeout(500)
    assert speed.get_attribute("data-tokens") == tokens


def test_what_was_left_out_is_said_beside_the_report(page: Page, made: Path, tmp_path: Path):
    copy = shutil.copytree(made, tmp_path / "copy", ignore=shutil.ignore_patterns("site", "beside"))
    file = copy / "reports/evaluation.json"
    evaluation = json.loads(file.read_text(encoding="utf-8"))
    for question in evaluation["questions"]:
        question["kind"] = "text"
    evaluation["questions"][3]["prompt"] = TEXT * CONTEXT
    write_json(file, evaluation)
    publish(copy, copy / "site", replace(SAMPLING, max_new_tokens=1000))
    open_at(page, copy / "site")
    expect(page.get_by_label("a text to continue")).to_be_checked()
    open_at(page, copy / "site", epoch=2, temperature=0, text=TEXT * CONTEXT)
    note = column(page).locator(".talk-note").first
    expect(column(page).locator(".talk-report")).to_have_count(1, timeout=PATIENCE)
    expect(note).to_contain_text(f"the last {CONTEXT}")
    at_once(page, WRITES.replace("TURN", "0"), "document.getElementById('talk-stop').click()")
    page.reload()
    written(page)
    assert int(column(page).locator(".talk-speed").get_attribute("data-tokens") or 0) < 1000
    expect(column(page).locator(".talk-report")).to_have_count(0)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [("worker-src 'none'", "starts no worker"), ("script-src 'none'", "its JavaScript must run")],
)
def test_a_page_that_may_not_run_says_so(browser: Browser, made: Path, policy: str, sentence: str):
    """As on a server that forbids it."""
    headers = {"Content-Security-Policy": policy}
    body = (made / "site/index.html").read_text(encoding="utf-8")
    page = browser.new_page()
    page.route("**/*", lambda route: route.fulfill(body=body, headers=headers))
    page.goto("http://site.example/?text=a")
    expect(page.locator(".talk").get_by_text(sentence)).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#talk-stop")).to_be_disabled()
    page.close()


def test_weights_beyond_the_memory_are_told_of(page: Page, made: Path, tmp_path: Path):
    text = (made / "site/index.html").read_text(encoding="utf-8")
    text, changed = re.subn(r'"bytes": ?[0-9]+', '"bytes":1e15', text)
    assert changed
    (tmp_path / "index.html").write_text(text, encoding="utf-8")
    open_at(page, tmp_path, temperature=0, text=TEXT)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The models cannot run in this browser: ", timeout=PATIENCE)
    expect(page.locator("#talk-write")).to_be_enabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_token_of_any_loss_can_be_read(page: Page, made: Path, scheme: Literal["light", "dark"]):
    page.emulate_media(color_scheme=scheme)
    open_at(page, made / "site", temperature=0, text=TEXT)
    written(page)
    contrasts = page.locator(".talk-scale .talk-token").evaluate_all(CONTRASTS)
    assert len(contrasts) == 5
    assert min(contrasts) >= 4.5
    assert contrasts == sorted(contrasts, reverse=True)
