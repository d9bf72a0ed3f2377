"""The calculator behind `tokenmill plan`: what training would take on GPUs, by their data sheets,
and on this machine."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.costs import find_times, read_timing
from tokenmill.formats.metrics import TokenizerMetrics, TokensMetrics, read_metrics
from tokenmill.formats.mixture import mixes
from tokenmill.formats.token_file import METADATA_FILE, read_metadata, too_short
from tokenmill.hardware import Hardware, known_hardware
from tokenmill.model.config import FEWEST_IDS, MOST_IDS, ModelConfig
from tokenmill.model.gpt import is_hidden_matrix, outline, parameter_count
from tokenmill.model.manifest import MANIFEST, read_manifest
from tokenmill.planning.benchmark import TooLargeError, measure
from tokenmill.schema import AllParams, expected_vocabulary, lock_of_tokens
from tokenmill.training.compile import waits_for_host
from tokenmill.training.params import OPTIMIZERS, OptimizerName
from tokenmill.training.schedule import Workload
from tokenmill.training.size import (
    USABLE_MEMORY,
    Memory,
    flops_per_token,
    memory,
    sequences_within,
    step_flops,
)
from tokenmill.words.units import size

UTILISATION = 0.4
"""The share of its peak that plans assume a GPU to reach. An H200 reached 0.40 with 134M parameters
of `modern`, and 0.44 with those of `gpt2` (docs/decisions.md)."""

HERE = "here"
"""The name that stands for this machine, measured now, among the names of hardware."""

LAUNCH_SECONDS = 15e-6
"""Seconds that the host is assumed to take for each operation of a step on a GPU. Small models wait
for the host, not for the computation. Beside an H200 it was 15 µs for compiled steps of the default
model."""

RECORDED_SECONDS = 3e-6
"""Seconds that an operation of a recorded step takes at least; measured on the same GPU."""

# Operations of a step that launch a kernel (all but views), counted for `modern` with Muon
LAUNCHES = 150
LAUNCHES_PER_LAYER = 100

HIDDEN_SHARE = 2 / 3
"""The share of a step in which gradients can travel during the computation. The backward pass is
two thirds of a step."""


@dataclass(frozen=True)
class StepTime:
    """The time of one optimizer step on all devices together, by its parts."""

    compute_seconds: float
    network_bytes: float
    """Bytes that each device sends."""
    network_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds of a step: its computation, and the part of the network's time during which
        nothing is computed."""
        return self.compute_seconds + max(
            0.0, self.network_seconds - HIDDEN_SHARE * self.compute_seconds
        )


def step_time(
    gpu: Hardware, work: Workload, *, devices: int = 1, utilisation: float = UTILISATION
) -> StepTime:
    """The time of a step of this training on GPUs of one kind in one machine, each of which holds
    the whole model (DDP, Li et al. 2020).

    Each sends its float32 gradients twice, as a ring's all-reduce does (Patarasuk and Yuan 2009).
    No step is shorter than the launches of its operations, which a host makes one by one if the
    step is not recorded.
    """
    config = work.config
    passes = step_flops(work) / devices / (gpu.flops * utilisation)
    update = optimizer_flops(config, work.train.optimizer) / (gpu.update_flops * utilisation)
    sent = 2 * 4 * parameter_count(config) * (devices - 1) / devices
    recorded = devices == 1 and gpu.float32_teraflops is None and waits_for_host(work)
    each = RECORDED_SECONDS if recorded else LAUNCH_SECONDS
    launches = each * (LAUNCHES + LAUNCHES_PER_LAYER * config.n_layer)
    return StepTime(max(passes + update, launches), sent, sent / (gpu.link_gb_per_second * 1e9))


def optimizer_flops(config: ModelConfig, optimizer: OptimizerName) -> int:
    """Floating-point operations of one update; 0 where they are too few to count."""
    matrices = (p for name, p in outline(config).named_parameters() if is_hidden_matrix(name, p))
    return sum(OPTIMIZERS[optimizer].hidden_flops(*sorted(matrix.shape)) for matrix in matrices)


def gpu_timer(gpu: Hardware) -> Callable[[Workload], float]:
    """A function that gives the seconds of a training's step on a GPU by its data sheet, or raises
    TooLargeError, as `step_timer` does for this machine."""

    def seconds(work: Workload) -> float:
        need, room = _memory_on(gpu, work)
        taken = need(sequences=1).total
        if taken > room:
            raise TooLargeError(
                work.config,
                f"takes {size(taken)} with one sequence at a time, more than the {size(room)} that "
                f"training can fill on {gpu.name}; take hardware with more memory",
            )
        return step_time(gpu, work).seconds

    return seconds


@dataclass(frozen=True)
class PlanRow:
    """A training on one kind of hardware."""

    name: str
    step_seconds: float
    steps: float
    """The steps of the training, of which a short one is a fraction."""
    price_per_hour: float | None
    """The price of an hour of all devices together; None if it is not known."""
    sequences: int | None
    """The number of `wanted` sequences that memory holds at a time, 0 if it holds none; None for
    the machine that was measured."""
    wanted: int | None
    """The number of sequences of a batch that one device gets; None there, too."""

    @property
    def total_seconds(self) -> float:
        """Seconds of the whole training."""
        return self.step_seconds * self.steps

    @property
    def money(self) -> float | None:
        """The price of the whole training; None if it is not known."""
        hours = self.total_seconds / 3600
        return None if self.price_per_hour is None else hours * self.price_per_hour


@dataclass(frozen=True)
class Plan:
    """A training and what it takes."""

    work: Workload
    rows: Sequence[PlanRow]
    gpus: Sequence[Hardware]
    """The GPUs in the rows. Their times assume a utilisation."""
    currency: str
    source: str | None
    """How the time of this machine is known, in words; None if it is not in the rows."""
    has_other_tokens: bool
    """Whether the number of tokens is that of a run with another text or tokenizer."""

    @cached_property
    def parameters(self) -> int:
        """The number of the model's parameters."""
        return parameter_count(self.work.config)

    @cached_property
    def flops_per_token(self) -> int:
        """Floating-point operations of the forward and backward passes for a token."""
        return flops_per_token(self.work.config)

    @property
    def optimizer_share(self) -> float:
        """Operations of the optimizer's update, as a share of those of the passes."""
        update = optimizer_flops(self.work.config, self.work.train.optimizer)
        return update / (self.work.tokens_per_step * self.flops_per_token)


def plan_training(
    root: Path,
    params: AllParams,
    *,
    tokens: int | None = None,
    vocab_size: int | None = None,
    hardware: Sequence[str] = (),
    devices: int = 1,
    utilisation: float = UTILISATION,
    price_per_hour: float | None = None,
) -> Plan:
    """Plan a training.

    Args:
        root: the project. Its data and its last training on this machine are used for what is not
            given.
        params: all parameters of the training.
        tokens: the number of tokens to train on.
        vocab_size: the number of the tokenizer's entries.
        hardware: names of GPUs, and `here`; none means all GPUs.
        devices: the number of devices in a machine.
        utilisation: the share of its peak that a GPU reaches.
        price_per_hour: the price of one GPU for an hour, or of this machine if it is alone.

    Raises:
        UserError: hardware is not known, nothing says how many tokens there are, they are fewer
            than a sequence has, or the vocabulary is too large or too small.
    """
    needs_data = tokens is None or vocab_size is None
    has_run = (root / "dvc.lock").exists()
    are_others = needs_data and has_run and lock_of_tokens(params, root) is None
    work = _workload(root, params, tokens, vocab_size, are_others=are_others)
    if problem := too_short(work.tokens, work.config.context_length):
        raise UserError(problem)
    names = [name for name in hardware if name.lower() != HERE]
    gpus = known_hardware(names) if names or not hardware else []
    if len(names) < len(hardware):
        speed = measure(work, params.runtime)
        how = f"{HERE}: {speed.measured}, measured just now on {speed.device}"
        this_machine = HERE, speed.seconds, how
    else:
        this_machine = _last_training(root, work)
    cost = params.runtime.cost
    rows = list[PlanRow]()
    source = None
    if this_machine:
        name, seconds, source = this_machine
        price = cost.price_per_hour if gpus or price_per_hour is None else price_per_hour
        rows.append(PlanRow(name, seconds, work.full_steps, price, None, None))
    wanted = min(work.train.batch_size, work.sequences_on(devices))
    gpu_price = None if price_per_hour is None else price_per_hour * devices
    for gpu in gpus:
        name = gpu.name if devices == 1 else f"{devices} x {gpu.name}"
        seconds = step_time(gpu, work, devices=devices, utilisation=utilisation).seconds
        need, room = _memory_on(gpu, work)
        fitting = sequences_within(wanted, room, need)
        rows.append(PlanRow(name, seconds, work.full_steps, gpu_price, fitting, wanted))
    return Plan(work, rows, gpus, cost.currency, source, are_others and tokens is None)


def _workload(
    root: Path,
    params: AllParams,
    tokens: int | None,
    vocab_size: int | None,
    *,
    are_others: bool,
) -> Workload:
    """The training; what is not given comes from the project's data. A text of a given length has
    no sources to mix. If the tokens there `are_others`, only their number is taken."""
    is_given = tokens is not None and (vocab_size is not None or are_others)
    folder = root / paths.TOKENS
    is_read = not (is_given or are_others) and (folder / METADATA_FILE).exists()
    metadata = read_metadata(folder) if is_read else None
    counted, entries = (None, None) if is_given else _counted(root)
    if metadata and counted not in (None, metadata.train.tokens):
        metadata = None  # `dvc checkout` leaves the unpacked tokens of another run
    if vocab_size is None and not are_others:
        vocab_size = metadata.vocab_size if metadata else entries
    vocab_size = vocab_size or expected_vocabulary(params, root)
    if not FEWEST_IDS <= vocab_size <= MOST_IDS:
        raise UserError(f"--vocab-size ({vocab_size:,}) must be from {FEWEST_IDS} to {MOST_IDS:,}.")
    config = ModelConfig.of(params.model, vocab_size)
    if tokens is None and metadata:
        return Workload.on(metadata, config, params.train, params.data.mixture)
    if tokens is None and mixes(params.data.mixture):
        raise UserError(
            "data.mixture needs the tokens of each source, and none of this text and tokenizer are "
            "there; `dvc repro unpack` makes them, or give --tokens for a text without a mixture."
        )
    tokens = tokens or counted
    if tokens is None:
        raise UserError(
            "there are no tokens yet; give their number (`tokenmill plan --tokens 2.8e9`), or "
            "`dvc repro`."
        )
    return Workload(config, params.train, tokens)


def _counted(root: Path) -> tuple[int | None, int | None]:
    """Training tokens and vocabulary size, from the metrics about them."""
    if all((root / paths.METRICS / f"{name}.json").exists() for name in ("tokens", "tokenizer")):
        tokens = read_metrics(TokensMetrics, root).train_tokens
        return tokens, read_metrics(TokenizerMetrics, root).vocab_size
    return None, None


def _last_training(root: Path, work: Workload) -> tuple[str, float, str] | None:
    """Name, seconds of a step, and source, from the operations per second of the last training on
    this machine; None if there was none."""
    if not (root / paths.MODEL / MANIFEST).exists():
        return None
    manifest = read_manifest(root / paths.MODEL)
    timing = read_timing(find_times(paths.resume_root(), manifest.fingerprint))
    trained = manifest.model
    if not timing:
        return None
    # The rate includes the time of the update
    rate = statistics.median(row.tokens_per_second for row in timing) * flops_per_token(trained)
    if not rate:  # less than half a token a second, which its table rounds away
        return None
    source = f"this machine: {rate:.3g} operations a second, measured in its last training"
    return "this machine", step_flops(work) / rate, source


def _memory_on(gpu: Hardware, work: Workload) -> tuple[Callable[..., Memory], float]:
    """The memory that a number of sequences takes on a GPU, where the code is compiled, and the
    bytes that training can fill there."""
    best = "float16" if gpu.float32_teraflops else "bfloat16"
    chosen = work.train.precision
    precision = getattr(torch, best if chosen == "auto" else chosen)
    need = partial(memory, work, precision=precision, compiled=True)
    return need, USABLE_MEMORY * gpu.memory_gb * 1e9
