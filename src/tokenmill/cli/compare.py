"""`tokenmill compare`: epochs and experiments side by side, also as reports/compare.html.

Changed words are marked by colours if the terminal has them, otherwise by signs.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tokenmill.cli.main import Parser, add_json
from tokenmill.cli.runs import COMMITS
from tokenmill.core.errors import UserError
from tokenmill.core.files import NOT_PERMITTED, write_text
from tokenmill.display import console, note, print_blocks, print_columns, print_record, say
from tokenmill.reports.charts import MOST_LINES, Chart, Series, line_chart, line_look
from tokenmill.words.units import fixed, message

if TYPE_CHECKING:
    from tokenmill.reports.answers import PromptAnswers, Version
    from tokenmill.runs.comparison import ComparedEpoch, ComparedRun, Comparison

PAGE = Path("reports/compare.html")

SIGNS = {"same": ("", ""), "added": ("{+", "+}"), "removed": ("[-", "-]")}
"""The signs around words of each kind, as in `git diff --word-diff`."""

BEST = "* "
"""The sign before the best value of a row."""

STYLES = {"same": "", "added": "bold green", "removed": "strike red"}

LONGEST = 300
"""The most characters of an answer in the terminal. The page shows all of it."""


EXAMPLES = """\
  tokenmill compare                     the first and the last epoch
  tokenmill compare epoch-1 epoch-4     any epochs of the run in the workspace
  tokenmill compare HEAD                the last commit and the workspace
  tokenmill compare HEAD~1 blest-jube   commits, branches, tags, experiments (see `tokenmill runs`)
  tokenmill compare main:2 workspace:2  their second epochs
  tokenmill compare --all               all runs as a page, with their curves and with filters
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
    parser.add_argument(
        "--all", action="store_true", help="all that `tokenmill runs` lists, as a page only"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Print the comparison and write the page."""
    from tokenmill.runs.comparison import Comparison, find_all, find_epochs

    if options.all:
        if options.names:
            raise UserError(f"--all names every run; leave out {' '.join(options.names)}.")
        from tokenmill.runs.table import names_of_runs

        epochs = find_all(Path(), names_of_runs(Path(), commits=COMMITS))
    else:
        epochs = find_epochs(Path(), options.names)
    comparison = Comparison(epochs)
    if options.json:
        print_record(_record(comparison))
    elif not options.all:
        print_comparison(comparison)
    try:
        write_text(PAGE, render_page(comparison))
    except OSError as error:
        if options.all or error.errno not in NOT_PERMITTED:
            raise
        note(f"not written as a page: {PAGE}: {error.strerror}")
        return
    if options.json:
        return
    if options.all:
        say(f"{len(epochs)} runs side by side: {PAGE}")
        for names in comparison.equal:
            say(f"the same results and parameters: {', '.join(names)}")
    else:
        say(f"\nas a page: {PAGE}")


def _record(comparison: "Comparison") -> dict[str, Any]:
    """The comparison for programs."""
    settings = comparison.settings.items()
    prompts = [
        {
            "prompt": one.question.prompt,
            "expect": one.question.expect,
            "answers": [version.answer and version.answer.model_dump() for version in one.versions],
        }
        for one in comparison.prompts
    ]
    return {
        "columns": [_column(epoch) for epoch in comparison.epochs],
        "caution": comparison.caution,
        "settings": [{"name": name, "values": values} for name, values in settings],
        "prompts": prompts,
    }


def _column(epoch: "ComparedEpoch") -> dict[str, Any]:
    result = epoch.result
    return {
        "name": epoch.name,
        "same": epoch.same,
        **result.model_dump(exclude={"answers"}),
        "epochs": len(epoch.run.evaluation.epochs),
        "right": sum(result.expected),
        "asked": len(result.expected),
        "repetition": result.repetition,
        "steps": epoch.row.step,
        "tokens": epoch.row.tokens,
        "parameters": epoch.run.parameters,
    }


def render_page(comparison: "Comparison") -> str:
    """Render the whole page."""
    from tokenmill.reports.page import render

    drawn = comparison.runs[:MOST_LINES]
    return render(
        "compare.html",
        comparison=comparison,
        curves=[_validation(drawn), _training(drawn)],
        drawn=len(drawn),
        filters=_filters(comparison),
    )


@dataclass(frozen=True)
class Choice:
    """A checkbox of the page, which shows or hides runs."""

    label: str
    columns: Sequence[int]
    """The columns of these runs, from 1."""
    lines: Sequence[int]
    """The numbers of their lines, from 1."""


def _filters(comparison: "Comparison") -> list[tuple[str, list[Choice]]]:
    """For the runs, and for each parameter that differs between them, its values to choose from;
    none where there are only two columns, or one run."""
    if len(comparison.epochs) < 3 or len(comparison.runs) < 2:
        return []
    runs = [epoch.run.name for epoch in comparison.epochs]
    rows = [("run", runs), *comparison.settings.items()]
    return [(name, _choices(comparison, cells)) for name, cells in rows]


def _choices(comparison: "Comparison", values: Sequence[str]) -> list[Choice]:
    lines = {id(run): number for number, run in enumerate(comparison.runs, start=1)}
    choices = []
    for value in dict.fromkeys(values):
        columns = [number for number, one in enumerate(values, start=1) if one == value]
        runs = {lines[id(comparison.epochs[number - 1].run)] for number in columns}
        choices.append(Choice(value, columns, sorted(runs)))
    return choices


def _validation(runs: "Sequence[ComparedRun]") -> Chart:
    """A chart of bits per byte by epoch, with a line for each run."""
    series = []
    for number, run in enumerate(runs):
        epochs = [result.epoch for result in run.evaluation.epochs]
        values = [result.bits_per_byte for result in run.evaluation.epochs]
        titles = [f"{run.name}, epoch {n}: {fixed(v)}" for n, v in zip(epochs, values, strict=True)]
        series.append(_series(number, run, values, epochs, titles))
    alt = (
        "Bits per byte by epoch, a line for each run; "
        "the numbers of the compared epochs are in the table."
    )
    label = "bits per byte, logarithmic"
    return line_chart(series, log="y", x_label="epoch", y_label=label, alt=alt)


def _training(runs: "Sequence[ComparedRun]") -> Chart:
    """A chart of the training loss by the tokens read, with a line for each run."""
    from tokenmill.reports.run_report import means

    series = []
    for number, run in enumerate(runs):
        steps, losses = means(run.steps, "loss")
        tokens = run.history[-1].tokens / run.history[-1].step
        series.append(_series(number, run, losses, [round(step * tokens) for step in steps]))
    return line_chart(
        series,
        log="y",
        x_label="tokens read",
        y_label="nats per token, logarithmic",
        alt="Training loss by the number of tokens read, a line for each run.",
    )


def _series(
    number: int,
    run: "ComparedRun",
    values: Sequence[float],
    x: Sequence[int],
    titles: Sequence[str] = (),
) -> Series:
    """The line of a run, given its number from 0."""
    colour, stroke = line_look(number)
    return Series(values, colour, run.name, x, titles, f"line-{number + 1} {stroke}")


def print_comparison(comparison: "Comparison", out: TextIO | None = None) -> None:
    """Print the whole comparison on `out`, or on stdout."""
    screen = console(out)
    colours = bool(screen.color_system) and not screen.no_color
    best = comparison.best
    measures = {
        name: [BEST * (name in best and best[name][n]) + cell for n, cell in enumerate(cells)]
        for name, cells in comparison.measures.items()
    }
    _print_table({"": comparison.names} | measures, out)
    sentences = [f"{BEST.strip()} the best of its row"] * bool(best)
    sentences += filter(None, [comparison.caution])
    for sentence in sentences:
        print_blocks([Text(), Text(sentence)], screen)
    if comparison.settings:
        print_blocks([Text()], screen)
        _print_table({"what differs": comparison.names} | comparison.settings, out)
    for prompt in comparison.prompts:
        print_blocks([Text(), _prompt(prompt, colours=colours)], screen)


def _print_table(rows: Mapping[str, Sequence[str]], out: TextIO | None) -> None:
    """Print a table, given the cells behind the name of each row; the first row is its head."""
    cells = [list(map(_line, (name, *values))) for name, values in rows.items()]
    print_columns(cells, right=range(1, len(cells[0])), gap=3, folds=True, out=out)


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
    if not any(span.text for span in version.spans):
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
