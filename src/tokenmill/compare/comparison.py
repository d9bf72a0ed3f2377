"""Epochs side by side: tables of numbers and parameters, what must not be compared, and all answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from tokenmill.compare.runs import ComparedEpoch, ComparedRun
from tokenmill.core import paths
from tokenmill.evaluation.results import Question
from tokenmill.reports.answers import PromptAnswers, compare_answers

MEASURES: dict[str, Callable[[ComparedEpoch], str]] = {
    "training loss": lambda epoch: f"{epoch.result.train_loss:.4f}",
    "validation loss": lambda epoch: f"{epoch.result.val_loss:.4f}",
    "perplexity": lambda epoch: f"{epoch.result.perplexity:.2f}",
    "bits per byte": lambda epoch: f"{epoch.result.bits_per_byte:.4f}",
    "right answers": lambda epoch: f"{sum(epoch.result.expected)} of {len(epoch.result.expected)}",
    "repetition": lambda epoch: f"{epoch.result.repetition:.2f}",
    "epoch": lambda epoch: f"{epoch.result.epoch} of {len(epoch.run.evaluation.epochs)}",
    "steps": lambda epoch: f"{epoch.row.step:,}",
    "tokens seen": lambda epoch: f"{epoch.row.tokens:,}",
    "parameters": lambda epoch: f"{epoch.run.parameters:,}",
}


@dataclass(frozen=True)
class Comparison:
    """What there is to say about these epochs, in their order."""

    epochs: Sequence[ComparedEpoch]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [epoch.name for epoch in self.epochs]

    @property
    def runs(self) -> list[ComparedRun]:
        """The runs that the epochs belong to, each once."""
        return list({id(epoch.run): epoch.run for epoch in self.epochs}.values())

    @property
    def measures(self) -> pd.DataFrame:
        """Losses and sizes as text: a row for each of MEASURES, a column for each epoch."""
        rows = [[write(epoch) for epoch in self.epochs] for write in MEASURES.values()]
        return pd.DataFrame(rows, index=list(MEASURES), columns=self.names)

    @cached_property
    def settings(self) -> pd.DataFrame:
        """The parameters that differ, as text: a row for each, a column for each epoch."""
        table = pd.DataFrame([epoch.run.settings for epoch in self.epochs]).fillna("–").T
        table.columns = self.names
        return table.loc[table.nunique(axis=1) > 1]

    @property
    def caution(self) -> str:
        """What must not be compared, in one sentence; empty if everything may be."""
        if self._differ(paths.CLEAN) or any(name.startswith("tokenize.") for name in self.settings.index):
            return (
                "The texts for validation differ: no measure here is strictly comparable, bits per byte come nearest."
            )
        if self._differ(paths.TOKENIZER.parent):
            return "The tokenizers differ: compare bits per byte, not losses or perplexities, which are per token."
        return ""

    def _differ(self, output: Path) -> bool:
        """Whether an output is not the same in all runs."""
        return len({run.hashes.get(output.as_posix()) for run in self.runs}) > 1

    @cached_property
    def prompts(self) -> list[PromptAnswers]:
        """Every prompt of any of the runs, with all answers."""
        questions: dict[str, Question] = {}
        for run in self.runs:
            questions |= {question.prompt: question for question in run.evaluation.questions}
        return [
            compare_answers(question, [(epoch.name, epoch.answer(prompt)) for epoch in self.epochs])
            for prompt, question in questions.items()
        ]
