"""A trainer that is really stopped or killed: continuing from what it saved ends in the same
bytes."""

import contextlib
import math
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.training.fork_server import ForkServer, Trainer
from tests.training.tiny import assert_same_to_rounding, digest, run
from tokenmill.training import launch
from tokenmill.training import run as run_module
from tokenmill.training.checkpoints.store import read_state
from tokenmill.training.history import RunState
from tokenmill.training.launch import Interrupt, stop_signals

LONG: dict[str, Any] = {
    "epochs": 12,
    "log_every_steps": 1,
    "model": {"dropout": 0.2},
    "optimizer": "muon",
    "batch_size": 2,
    "gradient_accumulation_steps": 2,
    "runtime": {"checkpoint": {"every_steps": 7}},
}


@pytest.fixture(scope="module")
def quiet(
    tmp_path_factory: pytest.TempPathFactory, tokens: Path, fork_server: ForkServer
) -> dict[str, str]:
    """The files of a run without an interruption."""
    root = tmp_path_factory.mktemp("quiet")
    assert fork_server.start(root, tokens, **LONG).wait() == 0
    return digest(root / "model")


def rows(root: Path) -> int:
    """Steps done, as the table of times tells."""
    return max(
        (path.read_text().count("\n") for path in root.glob(".resume/*/timing.csv")), default=0
    )


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signal_saves_and_the_next_run_ends_the_same(
    tmp_path: Path,
    tokens: Path,
    fork_server: ForkServer,
    quiet: dict[str, str],
    name: str,
):
    number = getattr(signal, name, None) or pytest.skip(f"there is no {name} here")
    # The only checkpoints: epochs and this one
    arguments = LONG | {"runtime": {"checkpoint": {"every_steps": None}}}
    trainer = fork_server.start(tmp_path / "stopped", tokens, **arguments)
    trainer.until(lambda: rows(trainer.root) > 12)
    assert trainer.stop(number) == 1
    assert f"error: stopped by {name} after step " in trainer.said
    assert "`dvc repro` continues from it" in trainer.said
    assert not (trainer.root / "model").exists()
    last = int(trainer.checkpoints()[-1].name[5:])
    assert f"after step {last} of 60" in trainer.said
    again = fork_server.start(tmp_path / "stopped", tokens, **arguments)
    assert again.wait() == 0
    assert f"continuing from step {last} of 60" in again.said
    assert digest(again.root / "model") == quiet


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_a_closed_terminal_stops_no_process_of_nohup(monkeypatch: pytest.MonkeyPatch):
    heard = {signal.SIGINT, signal.SIGTERM}
    assert {*stop_signals()} == heard | {signal.SIGHUP}
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)
    assert {*stop_signals()} == heard


def test_a_second_sigterm_does_not_cut_the_last_copy():
    before = signal.getsignal(signal.SIGTERM)
    try:
        with Interrupt(max_minutes=None):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) != before
    finally:
        signal.signal(signal.SIGTERM, before)


def test_max_minutes_saves_and_the_next_run_continues(
    tmp_path: Path, tokens: Path, fork_server: ForkServer, quiet: dict[str, str]
):
    checkpoint = {"every_steps": None}
    short, long = (
        LONG | {"runtime": {"max_minutes": seconds / 60, "checkpoint": checkpoint}}
        for seconds in (0.1, 600)
    )
    limited = fork_server.start(tmp_path / "limited", tokens, **short)
    assert limited.wait() == 1
    last = int(limited.checkpoints()[-1].name[5:])
    stopped = f"error: stopped by runtime.max_minutes (0.00166667) after step {last} of 60"
    assert f"{stopped}; everything up to" in limited.said
    assert "`dvc repro` continues from it" in limited.said
    following = fork_server.start(tmp_path / "limited", tokens, **long)
    assert following.wait() == 0
    assert f"continuing from step {last} of 60" in following.said
    assert digest(tmp_path / "limited" / "model") == quiet


def test_minutes_begin_when_the_checkpoints_are_free(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another run may take hours."""
    now = [0.0]
    own = run_module.own

    @contextlib.contextmanager
    def own_an_hour_later(*arguments: Any) -> Iterator[Any]:
        with own(*arguments) as mirror:
            now[0] += 3600
            yield mirror

    monkeypatch.setattr(run_module, "own", own_an_hour_later)
    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert run(tokens, here / "model", epochs=1, runtime={"max_minutes": 1})
    assert now == [3600]


def _wait_for_steps(trainer: Trainer, count: int) -> None:
    """Until so many steps more are in the log, or training has ended."""
    wanted = min(60, rows(trainer.root) + count)
    trainer.until(lambda: rows(trainer.root) >= wanted or (trainer.root / "model").exists())


@pytest.mark.slow
def test_kills_at_random_moments_change_no_byte(
    tmp_path: Path, tokens: Path, fork_server: ForkServer, quiet: dict[str, str]
):
    draws = random.Random(0)
    kills = 0
    trainer = fork_server.start(tmp_path / "killed", tokens, **LONG)
    for _ in range(6):
        _wait_for_steps(trainer, draws.randrange(1, 12))
        kills += trainer.stop(signal.SIGKILL) == -signal.SIGKILL
        trainer = fork_server.start(tmp_path / "killed", tokens, **LONG)
    assert trainer.wait() == 0
    assert kills >= 4
    assert digest(trainer.root / "model") == quiet


@pytest.mark.slow
def test_kills_change_nothing_of_a_run_to_a_target(
    tmp_path: Path, tokens: Path, fork_server: ForkServer
):
    """The target is reached within an epoch, whose part is the model's last epoch. What is
    validated and kept is the average of all weights before."""
    averaged = {"average_power": 2.0, "schedule": {"type": "power"}}
    often = LONG | averaged | {"validate_every_steps": 2}
    whole = fork_server.start(tmp_path / "whole", tokens, **often)
    assert whole.wait() == 0
    state = read_state(whole.checkpoints()[-1]).state
    step, target = lowest_within(state)
    arguments = often | {"target_loss": target}
    assert fork_server.start(tmp_path / "quiet", tokens, **arguments).wait() == 0
    once = digest(tmp_path / "quiet/model")
    assert read_state(last_checkpoint(tmp_path / "quiet/model")).state.step == step
    draws = random.Random(1)
    trainer = fork_server.start(tmp_path / "killed", tokens, **arguments)
    kills = 0
    for _ in range(5):
        _wait_for_steps(trainer, draws.randrange(1, max(2, step // 5)))
        kills += trainer.stop(signal.SIGKILL) == -signal.SIGKILL
        trainer = fork_server.start(tmp_path / "killed", tokens, **arguments)
    assert trainer.wait() == 0
    assert kills >= 3
    assert digest(tmp_path / "killed/model") == once


def lowest_within(state: RunState) -> tuple[int, float]:
    """The step and the loss of the last validation within an epoch that is lower than all before
    it."""
    lowest = math.inf
    found = (0, lowest)
    for row in sorted([*state.epochs, *state.validations], key=lambda row: row.step):
        if row.val_loss < lowest:
            lowest = row.val_loss
            found = (row.step, lowest) if row in state.validations else found
    return found


def last_checkpoint(model: Path) -> Path:
    """The newest checkpoint of an exported model."""
    return max((model / "resume").glob("step-*"))


@pytest.mark.slow
def test_kills_and_other_process_counts_change_rounding_only(
    tmp_path: Path, tokens: Path, fork_server: ForkServer
):
    """Without dropout, whose draws depend on how a step is cut; and with AdamW, which does not
    amplify rounding."""
    arguments = LONG | {"model": {}, "optimizer": "adamw", "learning_rate": 0.003}
    assert fork_server.start(tmp_path / "quiet", tokens, **arguments).wait() == 0
    draws = random.Random(0)
    kills = 0
    root = tmp_path / "killed"
    for micro_batch, processes in ((1, 1), (4, 2), ("auto", 1), (2, 2), (3, 1), (1, 3)):
        runtime = {"micro_batch_size": micro_batch, "checkpoint": {"every_steps": 7}}
        trainers = fork_server.together(
            root, tokens, size=processes, **(arguments | {"runtime": runtime})
        )
        _wait_for_steps(trainers[0], draws.randrange(1, 12))
        os.kill(draws.choice(trainers).pid, signal.SIGKILL)
        kills += -signal.SIGKILL in [trainer.wait() for trainer in trainers]
    assert fork_server.start(root, tokens, **arguments).wait() == 0
    assert kills >= 4
    assert_same_to_rounding(root, tmp_path / "quiet")
