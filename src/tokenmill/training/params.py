"""The section `train` (what is learned) of params.yaml, and training's part of `runtime` (how fast,
never what)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, LiteralString

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from tokenmill.core.errors import UserError
from tokenmill.core.params import DeviceParams, Epochs, Section, SharedPlace, StartParams
from tokenmill.costs import CostParams
from tokenmill.formats.token_file import PlacementParams
from tokenmill.model.config import ModelParams


def _auto_or(kind: type[int | float], allowed: LiteralString) -> BeforeValidator:
    """Refuse anything but `auto` or a positive number of this kind with one error message; pydantic
    would give one for each alternative."""

    def check(value: Any) -> Any:
        is_number = isinstance(value, int | kind) and not isinstance(value, bool)
        if value == "auto" or (is_number and value > 0):
            return value
        raise PydanticCustomError("auto", allowed)

    return BeforeValidator(check)


AutoOrCount = Annotated[
    Literal["auto"] | int, _auto_or(int, "'auto' or an integer greater than or equal to 1")
]
AutoOrRate = Annotated[
    Literal["auto"] | float, _auto_or(float, "'auto' or a number greater than 0")
]


OptimizerName = Literal["adamw", "muon"]


@dataclass(frozen=True)
class OptimizerFacts:
    """The facts about an optimizer from which memory, time and learning rate follow.
    `training/optimizer.py` computes the update itself."""

    rate: float
    """The tuned rate."""
    width: int
    """The width at which it was tuned."""
    power: float
    """Exponent p in rate · (width / n_embd)^p."""
    hidden_moments: int = 2
    """The number of moments that it keeps for each number of a matrix inside the blocks. For all
    other parameters it keeps two."""
    hidden_flops: Callable[[int, int], int] = lambda _short, _long: 0
    """Floating-point operations of the update of a matrix whose shorter and longer sides are given.
    It is zero where they are too few to count."""
    needs_whole_matrices: bool = False
    """Whether it needs whole matrices and cannot update a shard of one (FSDP)."""


def _polar_express_flops(short: int, long: int) -> int:
    """Floating-point operations of Muon's four iterations in bfloat16. In float32 a matrix of R x 4
    R takes seven twelfths of them."""
    return 4 * (4 * short * short * long + 2 * short**3)


OPTIMIZERS: dict[OptimizerName, OptimizerFacts] = {
    "adamw": OptimizerFacts(rate=6e-4, width=768, power=1.0),
    "muon": OptimizerFacts(
        rate=4e-3,
        width=128,
        power=0.5,
        hidden_moments=1,
        hidden_flops=_polar_express_flops,
        needs_whole_matrices=True,
    ),
}
"""The known optimizers.

AdamW moves every number by about the learning rate, so it changes the spectral norm of a matrix by
about rate x width. Its rate falls with the width (Yang et al. 2022, Tensor Programs V, table 3),
from GPT-3's 6e-4 at 768 (Brown et al. 2020, table 2.1). Muon's orthogonal update, scaled to AdamW's
size, has the norm 0.2 x rate x sqrt(width). Its rate falls with the square root of the width (Yang,
Simon and Bernstein 2023), from the value tuned for the default run.
"""


class ModelSection(StartParams, ModelParams, extra="forbid"):
    """The section `model`."""


class ScheduleParams(Section):
    """The section `train.schedule`: the learning rate as a function of the step."""

    type: Literal["constant", "power", "wsd", "cosine"]
    """`constant`; `power`: constant, then falling with a power of the step (Vaswani et al. 2017,
    section 5.3, with its square root); `wsd`: warm-up, stable, linear decay at the end (Hu et al.
    2024, MiniCPM); `cosine` (Loshchilov and Hutter 2017). Each starts with a linear warm-up. The
    first two do not depend on where the run ends; take `train.average_power` with them."""

    warmup_steps: int = Field(ge=0)
    """Steps over which the rate rises linearly from zero."""

    constant_steps: int | None = Field(ge=1)
    """`power` only: after this many steps the rate begins to fall; null, or less than
    `warmup_steps`: after the warm-up."""

    power: float = Field(gt=0.0, le=2.0)
    """`power` only: the rate of step s is `train.learning_rate` times (constant_steps / s)^power.
    0.5 is the square root."""

    decay_fraction: float = Field(gt=0.0, le=1.0)
    """`wsd` only: the rate falls over this last part of the horizon, but not before the warm-up has
    ended."""

    final_fraction: float = Field(ge=0.0, le=1.0)
    """`wsd` and `cosine`: the rate at the end of the horizon, as a fraction of
    `train.learning_rate`."""

    horizon_epochs: Epochs | None
    """`wsd` and `cosine`: the epoch at which the decay ends; null: at the end of `train.epochs`.
    With a number the schedule does not depend on `train.epochs`, so a later run with more epochs
    continues exactly."""


class TrainParams(Section):
    """The section `train`: how the model is trained, and when and on how much text its loss is
    measured."""

    epochs: Epochs
    """Passes over the training tokens. If it is raised later, training continues; see
    docs/resume.md."""

    batch_size: int = Field(ge=1)
    """Sequences of `model.context_length` tokens in a batch. An optimizer step sees `batch_size` x
    `gradient_accumulation_steps` of them; `runtime.micro_batch_size` says how many go through the
    model at the same time."""

    gradient_accumulation_steps: int = Field(ge=1)
    """Batches whose gradients are averaged for one optimizer step."""

    learning_rate: AutoOrRate
    """The highest learning rate of the run. `auto` chooses it by `train.optimizer` and
    `model.n_embd`: a wider model gets a lower rate. With `muon` the updates of hidden matrices are
    scaled to the root mean square of AdamW's (Liu et al. 2025, section 2.2), so that one rate
    serves all parameters."""

    optimizer: OptimizerName
    """`adamw` (Loshchilov and Hutter 2019) for all parameters; or `muon` (Jordan et al. 2024) for
    the matrices inside the blocks, with AdamW for embeddings, head, norms and biases. Muon's
    momentum rises from 0.85 to 0.95 over the first 300 steps."""

    weight_decay: float = Field(ge=0.0)
    """Decoupled weight decay, on matrices only (with `muon`: on the matrices inside the blocks);
    ten times as much on the rows for pairs and triples of `speedrun`."""

    beta1: float = Field(ge=0.0, lt=1.0)
    """AdamW's decay of the mean gradient."""

    beta2: float = Field(ge=0.0, lt=1.0)
    """AdamW's decay of the mean squared gradient."""

    gradient_clip: float = Field(gt=0.0)
    """The largest global norm of the gradient; a longer gradient is scaled down to it."""

    schedule: ScheduleParams
    """How the learning rate changes over the steps."""

    average_power: float | None = Field(ge=0.0, le=1000.0)
    """The weights that are validated and kept are the average of all weights so far (Karras et al.
    2024, section 3.1), those after step s with a share that grows as s^`average_power`; null: the
    last weights. With a rate that stays high or falls slowly they have at each step a loss near
    that of a run whose rate falls to zero there (docs/decisions.md)."""

    seed: int = Field(ge=0, le=2**32 - 1)
    """Determines the starting weights, the order of the sequences, and dropout."""

    precision: Literal["auto", "float32", "bfloat16", "float16"]
    """The number format of matrix products; weights stay float32. `auto`: bfloat16 on GPUs and CPUs
    with hardware for it (AVX512_BF16, AMX), float16 with a loss scaler on older GPUs, float32 on
    other CPUs and Apple GPUs. With `float32` by name no product rounds its inputs, Muon's
    neither."""

    validation_bytes: int | None = Field(ge=1)
    """The validation loss is measured on whole documents of the validation text with about this
    many UTF-8 bytes at most; null: on all of it. They are evenly spread and follow from the text
    alone, so models with other tokenizers and contexts are measured on the same bytes."""

    log_every_steps: int = Field(ge=1)
    """Each row of `metrics/steps.csv` has the mean loss of this many steps, and the learning rate
    and the gradient norm of the last of them."""

    validate_every_steps: int | None = Field(ge=1)
    """The validation loss is also measured each time this many steps are done, and shown while the
    run is on (`tokenmill watch`); null: at the end of each epoch only. It changes no weight, and a
    run continues under another value."""

    early_stopping: int | None = Field(ge=1)
    """Training ends after an epoch if the last validations, this many, brought no lower loss than
    those before; null: it never ends early. The weights of every epoch are kept, so the best one is
    among them."""

    target_loss: float | None = Field(gt=0.0)
    """Training ends at the first validation whose loss is at most this, in nats per token, also
    within an epoch; null: it does not end by its loss. Without `train.validate_every_steps`
    validations within an epoch come where the losses so far let expect it. The weights there become
    those of the last epoch."""

    @property
    def averages(self) -> bool:
        """Whether the run keeps the average of its weights."""
        return self.average_power is not None

    def refuse_sharding(self, runtime: "RuntimeParams", *, precision: str | None = None) -> None:
        """Refuse what a sharded model cannot have: an optimizer that needs whole matrices, or a
        loss scaler, which each process would set for itself.

        Args:
            runtime: the parameters that say whether the model is sharded.
            precision: the number format that was chosen for a device; None before that.

        Raises:
            UserError: `runtime.parallel` is `fsdp`, and one of these is asked for or chosen.
        """
        if runtime.parallel != "fsdp":
            return
        if OPTIMIZERS[self.optimizer].needs_whole_matrices:
            raise UserError(
                "runtime.parallel (fsdp) cuts matrices, which train.optimizer "
                f"({self.optimizer}) needs whole; set runtime.parallel to ddp, or train.optimizer "
                "to adamw."
            )
        if (precision or self.precision) == "float16":
            raise UserError(
                "runtime.parallel (fsdp) does not go with products in float16 (train.precision: "
                f"{self.precision}); set runtime.parallel to ddp, or train.precision to bfloat16."
            )

    @property
    def expected_target(self) -> float | None:
        """The target at which validations come where the loss is expected to be there; None if they
        come at an interval, or if there is no target."""
        return self.target_loss if self.validate_every_steps is None else None

    @property
    def peak(self) -> float:
        """`learning_rate` as a number. `TrainSection` resolves `auto` when params.yaml is read."""
        if self.learning_rate == "auto":
            raise ValueError(
                "`auto` depends on the model's width: read the section as `params.TrainSection`"
            )
        return self.learning_rate

    @property
    def horizon(self) -> int:
        """The epochs over which the schedule goes."""
        return self.schedule.horizon_epochs or self.epochs


class CheckpointParams(Section):
    """The section `runtime.checkpoint`."""

    every_seconds: float | None = Field(gt=0)
    """Save a checkpoint after this many seconds, or less often where it would take more than a
    twentieth of the time; null: none by time. The first one of a run comes earlier: after 10
    seconds, or after a third of the first epoch where that is sooner."""

    every_steps: int | None = Field(ge=1)
    """Save a checkpoint after this many steps; null: none by step. One is always saved at the end
    of an epoch."""

    keep: int = Field(ge=2)
    """Checkpoints of a run that are kept. If the newest one is damaged, training continues from the
    one before."""

    keep_runs: int = Field(ge=1)
    """Configurations whose checkpoints stay in `.resume/`; those of the least recently trained ones
    are removed."""

    mirror: SharedPlace | None
    """A second place for checkpoints, from which training can continue on another machine: an
    existing folder (such as a mounted drive) by its absolute path, or a URL such as
    `s3://bucket/prefix`. null: none."""


CompileChoice = Literal["auto", "on", "off", "reduce-overhead"]


class RuntimeParams(PlacementParams, DeviceParams, extra="ignore"):
    """The parameters of `runtime` that training and evaluation read. The data stages read the
    others."""

    compile: CompileChoice
    """`torch.compile`. `auto`: on for CUDA if the run takes at least 4,000 TFLOP or 20,000 steps,
    and on for a CPU if an epoch takes at least 100 TFLOP (half an hour on two cores). Compiling
    takes half a minute to two minutes; steps become 8 to 27 % shorter on a CPU, and a third to two
    thirds on a GPU (docs/decisions.md, bench/README.md). On one GPU `auto` also records steps of at
    most 2 TFLOP as one CUDA graph, compiled or not, because the host launches their operations more
    slowly than the GPU computes them. Training shows the choice and its reason. `reduce-overhead`:
    compiled and recorded. Fine-tuning is compiled on GPUs only, and never recorded."""

    processes: AutoOrCount
    """Processes that train together, each on its own device. Each computes its part of every step's
    sequences, so the result is the same to rounding. `auto`: one for each GPU of this machine, or
    fewer where a step is too small to keep them busy, and one on a CPU. Under torchrun, which may
    span machines, torchrun's number counts."""

    parallel: Literal["ddp", "fsdp"]
    """How several processes hold the model. `ddp`: each holds all of it. `fsdp`: each holds its
    part of the weights, the gradient and the optimizer's state, for models too large for one device
    (with `adamw` only, also where one process trains)."""

    micro_batch_size: AutoOrCount
    """The most sequences that go through the model at the same time on each device. The gradients
    of a step are added up, so the result is the same to rounding. `auto`: `train.batch_size`, or as
    much of it as memory should hold by an estimate (a half, a quarter, …), the same as `tokenmill
    plan` shows. When memory runs out the number is halved, and later runs remember it."""

    max_minutes: float | None = Field(gt=0)
    """Stop after this many minutes: training saves its state, ends with an error, and the next `dvc
    repro` continues. For machines that are taken away after a fixed time; leave time for the last
    step and checkpoint. null: no limit."""

    checkpoint: CheckpointParams
    """When the state is saved to `.resume/`."""

    cost: CostParams
    """What an hour of this machine costs."""


def auto_learning_rate(model: ModelParams, optimizer: OptimizerName) -> float:
    """The learning rate that `auto` means for a model of this width, with two digits.

    Example: with Muon 0.004 at a width of 128 and 0.0016 at 768; with AdamW 0.0036 and 0.0006.
    """
    facts = OPTIMIZERS[optimizer]
    return float(f"{facts.rate * (facts.width / model.n_embd) ** facts.power:.2g}")


def resolve_learning_rate(train: TrainParams, info: ValidationInfo) -> TrainParams:
    """Replace `auto` by the number of `auto_learning_rate`."""
    model: ModelParams | None = info.data.get("model")
    if train.learning_rate != "auto" or model is None:  # without a model the file is refused anyway
        return train
    return train.model_copy(update={"learning_rate": auto_learning_rate(model, train.optimizer)})


TrainSection = Annotated[TrainParams, AfterValidator(resolve_learning_rate)]
"""The section `train` of a file whose section `model` is read before it; `auto` becomes a
number."""
