"""The table of docs/scale.md is the one that the calculator gives."""

from bench.scale_table import MODELS, table
from tests.imports import ROOT


def test_the_document_has_the_table() -> None:
    printed = table()
    assert len(printed.splitlines()) == 2 + 3 * len(MODELS)
    assert printed in (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
