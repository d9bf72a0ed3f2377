"""A whole training, from tokens on disk to `models/gpt/`: check, find the resume point, train,
export."""

import contextlib
import functools
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tokenmill.core.errors import UserError
from tokenmill.core.paths import resume_root
from tokenmill.costs import COSTS, TIMING, epoch_costs, publish_times, read_timing, write_costs
from tokenmill.display import TrainingDisplay
from tokenmill.formats.token_file import SPLITS, open_tokens, read_metadata, too_short
from tokenmill.model.config import ModelConfig, ModelParams
from tokenmill.model.device import (
    Compute,
    choose_compute,
    choose_device,
    configure_process,
    is_out_of_memory,
    unused_gpu,
)
from tokenmill.model.gpt import GPT, build, parameter_count
from tokenmill.model.huggingface import load_weights
from tokenmill.model.manifest import FORMAT, Manifest, TrainedWith
from tokenmill.model.sequences import Sequences, place_tokens
from tokenmill.training.checkpoint import CheckpointStore, export_model, fingerprint, prune_runs
from tokenmill.training.compile import Compilation, choose_compilation
from tokenmill.training.distributed import Group, process_group
from tokenmill.training.history import LiveFiles, RunState
from tokenmill.training.launch import Interrupt
from tokenmill.training.memory import MicroBatch
from tokenmill.training.mirror import Mirror, mirrored
from tokenmill.training.params import OPTIMIZERS, RuntimeParams, TrainParams
from tokenmill.training.resume import (
    ResumePoint,
    check_start,
    fill_from_previous,
    find_resume_point,
)
from tokenmill.training.schedule import Workload
from tokenmill.training.size import flops_per_token
from tokenmill.training.trainer import Data, Trainer, TrainingSetup


@dataclass(frozen=True)
class Outcome:
    """A finished training."""

    manifest: Manifest
    state: RunState


@dataclass(frozen=True)
class Job:
    """What a run trains, on what, and from which weights."""

    work: Workload
    manifest: Manifest
    """What the output will say of itself; its fingerprint names the folder of the checkpoints."""
    start: Callable[[], GPT]
    """The model before the first step, on the CPU."""
    origin: str
    """What that model is: `scratch`, or the folder of its weights."""
    open: Callable[[Compute, Group, RuntimeParams], Data]
    compilation: Compilation | None = None
    """None: `runtime.compile` says it."""

    @property
    def step_flops(self) -> int:
        """Floating-point operations of a step, without the update."""
        return self.work.tokens_per_step * flops_per_token(self.work.config)


def training_job(
    model: ModelParams, train: TrainParams, tokens: Path, start: Path | None = None
) -> Job:
    """Training on the folder `tokens`, from random weights or from those in the folder `start`.

    Raises:
        UserError: parameters, tokens and start do not fit each other.
    """
    metadata = read_metadata(tokens)
    work = Workload(ModelConfig.of(model, metadata.vocab_size), train, metadata.train.tokens)
    if problem := too_short(
        {name: metadata.split(name).tokens for name in SPLITS}, work.config.context_length
    ):
        raise UserError(problem)
    start_sha256 = check_start(start, work.config, metadata) if start else None
    text = {name: metadata.split(name).sha256 for name in SPLITS}
    more = {"start": start_sha256} if start_sha256 else {}
    manifest = Manifest(
        format_version=FORMAT,
        fingerprint=fingerprint(work.config, train, text, **more),
        model=work.config,
        train=TrainedWith.model_validate(train.model_dump()),
        parameters=parameter_count(work.config),
        epochs=train.epochs,
        tokenizer_sha256=metadata.tokenizer_sha256,
        start_sha256=start_sha256,
    )
    return Job(
        work=work,
        manifest=manifest,
        start=lambda: _first(work.config, train.seed, start),
        origin=f"the weights of {start}" if start else "scratch",
        open=functools.partial(_open, tokens, work.config.context_length),
    )


def run(
    job: Job,
    *,
    runtime: RuntimeParams,
    output: Path,
    times: Path,
    live: Path | None = None,
    peak_flops: Callable[[torch.device], float | None] = lambda _: None,
) -> Outcome | None:
    """Train to `train.epochs`; write the folder `output`, and TIMES into the folder `times`.

    Args:
        live: a folder for files that tell how the run goes while it is on; see `LiveFiles`.
        peak_flops: the floating-point operations a second of a device, if they are known, for the
            table of costs.

    Returns:
        None in all processes of a group but the main one.

    Raises:
        UserError: parameters do not fit; or the run was stopped or diverged, with all before that
            saved.
    """
    work, manifest = job.work, job.manifest
    with process_group(choose_device(runtime.device), shards=runtime.parallel == "fsdp") as group:
        setup = _set_up(job, runtime, group)
        store = CheckpointStore(resume_root() / manifest.fingerprint)
        display = TrainingDisplay() if group.is_main else TrainingDisplay(io.StringIO())
        with contextlib.ExitStack() as stack:
            mirror = None
            if group.is_main:
                stack.enter_context(store.lock(display.say))
                mirror = stack.enter_context(
                    mirrored(store, runtime.checkpoint.mirror, display.say)
                )
                if not store.steps():
                    fill_from_previous(store, output, manifest.fingerprint, display.say)
            files = LiveFiles(live if group.is_main else None)
            state = _train(setup, job, store, display, live=files, mirror=mirror)
            if not group.is_main:
                return None
            # Early stopping leaves fewer epochs.
            manifest = manifest.model_copy(
                update={"epochs": len(state.epochs), "weights": state.epoch_weights}
            )
            export_model(store, manifest, output, steps=work.kept_steps | {state.step})
            _write_times(setup, store, times, peak=peak_flops(setup.compute.device))
    prune_runs(resume_root(), keep=runtime.checkpoint.keep_runs)
    return Outcome(manifest, state)


def _first(config: ModelConfig, seed: int, start: Path | None) -> GPT:
    """The model before the first step: random, or with the weights in a folder."""
    model = build(config, seed=seed)
    if start:
        load_weights(model, start)
    return model


def _open(
    tokens: Path, context_length: int, compute: Compute, group: Group, runtime: RuntimeParams
) -> Data:
    metadata = read_metadata(tokens)
    where = {
        "placement": runtime.token_placement,
        "device": compute.device,
        "processes": group.on_this_machine,
    }
    train_ids, place = place_tokens(open_tokens(tokens, "train"), **where)
    val_ids, _ = place_tokens(open_tokens(tokens, "val"), **where)
    sequences = functools.partial(Sequences, context_length=context_length, device=compute.device)
    return Data(
        sequences(train_ids), sequences(val_ids), metadata.val.tokens, metadata.val.bytes, place
    )


def _set_up(job: Job, runtime: RuntimeParams, group: Group) -> TrainingSetup:
    """Choose the device, open the tokens, and refuse what does not go together."""
    train = job.work.train
    if group.shards:
        _refuse_sharding(train)
    compute = choose_compute(runtime.device, train.precision)
    configure_process(compute)
    data = job.open(compute, group, runtime)
    compilation = job.compilation or choose_compilation(runtime.compile, compute.device, job.work)
    if compilation.recorded:
        _refuse_recording(compute, data, group)
    return TrainingSetup(job.work, runtime, compute, compilation, data, group)


def _refuse_sharding(train: TrainParams) -> None:
    """Refuse what a sharded model cannot have: an optimizer that needs whole matrices, or a loss
    scaler, which each process would set for itself."""
    if OPTIMIZERS[train.optimizer].needs_whole_matrices:
        raise UserError(
            f"train.optimizer ({train.optimizer}) needs whole matrices, which runtime.parallel "
            "(fsdp) cuts; set train.optimizer to adamw, or runtime.parallel to ddp."
        )
    if train.precision == "float16":
        raise UserError(
            "train.precision (float16) does not go with runtime.parallel (fsdp); set it to "
            "bfloat16, or runtime.parallel to ddp."
        )


def _refuse_recording(compute: Compute, data: Data, group: Group) -> None:
    """Refuse what a recorded step cannot do."""
    reasons = {
        "one process only: set runtime.processes to 1": group.size > 1,
        "tokens on the GPU: set runtime.token_placement to device": data.place != "device",
        "no loss scaler, which float16 needs: set train.precision to bfloat16": compute.precision
        == torch.float16,
    }
    for reason, applies in reasons.items():
        if applies:
            raise UserError(
                f"runtime.compile (reduce-overhead) needs {reason}, or runtime.compile to on."
            )


def _train(
    setup: TrainingSetup,
    job: Job,
    store: CheckpointStore,
    display: TrainingDisplay,
    *,
    live: LiveFiles,
    mirror: Mirror | None,
) -> RunState:
    work, compute, group, runtime = setup.work, setup.compute, setup.group, setup.runtime
    each = min(work.train.batch_size, -(-work.sequences_per_step // group.size))
    micro_batch = MicroBatch(
        store.folder,
        runtime.micro_batch_size,
        at_most=each,
        config=work.config,
        compute=compute,
        group=group,
    )
    interrupt = Interrupt(max_minutes=runtime.max_minutes)
    try:
        point = (
            find_resume_point(store, work, say=display.say)
            if group.is_main
            else ResumePoint(None, "")
        )
        if runtime.device == "auto" and (unseen := unused_gpu(compute.device)):
            display.say(f"{unseen}; training on the CPU")
        display.say(point.sentence if point.checkpoint else f"starting from {job.origin}")
        plan = run_summary(setup, job.manifest.parameters)
        display.start(plan, step=point.step, total=work.steps, prices=runtime.cost)
        model = job.start()
        if not group.shards:
            model = model.to(compute.device)
        trainer = Trainer(
            setup,
            model,
            store,
            point,
            micro_batch=micro_batch,
            display=display,
            live=live,
            mirror=mirror,
        )
        live.start(trainer.state, work, fingerprint=store.folder.name, plan=plan, cost=runtime.cost)
        trainer.run(interrupt)
        live.close(finished=True)
        return trainer.state
    except Exception as error:
        if is_out_of_memory(error):
            micro_batch.give_up()
        raise
    finally:
        live.close(finished=False)
        display.close()


def _write_times(
    setup: TrainingSetup, store: CheckpointStore, times: Path, *, peak: float | None
) -> None:
    """Write what every epoch cost, beside the checkpoints, and copy the tables of times to the
    folder `times`."""
    work = setup.work
    costs = epoch_costs(
        read_timing(store.folder / TIMING),
        steps_per_epoch=work.steps_per_epoch,
        flops_per_epoch=work.tokens_per_epoch * flops_per_token(work.config),
        peak=peak * setup.group.size if peak else None,
        currency=setup.runtime.cost.currency,
    )
    write_costs(store.folder / COSTS, costs)
    publish_times(resume_root(), store.folder.name, times)


def run_summary(setup: TrainingSetup, parameters: int) -> list[tuple[str, str]]:
    """Pairs of a name and a sentence."""
    work, train, model = setup.work, setup.work.train, setup.work.config
    seen = work.tokens_per_epoch * train.epochs
    precision = str(setup.compute.precision).removeprefix("torch.")
    shape = (
        f"{model.n_layer} layers, {model.n_head} heads, {model.n_embd} wide, "
        f"context {model.context_length}"
    )
    sequences = f"{train.batch_size} sequences x {train.gradient_accumulation_steps}"
    batch = f"{sequences} x {model.context_length} tokens"
    named = f"{model.architecture}, {parameters:,} parameters: {shape}"
    devices = f"{setup.group.size} x " if setup.group.size > 1 else ""
    steps = f"{work.steps_per_epoch:,} steps x {train.epochs} epochs = {work.steps:,} steps"
    return [
        ("model", f"{named}, vocabulary {model.vocab_size:,}"),
        ("device", f"{devices}{setup.compute.name}, {precision}, tokens in {setup.data.place}"),
        ("compile", str(setup.compilation)),
        ("step", f"{batch} = {work.tokens_per_step:,} tokens"),
        ("run", f"{steps}, {seen:,} tokens ({seen / parameters:.1f} per parameter)"),
        (
            "optimizer",
            f"{train.optimizer}, learning rate {train.peak:g}, {train.schedule.type} schedule",
        ),
    ]
