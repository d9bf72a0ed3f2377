"""The section `train` (what is learned) of params.yaml, and training's part of `runtime` (how fast, never what).

The learning rate that `train.learning_rate: auto` stands for: a wider model takes a lower one.

AdamW moves every number by about the rate, so a matrix by about rate · width in its spectral norm: the rate falls with
the width (Yang et al. 2022, Tensor Programs V, table 3), from GPT-3's 6e-4 at 768 (Brown et al. 2020, table 2.1).
Muon's orthogonal update, scaled to AdamW's size, has the norm 0.2 · rate · √width: the rate falls with the square root
(Yang, Simon and Bernstein 2023), from what the default run was tuned to.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from tokenmill.core.params import Section
from tokenmill.costs import CostParams
from tokenmill.model.config import ModelParams


def _auto_or_count(value: object, info: ValidationInfo) -> object:
    """Refuse what is neither `auto` nor a positive integer, in one sentence instead of one for each."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError(f"runtime.{info.field_name} ({value!r}) must be 'auto' or an integer greater than or equal to 1.")


AutoOrCount = Annotated[Literal["auto"] | int, BeforeValidator(_auto_or_count)]


def _auto_or_rate(value: object) -> object:
    """Refuse what is neither `auto` nor a positive number, in one sentence instead of one for each."""
    if value == "auto" or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0):
        return value
    raise ValueError(f"train.learning_rate ({value!r}) must be 'auto' or a number greater than 0.")


AutoOrRate = Annotated[Literal["auto"] | float, BeforeValidator(_auto_or_rate)]


class ScheduleParams(Section):
    """The section `train.schedule`: the learning rate as a function of the step."""

    type: Literal["constant", "wsd", "cosine"]
    """`constant`; `wsd`: warm-up, stable, linear decay at the end (Hu et al. 2024, MiniCPM); `cosine` (Loshchilov and
    Hutter 2017). Each starts with a linear warm-up."""

    warmup_steps: int = Field(ge=0)
    """Steps over which the rate rises linearly from zero."""

    decay_fraction: float = Field(gt=0.0, le=1.0)
    """`wsd` only: the share of the horizon, at its end, over which the rate falls."""

    final_fraction: float = Field(ge=0.0, le=1.0)
    """`wsd` and `cosine`: the rate at the end of the horizon, as a share of `train.learning_rate`."""

    horizon_epochs: int | None = Field(ge=1)
    """`wsd` and `cosine`: the epoch at which the decay ends; null is `train.epochs`. A number makes the schedule
    independent of `train.epochs`, so that more epochs later continue exactly."""


class TrainParams(Section):
    """The section `train`: everything here changes the numbers that come out."""

    epochs: int = Field(ge=1)
    """Passes over the training tokens. Raising it later continues; see docs/resume.md."""

    batch_size: int = Field(ge=1)
    """Sequences of `model.context_length` tokens whose gradients are averaged; an optimizer step sees so many times
    `train.gradient_accumulation_steps`. How many go through the model at a time is `runtime.micro_batch_size`."""

    gradient_accumulation_steps: int = Field(ge=1)
    """Batches whose gradients are averaged into one optimizer step."""

    learning_rate: AutoOrRate
    """The highest learning rate; `auto` has one for `train.optimizer` that falls as `model.n_embd` grows. With `muon`
    the updates of hidden matrices are scaled to the root mean square of AdamW's (Liu et al. 2025, section 2.2), so that
    one rate serves all parameters."""

    optimizer: Literal["adamw", "muon"]
    """`adamw` (Loshchilov and Hutter 2019) for everything; or `muon` (Jordan et al. 2024) for the matrices inside the
    blocks with AdamW for embeddings, head, norms and biases. Its momentum is 0.95, from 0.85 on in a run's first 300
    steps."""

    weight_decay: float = Field(ge=0.0)
    """Decoupled weight decay, on matrices only (with `muon`: on the matrices inside the blocks)."""

    beta1: float = Field(ge=0.0, lt=1.0)
    """AdamW's decay of the mean gradient."""

    beta2: float = Field(ge=0.0, lt=1.0)
    """AdamW's decay of the mean squared gradient."""

    gradient_clip: float = Field(gt=0.0)
    """The gradient is scaled down to this global norm when it is longer."""

    schedule: ScheduleParams
    """How the learning rate moves."""

    seed: int = Field(ge=0, le=2**32 - 1)
    """Fixes starting weights, order of sequences, and dropout."""

    precision: Literal["auto", "float32", "bfloat16", "float16"]
    """Of the matrix products (weights stay float32). `auto`: bfloat16 on GPUs and CPUs that have it in hardware
    (AVX512_BF16, AMX), float16 with a loss scaler on older GPUs, float32 on other CPUs and Apple GPUs."""

    validation_sequences: int = Field(ge=1)
    """The validation loss is measured on this many sequences at most: evenly spread, and always the same ones."""

    log_every_steps: int = Field(ge=1)
    """Steps that one row of `metrics/steps.csv` averages."""

    @property
    def peak(self) -> float:
        """`learning_rate` as the number that `rate.py` makes of it where the file is read."""
        if self.learning_rate == "auto":
            raise ValueError("`auto` is a rate only beside a model's width: read the section as `rate.TrainSection`")
        return self.learning_rate


class CheckpointParams(Section):
    """The section `runtime.checkpoint`."""

    every_seconds: float | None = Field(gt=0)
    """A checkpoint after so many seconds; null: none by time."""

    every_steps: int | None = Field(ge=1)
    """A checkpoint every so many steps; null: none by step. One is always written at the end of an epoch."""

    keep: int = Field(ge=2)
    """Checkpoints kept of a run; a damaged newest one falls back to the one before."""

    keep_runs: int = Field(ge=1)
    """Configurations whose checkpoints stay in `.resume/`, the least recently trained are removed."""

    mirror: str | None
    """A second place to which checkpoints are copied in the background, and from which another machine goes on: an
    existing folder (a mounted drive) by its absolute path, or a URL as `s3://bucket/prefix`. null: none."""

    @field_validator("mirror")
    @classmethod
    def _mirror_is_found_from_everywhere(cls, value: str | None) -> str | None:
        if value is not None and "://" not in value and not Path(value).expanduser().is_absolute():
            raise ValueError(
                f"runtime.checkpoint.mirror ({value!r}) must be an absolute path or a URL, because DVC also runs "
                "stages in temporary copies."
            )
        return value


class RuntimeParams(Section, extra="ignore"):
    """What training and evaluation read of the section `runtime`; the rest of it is the data stages'."""

    device: Literal["auto", "cpu", "cuda", "mps"]
    """Where to train and evaluate; `auto` takes CUDA, else Apple's Metal, else the CPU."""

    token_placement: Literal["auto", "device", "memory", "mmap"]
    """Where training tokens lie: the device's memory, main memory, or a memory map. `auto`: the first that they fit
    into with room to spare."""

    compile: Literal["auto", "on", "off"]
    """`torch.compile`. `auto` is on for CUDA where the run has 2,000 steps, and on a CPU where an epoch takes 100 TFLOP
    (half an hour on two cores): those pay for the minute or two of it, with steps 10 to 35 % shorter
    (docs/decisions.md). Training says the choice, and why."""

    processes: AutoOrCount
    """Processes that train together, each on a device of its own and on its share of every step's sequences, with the
    same numbers to rounding. `auto`: one for each GPU here, one on a CPU. Under torchrun, which may span machines, its
    number counts."""

    parallel: Literal["ddp", "fsdp"]
    """What several processes hold: `ddp`, each the whole model; `fsdp`, each its part of the model, of the gradient and
    of the optimizer, for models that do not fit one device (with `adamw` only)."""

    micro_batch_size: AutoOrCount
    """The most sequences that go through the model at a time on each device. The gradients of a step are added up, so
    the result is the same to rounding. `auto`: `train.batch_size`, or the half, a quarter, … of it that memory holds.
    Where memory runs out it is halved, and the run remembers it."""

    max_minutes: float | None = Field(gt=0)
    """Training saves its state and stops, with an error, after so many minutes of one session, and the next `dvc repro`
    goes on; for machines that are taken away after a fixed time. Leave it room for the last step and checkpoint. null:
    no limit."""

    checkpoint: CheckpointParams
    """When the state is saved to `.resume/`."""

    cost: CostParams
    """What an hour costs."""


TUNED: dict[Literal["adamw", "muon"], tuple[float, int, float]] = {"adamw": (6e-4, 768, 1.0), "muon": (4e-3, 128, 0.5)}
"""A rate, the width it was tuned at, and the power of the width by which it falls."""


def auto_learning_rate(model: ModelParams, optimizer: Literal["adamw", "muon"]) -> float:
    """The highest learning rate for a model of this width, in two digits.

    Example: with Muon 0.004 at a width of 128 and 0.0016 at 768; with AdamW 0.0036 and 0.0006.
    """
    rate, width, power = TUNED[optimizer]
    return float(f"{rate * (width / model.n_embd) ** power:.2g}")


def _with_rate(train: TrainParams, info: ValidationInfo) -> TrainParams:
    model: ModelParams | None = info.data.get("model")
    if train.learning_rate != "auto" or model is None:  # without a model the file is refused anyway
        return train
    return train.model_copy(update={"learning_rate": auto_learning_rate(model, train.optimizer)})


TrainSection = Annotated[TrainParams, AfterValidator(_with_rate)]
"""The section `train` in a file that has `model` before it: `auto` becomes a number."""
