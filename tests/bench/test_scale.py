"""The tables of docs/scale.md are those that the model gives, from the measured rates beside it."""

import json

import pytest

from bench.data import scale
from tests.imports import ROOT

FIGURES = json.loads(scale.FIGURES.read_text())
DOCUMENT = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", [scale.rates_table, scale.needs_table, scale.hours_table])
def test_the_document_has_the_table(table) -> None:
    printed = table(FIGURES)
    assert len(printed.splitlines()) > 4
    assert printed in DOCUMENT


def test_the_tokenizer_reads_a_bounded_part_of_the_corpus() -> None:
    machine = scale.MACHINES[-1]
    few, many = (scale.hours(FIGURES, machine, size) for size in (1e12, 1e13))
    assert few.tokenizer == many.tokenizer
    assert few.clean < many.clean


def test_what_one_thread_does_bounds_a_stage() -> None:
    """As many cores as one likes are no faster than the search for the duplicates of a smaller
    text, or the disk."""
    endless = scale.Machine("endless", 10**6, 1e15, 1e15, 1e12, 0.0)
    took = scale.seconds(FIGURES, endless, 1e10, "clean", moved=1)
    assert took == pytest.approx(1e10 / scale.limits(FIGURES)["find duplicates"])
    for stage in ("clean", "tokenize"):
        assert scale.seconds(FIGURES, endless, 1e12, stage, moved=1) == pytest.approx(1.0)


def test_the_rates_in_the_text_are_those_of_the_table() -> None:
    rates = scale.limits(FIGURES)
    assert f"{rates['find duplicates'] / 1e6:,.0f} MB/s" in DOCUMENT
