"""Changes of a text as a page marks them."""

from pathlib import Path

import pytest

from tokenmill.reports.answers import changes
from tokenmill.reports.page import render


def marked(folder: Path, before: str, after: str) -> str:
    template = folder / "page.html"
    template.write_text('{% import "versions.html" as versions %}[{{ versions.changed(spans) }}]')
    return render(template, spans=changes(before, after))


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("a red cat", "a blue cat", "[a <del>red</del> <ins>blue</ins> cat]"),
        ("one two", "one", "[one <del>two</del> ]"),
        ("one", "one two", "[one <ins>two</ins>]"),
        ("a b c", "a c", "[a <del>b</del> c]"),
        ("a b", "a b  ", "[a b  ]"),
        ("is it <b>", "is it <i>", "[is it &lt;<del>b</del> <ins>i</ins>&gt;]"),
    ],
)
def test_words_stay_apart_and_escaped(tmp_path: Path, before: str, after: str, shown: str):
    assert marked(tmp_path, before, after) == shown
