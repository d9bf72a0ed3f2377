"""`tokenmill` alone: what it says of each state that a project can be in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.project import Project
from tokenmill.cli.main import main, parser
from tokenmill.commands import next_step

ALL = "sample, clean, tokenizer, tokenize, unpack, data_report, train, evaluate, report"


def said(root: Path) -> list[str]:
    """Lines, those of commands without their meaning."""
    lines = next_step.render(root).splitlines()
    assert lines[-1] == next_step.ALWAYS
    return [line.strip().split("  ")[0] for line in lines[:-1] if line]


def test_outside_of_a_project_and_inside_of_one(project: Project, tmp_path: Path):
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    where, *commands = said(nowhere)
    assert where == f"{nowhere} is no TokenMill project: there is no dvc.yaml beside a params.yaml."
    assert commands == ["git clone URL tokenmill && cd tokenmill", "make repro"]
    assert said(project.root / "src") == [
        f"{project.root / 'src'} is inside the project {project.root}.",
        f"cd {project.root}",
    ]


def test_a_fresh_project(project: Project):
    assert said(project.root) == ["nothing has run here yet.", "dvc repro"]
    (project.root / "dvc.lock").write_text("schema: '2.0'\n")
    assert said(project.root) == ["nothing has run here yet.", "dvc repro", "dvc pull && dvc repro"]


def test_it_loads_no_torch_and_ends_with_0(project: Project):
    code = "import sys; from tokenmill.cli.main import main; main([]); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project.root, env=project.env, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("nothing has run here yet.\n")
    assert done.stdout.endswith("False\n")
    assert done.stderr == ""


def test_wrong_parameters_come_first(project: Project):
    project.set(model__n_layers=3)
    where, command = said(project.root)
    assert (
        where == f"{project.root / 'params.yaml'}: model.n_layers (3) is not a parameter; did you mean model.n_layer?"
    )
    assert command == "tokenmill params"


def test_without_dvc_the_doctor_is_named(project: Project):
    (project.root / ".dvc").rename(project.root / "dvc")
    assert said(project.root)[1:] == ["tokenmill doctor"]


def test_another_run_is_waited_for(project: Project):
    (project.root / ".dvc" / "tmp").mkdir(exist_ok=True)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "dvc repro"]) as other:
        lock = f'{{"write": {{"models/gpt": {{"pid": {other.pid}, "cmd": "dvc repro"}}}}, "read": {{}}}}'
        (project.root / ".dvc" / "tmp" / "rwlock").write_text(lock)
        where = said(project.root)[0]
        other.kill()
    assert where.startswith(f"at work here: dvc repro (process {other.pid}): wait for it")


def test_the_commands_that_it_names_are_there(project: Project):
    ours = [c for c, _ in next_step.after_training(4) if c.startswith("tokenmill ")]
    assert len(ours) >= 3
    for command in ours:
        parser().parse_args(command.split()[1:])


@pytest.mark.slow
def test_from_a_stopped_training_to_a_trained_model_and_on(finished: Project, monkeypatch: pytest.MonkeyPatch):
    finished.forget_training()
    finished.set(train__seed=1)
    finished.commit()
    finished.set(runtime__max_minutes=0.0001)
    finished.run("dvc", "repro", check=False)
    where, *commands = said(finished.root)
    steps = [int(path.name.removeprefix("step-")) for path in (finished.root / ".resume").glob("*/step-*")]
    assert where.startswith(f"training stopped: its last checkpoint is of step {max(steps):,} of ")
    assert commands == ["dvc repro", "dvc status"]
    total = int(where.rstrip(".").rpartition(" ")[2].replace(",", ""))

    finished.set(runtime__max_minutes=None)
    assert f"going on from step {max(steps)} of {total}" in finished.repro()
    where, uncommitted, *commands = said(finished.root)
    assert where.startswith("trained: ")
    assert "2 epochs, validation loss " in where
    assert uncommitted.startswith("not committed: dvc.lock, metrics/")
    assert commands[:3] == ["git add -A && git commit", "tokenmill generate", "tokenmill demo"]

    finished.commit()
    where, *commands = said(finished.root)
    assert where.startswith("trained: ")
    assert commands[0] == "tokenmill generate"
    assert "dvc exp run -S train.epochs=4" in commands
    summary = finished.run("python", "-m", "tokenmill", "summary").splitlines()
    assert all(any(line.strip().startswith(command) for line in summary) for command in commands)

    finished.set(model__n_layer=2)
    assert said(finished.root) == ["to run: train, evaluate, epochs.", "dvc repro", "dvc status"]

    monkeypatch.chdir(finished.root)
    main([])
    assert os.environ.get("DVC_ROOT") is None
