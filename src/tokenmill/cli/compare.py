"""`tokenmill compare`: epochs and experiments side by side, also as reports/compare.html.

Changed words are marked by colours if the terminal has them, otherwise by signs.
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tokenmill.cli.main import Parser
from tokenmill.core.files import write_text
from tokenmill.display import console, print_blocks, say
from tokenmill.reports.charts import Chart, Series, line_chart
from tokenmill.words.units import message

if TYPE_CHECKING:
    import pandas as pd

    from tokenmill.reports.answers import PromptAnswers, Version
    from tokenmill.runs.comparison import ComparedRun, Comparison

PAGE = Path("reports/compare.html")

COLOURS = (1, 3, 4, 2)
"""The numbers of the colours of the runs, the palest last. Further runs are not drawn."""

SIGNS = {"same": ("", ""), "added": ("{+", "+}"), "removed": ("[-", "-]")}
"""The signs around words of each kind, as in `git diff --word-diff`."""

STYLES = {"same": "", "added": "bold green", "removed": "strike red"}

NARROWEST = 40
"""The width in columns that a terminal is assumed to have at least."""

LONGEST = 300
"""The most characters of an answer in the terminal. The page shows all of it."""


EXAMPLES = """\
  tokenmill compare                     the first and the last epoch
  tokenmill compare epoch-1 epoch-4     any epochs of the run in the workspace
  tokenmill compare HEAD                the last commit and the workspace
  tokenmill compare HEAD~1 blest-jube   commits, branches, tags, experiments (see `tokenmill runs`)
  tokenmill compare main:2 workspace:2  their second epochs
"""


def add_arguments(parser: Parser) -> None:
    """Declare what to compare."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="REV",
        help=(
            "workspace, epoch-N, a git revision or a DVC experiment; "
            "REV:N is its epoch N (default: its last epoch)"
        ),
    )


def run(options: argparse.Namespace) -> None:
    """Print the comparison and write the page."""
    from tokenmill.runs.comparison import Comparison, find_epochs  # noqa: PLC0415 (pandas)

    comparison = Comparison(find_epochs(Path(), options.names))
    write_text(PAGE, render_page(comparison))
    width = max(shutil.get_terminal_size().columns, NARROWEST)
    print_comparison(comparison, console(width=width))
    say(f"\nas a page: {PAGE}")


def render_page(comparison: "Comparison") -> str:
    """Render the whole page."""
    from tokenmill.reports.page import render  # noqa: PLC0415 (jinja2)

    runs = list(zip(COLOURS, comparison.runs, strict=False))
    legend = [(colour, run.name) for colour, run in runs]
    return render("compare.html", comparison=comparison, curves=_curves(runs), legend=legend)


def _curves(runs: Sequence[tuple[int, "ComparedRun"]]) -> Chart:
    """A chart of bits per byte by epoch, with a line for each run."""
    series = []
    for colour, run in runs:
        epochs = [result.epoch for result in run.evaluation.epochs]
        values = [result.bits_per_byte for result in run.evaluation.epochs]
        titles = [f"{run.name}, epoch {n}: {v:.4f}" for n, v in zip(epochs, values, strict=True)]
        series.append(Series(values, colour, epochs, titles))
    alt = (
        "Bits per byte by epoch, a line for each run; "
        "the numbers of the compared epochs are in the table."
    )
    return line_chart(series, x_label="epoch", y_label="bits per byte", alt=alt)


def print_comparison(comparison: "Comparison", screen: Console) -> None:
    """Print the whole comparison."""
    colours = bool(screen.color_system) and not screen.no_color
    blocks: list[RenderableType] = [_table("", comparison.measures)]
    if comparison.caution:
        blocks.append(Text(comparison.caution))
    if not comparison.settings.empty:
        blocks.append(_table("what differs", comparison.settings))
    blocks += [_prompt(prompt, colours=colours) for prompt in comparison.prompts]
    print_blocks([part for block in blocks for part in (Text(), block)][1:], screen)


def _table(title: str, table: "pd.DataFrame") -> Table:
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="none")
    shown.add_column(title, overflow="fold")
    for name in table.columns:
        shown.add_column(_line(name), justify="right", overflow="fold")
    for name, *cells in table.itertuples(name=None):
        shown.add_row(_line(name), *map(_line, cells))
    return shown


def _prompt(one: "PromptAnswers", *, colours: bool) -> RenderableType:
    answers = Table.grid(padding=(0, 2, 0, 0))
    answers.add_column(overflow="fold", max_width=24)
    answers.add_column()
    answers.add_column(overflow="fold")
    for version in one.versions:
        answers.add_row(_line(version.name), version.mark, _answer(version, colours=colours))
    return Group(_line(one.question.prompt), Padding(answers, (0, 0, 0, 2)))


def _answer(version: "Version", *, colours: bool) -> Text:
    if version.answer is None:
        return Text("(not asked)")
    if version.is_unchanged:
        return Text("(unchanged)")
    if not version.answer.greedy:
        return Text("(nothing)")
    shown = Text()
    for span in version.spans:
        begin, end = ("", "") if colours else SIGNS[span.kind]
        words = _one_line(span.text)
        shown.append(" " if span.text[:1].isspace() else "")
        if words:
            shown.append(f"{begin}{words}{end}", style=STYLES[span.kind] if colours else "")
            shown.append(" " if span.kind == "removed" or span.text[-1:].isspace() else "")
    shown.truncate(LONGEST, overflow="ellipsis")
    return shown


def _line(text: str) -> Text:
    return Text(_one_line(text))


def _one_line(text: str) -> str:
    return message(" ".join(text.split()))  # here, because LONGEST counts what is shown
