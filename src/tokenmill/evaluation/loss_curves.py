"""The run's curves as charts: losses by epoch and by step, learning rate, gradient norm."""

from collections.abc import Callable, Sequence
from statistics import fmean

from markupsafe import Markup

from tokenmill.evaluation.results import Evaluation
from tokenmill.page import charts
from tokenmill.training.history import EpochRow, StepRow

POINTS = 300
"""Points of a line over steps; more rows are averaged."""
TRAIN, VALIDATION = 1, 3
"""Series colours, as in the data report."""


def by_epoch(evaluation: Evaluation) -> Markup:
    """Both losses of every epoch's weights."""
    epochs = evaluation.epochs
    numbers = [result.epoch for result in epochs]
    losses = {
        "training": (TRAIN, [result.train_loss for result in epochs]),
        "validation": (VALIDATION, [result.val_loss for result in epochs]),
    }
    return charts.lines(
        [
            charts.Series(values, colour, numbers, [_said(n, name, v) for n, v in zip(numbers, values, strict=True)])
            for name, (colour, values) in losses.items()
        ],
        x_label="epoch",
        y_label="nats per token",
        alt=f"Losses by epoch; the validation loss goes from {epochs[0].val_loss:.4f} to {epochs[-1].val_loss:.4f}.",
    )


def by_step(steps: Sequence[StepRow], history: Sequence[EpochRow]) -> Markup:
    """The training loss while the model learns, and the validation loss at the epochs' ends."""
    x, loss = _thin(steps, lambda row: row.loss)
    ends = [row.val_loss for row in history]
    dots = [_said(row.epoch, "validation", row.val_loss) for row in history]
    return charts.lines(
        [
            charts.Series(loss, TRAIN, x),
            charts.Series(ends, VALIDATION, [row.step for row in history], dots),
        ],
        log="y",
        x_label="step",
        y_label="nats per token, logarithmic",
        alt=f"Training loss by step, from {loss[0]:.4f} to {loss[-1]:.4f}, and validation loss at the epochs' ends.",
    )


def learning_rate(steps: Sequence[StepRow]) -> Markup:
    """The schedule as it was."""
    x, rates = _thin(steps, lambda row: row.learning_rate)
    return _one(x, rates, "learning rate", f"Learning rate by step; at most {max(rates):.4g}.")


def gradient_norm(steps: Sequence[StepRow]) -> Markup:
    """The norm before clipping."""
    x, norms = _thin(steps, lambda row: row.gradient_norm)
    return _one(x, norms, "gradient norm", f"Gradient norm before clipping by step; at most {max(norms):.4g}.")


def _one(x: list[float], values: list[float], y_label: str, alt: str) -> Markup:
    return charts.lines([charts.Series(values, TRAIN, x)], x_label="step", y_label=y_label, alt=alt)


def _thin(steps: Sequence[StepRow], value: Callable[[StepRow], float]) -> tuple[list[float], list[float]]:
    """At most POINTS points: the means of equal shares of the rows, each at the last step of its share."""
    size = -(-len(steps) // POINTS)
    shares = [steps[i : i + size] for i in range(0, len(steps), size)]
    return [share[-1].step for share in shares], [fmean(map(value, share)) for share in shares]


def _said(epoch: int, name: str, loss: float) -> str:
    return f"epoch {epoch}: {name} loss {loss:.4f}"
