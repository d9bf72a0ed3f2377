"""How a run went, in words: what each epoch changed, which one is best, and whether the model overfits."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.evaluation.results import EpochResult, Evaluation


@dataclass(frozen=True)
class Change:
    """What an epoch changed against the one before."""

    val_loss: float
    """Nats per token; negative is better."""
    relative: float
    """The same as a fraction of the loss before."""
    gained: list[int]
    """Indices of the prompts whose answer became right."""
    lost: list[int]
    """Indices of the prompts whose answer is no longer right."""
    answers: int
    """How many greedy answers are different."""


def change(before: EpochResult, after: EpochResult) -> Change:
    """Compare two epochs of the same prompts."""
    pairs = list(enumerate(zip(before.answers, after.answers, strict=True)))
    difference = after.val_loss - before.val_loss
    return Change(
        val_loss=difference,
        relative=difference / before.val_loss if before.val_loss else 0.0,
        gained=[number for number, (old, new) in pairs if new.found and not old.found],
        lost=[number for number, (old, new) in pairs if old.found and not new.found],
        answers=sum(old.greedy != new.greedy for _, (old, new) in pairs),
    )


def best(evaluation: Evaluation) -> EpochResult:
    """The first epoch with the lowest validation loss."""
    return min(evaluation.epochs, key=lambda result: result.val_loss)


def verdict(evaluation: Evaluation) -> str:
    """Whether the model overfits, in a sentence or two with the numbers."""
    epochs, top = evaluation.epochs, best(evaluation)
    first, last = epochs[0], epochs[-1]
    if first is last:
        return f"After its one epoch the validation loss is {_gap(last)} the training loss; one epoch shows no trend."
    if top is last:
        return f"The validation loss is lowest after the last epoch: {_course(epochs)}. {_gap_trend(first, last)}"
    rise = f"After epoch {top.epoch} the validation loss rose from {top.val_loss:.4f} to {last.val_loss:.4f}"
    if last.train_loss < top.train_loss:
        return (
            f"Overfitting. {rise}, while the training loss fell from {top.train_loss:.4f} to {last.train_loss:.4f}: "
            f"the model memorises its text. Take epoch {top.epoch}."
        )
    return (
        f"{rise}, and the training loss did not fall either ({top.train_loss:.4f} to {last.train_loss:.4f}): this is "
        f"not overfitting; look at the learning rate and the gradient norm. Take epoch {top.epoch}."
    )


def _course(epochs: Sequence[EpochResult]) -> str:
    pairs = itertools.pairwise(epochs)
    rises = [str(new.epoch) for old, new in pairs if new.val_loss >= old.val_loss]
    return f"it did not fall in epoch {', '.join(rises)}" if rises else "it fell in every epoch, more may still help"


def _gap_trend(first: EpochResult, last: EpochResult) -> str:
    """How the gap between the losses changed."""
    begin, end = first.val_loss - first.train_loss, last.val_loss - last.train_loss
    if end <= begin or end <= 0:
        return f"It is {_gap(last)} the training loss (after epoch {first.epoch}: {_gap(first)}): no overfitting."
    return (
        f"Its distance to the training loss grew from {begin:.4f} to {end:.4f}: the model memorises more, "
        "but unseen text still gains."
    )


def _gap(result: EpochResult) -> str:
    gap = result.val_loss - result.train_loss
    return f"{abs(gap):.4f} {'below' if gap < 0 else 'above'}"
