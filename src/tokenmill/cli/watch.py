"""`tokenmill watch`: show a running training, with its losses, speed, time, cost and the model's
answers."""

import argparse
import contextlib
import itertools
import math
import os
import sys
import textwrap
import threading
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tokenmill.cli.main import Parser
from tokenmill.core import paths
from tokenmill.core.errors import UserError, first_line
from tokenmill.core.files import write_text
from tokenmill.display import console, say, shortened
from tokenmill.progress import amounts, clock, fact_lines

if TYPE_CHECKING:
    from tokenmill.reports.charts import Chart
    from tokenmill.runs.under_way import UnderWay

EVERY = 1.0
"""The least seconds between two updates in the terminal."""

REST = 20
"""How many times as long as an update takes the watching rests, so that it takes a twentieth of a
core from the training. Half a second is what a table of 100,000 rows takes, and LONGEST_REST
bounds."""

LONGEST_REST = 10.0
"""The most seconds between two updates."""

PAGE_EVERY = 5.0
"""The least seconds between two updates of the page, which also reloads itself at this interval."""

BETWEEN_STAGES = 10.0
"""The most seconds for which DVC holds no lock between two stages of a run, with room to spare."""

PAGE = Path(".dvc/tmp/tokenmill/watch.html")
COLOURS = {1: "cyan", 3: "yellow"}
"""The terminal's colour for each series of a chart."""

POINT = "●"
"""Stands at each value of a line with dots."""

CHART_LINES = 8
PIPE_WIDTH = 80
NO_DOTS = "\u2800"
"""The braille character without dots."""

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of the dots of a braille character, which has four rows of two."""

EXAMPLES = """\
  tokenmill watch               the training that is under way, in this workspace or in a queue
  tokenmill watch bonny-bani    that of an experiment
  tokenmill watch --open        also as a page in the browser
"""


def add_arguments(parser: Parser) -> None:
    """Declare which training to watch, and where to show it."""
    parser.add_argument(
        "name", nargs="?", metavar="EXPERIMENT", help="of several that run; else the newest"
    )
    parser.add_argument("--open", action="store_true", help="show it as a page in the browser, too")
    parser.add_argument("--once", action="store_true", help="print it as it is now, and end")


def run(options: argparse.Namespace) -> None:
    """Show a training until it ends or Ctrl-C is pressed. Ctrl-C ends only the watching."""
    screen = console()
    once = options.once or not screen.draws
    if not screen.is_terminal:
        screen.width = PIPE_WIDTH
    watched = found(options.name, screen, once=once)
    with contextlib.suppress(KeyboardInterrupt):
        watched.answers.update(watched.now, wait=once)
        if options.open:
            page = watched.write_page(reloads=not once).resolve().as_uri()
            say(f"the page is {page}")
            webbrowser.open(page)
        if not once:
            _follow(watched, screen, with_page=options.open)
    watched.look()  # the training may have ended meanwhile
    if options.open:
        watched.write_page(reloads=False)
    screen.print(watched.frame(screen.width, 100))
    watched.answers.leave()


def found(name: str | None, screen: Console, *, once: bool) -> "Watched":
    """The training to watch. While DVC works on an earlier stage, wait for it to begin, also beside
    one that stopped; with `once`, do not wait.

    Raises:
        UserError: no training is under way, and none will come.
    """
    from tokenmill.doctor.environment import check_running
    from tokenmill.runs.under_way import all_under_way

    is_said = False
    at_work = -math.inf
    while True:
        trainings = [one for one in all_under_way(Path()) if name in (None, one.name)]
        running = check_running(Path())
        if running.level == "warning":
            at_work = time.monotonic()
        waits = not once and time.monotonic() - at_work < BETWEEN_STAGES
        if trainings and (trainings[0].is_on or not waits):
            return Watched(trainings[0])
        if running.level == "problem":
            raise UserError(f"{running.text}; `{running.fix}`.")
        if not waits:
            named = f" in the experiment {name}" if name else ""
            raise UserError(
                f"no training is under way{named}; `dvc repro` or `dvc exp run` starts one."
            )
        if not is_said:
            screen.print("waiting for the training to begin (Ctrl-C ends the waiting)")
        is_said = True
        time.sleep(EVERY)


def _follow(watched: "Watched", screen: Console, *, with_page: bool) -> None:
    drawn_at = time.monotonic()
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        began = time.monotonic()
        while watched.look() and watched.now.is_on:
            watched.answers.update(watched.now)
            live.update(watched.frame(screen.width, screen.height), refresh=True)
            if with_page and time.monotonic() - drawn_at >= PAGE_EVERY:
                drawn_at = time.monotonic()
                watched.write_page(reloads=True)
            time.sleep(min(max(EVERY, REST * (time.monotonic() - began)), LONGEST_REST))
            began = time.monotonic()


@dataclass
class Answers:
    """The answers of the newest weights to the fixed prompts. A thread makes them when a new
    checkpoint appears."""

    step: int | None = None
    """The step of the weights that gave the answers."""
    rows: Sequence[tuple[str, str]] = ()
    """Pairs of a prompt and its answer."""
    problem: str = ""
    _thread: threading.Thread | None = None

    def update(self, now: "UnderWay", *, wait: bool = False) -> None:
        """Let the newest weights answer if they are new, unless a thread is still busy with older
        ones."""
        newest = now.weights()
        if newest and newest[0] != self.step and not (self._thread and self._thread.is_alive()):
            self._thread = threading.Thread(target=self._ask, args=(now, *newest), daemon=True)
            self._thread.start()
        if wait and self._thread:
            self._thread.join()

    def leave(self) -> None:
        """End the process if the thread is still busy: Python cannot stop it, and PyTorch aborts if
        Python ends under it."""
        if self._thread and self._thread.is_alive():
            sys.stdout.flush()
            os._exit(0)

    def _ask(self, now: "UnderWay", step: int, folder: Path) -> None:
        try:
            self.rows = newest_answers(now.folder, folder, now.tokenizer)
            self.problem = ""
        except (UserError, OSError) as error:
            newest = now.again().weights()
            if newest and newest[1] != folder:  # these may have been removed for newer ones
                self._ask(now, *newest)
                return
            self.problem = first_line(error)
        self.step = step

    def lines(self, width: int, height: int) -> list[Text]:
        """As many prompts and answers as fit."""
        if not self.rows:
            why = self.problem or "the first checkpoint brings the first answers"
            return [Text(""), Text(shortened(why, width), "dim")]
        shown = [Text(""), Text(f"answers of the weights at step {self.step:,}:", "dim")]
        for prompt, answer in self.rows[: max(0, (height - 2) // 2)]:
            line = shortened(answer, width - 2) or "(nothing)"
            shown += [Text(shortened(prompt, width), "dim"), Text(f"  {line}")]
        return shown


@dataclass
class Watched:
    """The training that is watched, even if another one begins."""

    now: "UnderWay"
    answers: Answers = field(default_factory=Answers)
    is_over: bool = False
    others: Sequence[str] = ()
    """The places of the other trainings that are on."""

    def look(self) -> bool:
        """Read the files of the training again. The result is False if there are none any more."""
        from tokenmill.runs.under_way import all_under_way

        trainings = all_under_way(self.now.root)
        same = [one for one in trainings if one.run.fingerprint == self.now.run.fingerprint]
        self.is_over = not same
        self.now = same[0] if same else self.now.last()
        self.others = [one.where for one in trainings if one.is_on and one is not self.now]
        return not self.is_over

    def sentence(self, *, steps: bool) -> str:
        """A sentence about which training this is and where it stands, by its steps or only by its
        epoch."""
        if self.is_over:
            return (
                f"the training in {self.now.where} is finished; `tokenmill summary` shows the run"
            )
        return self.now.sentence if steps else self.now.told(f"epoch {self.now.epoch:.2f}")

    def facts(self) -> list[tuple[str, str, list[str]]]:
        """Names, values and notes, the most important first."""
        now = self.now
        spent, speed = now.spent()
        left = now.seconds_left()
        best = min(now.validations, key=lambda row: row.val_loss, default=None)
        known = list[tuple[str, str, list[str]]]()
        if now.steps:
            known.append(("loss", f"{now.steps[-1].loss:.3f}", []))
        if best:
            known.append(("validation", f"{now.validations[-1].val_loss:.3f}", []))
            known.append(("lowest", f"{best.val_loss:.3f}", [f"at step {best.step:,}"]))
        if speed:
            known.append(("tokens/s", f"{speed:,.0f}", []))
        known.append(("spent", amounts(spent), []))
        if left and now.is_on and not self.is_over:
            known.append(("left", amounts(now.run.cost.cost_of(left)), [f"until {clock(left)}"]))
        return known

    def chart(self) -> "Chart | None":
        """A chart of both losses by step; None before the first rows."""
        from tokenmill.reports.run_report import losses_by_step

        return losses_by_step(self.now.steps, self.now.validations) if self.now.steps else None

    def frame(self, width: int, height: int) -> Group:
        """Everything for a terminal of this size."""
        width = min(width, 120)
        bar = Table.grid(padding=(0, 1))
        bar.width = width
        bar.add_column(no_wrap=True)
        bar.add_column(ratio=1)
        step, steps = self.now.step, self.now.run.steps
        bar.add_row(f"{step / steps:4.0%}", ProgressBar(steps, step))
        facts = [" ".join([name, value, *notes]) for name, value, notes in self.facts()]
        about = " · ".join(line[1] for line in self.now.run.plan[:2])
        parts: list[Text | Table] = [
            *(Text(line, "bold") for line in textwrap.wrap(self.sentence(steps=True), width)),
            Text(shortened(about, width), "dim"),
            bar,
            *map(Text, fact_lines(facts, width, gap=3)),
        ]
        chart = self.chart()
        if chart:
            parts += [Text(""), *draw(chart, width, CHART_LINES), _legend(chart)]
        parts += [Text(f"also under way: {', '.join(self.others)}", "dim")] if self.others else []
        parts += self.answers.lines(width, height - len(parts) - 1)
        return Group(*parts)

    def write_page(self, *, reloads: bool) -> Path:
        """Write the page, which reloads itself or says of when it is; return its path."""
        from tokenmill.reports.page import render

        path = self.now.root / PAGE
        sentence = self.sentence(steps=False)
        if self.now.is_on and not self.is_over and not reloads:
            sentence += f", as of {clock(0)}"
        page = render(
            "watch.html",
            now=self.now,
            sentence=sentence,
            every=PAGE_EVERY if reloads else None,
            chart=self.chart(),
            answers=self.answers,
            facts=self.facts(),
        )
        write_text(path, page)
        return path


def newest_answers(project: Path, weights: Path, tokenizer_file: Path) -> list[tuple[str, str]]:
    """The fixed prompts of `project`, and the answers of these weights to them."""
    import torch

    from tokenmill.core.params import PARAMS_FILE, load
    from tokenmill.evaluation.evaluate import continuation
    from tokenmill.evaluation.prompts import EvaluateSections, chosen_prompts
    from tokenmill.evaluation.sampling import Sampling
    from tokenmill.formats.tokenizer import read_tokenizer
    from tokenmill.model.huggingface import load_model

    torch.set_num_threads(1)  # the training needs the others
    params = load(EvaluateSections, project / PARAMS_FILE)
    tokenizer = read_tokenizer(tokenizer_file)
    model = load_model(weights)
    prompts = chosen_prompts(
        params,
        project / paths.TOKENS,
        tokenizer,
        context_length=model.config.context_length,
        root=project,
    )
    sampling = Sampling(max_new_tokens=params.evaluate.max_new_tokens)
    return [
        (prompt.question.prompt, continuation(model, tokenizer, prompt, sampling)[0])
        for prompt in prompts
    ]


def draw(chart: "Chart", width: int, height: int) -> list[Text]:
    """The lines of a chart as braille dots between its axes: `height` lines of text and one of
    ticks."""
    left = max(len(tick.text) for tick in chart.y_ticks) + 1
    columns = width - left
    cells = _cells(chart, columns, height)
    labels = {min(int(tick.at / 100 * height), height - 1): tick.text for tick in chart.y_ticks}
    lines = []
    for row in range(height):
        text = Text(labels.get(row, "").rjust(left - 1) + " ", "dim")
        shown = (cells.get((row, column), (" ", 0)) for column in range(columns))
        lines.append(
            Text.assemble(text, *((sign, COLOURS.get(colour, "")) for sign, colour in shown))
        )
    ticks = [" "] * width
    for tick in chart.x_ticks:
        start = min(left + int(tick.at / 100 * columns), width - len(tick.text))
        ticks[start : start + len(tick.text)] = tick.text
    return [*lines, Text("".join(ticks).rstrip(), "dim")]


def _cells(chart: "Chart", columns: int, height: int) -> dict[tuple[int, int], tuple[str, int]]:
    """The characters of a chart's lines, each with the number of its colour, by row and column."""
    dots_x, dots_y = 2 * columns, 4 * height
    cells: dict[tuple[int, int], tuple[str, int]] = {}
    for line, places in chart.lines:
        for (x, y), (to_x, to_y) in itertools.pairwise([*places[:1], *places]):
            wide, high = (to_x - x) / 100 * dots_x, (to_y - y) / 100 * dots_y
            count = max(1, round(abs(wide)), round(abs(high)))
            for part in range(count + 1):
                dot_x = min(int((x + (to_x - x) * part / count) / 100 * dots_x), dots_x - 1)
                dot_y = min(int((y + (to_y - y) * part / count) / 100 * dots_y), dots_y - 1)
                place = dot_y // 4, dot_x // 2
                before, _ = cells.get(place, (NO_DOTS, 0))
                cells[place] = chr(ord(before) | DOTS[dot_y % 4][dot_x % 2]), line.colour
    for line, places in chart.lines:
        for x, y in places if line.has_dots else ():
            row = min(int(y / 100 * height), height - 1)
            column = min(int(x / 100 * columns), columns - 1)
            cells[row, column] = POINT, line.colour
    return cells


def _legend(chart: "Chart") -> Text:
    keys = []
    for key in chart.legend:
        sample = f"─{POINT}─" if key.has_dots else "──"
        keys.append((f"{sample} {key.name}   ", COLOURS.get(key.colour, "")))
    return Text.assemble(*keys, (f"{chart.y_label}, by {chart.x_label}", "dim"))
