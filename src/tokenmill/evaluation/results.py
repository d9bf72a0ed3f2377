"""The results of an evaluation as plain data: `reports/evaluation.json`, which reports and commands read."""

from pathlib import Path
from statistics import fmean

from tokenmill.core.files import rounded
from tokenmill.core.params import Section
from tokenmill.core.records import read_record


class Question(Section):
    """A fixed prompt."""

    prompt: str
    """As the user wrote it."""
    expect: str | None
    """What a right answer contains; None if any answer will do."""
    left_out: str
    """Characters of the prompt that the tokenizer does not know."""


class Answer(Section):
    """The answer to a prompt at one epoch."""

    greedy: str
    """Written with the likeliest token each time."""
    sampled: str
    """Drawn with a fixed seed."""
    found: bool | None
    """Whether the greedy answer contains what was expected; None if nothing was."""
    repetition: float
    """Fraction of the greedy answer's 4-grams of tokens that repeat an earlier one."""


class EpochResult(Section):
    """The measurements of one epoch's weights."""

    epoch: int
    train_loss: float
    """Of these weights on evenly spread training sequences, as many as for the validation loss; nats per token."""
    val_loss: float
    """On the fixed validation sequences; nats per token."""
    perplexity: float
    bits_per_byte: float
    answers: list[Answer]
    """One for each question, in order."""

    @property
    def expected(self) -> list[bool]:
        """For each question with an expectation, whether it was met."""
        return [answer.found for answer in self.answers if answer.found is not None]

    @property
    def repetition(self) -> float:
        """The mean over the greedy answers."""
        return fmean(answer.repetition for answer in self.answers) if self.answers else 0.0

    def metrics(self) -> dict[str, float]:
        """The content of `metrics/eval.json` for this epoch."""
        return {
            "perplexity": rounded(self.perplexity),
            "bits_per_byte": rounded(self.bits_per_byte),
            "overfit": rounded(self.val_loss - self.train_loss),
            "expected_found": rounded(fmean(self.expected)) if self.expected else 0.0,
            "repetition": rounded(self.repetition),
        }


class Evaluation(Section):
    """The results of all epochs of a training."""

    questions: list[Question]
    epochs: list[EpochResult]


def read_evaluation(path: Path) -> Evaluation:
    """Read `reports/evaluation.json`.

    Raises:
        UserError: it is missing or damaged.
    """
    return read_record(path, Evaluation, way_out="`dvc repro -f evaluate` makes it")
