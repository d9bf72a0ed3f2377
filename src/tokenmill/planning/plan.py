"""What training would take on some hardware: the calculator behind `tokenmill plan` and the list of presets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, YAMLError

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.metrics import TokenizerMetrics, TokensMetrics, read_metrics
from tokenmill.core.params import PARAMS_FILE, read_yaml, validate
from tokenmill.core.token_file import METADATA_FILE, read_metadata
from tokenmill.costs import TIMING, find_times, read_timing
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import empty_model, is_hidden_matrix, parameter_count
from tokenmill.model.manifest import MANIFEST, read_manifest
from tokenmill.model.optimizers import OPTIMIZERS, OptimizerName
from tokenmill.model.size import Memory, Precision, flops_per_token, memory
from tokenmill.planning.benchmark import measure
from tokenmill.planning.hardware import UTILISATION, Hardware, known_hardware
from tokenmill.planning.presets import Preset, apply, innermost, read
from tokenmill.schema import AllParams
from tokenmill.training.schedule import Workload

HERE = "here"
"""Among the names of hardware: this machine, measured now."""

USABLE_MEMORY = 0.9
"""Share of a GPU's memory that a model can fill; the allocator and the libraries take the rest."""


LAUNCH_SECONDS = 5e-6
"""Assumed for the host to start an operation on a GPU; small models wait for this, not for the computation."""

LAUNCHES, LAUNCHES_PER_LAYER = 150, 100
"""Operations of a step that are more than a view, counted for `modern` with Muon."""

HIDDEN_SHARE = 2 / 3
"""Share of a step in which gradients can travel during the computation: the backward pass is two thirds of it."""


@dataclass(frozen=True)
class StepTime:
    """What one optimizer step takes on all devices together."""

    compute_seconds: float
    network_bytes: float
    """Sent by each device."""
    network_seconds: float

    @property
    def seconds(self) -> float:
        """Computation, and the part of the network's time that does not hide behind it."""
        return self.compute_seconds + max(0.0, self.network_seconds - HIDDEN_SHARE * self.compute_seconds)


def step_time(
    config: ModelConfig,
    *,
    tokens: int,
    optimizer: OptimizerName,
    rate: float,
    devices: int,
    bandwidth: float,
) -> StepTime:
    """The time of a step over `tokens` on `devices`, each of which has the whole model (DDP, Li et al. 2020).

    Each device makes `rate` operations and sends `bandwidth` bytes a second. It sends its float32 gradients twice: a
    ring's all-reduce (Patarasuk and Yuan 2009). No step is shorter than the launches of its operations.
    """
    flops = tokens * flops_per_token(config) / devices + optimizer_flops(config, optimizer)
    sent = 2 * 4 * parameter_count(config) * (devices - 1) / devices
    launches = LAUNCH_SECONDS * (LAUNCHES + LAUNCHES_PER_LAYER * config.n_layer)
    return StepTime(max(flops / rate, launches), sent, sent / bandwidth)


def optimizer_flops(config: ModelConfig, optimizer: OptimizerName) -> int:
    """Operations of one update that are worth counting."""
    matrices = (p for name, p in empty_model(config).named_parameters() if is_hidden_matrix(name, p))
    return sum(OPTIMIZERS[optimizer].hidden_flops(*sorted(matrix.shape)) for matrix in matrices)


@dataclass(frozen=True)
class PlanOptions:
    """What to plan; what is None or empty comes from the project."""

    preset: str | None = None
    tokens: float | None = None
    vocab_size: int | None = None
    hardware: Sequence[str] = ()
    """Names of GPUs, and `here`; none means all GPUs."""
    devices: int = 1
    utilisation: float = UTILISATION
    price_per_hour: float | None = None
    """Of one device."""
    overrides: Sequence[str] = ()
    """NAME=VALUE each, as in `dvc exp run -S`."""


@dataclass(frozen=True)
class PlanRow:
    """A training on one kind of hardware."""

    name: str
    step_seconds: float
    tokens_per_second: float
    total_seconds: float
    money: float | None
    """For the whole training; None if no price is known."""
    sequences: int | None
    """How many sequences of a batch memory holds at a time, 0 if not one; None for the machine that was measured."""


@dataclass(frozen=True)
class Plan:
    """A training and what it takes."""

    work: Workload
    rows: Sequence[PlanRow]
    gpus: Sequence[Hardware]
    """Those in the rows; their times assume a utilisation."""
    currency: str
    source: str | None
    """How the time of this machine is known, in words; None if it is not in the rows."""

    @cached_property
    def parameters(self) -> int:
        """Of the model."""
        return parameter_count(self.work.config)

    @cached_property
    def flops_per_token(self) -> int:
        """Of the forward and backward passes."""
        return flops_per_token(self.work.config)

    @property
    def optimizer_share(self) -> float:
        """Operations of the optimizer's update as a share of those of the passes."""
        update = optimizer_flops(self.work.config, self.work.train.optimizer)
        return update / (self.work.tokens_per_step * self.flops_per_token)

    def memory(self, precision: Precision) -> Memory:
        """On one device that takes a whole batch at a time."""
        return _memory(self.work, precision, self.work.train.batch_size)

    def peak_shares(self, step_seconds: float, *, devices: int) -> dict[str, float]:
        """The share of each GPU's peak that a step of this many seconds would reach."""
        rate = self.rate(step_seconds, devices=devices)
        return {gpu.name: rate / gpu.flops for gpu in self.gpus}

    def rate(self, step_seconds: float, *, devices: int) -> float:
        """Operations per second of each device in a step of this many seconds."""
        return self.work.tokens_per_step * self.flops_per_token / step_seconds / devices


def plan_training(root: Path, options: PlanOptions) -> Plan:
    """Plan the training of the project in the folder `root`.

    Raises:
        UserError: parameters are wrong, hardware is not known, or nothing says how many tokens there are.
    """
    preset = read(options.preset) if options.preset else None
    params = _params(root / PARAMS_FILE, preset, options.overrides)
    work = _workload(root, params, preset, options)
    names = [name for name in options.hardware if name.lower() != HERE]
    gpus = known_hardware(names) if names or not options.hardware else []
    this_machine = _measured(work, params) if len(names) < len(options.hardware) else _last_training(root, work)
    cost, source = params.runtime.cost, None
    rows: list[PlanRow] = []
    if this_machine:
        name, seconds, source = this_machine
        rows.append(_row(name, work, seconds, price_per_hour=cost.price_per_hour, sequences=None))
    rows += _gpu_rows(work, gpus, options)
    return Plan(work, rows, gpus, cost.currency, source)


def _params(path: Path, preset: Preset | None, overrides: Sequence[str]) -> AllParams:
    content: dict[str, Any] = apply(preset.values, path).content if preset else read_yaml(path)
    for text in overrides:
        override(content, text)
    return validate(AllParams, content, path)


def override(content: dict[str, Any], text: str) -> None:
    """Put `model.n_layer=12` into the content of params.yaml.

    Raises:
        UserError: the text is not of this form, or there is no such section.
    """
    name, equals, value = text.partition("=")
    section, key = innermost(content, name)
    if not equals or section is None:
        raise UserError(f"-S {text} is not NAME=VALUE with the name of a parameter, as in -S model.n_layer=12.")
    try:
        section[key] = YAML(typ="safe", pure=True).load(value)
    except YAMLError:
        raise UserError(f"-S {text}: the value is not YAML.") from None


def _workload(root: Path, params: AllParams, preset: Preset | None, options: PlanOptions) -> Workload:
    found, vocabulary = (preset.tokens, preset.vocab_size) if preset else _data(root)
    tokens = found if options.tokens is None else int(options.tokens)
    if tokens is None:
        raise UserError("there are no tokens yet; give their number (`tokenmill plan --tokens 2.8e9`), or `dvc repro`.")
    vocabulary = options.vocab_size or vocabulary or params.tokenizer.vocab_size
    return Workload(ModelConfig.of(params.model, vocabulary), params.train, tokens)


def _data(root: Path) -> tuple[int | None, int | None]:
    """Training tokens and vocabulary size, from the token files or from the metrics about them."""
    if (root / paths.TOKENS / METADATA_FILE).exists():
        metadata = read_metadata(root / paths.TOKENS)
        return metadata.train.tokens, metadata.vocab_size
    metrics = root / paths.METRICS
    if (metrics / "tokens.json").exists() and (metrics / "tokenizer.json").exists():
        return read_metrics(TokensMetrics, root).train_tokens, read_metrics(TokenizerMetrics, root).vocab_size
    return None, None


def _measured(work: Workload, params: AllParams) -> tuple[str, float, str]:
    """Name, seconds of a step, and their source: steps of this very training, made on this machine now."""
    speed = measure(work, params.runtime)
    return HERE, speed.seconds, f"{HERE}: {speed.measured}, measured just now on {speed.device}"


def _last_training(root: Path, work: Workload) -> tuple[str, float, str] | None:
    """The same from the operations per second of the last training on this machine; None if there was none."""
    if not (root / paths.MODEL / MANIFEST).exists():
        return None
    manifest = read_manifest(root / paths.MODEL)
    timing, trained = read_timing(find_times(paths.resume_root(), manifest.fingerprint, TIMING)), manifest.model
    if timing.empty:
        return None
    rate = float(timing.loc[:, "tokens_per_second"].median()) * flops_per_token(trained)  # with the time of the update
    seconds = work.tokens_per_step * flops_per_token(work.config) / rate
    return "this machine", seconds, f"this machine: {rate:.3g} operations a second, measured in its last training"


def _gpu_rows(work: Workload, gpus: Sequence[Hardware], options: PlanOptions) -> Iterator[PlanRow]:
    for gpu in gpus:
        seconds = step_time(
            work.config,
            tokens=work.tokens_per_step,
            optimizer=work.train.optimizer,
            rate=gpu.flops * options.utilisation,
            devices=options.devices,
            bandwidth=gpu.link_gb_per_second * 1e9,
        ).seconds
        name = gpu.name if options.devices == 1 else f"{options.devices} x {gpu.name}"
        price = None if options.price_per_hour is None else options.price_per_hour * options.devices
        yield _row(name, work, seconds, price_per_hour=price, sequences=_sequences_that_fit(work, gpu))


def _row(
    name: str, work: Workload, step_seconds: float, *, price_per_hour: float | None, sequences: int | None
) -> PlanRow:
    total = step_seconds * work.steps
    money = None if price_per_hour is None else total / 3600 * price_per_hour
    return PlanRow(name, step_seconds, work.tokens_per_step / step_seconds, total, money, sequences)


def _sequences_that_fit(work: Workload, gpu: Hardware) -> int:
    """The batch, or the largest half, quarter, … of it that memory holds."""
    sequences = work.train.batch_size
    while sequences and _memory(work, "half", sequences).total > USABLE_MEMORY * gpu.memory_gb * 1e9:
        sequences //= 2
    return sequences


def _memory(work: Workload, precision: Precision, sequences: int) -> Memory:
    return memory(work.config, sequences=sequences, precision=precision, optimizer=work.train.optimizer)
