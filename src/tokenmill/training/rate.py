"""The learning rate that `train.learning_rate: auto` stands for: a wider model takes a lower one.

AdamW moves every number by about the rate, so a matrix by about rate · width in its spectral norm: the rate falls with
the width (Yang et al. 2022, Tensor Programs V, table 3), from GPT-3's 6e-4 at 768 (Brown et al. 2020, table 2.1).
Muon's orthogonal update, scaled to AdamW's size, has the norm 0.2 · rate · √width: the rate falls with the square root
(Yang, Simon and Bernstein 2023), from what the default run was tuned to.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, ValidationInfo

from tokenmill.model.config import ModelParams
from tokenmill.training.params import TrainParams

TUNED: dict[Literal["adamw", "muon"], tuple[float, int, float]] = {"adamw": (6e-4, 768, 1.0), "muon": (4e-3, 128, 0.5)}
"""A rate, the width it was tuned at, and the power of the width by which it falls."""


def automatic_rate(model: ModelParams, optimizer: Literal["adamw", "muon"]) -> float:
    """The highest learning rate for a model of this width, in two digits.

    Example: with Muon 0.004 at a width of 128 and 0.0016 at 768; with AdamW 0.0036 and 0.0006.
    """
    rate, width, power = TUNED[optimizer]
    return float(f"{rate * (width / model.n_embd) ** power:.2g}")


def _with_rate(train: TrainParams, info: ValidationInfo) -> TrainParams:
    model: ModelParams | None = info.data.get("model")
    if train.learning_rate != "auto" or model is None:  # without a model the file is refused anyway
        return train
    return train.model_copy(update={"learning_rate": automatic_rate(model, train.optimizer)})


TrainSection = Annotated[TrainParams, AfterValidator(_with_rate)]
"""The section `train` in a file that has `model` before it: `auto` becomes a number."""
