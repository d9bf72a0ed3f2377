"""Stage `report`: write two reports of the run, and git refs with which DVC compares its epochs.

It is a stage of its own because it writes outside its outputs: it must run even if `train` comes
from the cache.
"""

from pathlib import Path

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_text
from tokenmill.core.params import PARAMS_FILE
from tokenmill.costs import epoch_costs, find_times, publish_times, read_timing
from tokenmill.display import say
from tokenmill.evaluation.benchmark_results import BenchmarksFile, read_benchmarks
from tokenmill.evaluation.document_losses import GROUPS, GroupLoss, loss_by
from tokenmill.evaluation.results import Evaluation
from tokenmill.evaluation.trace import Traces, read_traces
from tokenmill.formats.metrics import (
    FILES,
    DataMetrics,
    TrainMetrics,
    read_clean_report,
    read_metrics,
)
from tokenmill.formats.records import checked, read_rows
from tokenmill.formats.token_file import read_metadata
from tokenmill.model.manifest import MANIFEST, Manifest, read_manifest
from tokenmill.reports.page import render
from tokenmill.reports.run_report import RunRecord, epoch_times, render_run_report
from tokenmill.runs.consistency import read_own_evaluation
from tokenmill.runs.epoch_refs import write_epoch_refs
from tokenmill.training.history import EpochRow, StepRow, ValidationRow, train_metrics
from tokenmill.training.params import TrainParams
from tokenmill.training.schedule import Workload


def main() -> None:
    """Write reports/{index.html,samples.md} and refs/epoch-N from the model and the results of all
    stages."""
    data = {  # the same for every epoch
        file.name: read_metrics(form).model_dump(exclude_unset=True)
        for form, file in FILES.items()
        if form is not TrainMetrics
    }
    manifest = read_manifest(paths.MODEL)
    evaluation = read_own_evaluation(Path())  # as `dvc repro -sf report` runs no stage before
    history = read_rows(paths.HISTORY, EpochRow)
    steps = read_rows(paths.STEPS, StepRow)
    if not len(evaluation.epochs) == len(history) == manifest.epochs:
        raise UserError(
            f"{paths.EVALUATION} has {len(evaluation.epochs)} epochs, {paths.HISTORY} "
            f"{len(history)}, {paths.MODEL} {manifest.epochs}; "
            f"{paths.way_out(paths.MODEL)}."
        )
    if not steps or steps[-1].step != history[-1].step:
        raise UserError(
            f"{paths.STEPS} ends before step {history[-1].step:,} of {paths.HISTORY}; "
            f"{paths.way_out(paths.STEPS)}."
        )
    write_text(paths.SAMPLES, render("samples.md", evaluation=evaluation))
    traces = _traces(evaluation)
    benchmarks = _benchmarks(manifest)
    record = _record(manifest, evaluation, traces, history, steps, benchmarks=benchmarks)
    write_text(paths.RUN_REPORT, render_run_report(record))
    epochs = [
        data
        | {
            "train.json": train_metrics(row, parameters=manifest.parameters),
            "eval.json": evaluation.metrics(result),
            "benchmarks.json": benchmarks.metrics(result.epoch),
        }
        for row, result in zip(history, evaluation.epochs, strict=True)
    ]
    epochs[-1]["trace.json"] = traces.metrics() if traces else {}  # only its answers are traced
    names = write_epoch_refs(Path(), epochs, PARAMS_FILE)
    say(f"run report: {paths.RUN_REPORT}   answers: {paths.SAMPLES}")
    if len(names) > 1:
        say(f"compare epochs: dvc metrics diff {names[0]} {names[-1]}")


def _record(
    manifest: Manifest,
    evaluation: Evaluation,
    traces: Traces | None,
    history: list[EpochRow],
    steps: list[StepRow],
    *,
    benchmarks: BenchmarksFile,
) -> RunRecord:
    """Everything that the run report shows."""
    tokens = read_metadata(paths.PACKED)
    kept = manifest.train.model_dump()
    path = paths.MODEL / MANIFEST
    train = checked(kept, TrainParams, source=path, way_out=paths.way_out(path))
    work = Workload.on(tokens, manifest.model, train, manifest.mixture)
    ends = [row.step for row in history]
    timing = read_timing(find_times(paths.resume_root(), manifest.fingerprint), steps=ends[-1])
    costs = epoch_costs(timing, ends)
    publish_times(paths.METRICS, timing, costs)  # `train` may have come from the cache
    return RunRecord(
        evaluation=evaluation,
        history=history,
        steps=steps,
        times=epoch_times(timing, costs, ends, work),
        currency=costs[-1].currency if costs else None,
        clean=read_clean_report(paths.CLEAN_REPORT),
        tokens=tokens,
        seen=work.seen,
        manifest=manifest,
        unigram_bits_per_byte=read_metrics(DataMetrics).unigram_bits_per_byte,
        weights=[
            manifest.check_weights(paths.MODEL / f"epoch-{result.epoch}")
            for result in evaluation.epochs
        ],
        traces=traces,
        benchmarks=benchmarks,
        groups={group: read_rows(loss_by(group), GroupLoss) for group in GROUPS},
        validations=_validations(history[-1].step) if train.validate_every_steps else [],
    )


def _traces(evaluation: Evaluation) -> Traces | None:
    """What the answers share with the training text."""
    traces = read_traces(paths.TRACES)
    if traces and len(traces.prompts) != len(evaluation.questions):
        raise UserError(
            f"{paths.TRACES} has {len(traces.prompts)} prompts, {paths.EVALUATION} "
            f"{len(evaluation.questions)}; {paths.way_out(paths.TRACES)}."
        )
    return traces


def _benchmarks(manifest: Manifest) -> BenchmarksFile:
    """What the epochs reach on benchmarks."""
    found = read_benchmarks(paths.BENCHMARK_RESULTS)
    for result in found.results:
        if len(result.epochs) != manifest.epochs:
            raise UserError(
                f"{paths.BENCHMARK_RESULTS} has {len(result.epochs)} epochs, {paths.MODEL} "
                f"{manifest.epochs}; {paths.way_out(paths.BENCHMARK_RESULTS)}."
            )
    return found


def _validations(step: int) -> list[ValidationRow]:
    """The validations within epochs, from the last checkpoint of the run."""
    # Importing this loads PyTorch
    from tokenmill.training.checkpoint import RESUME, CheckpointStore, read_state  # noqa: PLC0415

    folder = CheckpointStore(paths.MODEL / RESUME).checkpoint_folder(step)
    return read_state(folder).state.validations if folder.exists() else []
