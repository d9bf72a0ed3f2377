"""The section `finetune` of params.yaml."""

import math
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from tokenmill.core.errors import UserError
from tokenmill.core.params import Epochs, PathText, Section
from tokenmill.model.config import LoraParams, ModelParams
from tokenmill.training.params import (
    AutoOrRate,
    RuntimeParams,
    ScheduleParams,
    TrainParams,
    auto_learning_rate,
)

Method: TypeAlias = Literal["full", "lora"]

RATES: dict[Method, tuple[float, float]] = {"full": (0.25, math.inf), "lora": (2.5, 0.018)}
"""The learning rate as a multiple of the rate for training from scratch, and its most. For all
weights it was 6.25e-5 after 2.5e-4 (Radford et al. 2018, "Improving Language Understanding by
Generative Pre-Training", section 4.1). For LoRA it is ten times that (Schulman et al. 2025, "LoRA
Without Regret"), but in narrow models no higher than at a width of 64 (docs/decisions.md)."""


class FinetuneParams(Section):
    """How a trained model learns to answer."""

    methods: list[Method]
    """`[full]` trains all weights, `[lora]` two thin matrices beside each large one. Empty: no
    fine-tuning."""

    data: PathText | None
    """A file or a folder of chats by its absolute path, in any shape and format that `clean` reads.
    They are cleaned by the parameters of `clean`."""

    val_fraction: float = Field(gt=0.0, lt=1.0)
    """Share of the chats to validate with, chosen by the hash of their text."""

    epochs: Epochs
    """Passes over the chats. If it is raised later, training continues."""

    batch_size: int = Field(ge=1)
    """Sequences of `model.context_length` tokens in a step; each holds as many whole chats as
    fit."""

    base_fraction: float = Field(ge=0.0, le=0.9)
    """Share of the sequences that are text of the base model's training, evenly spread, against
    forgetting."""

    learning_rate: AutoOrRate
    """The highest learning rate, of AdamW. `auto`: a quarter of the one that AdamW gets for
    training a model of this width from scratch (Radford et al. 2018, section 4.1), and for `lora`
    ten times as much (Schulman et al. 2025), but at most 0.018."""

    lora: LoraParams
    """What learns with `lora`, and how."""

    seed: int = Field(ge=0, le=2**32 - 1)
    """Determines the order of the sequences, and with `lora` where A starts."""

    @field_validator("methods")
    @classmethod
    def _one_method_at_a_time(cls, value: list[Method]) -> list[Method]:
        if len(value) > 1:
            raise ValueError(
                f"finetune.methods ({', '.join(value)}) must name one method: a run has one "
                "models/finetuned; give each method an experiment of its own."
            )
        return value

    @property
    def method(self) -> Method:
        """The method by which the stage `finetune` trains.

        Raises:
            UserError: `finetune.methods` is empty.
        """
        if not self.methods:
            raise UserError(
                "finetune.methods ([]) turns fine-tuning off; set it to [full] or [lora]."
            )
        return self.methods[0]

    def refuse_sharding(self, runtime: RuntimeParams) -> None:
        """Refuse LoRA on matrices that are cut.

        Raises:
            UserError: `runtime.parallel` is `fsdp`.
        """
        if "lora" in self.methods and runtime.parallel == "fsdp":
            raise UserError(
                "finetune.methods (lora) does not go with runtime.parallel (fsdp); set that to ddp."
            )

    @field_validator("data")
    @classmethod
    def _data_is_found_from_everywhere(cls, value: str | None) -> str | None:
        if value is not None and not Path(value).is_absolute() and not Path(value).exists():
            raise ValueError(
                f"finetune.data ({value!r}) does not exist; give the absolute path of a file or a "
                "folder."
            )
        return value

    @model_validator(mode="after")
    def _methods_have_data(self) -> "FinetuneParams":
        if self.methods and self.data is None:
            raise ValueError(
                f"finetune.methods ({', '.join(self.methods)}) needs finetune.data: the path of a "
                "file or a folder of chats; or set finetune.methods to []."
            )
        return self

    def as_training(self, base: TrainParams, model: ModelParams, *, sequences: int) -> TrainParams:
        """The parameters of the training that fine-tunes a model trained with `base` on so many
        sequences."""
        rate = self.learning_rate
        if rate == "auto":
            share, most = RATES[self.method]
            rate = min(float(f"{share * auto_learning_rate(model, 'adamw'):.2g}"), most)
        own = {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "gradient_accumulation_steps": 1,
            "learning_rate": rate,
            "optimizer": "adamw",
            "weight_decay": 0.0,
            "schedule": _schedule(steps_per_epoch=-(-sequences // self.batch_size)),
            "average_power": None,
            "seed": self.seed,
            "validate_every_steps": None,
            "early_stopping": None,
            "target_loss": None,
        }
        return base.model_copy(update=own)


def _schedule(*, steps_per_epoch: int) -> ScheduleParams:
    """The schedule of fine-tuning: linear decay as in Radford et al. 2018, but over the later half
    only, so that more epochs continue from the middle of a run. For the same reason the warm-up
    follows from an epoch: a tenth of it, at most ten steps."""
    return ScheduleParams(
        type="wsd",
        warmup_steps=min(10, max(1, steps_per_epoch // 10)),
        constant_steps=None,
        power=0.5,
        decay_fraction=0.5,
        final_fraction=0.0,
        horizon_epochs=None,
    )


def _lora_fits(finetune: FinetuneParams, info: ValidationInfo) -> FinetuneParams:
    """Refuse LoRA on linear maps that the model does not have."""
    model: ModelParams | None = info.data.get("model")
    if model is not None and "lora" in finetune.methods:
        finetune.lora.maps(model)
    return finetune


FinetuneSection = Annotated[FinetuneParams, AfterValidator(_lora_fits)]
"""The section `finetune` of a file whose section `model` is read before it."""
