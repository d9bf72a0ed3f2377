"""What is compared: one epoch of one run, with all that is known of it.

From what a person types to what is compared: `workspace`, `epoch-2`, `HEAD`, `blest-jube`, `blest-jube:2`.

Several epochs or experiments beside each other, as plain rows for the terminal and the page.
"""

import contextlib
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_json
from tokenmill.core.params import PARAMS_FILE, read_yaml
from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, Question, read_evaluation
from tokenmill.models.revision import Snapshot, chosen_epoch
from tokenmill.reports.answers import SideBySide, side_by_side
from tokenmill.reports.page import flat
from tokenmill.training.history import EpochRow, read_epochs

LOCK = Path("dvc.lock")


FILES = (paths.EVALUATION, paths.TRAIN_METRICS, paths.HISTORY, PARAMS_FILE, LOCK)
"""All that a comparison reads of a run."""


@dataclass(frozen=True)
class Run:
    """A finished run, as the files in a folder tell of it."""

    name: str
    """Of its revision."""
    evaluation: Evaluation
    history: list[EpochRow]
    parameters: int
    """Trained numbers."""
    params: Mapping[str, Any]
    lock: str
    """The text of dvc.lock."""

    @classmethod
    def read(cls, name: str, root: Path) -> "Run":
        """Read FILES below `root`.

        Raises:
            UserError: one is missing or damaged.
        """
        return cls(
            name,
            read_evaluation(root / paths.EVALUATION),
            read_epochs(root / paths.HISTORY),
            read_json(root / paths.TRAIN_METRICS)["parameters"],
            read_yaml(root / PARAMS_FILE),
            (root / LOCK).read_text(encoding="utf-8"),
        )

    @cached_property
    def hashes(self) -> dict[str, str | None]:
        """What dvc.lock records of every output, by its path."""
        stages = YAML(typ="safe").load(self.lock)["stages"].values()
        return {out["path"]: out.get("md5") for stage in stages for out in stage.get("outs", [])}

    @cached_property
    def settings(self) -> dict[str, str]:
        """What may differ, by its dotted name; without `runtime`, and without the prompts, which show themselves."""
        sections = {name: section for name, section in self.params.items() if name != "runtime"}
        return {name: value for name, value in flat(sections) if not name.startswith("evaluate.prompts")}


@dataclass(frozen=True)
class Subject:
    """An epoch of a run."""

    name: str
    """As it was asked for."""
    run: Run
    result: EpochResult
    row: EpochRow

    @classmethod
    def of(cls, name: str, run: Run, epoch: int | None) -> "Subject":
        """The epoch asked for, or the last.

        Raises:
            UserError: the run has no such epoch.
        """
        epochs = run.evaluation.epochs
        number = chosen_epoch(epoch, len(epochs), run.name)
        return cls(name, run, epochs[number - 1], run.history[number - 1])

    def answer(self, prompt: str) -> Answer | None:
        """What a prompt got; None where it was not asked."""
        asked = [question.prompt for question in self.run.evaluation.questions]
        return self.result.answers[asked.index(prompt)] if prompt in asked else None


WORKSPACE = "workspace"


EPOCH = re.compile(r"epoch-(\d+)")
"""An epoch of the workspace's run: the name of the git ref that holds its metrics."""


AT_EPOCH = re.compile(r"(?P<rev>.+):(?P<epoch>\d+)")


def subjects(root: Path, names: Sequence[str]) -> list[Subject]:
    """What these names stand for; one alone is compared with the workspace, none at all means its first and last epoch.

    Args:
        root: of the project.
        names: revisions for git, DVC experiments, `workspace`; each also with `:N` for its epoch N; or `epoch-N`.

    Raises:
        UserError: there is no such revision or epoch, or its evaluation is out of reach.
    """
    runs: dict[str, Run] = {}
    found = []
    for name in _completed(root, names, runs):
        rev, epoch = _taken_apart(name)
        found.append(Subject.of(name, _run(root, rev, runs), epoch))
    return found


def _completed(root: Path, names: Sequence[str], runs: dict[str, Run]) -> list[str]:
    """At least two names, if there are two things to compare."""
    if len(names) == 1 and names[0] != WORKSPACE:
        return [*names, WORKSPACE]
    if len(names) > 1:
        return list(names)
    last = len(_run(root, WORKSPACE, runs).evaluation.epochs)
    return ["epoch-1", f"epoch-{last}"] if last > 1 else ["epoch-1"]


def _taken_apart(name: str) -> tuple[str, int | None]:
    """A revision, and an epoch if one was named."""
    if match := EPOCH.fullmatch(name):
        return WORKSPACE, int(match[1])
    if match := AT_EPOCH.fullmatch(name):
        return match["rev"], int(match["epoch"])
    return name, None


def _run(root: Path, rev: str, runs: dict[str, Run]) -> Run:
    """The run of a revision, read once."""
    if rev not in runs:
        runs[rev] = _workspace(root) if rev == WORKSPACE else _at(root, rev)
    return runs[rev]


def _workspace(root: Path) -> Run:
    if not (root / paths.EVALUATION).exists():
        raise UserError(
            f"{root / paths.EVALUATION} is missing; `dvc repro` makes it, "
            "`dvc pull evaluate` fetches it where it was pushed."
        )
    return Run.read(WORKSPACE, root)


def _at(root: Path, rev: str) -> Run:
    """The run that a revision records, out of git and DVC's cache or remote."""
    with contextlib.closing(Snapshot(root, rev)) as snapshot, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in FILES:
            if not snapshot.has(file):
                raise UserError(
                    f"{rev} ({snapshot.sha[:7]}) has no {file}: the pipeline had not run to its end there; "
                    f"`git checkout {rev}` and `dvc repro` would."
                )
            snapshot.copy(file, folder / file)
        return Run.read(rev, folder)


Row = tuple[str, list[str]]
"""A name, and a text for every subject."""


MEASURES: list[tuple[str, Callable[[Subject], str]]] = [
    ("training loss", lambda s: f"{s.result.train_loss:.4f}"),
    ("validation loss", lambda s: f"{s.result.val_loss:.4f}"),
    ("perplexity", lambda s: f"{s.result.perplexity:.2f}"),
    ("bits per byte", lambda s: f"{s.result.bits_per_byte:.4f}"),
    ("right answers", lambda s: f"{sum(s.result.expected)} of {len(s.result.expected)}"),
    ("repetition", lambda s: f"{s.result.repetition:.2f}"),
    ("epoch", lambda s: f"{s.result.epoch} of {len(s.run.evaluation.epochs)}"),
    ("steps", lambda s: f"{s.row.step:,}"),
    ("tokens seen", lambda s: f"{s.row.tokens:,}"),
    ("parameters", lambda s: f"{s.run.parameters:,}"),
]


@dataclass(frozen=True)
class Comparison:
    """What there is to say about the subjects, in their order."""

    subjects: Sequence[Subject]

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return [subject.name for subject in self.subjects]

    @property
    def measures(self) -> list[Row]:
        """Losses and sizes."""
        return [(name, [show(subject) for subject in self.subjects]) for name, show in MEASURES]

    @cached_property
    def settings(self) -> list[Row]:
        """The parameters that are not the same in all."""
        known = list(dict.fromkeys(name for subject in self.subjects for name in subject.run.settings))
        rows = [(name, [subject.run.settings.get(name, "–") for subject in self.subjects]) for name in known]
        return [(name, values) for name, values in rows if len(set(values)) > 1]

    @property
    def caution(self) -> str:
        """What may not be compared, in a sentence; empty where everything may."""
        if self._differ(paths.CLEAN) or any(name.startswith("tokenize.") for name, _ in self.settings):
            return (
                "The texts for validation differ: no measure here is strictly comparable, bits per byte come nearest."
            )
        if self._differ(paths.TOKENIZER.parent):
            return "The tokenizers differ: compare bits per byte, not losses or perplexities, which are per token."
        return ""

    def _differ(self, output: Path) -> bool:
        """Whether the runs have different ones; one run is not asked."""
        runs = {id(subject.run): subject.run for subject in self.subjects}
        return len(runs) > 1 and len({run.hashes.get(output.as_posix()) for run in runs.values()}) > 1

    @cached_property
    def prompts(self) -> list[SideBySide]:
        """Every prompt that any of them was asked, with all answers."""
        asked: dict[str, Question] = {}
        for subject in self.subjects:
            asked |= {question.prompt: question for question in subject.run.evaluation.questions}
        return [
            side_by_side(question, [(subject.name, subject.answer(prompt)) for subject in self.subjects])
            for prompt, question in asked.items()
        ]
