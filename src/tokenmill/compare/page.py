"""reports/compare.html: a comparison as a page with the look of the run report."""

from pathlib import Path

from markupsafe import Markup

from tokenmill.compare.runs import Comparison, Run
from tokenmill.reports import charts
from tokenmill.reports.page import render, visible

TEMPLATE = Path(__file__).with_name("compare.html")


COLOURS = (1, 3, 4, 2)
"""Series colours, the palest last."""


def render_page(comparison: Comparison) -> str:
    """The whole page."""
    legend = [(colour, visible(run.name)) for colour, run in _runs(comparison)]
    return render(TEMPLATE, c=comparison, curves=_curves(comparison), legend=legend)


def _runs(comparison: Comparison) -> list[tuple[int, Run]]:
    """The different runs with a colour each, as many as there are colours."""
    runs = {id(subject.run): subject.run for subject in comparison.subjects}
    return list(zip(COLOURS, runs.values(), strict=False))


def _curves(comparison: Comparison) -> Markup:
    """Bits per byte by epoch, a line for each run."""
    series = []
    for colour, run in _runs(comparison):
        epochs = [result.epoch for result in run.evaluation.epochs]
        values = [result.bits_per_byte for result in run.evaluation.epochs]
        titles = [f"{visible(run.name)}, epoch {n}: {v:.4f}" for n, v in zip(epochs, values, strict=True)]
        series.append(charts.Series(values, colour, epochs, titles))
    alt = "Bits per byte by epoch, a line for each run; the numbers of the compared epochs are in the table."
    return charts.lines(series, x_label="epoch", y_label="bits per byte", alt=alt)
