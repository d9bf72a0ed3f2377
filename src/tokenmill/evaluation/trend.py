"""Where a training went: what each epoch changed, which was best, and whether it learned by heart, in words."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.evaluation.results import EpochResult, Evaluation


@dataclass(frozen=True)
class Change:
    """What an epoch changed of the one before."""

    val_loss: float
    """Nats per token; below zero is better."""
    share: float
    """The same as a share of the loss before."""
    gained: list[int]
    """Prompts, by their place, whose answer became right."""
    lost: list[int]
    """Prompts whose answer was right before."""
    answers: int
    """Prompts whose greedy answer is another one."""


def change(before: EpochResult, after: EpochResult) -> Change:
    """What came with `after`."""
    pairs = list(enumerate(zip(before.answers, after.answers, strict=True)))
    difference = after.val_loss - before.val_loss
    return Change(
        val_loss=difference,
        share=difference / before.val_loss if before.val_loss else 0.0,
        gained=[number for number, (old, new) in pairs if new.found and not old.found],
        lost=[number for number, (old, new) in pairs if old.found and not new.found],
        answers=sum(old.greedy != new.greedy for _, (old, new) in pairs),
    )


def best(evaluation: Evaluation) -> EpochResult:
    """The epoch with the lowest validation loss, the first of several."""
    return min(evaluation.epochs, key=lambda result: result.val_loss)


def verdict(evaluation: Evaluation) -> str:
    """Overfitting, or none, in a sentence or two with their numbers."""
    epochs, top = evaluation.epochs, best(evaluation)
    first, last = epochs[0], epochs[-1]
    if first is last:
        return f"After its one epoch the validation loss is {_gap(last)} the training loss; one epoch shows no trend."
    if top is last:
        return f"The validation loss is lowest after the last epoch: {_fell(epochs)}. {_gap_between(first, last)}"
    after = f"After epoch {top.epoch} the validation loss rose from {top.val_loss:.4f} to {last.val_loss:.4f}"
    if last.train_loss < top.train_loss:
        return (
            f"Overfitting. {after}, while the training loss fell from {top.train_loss:.4f} to {last.train_loss:.4f}: "
            f"the model learned its text by heart. Take epoch {top.epoch}."
        )
    return (
        f"{after}, and the training loss did not fall either ({top.train_loss:.4f} to {last.train_loss:.4f}): this is "
        f"no overfitting; look at the learning rate and the gradient norm. Take epoch {top.epoch}."
    )


def _fell(epochs: Sequence[EpochResult]) -> str:
    pairs = itertools.pairwise(epochs)
    risen = [str(new.epoch) for old, new in pairs if new.val_loss >= old.val_loss]
    return f"it did not fall in epoch {', '.join(risen)}" if risen else "it fell in every epoch, more may still help"


def _gap_between(first: EpochResult, last: EpochResult) -> str:
    """How the distance between the losses went."""
    begin, end = first.val_loss - first.train_loss, last.val_loss - last.train_loss
    if end <= begin or end <= 0:
        return f"It is {_gap(last)} the training loss (after epoch {first.epoch}: {_gap(first)}): no overfitting."
    return (
        f"Its distance to the training loss grew from {begin:.4f} to {end:.4f}: what is learned by heart grows, "
        "but unseen text still gains."
    )


def _gap(result: EpochResult) -> str:
    gap = result.val_loss - result.train_loss
    return f"{abs(gap):.4f} {'below' if gap < 0 else 'above'}"
