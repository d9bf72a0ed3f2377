"""reports/compare.html: a comparison as a page with the look of the run report."""

from collections.abc import Sequence

from tokenmill.compare.comparison import Comparison
from tokenmill.compare.runs import ComparedRun
from tokenmill.core.units import visible
from tokenmill.reports.charts import Chart, Series, line_chart
from tokenmill.reports.page import render

COLOURS = (1, 3, 4, 2)
"""Colours of the runs, the palest last. Further runs are not drawn."""


def render_page(comparison: Comparison) -> str:
    """The whole page."""
    runs = list(zip(COLOURS, comparison.runs, strict=False))
    legend = [(colour, visible(run.name)) for colour, run in runs]
    return render("compare.html", comparison=comparison, curves=_curves(runs), legend=legend)


def _curves(runs: Sequence[tuple[int, ComparedRun]]) -> Chart:
    """Bits per byte by epoch, a line for each run."""
    series = []
    for colour, run in runs:
        epochs = [result.epoch for result in run.evaluation.epochs]
        values = [result.bits_per_byte for result in run.evaluation.epochs]
        titles = [f"{visible(run.name)}, epoch {n}: {v:.4f}" for n, v in zip(epochs, values, strict=True)]
        series.append(Series(values, colour, epochs, titles))
    alt = "Bits per byte by epoch, a line for each run; the numbers of the compared epochs are in the table."
    return line_chart(series, x_label="epoch", y_label="bits per byte", alt=alt)
