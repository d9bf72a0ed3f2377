"""Nothing is lost when processes die: kill -9 of the trainer, of DVC, of both, and Ctrl-C, at
random moments."""

import contextlib
import json
import math
import os
import random
import signal
import subprocess
import time
from typing import Any

import pandas as pd
import psutil
import pytest
from ruamel.yaml import YAML

from tests.faults.material import OUTPUTS
from tests.pipeline.project import Project, ran
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no kill -9")


MANY = 500
"""Epochs that no run here reaches: on a slow disk hundreds of steps pass until the next checkpoint
is there."""


def start(project: Project, stage: str, *options: str) -> subprocess.Popen[bytes]:
    """`dvc repro` of one stage in the background, in a process group of its own.

    DVC starts stages through $SHELL: bash becomes the command that it runs, dash stays between it
    and DVC.
    """
    with (project.root.parent / "log").open("ab") as log:
        return subprocess.Popen(
            ["dvc", "repro", "--single-item", *options, stage],
            cwd=project.root,
            env=project.env | {"SHELL": "/bin/sh"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def process_of(stage: str, dvc: subprocess.Popen[bytes]) -> psutil.Process:
    """The process of a stage below a running `dvc repro`, once there is one."""

    def find() -> psutil.Process | None:
        assert dvc.poll() is None, f"dvc ended before {stage} began"
        for child in psutil.Process(dvc.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.cmdline()[1:] == ["-m", "stages", stage]:
                    return child
        return None

    return wait_for(find)


def wait_for_progress(project: Project) -> None:
    """Until there are two checkpoints and the newest was not there before."""
    before = max(steps(project), default="")
    wait_for(lambda: len(steps(project)) >= 2 and max(steps(project)) > before)


def steps(project: Project) -> list[str]:
    """The checkpoints there are."""
    return [path.name for path in (project.root / ".resume").glob("*/step-*")]


def test_kills_ctrl_c_and_damage_end_in_the_bytes_of_a_quiet_run(finished: Project) -> None:
    per_epoch = pd.read_csv(finished.root / "metrics/history.csv").step[0]
    finished.forget_training()
    finished.set(train__epochs=MANY)
    chance = random.Random(7)
    for victim in ("trainer", "DVC", "both"):
        dvc = start(finished, "train")
        trainer = process_of("train", dvc)
        wait_for_progress(finished)
        time.sleep(chance.random() * 0.1)
        for pid in {"trainer": [trainer.pid], "DVC": [dvc.pid], "both": [dvc.pid, trainer.pid]}[
            victim
        ]:
            os.kill(pid, signal.SIGKILL)
        dvc.wait()
        psutil.wait_procs([trainer], timeout=60)
        assert not trainer.is_running(), f"it trains on after {victim} was killed"
    stopped = stop_by_ctrl_c(finished)
    newest = max((finished.root / ".resume").glob("*/step-*"))
    assert int(newest.name.removeprefix("step-")) == stopped
    (newest / "optimizer.safetensors").write_bytes(b"damaged")
    finished.set(train__epochs=int(stopped // per_epoch + 2))
    quiet = finished.copy("quiet")
    quiet.forget_training()
    resumed = finished.repro("train")
    assert f"{newest.name} is damaged" in resumed
    assert "continuing from step" in resumed
    assert "starting from scratch" in quiet.repro("train")
    outputs = ("models", "metrics/history.csv", "metrics/steps.csv", "metrics/train.json")
    assert finished.digest(*outputs) == quiet.digest(*outputs)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["index", "trace"])
def test_kills_of_a_short_stage_change_no_byte(finished: Project, stage: str) -> None:
    """Of the stage, of DVC, of both, one after the other, at its beginning and after more and more
    of its work; nothing else is left."""
    outputs = OUTPUTS[stage]
    quiet = finished.digest(*outputs)
    places = {(finished.root / name).parent for name in outputs}
    names = {path for place in places for path in place.iterdir()}
    dvc = start(finished, stage, "--force")
    whole = work_of(process_of(stage, dvc))
    assert dvc.wait() == 0
    hits = 0
    for victim, share in (("stage", 0.0), ("DVC", 0.3), ("both", 0.5), ("stage", 0.7)):
        dvc = start(finished, stage, "--force")
        process = process_of(stage, dvc)
        work_of(process, at_most=share * whole)
        hits += kill(victim, dvc, process)
    assert hits >= 2, "the stage had ended before"
    assert ran(finished.repro("-sf", stage)) == [stage]
    assert finished.digest(*outputs) == quiet
    assert {path for place in places for path in place.iterdir()} == names


def work_of(process: psutil.Process, *, at_most: float = math.inf) -> float:
    """Wait until a process has worked for so long, in processor seconds, or has ended. Return how
    long it worked."""
    worked = 0.0
    with contextlib.suppress(psutil.Error):
        while worked < at_most and process.status() != psutil.STATUS_ZOMBIE:
            worked = sum(process.cpu_times()[:2])
            time.sleep(0.005)
    return worked


def kill(victim: str, dvc: subprocess.Popen[bytes], process: psutil.Process) -> bool:
    """Kill a stage, DVC, or both while the stage stands still. Return whether it had not ended."""
    is_on = False
    with contextlib.suppress(psutil.Error):
        process.suspend()
        is_on = process.status() != psutil.STATUS_ZOMBIE
    pids = {"stage": [process.pid], "DVC": [dvc.pid], "both": [dvc.pid, process.pid]}
    for pid in pids[victim]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(psutil.Error):
        process.resume()
    assert dvc.wait() or not is_on
    psutil.wait_procs([process], timeout=60)
    return is_on


def stop_by_ctrl_c(project: Project) -> int:
    """Train on until there is a new checkpoint, and type Ctrl-C; give the step after which it
    stopped."""
    dvc = start(project, "train")
    process_of("train", dvc)
    wait_for_progress(project)
    os.killpg(dvc.pid, signal.SIGINT)
    assert dvc.wait(timeout=60) != 0
    log = (project.root.parent / "log").read_text()
    return int(
        log.rsplit("stopped by SIGINT after step ", maxsplit=1)[1].split()[0].replace(",", "")
    )


@pytest.mark.slow
def test_a_value_edited_during_training_is_not_recorded(finished: Project) -> None:
    """Else dvc.lock would name a rate with which the model was not trained."""
    finished.set(train__epochs=8)
    before = recorded(finished)
    dvc = start(finished, "train")
    trainer = process_of("train", dvc)
    wait_for_progress(finished)
    trainer.suspend()
    finished.set(train__learning_rate=0.00123)
    trainer.resume()
    assert dvc.wait() != 0
    assert recorded(finished) == before
    said = (finished.root.parent / "log").read_text()
    assert "train.learning_rate" in said
    assert "0.00123" in said
    assert "Traceback" not in said
    finished.set(train__epochs=2)
    assert "train" in ran(finished.repro("train"))
    manifest = json.loads((finished.root / "models/gpt/manifest.json").read_text())
    assert manifest["train"]["learning_rate"] == 0.00123
    assert recorded(finished)["params"]["params.yaml"]["train"]["learning_rate"] == 0.00123


def recorded(project: Project) -> dict[str, Any]:
    """What dvc.lock has of the stage `train`."""
    return YAML(typ="safe").load(project.root / "dvc.lock")["stages"]["train"]
