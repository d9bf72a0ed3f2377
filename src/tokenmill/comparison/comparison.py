"""Several epochs or experiments beside each other, as plain rows for the terminal and the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenmill import paths
from tokenmill.comparison.subject import Subject
from tokenmill.evaluation.results import Question
from tokenmill.evaluation.side_by_side import SideBySide, side_by_side

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
