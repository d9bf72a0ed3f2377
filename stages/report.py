"""Stage `report`: write two reports of the run, and git refs with which DVC compares its epochs.

It is a stage of its own because it writes outside its outputs: it must run even if `train` comes
from the cache.
"""

from pathlib import Path
from typing import Any

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_text
from tokenmill.core.params import PARAMS_FILE
from tokenmill.costs import CostRow, TimingRow, epoch_costs, find_times, publish_times, read_timing
from tokenmill.display import say
from tokenmill.evaluation.benchmark_results import BenchmarksFile
from tokenmill.evaluation.document_losses import GROUPS, GroupLoss, loss_by
from tokenmill.evaluation.results import Evaluation
from tokenmill.evaluation.trace import Traces, TracesFile
from tokenmill.formats.metrics import FILES, CleanReport, DataMetrics, TrainMetrics, read_metrics
from tokenmill.formats.records import checked, read_record, read_rows
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
    manifest = read_manifest(paths.MODEL)
    evaluation = read_own_evaluation(Path())  # as `dvc repro -sf report` runs no stage before
    history = read_rows(paths.HISTORY, EpochRow)
    steps = read_rows(paths.STEPS, StepRow)
    traces = read_record(paths.TRACES, TracesFile).traces
    benchmarks = read_record(paths.BENCHMARK_RESULTS, BenchmarksFile)
    epochs = [
        (paths.EVALUATION, len(evaluation.epochs)),
        (paths.HISTORY, len(history)),
        (paths.MODEL, manifest.epochs),
        *((paths.BENCHMARK_RESULTS, len(result.epochs)) for result in benchmarks.results),
    ]
    _refuse_unequal("epochs", epochs)
    last = steps[-1].step if steps else 0
    _refuse_unequal("steps", [(paths.HISTORY, history[-1].step), (paths.STEPS, last)])
    if traces:
        asked = [(paths.EVALUATION, evaluation.questions), (paths.TRACES, traces.prompts)]
        _refuse_unequal("prompts", [(path, len(prompts)) for path, prompts in asked])
    write_text(paths.SAMPLES, render("samples.md", evaluation=evaluation))
    ends = [row.step for row in history]
    timing = read_timing(find_times(paths.resume_root(), manifest.fingerprint), steps=ends[-1])
    costs = epoch_costs(timing, ends)
    publish_times(paths.METRICS, timing, costs)  # as `train` may have come from the cache
    record = _record(
        manifest,
        evaluation,
        traces,
        history,
        steps,
        timing=timing,
        costs=costs,
        benchmarks=benchmarks,
    )
    write_text(paths.RUN_REPORT, render_run_report(record))
    names = write_epoch_refs(Path(), _metrics(record), PARAMS_FILE)
    say(f"run report: {paths.RUN_REPORT}   answers: {paths.SAMPLES}")
    if len(names) > 1:
        say(f"compare epochs: dvc metrics diff {names[0]} {names[-1]}")


def _refuse_unequal(what: str, counts: list[tuple[Path, int]]) -> None:
    """Refuse files that have different numbers of something: they are of different runs."""
    if len({count for _, count in counts}) > 1:
        each = ", ".join(f"{path} has {count:,} {what}" for path, count in dict.fromkeys(counts))
        raise UserError(f"{each}; {paths.way_out(counts[0][0])}.")


def _record(
    manifest: Manifest,
    evaluation: Evaluation,
    traces: Traces | None,
    history: list[EpochRow],
    steps: list[StepRow],
    *,
    timing: list[TimingRow],
    costs: list[CostRow],
    benchmarks: BenchmarksFile,
) -> RunRecord:
    """Everything that the run report shows."""
    tokens = read_metadata(paths.PACKED)
    kept = manifest.train.model_dump()
    path = paths.MODEL / MANIFEST
    train = checked(kept, TrainParams, source=path, way_out=paths.way_out(path))
    work = Workload.on(tokens, manifest.model, train, manifest.mixture)
    ends = [row.step for row in history]
    return RunRecord(
        evaluation=evaluation,
        history=history,
        steps=steps,
        times=epoch_times(timing, costs, ends, work),
        clean=read_record(paths.CLEAN_REPORT, CleanReport),
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


def _metrics(run: RunRecord) -> list[dict[str, dict[str, Any]]]:
    """For each epoch, the content of its metrics files by name."""
    data = {  # the same for every epoch
        file.name: read_metrics(form).model_dump(exclude_unset=True)
        for form, file in FILES.items()
        if form is not TrainMetrics
    }
    epochs = [
        data
        | {
            "train.json": train_metrics(row, parameters=run.manifest.parameters),
            "eval.json": run.evaluation.metrics(result),
            "benchmarks.json": run.benchmarks.metrics(result.epoch),
        }
        for row, result in zip(run.history, run.evaluation.epochs, strict=True)
    ]
    epochs[-1]["trace.json"] = run.traces.metrics() if run.traces else {}  # of its answers alone
    return epochs


def _validations(step: int) -> list[ValidationRow]:
    """The validations within epochs, from the last checkpoint of the run."""
    # Importing this loads PyTorch
    from tokenmill.training.checkpoints.store import RESUME, CheckpointStore, read_state  # noqa: PLC0415

    folder = CheckpointStore(paths.MODEL / RESUME).checkpoint_folder(step)
    return read_state(folder).state.validations if folder.exists() else []
