"""The results of an evaluation: `reports/evaluation.json`, which reports and commands read."""

from statistics import fmean
from typing import Literal, NamedTuple, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from tokenmill.core.params import Finite, Section
from tokenmill.formats.records import rounded
from tokenmill.words.units import counted
from tokenmill.words.warnings import unlike_training, worse_than_frequencies

Mark: TypeAlias = Literal["seen", "held_out"]

SHOWN_BY: dict[Mark, str] = {"seen": "recall", "held_out": "generalisation"}
"""What right answers to the prompts with each mark show."""


class Question(Section):
    """A fixed prompt."""

    prompt: str
    """The prompt as the user wrote it."""
    expect: str | None
    """The text that a right answer contains, as `clean` writes it; None if any answer will do."""
    left_out: str
    """The characters of the prompt that the tokenizer does not know."""
    kind: Literal["user", "text"] = "user"
    """The kind of prompt: a user's message, or a text to continue."""
    mark: Mark | None = None
    """Whether the training text contains the question; None if that is unknown."""
    truth: str | None = None
    """The text that follows the prompt in the held-out text; None if the prompt is not from
    there."""

    @property
    def shows(self) -> str:
        """What a right answer shows; empty if the prompt has no mark."""
        return SHOWN_BY[self.mark] if self.mark else ""

    @property
    def is_open(self) -> bool:
        """Whether the prompt is a text that may go on in any way. A text drawn at random then shows
        more than the likeliest one, which soon repeats itself."""
        return self.kind == "text" and self.expect is None

    def is_right(self, answer: str) -> bool | None:
        """Whether an answer contains the expected text; None if none is expected."""
        return None if self.expect is None else self.expect in answer

    def in_order(self, answer: "Answer") -> tuple[str, str]:
        """The two texts of an answer, the one to show first first."""
        if self.is_open:
            return answer.sampled, answer.greedy
        return answer.greedy, answer.sampled


class Answer(Section):
    """The answer to a prompt at one epoch."""

    greedy: str
    """The answer with the likeliest token each time."""
    sampled: str
    """The answer drawn with a fixed seed."""
    found: bool | None
    """Whether the greedy answer contains the expected text; None if none is expected."""
    repetition: Finite
    """The fraction of the greedy answer's 4-grams of tokens that repeat an earlier one."""


class EpochResult(Section):
    """The measurements of one epoch's weights."""

    epoch: int
    train_loss: Finite
    """The loss of these weights on evenly spread documents of the training text, of about as many
    bytes as for the validation loss; nats per token."""
    val_loss: Finite
    """The loss on the measured validation text, in nats per token."""
    perplexity: float = Field(gt=0)
    """Infinite where the loss is beyond 700."""
    bits_per_byte: Finite
    answers: list[Answer]
    """The answers, one for each question, in order."""

    @property
    def expected(self) -> list[bool]:
        """For each question with an expected text, whether the answer contains it."""
        return [answer.found for answer in self.answers if answer.found is not None]

    @property
    def repetition(self) -> float | None:
        """The mean repetition of the greedy answers; None if there are none."""
        return fmean(answer.repetition for answer in self.answers) if self.answers else None


class Score(NamedTuple):
    """The number of right answers, and of the prompts with an expected text."""

    right: int
    asked: int

    def __str__(self) -> str:
        """The score in words: `9 of 10`; a dash if nothing was asked."""
        return f"{self.right} of {self.asked}" if self.asked else "–"


class Evaluation(Section):
    """The results of all epochs of a training."""

    questions: list[Question]
    epochs: list[EpochResult] = Field(min_length=1)

    @field_validator("epochs")
    @classmethod
    def _check_answers(cls, epochs: list[EpochResult], info: ValidationInfo) -> list[EpochResult]:
        asked = len(info.data.get("questions", ()))
        for result in epochs:
            if len(result.answers) != asked:
                answered = counted(len(result.answers), "answer")
                raise ValueError(
                    f"epoch {result.epoch} has {answered} to {counted(asked, 'prompt')}"
                )
        return epochs

    @property
    def asks(self) -> bool:
        """Whether a prompt is a question; else the model only continues texts."""
        return any(question.kind == "user" for question in self.questions)

    def score(self, result: EpochResult, mark: Mark | None = None) -> Score:
        """The score of an epoch on all prompts, or on those with this mark."""
        answers = zip(self.questions, result.answers, strict=True)
        found = [answer.found for question, answer in answers if mark in (None, question.mark)]
        return Score(found.count(True), len(found) - found.count(None))

    @property
    def scores(self) -> dict[str, Mark | None]:
        """The names of the scores that say something, each with the mark of its prompts; the one on
        all prompts is included if one of them has no mark. It is empty if nothing is expected."""
        names: dict[str, Mark | None] = {name: mark for mark, name in SHOWN_BY.items()}
        if not all(question.mark for question in self.questions if question.expect is not None):
            names["right answers"] = None
        return {
            name: mark for name, mark in names.items() if self.score(self.epochs[-1], mark).asked
        }

    def metrics(self, result: EpochResult) -> dict[str, float]:
        """The contents of `metrics/eval.json` for an epoch. Repetition is included only where there
        are prompts, shares of right answers only where prompts have an expected text."""
        scores = {
            "expected_found": self.score(result),
            "seen_right": self.score(result, "seen"),
            "held_out_right": self.score(result, "held_out"),
        }
        return {
            "perplexity": rounded(result.perplexity),
            "bits_per_byte": rounded(result.bits_per_byte),
            "overfit": rounded(result.val_loss - result.train_loss),
            **({} if result.repetition is None else {"repetition": rounded(result.repetition)}),
        } | {
            name: rounded(score.right / score.asked)
            for name, score in scores.items()
            if score.asked
        }

    def warnings(self, frequencies: float) -> list[str]:
        """What the losses say that one may overlook, as sentences. `frequencies` are the bits per
        byte of a model that knows only the frequencies of tokens."""
        first, last = self.epochs[0], self.epochs[-1]
        found = (
            worse_than_frequencies(last.bits_per_byte, frequencies),
            unlike_training(first.train_loss, first.val_loss),
        )
        return [sentence for sentence in found if sentence]
