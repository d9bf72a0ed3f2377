"""What is compared: one epoch of one run, with all that is known of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tokenmill import paths
from tokenmill.checkpoints.checkpoint import chosen_epoch
from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, read_evaluation
from tokenmill.files import read_json
from tokenmill.page.parameters import flat
from tokenmill.params import PARAMS_FILE, read_yaml
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
