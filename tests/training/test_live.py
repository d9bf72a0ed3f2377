"""The files that tell how a run goes while it is on."""

import json
import math
import os
from pathlib import Path

import psutil
import pytest

from tests.training.tiny import run, runtime_params, train_params, workload
from tokenmill.core.errors import UserError
from tokenmill.training import live, loop
from tokenmill.training.checkpoints.store import read_state
from tokenmill.training.history import EpochRow, RunState, StepRow, ValidationRow
from tokenmill.training.launch import Interrupt
from tokenmill.training.live import SIGNAL, LiveFiles, LiveRun, read_live_rows, read_live_run

COST = runtime_params().cost
STEPS = [StepRow(n, n / 10, 3.0 - n / 100, 0.01, 0.5) for n in (3, 6, 9)]


def started(folder: Path, state: RunState | None = None) -> LiveFiles:
    files = LiveFiles(folder)
    plan = [("model", "small")]
    work = workload(train_params(epochs=4), steps_per_epoch=10)
    files.start(state or RunState(), work, fingerprint="0" * 16, plan=plan, cost=COST)
    return files


def test_rows_so_far_and_new_ones_are_read_back(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "WRITE_EVERY", 0.0)
    end = EpochRow(1, 10, 80, 0.01, 3.0, 2.0, 7.4, 1.0)
    within = ValidationRow(5, 0.5, 2.5, 1.25)
    before = RunState(
        step=10,
        epochs=[end],
        steps=STEPS[:2],
        validations=[within, ValidationRow(12, 1.2, 1.75, 0.875)],
        epoch_weights=["a" * 64],
    )
    files = started(here / "live", before)
    run = read_live_run(here / "live")
    assert run
    assert (run.first_step, run.saved, run.epoch_weights) == (10, 10, ["a" * 64])
    files.add(STEPS[2])
    files.add(ValidationRow(15, 1.5, 1.5, 0.75))
    assert read_live_rows(here / "live", StepRow) == STEPS
    assert [(row.step, row.val_loss) for row in read_live_rows(here / "live", ValidationRow)] == [
        (5, 2.5),
        (10, 2.0),
        (12, 1.75),
        (15, 1.5),
    ]


def test_a_row_that_is_being_written_is_not_read(here: Path):
    started(here / "live", RunState(steps=STEPS))
    with (here / "live/steps.csv").open("a") as file:
        file.write("12,1.2,2.")
    assert read_live_rows(here / "live", StepRow) == STEPS


def test_rows_are_written_once_a_second(here: Path):
    files = started(here / "live", RunState(steps=STEPS[:1]))
    files.add(STEPS[1])
    assert read_live_rows(here / "live", StepRow) == STEPS[:1]
    files.close(finished=False)
    assert read_live_rows(here / "live", StepRow) == STEPS[:2]


def test_the_run_is_on_as_long_as_its_process(here: Path):
    started(here / "live")
    found = read_live_run(here / "live")
    assert found is not None
    assert (found.is_on, found.pid, found.steps, found.first_step) == (True, os.getpid(), 40, 0)
    assert not found.model_copy(update={"started": found.started - 100}).is_on, (
        "another process with its id"
    )
    assert not found.model_copy(update={"pid": 2**22 + 1}).is_on


@pytest.mark.skipif(not psutil.LINUX, reason="elsewhere the system notes the time of a start")
def test_the_run_is_on_after_the_clock_was_set(here: Path, monkeypatch: pytest.MonkeyPatch):
    started(here / "live")
    found = read_live_run(here / "live")
    assert found is not None
    process = psutil.Process()
    boot = psutil.boot_time()
    for module in (psutil, psutil._pslinux):  # pyright: ignore[reportAttributeAccessIssue]
        monkeypatch.setattr(module, "boot_time", lambda: boot + 5)
    assert psutil.Process().create_time() == pytest.approx(process.create_time() + 5)
    assert found.is_on


def test_time_is_reckoned_from_the_end_of_the_first_step(here: Path):
    started(here / "live").began(1, seconds=2.5)
    after = read_live_run(here / "live")
    assert after
    assert (after.first_step, after.first_seconds) == (1, 2.5)


def test_the_signal_of_vs_codes_extension(here: Path):
    """Its form is that of DVCLive; it lies in the main repository, and only where DVC is."""
    files = started(here / "copy/live", RunState(steps=STEPS))
    assert not (here / SIGNAL).exists()
    (here / ".dvc").mkdir()
    files = started(here / "copy/live", RunState(steps=STEPS))
    assert json.loads((here / SIGNAL).read_text()) == {"pid": os.getpid(), "step": 9}
    files.close(finished=False)
    assert not (here / SIGNAL).exists()
    assert (here / "copy/live/steps.csv").exists(), "what was interrupted can be looked at"
    files.close(finished=True)
    assert read_live_run(here / "copy/live") is None
    assert read_live_rows(here / "copy/live", StepRow) == STEPS, "the plots still have them"


def test_a_full_disk_does_not_stop_training(here: Path, monkeypatch: pytest.MonkeyPatch):
    files = started(here / "live")
    (here / "live/steps.csv").unlink()
    (here / "live/steps.csv").mkdir()
    monkeypatch.setattr(live, "WRITE_EVERY", 0.0)
    files.add(STEPS[0])
    files.close(finished=False)


def test_rows_that_a_full_disk_cut_are_written_later(here: Path, monkeypatch: pytest.MonkeyPatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(live, "WRITE_EVERY", 0.0)
    files = started(here / "live", RunState(steps=STEPS[:1]))
    table = here / "live/steps.csv"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (table.stat().st_size + 5, before[1]))
    try:
        files.add(STEPS[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not table.read_text().endswith("\n")
    files.add(STEPS[2])
    assert read_live_rows(here / "live", StepRow) == STEPS


def test_a_live_table_that_was_removed_comes_back(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "WRITE_EVERY", 0.0)
    files = started(here / "live", RunState(steps=STEPS[:1]))
    (here / "live/steps.csv").unlink()
    for row in STEPS[1:]:
        files.add(row)
    assert read_live_rows(here / "live", StepRow) == STEPS


def test_a_run_that_did_not_start_leaves_the_rows_of_the_last(here: Path):
    started(here / "live", RunState(steps=STEPS))
    LiveFiles(here / "live").close()
    assert read_live_rows(here / "live", StepRow) == STEPS


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 10**400, True, None])
@pytest.mark.parametrize("name", ["pid", "started", "began", "steps", "steps_per_epoch"])
def test_a_run_of_impossible_numbers_is_refused(name: str, value: object, here: Path):
    if name in ("started", "began") and value in (0, True):
        value = -0.5
    started(here / "live")
    file = here / "live/run.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {name: value}))
    with pytest.raises(UserError, match=r"live/run\.json"):
        read_live_run(here / "live")


@pytest.mark.parametrize("plan", [[["model"]], [[]], [["model", "modern", "more"]]])
def test_a_plan_of_anything_but_pairs_is_refused(plan: list[list[str]], here: Path):
    started(here / "live")
    file = here / "live/run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"plan": plan}))
    with pytest.raises(UserError, match=r"run\.json is damaged \(plan\.0"):
        read_live_run(here / "live")


@pytest.mark.parametrize("column", ["step", "epoch", "val_loss", "val_bits_per_byte"])
@pytest.mark.parametrize("cell", ["nan", "inf", "1e308", ""])
def test_validations_of_impossible_numbers_are_refused(column: str, cell: str, here: Path):
    """Training ends where a loss is not finite, and a chart has no place for one."""
    row = {"step": "1", "epoch": "1", "val_loss": "1", "val_bits_per_byte": "1"}
    (here / "live").mkdir()
    for changed in (row, row | {column: cell}):
        lines = ",".join(changed), ",".join(changed.values()), ""
        (here / "live/validation.csv").write_text("\n".join(lines))
        if changed == row:
            assert len(read_live_rows(here / "live", ValidationRow)) == 1
    with pytest.raises(UserError, match=r"live/validation\.csv"):
        read_live_rows(here / "live", ValidationRow)


@pytest.mark.parametrize("column", ["step", "epoch", "loss", "learning_rate"])
@pytest.mark.parametrize("cell", ["nan", "inf", "1e308", f"1{400 * '0'}", ""])
def test_rows_of_impossible_numbers_are_refused(column: str, cell: str, here: Path):
    started(here / "live")
    row = {"step": "1", "epoch": "1", "loss": "1", "learning_rate": "1", "gradient_norm": "inf"}
    (here / "live/steps.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    assert len(read_live_rows(here / "live", StepRow)) == 1, "float16 overflows, and goes on"
    row[column] = cell
    (here / "live/steps.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    with pytest.raises(UserError, match=r"live/steps\.csv"):
        read_live_rows(here / "live", StepRow)


def test_a_damaged_file_is_named(here: Path):
    started(here / "live")
    (here / "live/run.json").write_text("{")
    with pytest.raises(UserError, match=r"live/run\.json"):
        read_live_run(here / "live")
    (here / "live/run.json").write_text(json.dumps({"fingerprint": "0" * 16}))
    with pytest.raises(UserError, match="pid"):
        read_live_run(here / "live")
    assert read_live_run(here) is None


def test_a_stopped_training_tells_from_where_it_continues(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its rows end before that step."""
    reasons = iter([*[None] * 6, "stopped"])
    monkeypatch.setattr(Interrupt, "reason", property(lambda _: next(reasons)))
    with pytest.raises(UserError, match="after step 7"):
        run(tokens, here / "model", live=here / "live")
    told = read_live_run(here / "live")
    assert told is not None
    (checkpoint,) = here.glob(".resume/*/step-000000007")
    assert told.saved == 7
    assert told.epoch_weights == read_state(checkpoint).state.epoch_weights
    assert len(told.epoch_weights) == 1


def test_a_training_writes_them_and_takes_them_away(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    seen: list[tuple[LiveRun | None, list[StepRow], list[ValidationRow]]] = []
    validate = loop.validate_if_due

    def look(run: loop.Training, step: int) -> bool:
        ends = validate(run, step)
        run.live._write()
        folder = here / "live"
        rows = read_live_rows(folder, StepRow), read_live_rows(folder, ValidationRow)
        seen.append((read_live_run(folder), *rows))
        return ends

    monkeypatch.setattr(loop, "validate_if_due", look)
    outcome = run(tokens, here / "model", live=here / "live", validate_every_steps=2)
    found, steps, validations = seen[-1]
    assert found is not None
    assert found.fingerprint == outcome.manifest.fingerprint
    assert found.first_step == 1
    assert found.first_seconds
    assert (
        [row.step for row in steps] == [row.step for row in outcome.state.steps] == [3, 5, 6, 9, 10]
    )
    assert [row.step for row in validations] == [2, 4, 5, 6, 8, 10]
    assert read_live_run(here / "live") is None
