"""A whole training, from tokens on disk to `models/gpt/`: check, begin or go on, train, release."""

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from tokenmill.core.errors import UserError
from tokenmill.core.token_file import SPLITS, TokenMetadata, open_tokens, read_metadata
from tokenmill.costs import COSTS, TIMING, Timing, epoch_costs, read_timing, write_costs
from tokenmill.display.training import TrainingDisplay
from tokenmill.model.config import ModelConfig, ModelParams
from tokenmill.model.device import choose_compute, choose_device, configure_process, is_out_of_memory
from tokenmill.model.gpt import build, parameter_count
from tokenmill.model.manifest import FORMAT, Manifest, TrainedWith
from tokenmill.model.sequences import Sequences, place_tokens
from tokenmill.model.size import flops_per_token
from tokenmill.training.checkpoint import CheckpointStore, export_model, fingerprint, prune_runs, resume_root
from tokenmill.training.compile import choose_compilation
from tokenmill.training.distributed import Group, process_group, refuse_shards
from tokenmill.training.history import RunState
from tokenmill.training.interrupt import Interrupt
from tokenmill.training.memory import MicroBatch
from tokenmill.training.mirror import Mirror, mirrored
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.resume import ResumePoint, fill_from_previous, find_resume_point
from tokenmill.training.schedule import Workload
from tokenmill.training.summary import plan
from tokenmill.training.trainer import Trainer, TrainingSetup

PeakFlops = Callable[[torch.device], float | None]


def unknown_peak(_: torch.device) -> None:
    """No device's peak is known."""


@dataclass(frozen=True)
class Outcome:
    """A finished training."""

    manifest: Manifest
    state: RunState


def train(
    *,
    model: ModelParams,
    train: TrainParams,
    runtime: RuntimeParams,
    tokens: Path,
    output: Path,
    times: Path,
    peak_flops: PeakFlops = unknown_peak,
) -> Outcome | None:
    """Train to `train.epochs` on the folder `tokens`; write the folder `output` and the table `times`.

    None in a process that does not lead its group: its leader has the outcome. `peak_flops` gives the floating-point
    operations a second of a device, where they are known, for the utilisation in the table of costs.

    Raises:
        UserError: parameters and tokens do not fit, before anything is allocated; or the run was stopped or diverged,
            with everything before that saved.
    """
    metadata = read_metadata(tokens)
    config = ModelConfig.of(model, metadata.vocab_size)
    manifest = Manifest(
        format_version=FORMAT,
        fingerprint=fingerprint(config, train, metadata),
        model=config,
        train=TrainedWith.model_validate(train.model_dump()),
        parameters=parameter_count(config),
        epochs=train.epochs,
        tokenizer_sha256=metadata.tokenizer_sha256,
    )
    with process_group(choose_device(runtime.device), shards=runtime.parallel == "fsdp") as group:
        if group.shards:
            refuse_shards(train)
        job, place = _job(train, runtime, config, metadata, tokens=tokens, group=group)
        store = CheckpointStore(resume_root() / manifest.fingerprint)
        display = TrainingDisplay() if group.is_main else TrainingDisplay(io.StringIO())
        with _kept(store, runtime, display, group) as mirror:
            if group.is_main and store.is_empty():
                fill_from_previous(store, output, manifest.fingerprint, display.say)
            state, timing = _run(job, manifest, store, display, place=place, mirror=mirror)
            if group.is_main:
                export_model(store, manifest, output, steps=job.kept_steps)
                timing.publish(times)
                _write_costs(
                    job, config, store.folder / TIMING, times.with_name(COSTS), peak=peak_flops(job.compute.device)
                )
    if not group.is_main:
        return None
    prune_runs(resume_root(), keep=runtime.checkpoint.keep_runs)
    return Outcome(manifest, state)


@contextlib.contextmanager
def _kept(
    store: CheckpointStore, runtime: RuntimeParams, display: TrainingDisplay, group: Group
) -> Iterator[Mirror | None]:
    """Hold the store against other trainings and copy it to its mirror, in the process that leads."""
    if not group.is_main:
        yield None
        return
    with store.lock(display.say), mirrored(store, runtime.checkpoint.mirror, display.say) as mirror:
        yield mirror


def _write_costs(job: TrainingSetup, config: ModelConfig, timing: Path, path: Path, *, peak: float | None) -> None:
    """Write what every epoch cost."""
    work = Workload(config, job.train, job.tokens.train.tokens)
    costs = epoch_costs(
        read_timing(timing),
        steps_per_epoch=job.order.steps_per_epoch,
        flops_per_epoch=work.tokens_per_epoch * flops_per_token(config),
        peak=peak * job.group.size if peak else None,
        currency=job.runtime.cost.currency,
    )
    write_costs(path, costs)


def _run(
    job: TrainingSetup,
    manifest: Manifest,
    store: CheckpointStore,
    display: TrainingDisplay,
    *,
    place: str,
    mirror: Mirror | None,
) -> tuple[RunState, Timing]:
    """Begin or go on, and train to the end."""
    train, config, compute, group, runtime = job.train, manifest.model, job.compute, job.group, job.runtime
    each = min(train.batch_size, -(-job.per_step // group.size))
    micro_batch = MicroBatch(store, runtime.micro_batch_size, at_most=each, config=config, compute=compute, group=group)
    interrupt = Interrupt(max_minutes=runtime.max_minutes)
    try:
        beginning = ResumePoint(None, "")
        if group.is_main:
            beginning = find_resume_point(store, train, steps_per_epoch=job.order.steps_per_epoch, say=display.say)
        display.say(beginning.sentence)
        display.start(plan(job, manifest, place), step=beginning.step, total=job.total_steps, prices=runtime.cost)
        model = build(config, seed=train.seed)
        trainer = Trainer(
            job, model if group.shards else model.to(compute.device), store, micro_batch, display, mirror=mirror
        )
        timing = trainer.run(beginning, interrupt)
        return trainer.state, timing
    except Exception as error:
        if is_out_of_memory(error):
            micro_batch.give_up()
        raise
    finally:
        display.close()


def _job(
    train: TrainParams,
    runtime: RuntimeParams,
    config: ModelConfig,
    metadata: TokenMetadata,
    *,
    tokens: Path,
    group: Group,
) -> tuple[TrainingSetup, str]:
    """Put tokens and parameters together; say where the tokens lie."""
    compute = choose_compute(runtime.device, train.precision)
    configure_process(compute)
    _refuse_short(metadata, config)
    work = Workload(config, train, metadata.train.tokens)
    train_ids, place = place_tokens(open_tokens(tokens, "train"), runtime.token_placement, compute.device)
    val_ids, _ = place_tokens(open_tokens(tokens, "val"), runtime.token_placement, compute.device)
    job = TrainingSetup(
        train=train,
        runtime=runtime,
        compute=compute,
        compilation=choose_compilation(runtime.compile, compute.device, work),
        tokens=metadata,
        train_sequences=Sequences(train_ids, context_length=config.context_length, device=compute.device),
        val_sequences=Sequences(val_ids, context_length=config.context_length, device=compute.device),
        group=group,
    )
    return job, place


def _refuse_short(metadata: TokenMetadata, config: ModelConfig) -> None:
    """Both splits must fill a sequence."""
    for name in SPLITS:
        split = metadata.split(name)
        if split.tokens <= config.context_length:
            raise UserError(
                f"model.context_length ({config.context_length}) does not fit the {name} split, which has "
                f"{split.tokens:,} tokens; take a shorter context, more text, or another tokenize.val_fraction."
            )
