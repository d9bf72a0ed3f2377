"""Processes that are killed at random moments: the next run ends as if nothing had happened."""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.faults import trial
from tests.faults.disk import forget
from tests.faults.material import CONSUMERS, STAGES, Quiet, state, written
from tests.faults.table import Result
from tests.pipeline.project import Project

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def stage_trials(
    quiet: Quiet, chance: random.Random, count: int, match: str = ""
) -> Iterator[Result]:
    """A stage is killed once to three times, and then runs to its end."""
    stages = [stage for stage in STAGES if match in stage]
    expected: dict[str, tuple[float, str]] = {}
    killed = 0
    while killed < count:
        stage = chance.choice(["train", *stages] if "train" in stages else stages)
        with quiet.copy() as root:
            forget(root, stage)
            if stage not in expected:
                outcome = trial.run(root, CONSUMERS[stage])
                expected[stage] = outcome.seconds, written(root, stage)
                continue
            seconds, digest = expected[stage]
            kills = [
                (chance.choice(SIGNALS), chance.random() * seconds * 1.1)
                for _ in range(chance.randint(1, 3))
            ]
            said = "".join(_kill(root, stage, *kill) for kill in kills)
            last = trial.run(root, CONSUMERS[stage])
            ending = last.ending if last.ending != "refused" else "lost"
            if last.ending == "done":
                ending = "same" if written(root, stage) == digest else "wrong"
            if "Traceback" in said:
                ending = "traceback"
        names = ", ".join(f"{number.name} after {after:.2f} s" for number, after in kills)
        for _ in kills:
            killed += 1
            yield Result("kills", f"{stage}: {names}", ending, said + last.said)


def _kill(root: Path, stage: str, number: signal.Signals, after: float) -> str:
    process = trial.Trial(root, CONSUMERS[stage])
    time.sleep(after)
    process.kill(number)
    return process.wait().said


def dvc_trials(
    quiet: Quiet, chance: random.Random, count: int, match: str = ""
) -> Iterator[Result]:
    """`dvc repro` of everything; DVC, its stage or both are killed several times, and then it runs
    to its end."""
    del match
    expected = state(quiet.root)
    done = 0
    while done < count:
        kills = min(chance.randint(3, 8), count - done)
        with quiet.copy(whole=True) as root:
            project = Project(root)
            for stage in STAGES:
                forget(root, stage)
            (root / "dvc.lock").unlink()
            for runs in root.glob(".dvc/cache/runs"):
                subprocess.run(["rm", "-r", str(runs)], check=True)
            names = [_kill_dvc(project, chance) for _ in range(kills)]
            ending, said = _finish(project)
            if ending in ("same", "mended") and (found := state(root)) != expected:
                differing = [name for name in expected if expected[name] != found.get(name)]
                ending = "wrong"
                said = f"{said}\n{differing}"
        for _ in range(kills):
            done += 1
            yield Result("dvc", "; ".join(names), ending, said)


def _kill_dvc(project: Project, chance: random.Random) -> str:
    """Start `dvc repro`, and end it or its stage after a moment."""
    log = (project.root.parent / "log").open("ab")
    dvc = subprocess.Popen(
        ["dvc", "repro"],
        cwd=project.root,
        env=project.env,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    number = chance.choice(SIGNALS)
    victim = chance.choice(["dvc", "stage", "group"])
    after = chance.uniform(1.5, 12)
    time.sleep(after)
    children: list[psutil.Process] = []
    with contextlib.suppress(ProcessLookupError, psutil.Error):
        children = psutil.Process(dvc.pid).children(recursive=True)
        if victim == "group":
            os.killpg(dvc.pid, number)
        elif victim == "stage" and children:
            os.kill(children[-1].pid, number)
        else:
            os.kill(dvc.pid, number)
    try:
        dvc.wait(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(dvc.pid, signal.SIGKILL)
        dvc.wait()
    with contextlib.suppress(psutil.Error):
        psutil.wait_procs([child for child in children if child.is_running()], timeout=60)
    return f"{number.name} to {victim} after {after:.1f} s"


def _finish(project: Project) -> tuple[str, str]:
    """`dvc repro`; where it cannot run, what `tokenmill doctor` says against it, and again."""
    code, said = _try(project, "dvc", "repro")
    if code == 0:
        return "same", said
    fixes = []
    for _ in range(3):
        _, found = _try(project, "python", "-m", "tokenmill", "doctor")
        lines = found.splitlines()
        named = [
            after.split("→ ", 1)[1]
            for line, after in itertools.pairwise(lines)
            if line.startswith("✗") and "→ " in after
        ]
        if not named:
            break
        fixes.append(named[0])
        _try(project, "sh", "-c", named[0])
        code, again = _try(project, "dvc", "repro")
        said = f"{said}\n--- doctor\n{found}\n--- {named[0]}\n{again}"
        if code == 0:
            return "mended", said
    return "lost", said


def _try(project: Project, *command: str) -> tuple[int, str]:
    done = subprocess.run(
        command,
        cwd=project.root,
        env=project.env | {"COLUMNS": "500"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
