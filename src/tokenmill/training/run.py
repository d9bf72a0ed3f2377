"""A whole training, from tokens on disk to `models/gpt/`: open everything, train, export."""

import contextlib
import functools
import io
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.core.params import dotted
from tokenmill.core.paths import HISTORY, STEPS, TRAIN_METRICS, damaged, resume_root
from tokenmill.costs import TIMING, Timing, epoch_costs, publish_times, read_timing
from tokenmill.formats.mixture import seen_in_words
from tokenmill.formats.records import write_rows
from tokenmill.hardware import peak_flops
from tokenmill.model.device import Compute, choose_compute, choose_device, configure_process
from tokenmill.model.gpt import GPT, model_in_words
from tokenmill.progress import TrainingDisplay
from tokenmill.training.checkpoints.background import AsyncCheckpointer
from tokenmill.training.checkpoints.find import (
    best_checkpoint,
    fill_from_previous,
    find_checkpoint,
)
from tokenmill.training.checkpoints.mirror import Mirror, mirrored
from tokenmill.training.checkpoints.store import (
    OPTIMIZER,
    Checkpoint,
    CheckpointStore,
    export_model,
    prune_runs,
)
from tokenmill.training.compile import Compilation, choose_compilation
from tokenmill.training.distributed import Group, average_once_a_step, process_group
from tokenmill.training.history import EpochRow, RunState, StepRow, train_metrics
from tokenmill.training.identity import IDENTITY, RESUMABLE_KEYS, run_of_other_version
from tokenmill.training.job import Job
from tokenmill.training.launch import Interrupt
from tokenmill.training.live import LiveFiles
from tokenmill.training.loop import Setup, Training, train
from tokenmill.training.memory import FittingMicroBatch
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.schedule import Workload
from tokenmill.training.size import step_flops
from tokenmill.words.units import counted

PLACES = {
    "device": "tokens on the device",
    "memory": "tokens in memory",
    "mmap": "tokens in a memory map",
    "compressed": "tokens in compressed blocks",
}
"""The places of `place_tokens` in words."""

MOST_ROWS = 500_000
"""The most rows of steps, and the most of validations. Every checkpoint holds all rows so far as
JSON, some 200 bytes each, and of a file at most `records.LARGEST_FILE` bytes are read."""


def run_job(
    job: Job,
    *,
    runtime: RuntimeParams,
    output: Path,
    metrics: Path,
    live: Path | None = None,
    counts: Mapping[str, float] | None = None,
) -> RunState | None:
    """Train to `train.epochs`; write the folder `output`, and train.json and the tables of epochs,
    steps, times and costs into the folder `metrics`.

    Args:
        live: a folder for files that show how the run goes while it is on; see `LiveFiles`.
        counts: more numbers for train.json.

    Returns:
        The state at the end; None in all processes of a group but the main one.

    Raises:
        UserError: the run was stopped or diverged, and everything before that is saved; or
            parameters do not fit.
    """
    sharded = runtime.parallel == "fsdp"
    with process_group(choose_device(runtime.device), shards=sharded) as group:
        setup = open_setup(job, runtime, group)
        store = CheckpointStore(resume_root() / job.manifest.fingerprint)
        display = TrainingDisplay() if group.is_main else TrainingDisplay(io.StringIO())
        files = LiveFiles(live if group.is_main else None)
        owned = contextlib.nullcontext()
        if group.is_main:
            owned = own(store, job, runtime, output, display.say)
        with contextlib.closing(display), owned as mirror:
            # The others have waited for the main one, whose clock alone counts
            interrupt = Interrupt(max_minutes=runtime.max_minutes if group.is_main else None)
            micro_batch = FittingMicroBatch(
                store.folder,
                runtime.micro_batch_size,
                work=job.work,
                compute=setup.compute,
                group=group,
                say=display.say,
            )
            with micro_batch.remembered(), contextlib.closing(files):
                training = open_training(
                    job,
                    setup,
                    store,
                    micro_batch=micro_batch,
                    display=display,
                    live=files,
                    mirror=mirror,
                )
                train(training, interrupt)
                files.close(finished=True)
            if not group.is_main:
                return None
            export(job, training, output, display.say)
            write_metrics(training, metrics, job.manifest.parameters, counts or {})
    prune_runs(resume_root(), keep=runtime.checkpoint.keep_runs, last=store.folder.name)
    return training.state


def open_setup(job: Job, runtime: RuntimeParams, group: Group) -> Setup:
    """Choose the device and the compilation, open the tokens, and refuse parameters that do not go
    together."""
    train_params = job.work.train
    refuse_many_rows(job.work)
    compute = choose_compute(runtime.device, train_params.precision)
    if group.shards:
        train_params.refuse_sharding(runtime, precision=compute.precision_name)
    refuse_other_run(job, runtime, group, precision=compute.precision_name)
    configure_process(compute)
    data = job.open(compute, group, runtime)
    compilation = choose_compilation(
        runtime.compile, compute, job.work, place=data.place, processes=group.size
    )
    return Setup(runtime=runtime, group=group, compute=compute, compilation=compilation, data=data)


def refuse_other_run(job: Job, runtime: RuntimeParams, group: Group, *, precision: str) -> None:
    """Refuse to train together with a main process that trains another run, as on a machine with
    another params.yaml: gradients of two runs would be averaged, or one would wait in vain.

    Args:
        precision: the number format that was chosen for this process's device.

    Raises:
        UserError: this is not the main process, and that one has other values.
    """
    section = "finetune" if job.work.whole_texts else "train"
    values = {name: value for name, value in job.identity.items() if name != "train"} | {
        section: job.work.train.model_dump() | {"precision": precision},
        "runtime": {
            "parallel": runtime.parallel,
            "checkpoint": {"every_steps": runtime.checkpoint.every_steps},
        },
    }
    mine = dict(dotted(values))
    there = group.broadcast(mine)
    others = [
        f"{name} ({mine.get(name)}, and {there.get(name)} there)"
        for name in mine | there
        if mine.get(name) != there.get(name)
    ]
    if others:
        raise UserError(
            f"process {group.rank} would train another run than process 0: {', '.join(others)}; "
            "give all machines the same checkout, parameters, data and models."
        )


@contextlib.contextmanager
def own(
    store: CheckpointStore,
    job: Job,
    runtime: RuntimeParams,
    output: Path,
    say: Callable[[str], None],
) -> Iterator[Mirror | None]:
    """Lock the checkpoints of a configuration for this process, and fetch what the mirror or the
    previous `output` has of them. Yield the mirror."""
    choose = functools.partial(best_checkpoint, work=job.work)
    with store.lock(say), mirrored(store, runtime.checkpoint.mirror, choose, say) as mirror:
        if not store.steps():
            fill_from_previous(store, output, say)
        write_json(store.folder / IDENTITY, job.identity)
        yield mirror


def open_training(
    job: Job,
    setup: Setup,
    store: CheckpointStore,
    *,
    micro_batch: FittingMicroBatch,
    display: TrainingDisplay,
    live: LiveFiles,
    mirror: Mirror | None,
) -> Training:
    """Find where the run continues, say so, and load everything from that point."""
    work, runtime, group = job.work, setup.runtime, setup.group
    checkpoint = find_checkpoint(store, work, say=display.say) if group.is_main else None
    if not checkpoint:
        if other := run_of_other_version(resume_root(), job.identity):
            display.say(other)
        display.say(f"starting from {job.origin}")
    if setup.compute.emulates_precision:
        display.say(
            f"train.precision ({work.train.precision}): this processor only emulates such "
            "products, in about forty times the time of float32; `auto` is the fastest"
        )
    plan = run_summary(work, setup, job.manifest.parameters)
    display.start(
        plan, step=checkpoint.step if checkpoint else 0, total=work.steps, prices=runtime.cost
    )
    model, forward, optimizer, state = load_training(job, setup, checkpoint, micro_batch)
    live.start(state, work, fingerprint=store.folder.name, plan=plan, cost=runtime.cost)
    return Training(
        **vars(setup),
        work=work,
        model=model,
        forward=forward,
        optimizer=optimizer,
        micro_batch=micro_batch,
        state=state,
        store=store,
        saver=AsyncCheckpointer(
            store,
            runtime.checkpoint,
            keep_steps=work.kept_steps,
            resumable=work.train.model_dump(include=RESUMABLE_KEYS),
            first_step=None if checkpoint else math.ceil(work.steps_per_epoch / 3),
            saved=live.saved,
            mirror=mirror.offer if mirror else None,
        ),
        display=display,
        live=live,
        timing=timing_of(work, setup, state, store),
    )


def timing_of(work: Workload, setup: Setup, state: RunState, store: CheckpointStore) -> Timing:
    """The table of a run's times, which the main process writes."""
    peak = peak_flops(setup.compute.device)
    return Timing(
        store.folder if setup.group.is_main else None,
        step=state.step,
        logged=state.steps[-1].step if state.steps else 0,
        tokens=state.tokens,
        prices=setup.runtime.cost,
        step_flops=step_flops(work) * work.full_steps / work.steps,
        peak_flops=peak and peak * setup.group.size,
    )


def load_training(
    job: Job, setup: Setup, checkpoint: Checkpoint | None, micro_batch: FittingMicroBatch
) -> tuple[GPT, GPT, Optimizer, RunState]:
    """The model, the model to call, the optimizer and the state of the run, at a checkpoint or at
    its start."""
    group, compute, compilation = setup.group, setup.compute, setup.compilation
    model = job.start()
    if not group.shards:
        model = model.to(compute.device)
    saved = checkpoint.load(model) if checkpoint else {}
    state = group.broadcast(checkpoint.state if checkpoint else RunState())
    forward, optimizer = prepare(model, job.work.train, compute, group, compilation)
    if micro_batch.holds_whole_gradients():
        average_once_a_step(model)
    if checkpoint and not optimizer.fits(saved):
        raise damaged(checkpoint.folder / OPTIMIZER, "is not the state of this run's optimizer")
    if shared := group.broadcast_tensors(saved):
        optimizer.load(shared)
    return model, forward, optimizer, state


def prepare(
    model: GPT,
    train: TrainParams,
    compute: Compute,
    group: Group,
    compilation: Compilation,
) -> tuple[GPT, Optimizer]:
    """The model to call, compiled, and wrapped or sharded for the processes of `group`, and the
    optimizer of its weights. See `Group.wrap`."""
    if group.shards:
        compilation.of_blocks(model)
    wrapped = group.wrap(model, compute)
    forward = wrapped if group.shards else compilation.of(wrapped)
    optimizer = Optimizer(
        model,
        train,
        compute,
        group=group,
        compiler=compilation.for_update(compute.device),
        repeats=compilation.recorded,
    )
    return forward, optimizer  # type: ignore[return-value]


def refuse_many_rows(work: Workload) -> None:
    """Refuse more rows than a checkpoint can hold."""
    for name in ("log_every_steps", "validate_every_steps"):
        every = getattr(work.train, name)
        if every and work.steps // every > MOST_ROWS:
            raise UserError(
                f"train.{name} ({every}) is too small for {work.steps:,} steps, because a "
                f"checkpoint holds at most {MOST_ROWS:,} such rows; set it to at least "
                f"{math.ceil(work.steps / MOST_ROWS)}."
            )


def export(job: Job, training: Training, output: Path, say: Callable[[str], None]) -> None:
    """Write the folder `output`, whose manifest has fewer epochs after an early end."""
    state = training.state
    ended = {"epochs": len(state.epochs), "weights": state.epoch_weights}
    manifest = job.manifest.model_copy(update=ended)
    # After an early end, the later ones are of another run
    steps = {step for step in training.work.kept_steps | {state.step} if step <= state.step}
    export_model(training.store, manifest, output, steps=steps, say=say)


def write_metrics(
    training: Training, folder: Path, parameters: int, counts: Mapping[str, float]
) -> None:
    """Write what `run_job` writes into the folder `metrics`."""
    epochs = training.state.epochs
    write_rows(folder / HISTORY.name, EpochRow, epochs)
    write_rows(folder / STEPS.name, StepRow, training.state.steps)
    numbers = train_metrics(epochs[-1], parameters=parameters)
    write_json(folder / TRAIN_METRICS.name, {**numbers, **counts})
    ends = [row.step for row in epochs]
    timing = read_timing(training.store.folder / TIMING, steps=ends[-1])
    publish_times(folder, timing, epoch_costs(timing, ends))


def run_summary(work: Workload, setup: Setup, parameters: int) -> list[tuple[str, str]]:
    """The run as pairs of a name and a fact."""
    train = work.train
    seen = work.tokens_per_epoch * train.epochs
    sequences = f"{train.batch_size} sequences x {train.gradient_accumulation_steps}"
    if work.steps_per_epoch == 1:
        sequences = counted(work.sequences, "sequence")
    batch = f"{sequences} x {work.config.context_length} tokens"
    devices = f"{setup.group.size} x " if setup.group.size > 1 else ""
    compute = f"{setup.compute.name}, {setup.compute.precision_name}"
    steps = (
        f"{counted(work.steps_per_epoch, 'step')} x {counted(train.epochs, 'epoch')} = "
        f"{counted(work.steps, 'step')}"
    )
    mixture = [("mixture", seen_in_words(work.seen))] if work.seen else []
    return [
        ("model", model_in_words(work.config)),
        ("device", f"{devices}{compute}, {PLACES[setup.data.place]}"),
        ("compile", str(setup.compilation)),
        ("step", f"{batch} = {work.tokens_per_step:,} tokens"),
        ("run", f"{steps}, {seen:,} tokens ({seen / parameters:.3g} per parameter)"),
        *mixture,
        (
            "optimizer",
            f"{train.optimizer}, learning rate {train.peak:g}, {train.schedule.type} schedule",
        ),
    ]
