"""The page reads what somebody types as `clean` writes the training text."""

import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.publish.node import Node, needs_node, running
from tests.test_normalize import TRAPS
from tokenmill.core.params import Mode
from tokenmill.normalize import normalize_typed
from tokenmill.publish.cleaning import cleaning_rules

pytestmark = needs_node

OLD = st.characters(exclude_categories=["Cs", "Cn", "Co"]).filter(
    lambda char: unicodedata.ucd_3_2_0.category(char) != "Cn"
)
"""Characters that every version of Unicode in use knows."""


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running() as node:
        yield node


@pytest.fixture(scope="module", params=["strict", "balanced", "lenient", "none"])
def mode(node: Node, request: pytest.FixtureRequest) -> Mode:
    """A mode, whose rules the page has."""
    node.ask("rules", rules=cleaning_rules(request.param))
    return request.param


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.sampled_from(TRAPS) | OLD, max_size=40))
@example(text="a\n\n\nb")
@example(text="a\n😀 😀b")
def test_the_page_cleans_as_the_library(node: Node, mode: Mode, text: str):
    cleaned = normalize_typed(text, mode)
    expected = cleaned if cleaned.strip() else text
    assert node.ask("clean", text=text) == expected
