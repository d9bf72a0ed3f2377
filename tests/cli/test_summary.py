"""`tokenmill` alone: what it says of each state that a project can be in."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh import imported_by
from tests.imports import ROOT
from tests.pipeline.project import Project
from tokenmill.cli.main import build_parser, main
from tokenmill.cli.summary import COMMIT, Status, after_training, status


def commands(found: Status) -> list[str]:
    return [command for command, _ in found.commands]


def test_outside_a_project_it_says_how_to_get_one(tmp_path: Path):
    found = status(tmp_path)
    assert str(tmp_path) in found.sentence
    assert commands(found) == ["git clone URL tokenmill && cd tokenmill", "make repro"]


def test_below_the_root_it_leads_to_the_root(project: Project):
    assert commands(status(project.root / "src")) == [f"cd {project.root}"]


def test_in_a_fresh_project_everything_is_to_run(project: Project):
    found = status(project.root)
    assert commands(found) == ["dvc repro"]
    assert found.commands[0][1].endswith("train, evaluate, report")
    (project.root / "dvc.lock").write_text("schema: '2.0'\n")
    assert commands(status(project.root)) == ["dvc repro", "dvc pull && dvc repro"]


def test_it_imports_no_torch(project: Project):
    found = imported_by("-m", "tokenmill", cwd=project.root)
    assert "dvc.repo" in found
    assert "torch" not in found


def test_wrong_parameters_come_first(project: Project):
    project.set(model__n_layers=3)
    found = status(project.root)
    assert "model.n_layers" in found.sentence
    assert commands(found) == ["tokenmill params"]


def test_without_dvc_the_doctor_is_named(project: Project):
    (project.root / ".dvc").rename(project.root / "dvc")
    assert commands(status(project.root)) == ["tokenmill doctor"]


def test_another_run_is_waited_for(project: Project):
    (project.root / ".dvc" / "tmp").mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", "dvc repro"]
    ) as other:
        lock = {"write": {"models/gpt": {"pid": other.pid, "cmd": "dvc repro"}}, "read": {}}
        (project.root / ".dvc" / "tmp" / "rwlock").write_text(json.dumps(lock))
        found = status(project.root)
        other.kill()
    assert f"process {other.pid}" in found.sentence
    assert commands(found) == ["tokenmill doctor"]


def test_its_own_commands_are_valid_command_lines():
    ours = [
        command.split()
        for command, _ in after_training(4, root=ROOT)
        if command.startswith("tokenmill ")
    ]
    assert len(ours) >= 3
    for _, *arguments in ours:
        assert build_parser().parse_args(arguments).command == arguments[0]


def test_own_text_at_defaults_is_led_to_fit(tmp_path: Path):
    text = (ROOT / "params.yaml").read_text()
    for changed, led in ((text, False), (text.replace("data/raw/sample", "/texts"), True)):
        (tmp_path / "params.yaml").write_text(changed)
        assert (
            any("tokenmill fit" in command for command, _ in after_training(4, root=tmp_path))
            is led
        )
    (tmp_path / "params.yaml").write_text(changed.replace("n_layer: 4", "n_layer: 5"))
    assert not any("tokenmill fit" in command for command, _ in after_training(4, root=tmp_path))


@pytest.mark.slow
def test_from_trained_to_committed_to_changed(finished: Project, monkeypatch: pytest.MonkeyPatch):
    trained = status(finished.root)
    assert trained.sentence.startswith("trained: 2 epochs")
    assert trained.commands == after_training(2, root=finished.root)
    assert "dvc exp run -S train.epochs=4" in commands(trained)
    summary = finished.run("python", "-m", "tokenmill", "summary").splitlines()
    assert all(
        any(line.strip().startswith(command) for line in summary) for command in commands(trained)
    )

    (finished.root / "metrics" / "new.json").write_text("{}")
    assert status(finished.root).commands == [COMMIT, *after_training(2, root=finished.root)]
    (finished.root / "metrics" / "new.json").unlink()

    finished.set(model__n_layer=2)
    changed = status(finished.root)
    assert changed.sentence == "to run: check, train, evaluate, report."
    assert commands(changed) == ["dvc repro", "dvc status"]

    monkeypatch.chdir(finished.root)
    main([])
