"""The notebook for Colab, with a folder in place of Drive and `kill -9` in place of a
disconnect."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.imports import ROOT
from tests.pipeline import notebook
from tests.pipeline.project import Project, ran
from tests.pipeline.test_kill import MANY
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="Windows has no kill -9"),
]

NOTEBOOK = ROOT / "notebooks/colab.ipynb"
DRIVE = "My Drive (1), shared"
"""A folder whose name both the shell and `dvc exp run -S` want in quotes."""


def session(
    project: Project, place: Path, *, epochs: int, env: dict[str, str]
) -> subprocess.Popen[str]:
    """Run all cells on a machine where nobody has told git a name."""
    values = {
        "REPOSITORY": str(project.root),
        "TEXT": "data/raw/sample",
        "EPOCHS": epochs,
        "MINUTES": 10,
        "DEVICE": "cpu",
        "UNITS": 1.5,
        "DRIVE": str(place / DRIVE),
        "PROJECT": str(place / "session"),
    }
    env = {key: value for key, value in env.items() if not key.startswith("GIT_")}
    return subprocess.Popen(
        [sys.executable, notebook.__file__, str(NOTEBOOK), json.dumps(values)],
        cwd=place,
        env=env | {"GIT_CONFIG_GLOBAL": os.devnull},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def mirrored_steps(drive: Path) -> list[int]:
    """The checkpoints that are whole on the drive."""
    return [
        int(path.parent.name.removeprefix("step-"))
        for path in drive.glob("checkpoints/*/step-*/manifest.json")
    ]


def test_a_second_session_goes_on_where_the_first_was_killed(
    finished: Project, tmp_path: Path
) -> None:
    drive = tmp_path / DRIVE
    finished.run("dvc", "push")
    shutil.copytree(tmp_path / "tokenmill-remote", drive / "results")
    # Its clone ends midway, with all of the session
    cut = with_program(finished, "git", 'for last; do :; done\nmkdir "$last"\nkill -9 0\n')
    cut_off = session(finished, tmp_path, epochs=MANY, env=cut)
    cut_off.communicate()
    assert cut_off.returncode == -signal.SIGKILL
    per_epoch = pd.read_csv(finished.root / "metrics/history.csv").step[0]
    # Forks are no part of the session, but what trains dies with it
    real, forking = (shlex.quote(env["PATH"]) for env in (finished.env, finished.forking_env))
    choice = f'case "$*" in *checkpoint.mirror*) PATH={real};; *) PATH={forking};; esac\n'
    killed = with_program(finished, "dvc", f'{choice}exec dvc "$@"\n')
    first = session(finished, tmp_path, epochs=MANY, env=killed)
    wait_for(lambda: mirrored_steps(drive))
    os.killpg(first.pid, signal.SIGKILL)
    assert "tokenize" not in ran(first.communicate()[0]), "the tokens are on the drive"
    shutil.rmtree(tmp_path / "session")
    epochs = int(max(mirrored_steps(drive)) // per_epoch + 2)
    second = session(finished, tmp_path, epochs=epochs, env=finished.forking_env)
    said = second.communicate()[0]
    assert second.returncode == 0, said
    assert "fetching the checkpoint of step" in said
    assert "starting from scratch" not in said
    assert f"epoch-{epochs}" in said, "the report"
    assert at_home(finished, drive).digest("models") == Project(tmp_path / "session").digest(
        "models"
    )


def with_program(project: Project, name: str, script: str) -> dict[str, str]:
    """The environment of a project where a script of this name stands before all programs."""
    program = project.root.parent / f"before-{name}" / name
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    return project.env | {"PATH": f"{program.parent}{os.pathsep}{project.env['PATH']}"}


def at_home(project: Project, drive: Path) -> Project:
    """What another computer that can read the drive gets."""
    project.run("git", "pull", "-q", str(drive / "project.git"), "main")
    home = project.clone("home")
    home.run("dvc", "remote", "add", "--local", "-d", "drive", str(drive / "results"))
    home.run("dvc", "pull")
    assert DRIVE not in (home.root / "params.yaml").read_text()
    return home
